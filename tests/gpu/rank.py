#!/usr/bin/env python3
"""One rank of a job of PyTorch's torch.distributed. It does what its plan says, and tells what it saw.

It knows nothing of SHIFT, nor of faults. A line `waiting N` on standard output means that N things of the plan are
done, and that it goes on when a line comes on standard input; `progress N` tells the same without waiting.

The plan is a JSON file:
  seed      of all data
  groups    how many communicators of all ranks there are; things go round among them
  pauses    before which things the rank waits
  things    a list. {"op", "dtype", "bytes"}: a collective. {"steps", "bytes"}: so many small all_reduces, each of
            them timed. {"train": steps, ...}: see training.py
The result is a JSON file: for each thing the SHA-256 of its result, when it began and ended (CLOCK_MONOTONIC,
seconds), and of each step when it ended and how long it took.
"""

import argparse
import datetime
import hashlib
import json
import os
import sys
import time

import torch
import torch.distributed as dist

from training import Training

TIMEOUT = datetime.timedelta(seconds=int(os.environ.get("BED_TIMEOUT", "90")))
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "int64": torch.int64}


def digest(*tensors):
    """The SHA-256 of the tensors' bytes."""
    found = hashlib.sha256()
    for tensor in tensors:
        found.update(tensor.detach().contiguous().view(-1).view(torch.uint8).cpu().numpy().data)
    return found.hexdigest()


class Rank:
    def __init__(self, options, plan):
        self.rank, self.world = options.rank, options.world
        self.plan = plan
        self.device = torch.device("cuda:0" if options.backend == "nccl" else "cpu")
        self.groups = []

    def join(self, options):
        dist.init_process_group(options.backend, init_method="file://" + os.path.abspath(options.store),
                                rank=self.rank, world_size=self.world, timeout=TIMEOUT)
        self.groups = [dist.new_group(list(range(self.world)), timeout=TIMEOUT)
                       for _ in range(self.plan.get("groups", 1))]
        for group in self.groups:  # NCCL connects at the first use
            dist.all_reduce(torch.ones(1, device=self.device), group=group)
        self.synchronize()

    def synchronize(self):
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def data(self, index, rank, count, dtype):
        """What a rank puts into a collective. Every rank can make it for every other one."""
        generator = torch.Generator(device=self.device).manual_seed(
            (self.plan["seed"] * 1000003 + index) * 97 + rank)
        if dtype == torch.int64:
            return torch.randint(-(1 << 62), 1 << 62, (count,), dtype=dtype, device=self.device,
                                 generator=generator)
        return torch.randn(count, device=self.device, generator=generator).to(dtype)

    def collective(self, index, thing, group):
        """Runs one. Returns the tensors that it filled."""
        op, dtype, world = thing["op"], DTYPES[thing["dtype"]], self.world
        # So many elements for each rank, and at least one.
        count = max(1, thing["bytes"] // (torch.empty(0, dtype=dtype).element_size() * world)) * world
        mine = self.data(index, self.rank, count, dtype)
        empty = torch.full((count,), -1, dtype=dtype, device=self.device)
        self.synchronize()
        if op == "all_reduce":
            dist.all_reduce(mine, group=group)
            return [mine]
        if op == "broadcast":
            dist.broadcast(mine, src=index % world, group=group)
            return [mine]
        if op == "all_gather":
            parts = [torch.empty_like(mine) for _ in range(world)]
            dist.all_gather(parts, mine, group=group)
            return parts
        if op == "reduce_scatter":
            out = torch.empty(count // world, dtype=dtype, device=self.device)
            dist.reduce_scatter_tensor(out, mine, group=group)
            return [out]
        if op == "all_to_all":
            dist.all_to_all_single(empty, mine, group=group)
            return [empty]
        if op == "send_recv":
            send = dist.P2POp(dist.isend, mine, (self.rank + 1) % world, group)
            receive = dist.P2POp(dist.irecv, empty, (self.rank - 1) % world, group)
            for work in dist.batch_isend_irecv([send, receive]):
                work.wait()
            return [empty]
        raise ValueError(op)

    def steps(self, thing, group):
        """Small all_reduces one after the other. Returns the sum, and how long each took."""
        total = torch.zeros(max(1, thing["bytes"] // 4), device=self.device)
        times = []
        for step in range(thing["steps"]):
            begin = time.monotonic()
            part = torch.full_like(total, 0.001 * (step + 1) * (self.rank + 1))
            dist.all_reduce(part, group=group)
            total += part
            self.synchronize()
            end = time.monotonic()
            times.append((end, end - begin))
        return [total], times

    def run_one(self, index, thing):
        group = self.groups[index % len(self.groups)]
        if "train" in thing:
            training = Training(thing, self.plan["seed"], self.rank, self.device)
            training.run()
            return digest(*training.parameters()), training.times, training.losses
        if "steps" in thing:
            tensors, times = self.steps(thing, group)
        else:
            tensors, times = self.collective(index, thing, group), []
        self.synchronize()
        return digest(*tensors), times, []

    def run(self):
        results = []
        for index, thing in enumerate(self.plan["things"]):
            if index in self.plan.get("pauses", []):
                print("waiting %d" % index, flush=True)
                sys.stdin.readline()
            begin = time.monotonic()
            found, times, losses = self.run_one(index, thing)
            results.append({"thing": thing, "digest": found, "begin": begin, "end": time.monotonic(),
                            "times": times, "losses": losses})
            print("progress %d" % (index + 1), flush=True)
        return results


def versions(device):
    told = {"torch": torch.__version__}
    if device.type == "cuda":
        told.update(nccl=".".join(map(str, torch.cuda.nccl.version())), cuda=torch.version.cuda,
                    gpu=torch.cuda.get_device_name(0))
    return told


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--world", type=int, default=2)
    parser.add_argument("--backend", choices=["nccl", "gloo"], default="nccl")
    parser.add_argument("--store", required=True, help="a file by which the ranks find each other")
    parser.add_argument("--plan", required=True)
    parser.add_argument("--result", required=True)
    options = parser.parse_args()
    with open(options.plan) as file:
        rank = Rank(options, json.load(file))
    begin = time.monotonic()
    rank.join(options)
    joined = time.monotonic()
    print("joined", flush=True)
    results = rank.run()
    with open(options.result + ".new", "w") as file:
        json.dump({"versions": versions(rank.device), "join_s": joined - begin, "results": results}, file)
    os.replace(options.result + ".new", options.result)
    dist.destroy_process_group()
    print("done", flush=True)


if __name__ == "__main__":
    main()
