"""A small transformer, trained with DistributedDataParallel on data that follows from a seed. All of it is
deterministic, so two runs differ only where the network changed a bit."""

import os
import time

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS is deterministic with it

# pylint: disable=wrong-import-position
import torch
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

VOCABULARY = 256


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.feed = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def attend(self, x):
        batch, length, width = x.shape
        q, k, v = (part.view(batch, length, self.heads, -1).transpose(1, 2)
                   for part in self.qkv(x).chunk(3, dim=-1))
        scores = (q @ k.transpose(-2, -1)) / (width // self.heads) ** 0.5
        future = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
        mixed = scores.masked_fill(future, float("-inf")).softmax(-1) @ v
        return self.out(mixed.transpose(1, 2).reshape(batch, length, width))

    def forward(self, x):
        x = x + self.attend(self.norms[0](x))
        return x + self.feed(self.norms[1](x))


class Transformer(nn.Module):
    """Predicts the next of 256 tokens."""

    def __init__(self, width, depth, heads, length):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, width)
        self.places = nn.Parameter(torch.zeros(length, width))
        self.blocks = nn.Sequential(*[Block(width, heads) for _ in range(depth)])
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, VOCABULARY))

    def forward(self, tokens):
        return self.head(self.blocks(self.tokens(tokens) + self.places))


class Training:
    """`thing` is {"train": steps, "width", "depth", "length", "batch"}. After run(), `losses` has the loss of each
    step as its exact text, and `times` has when it ended and the seconds that it took."""

    def __init__(self, thing, seed, rank, device):
        torch.use_deterministic_algorithms(True)
        torch.manual_seed(seed)
        self.thing, self.seed, self.rank, self.device = thing, seed, rank, device
        model = Transformer(thing["width"], thing["depth"], heads=4, length=thing["length"]).to(device)
        self.model = DistributedDataParallel(model)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=3e-4)
        self.losses, self.times = [], []

    def parameters(self):
        return list(self.model.parameters())

    def batch(self, step):
        """Sequences that count in steps of seven; every tenth token is drawn instead."""
        generator = torch.Generator().manual_seed((self.seed * 100003 + step) * 97 + self.rank)
        shape = (self.thing["batch"], self.thing["length"] + 1)
        drawn = torch.randint(0, VOCABULARY, shape, generator=generator)
        counted = (drawn[:, :1] + 7 * torch.arange(shape[1])) % VOCABULARY
        return torch.where(torch.rand(shape, generator=generator) < 0.1, drawn, counted).to(self.device)

    def run(self):
        for step in range(self.thing["train"]):
            tokens = self.batch(step)
            begin = time.monotonic()
            logits = self.model(tokens[:, :-1])
            loss = functional.cross_entropy(logits.reshape(-1, VOCABULARY), tokens[:, 1:].reshape(-1))
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.losses.append(loss.item().hex())  # waits for the GPU
            end = time.monotonic()
            self.times.append((end, end - begin))
            print("step %d" % (step + 1), flush=True)
