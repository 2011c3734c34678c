"""Makes remote calls with tensors over TensorPipe's InfiniBand transport alone, and checks every result.

Usage: rpc_check.py RANK ADDRESS:PORT ELEMENTS CALLS SEED. The address is that of rank 0, which calls; rank 1
answers.
"""

import sys

import torch
from torch.distributed import rpc


def scaled_sum(x, y, factor):
    return factor * x + y


def call_all(elements, calls, seed):
    generator = torch.Generator().manual_seed(seed)
    pending = []
    for number in range(calls):
        x = torch.randint(0, 1000, (elements,), generator=generator, dtype=torch.int64)
        y = torch.randint(0, 1000, (elements,), generator=generator, dtype=torch.int64)
        wanted = scaled_sum(x, y, number)
        if number % 3 == 0:  # several calls run at a time
            pending.append((rpc.rpc_async("rank1", scaled_sum, args=(x, y, number)), wanted))
        elif not torch.equal(rpc.rpc_sync("rank1", scaled_sum, args=(x, y, number)), wanted):
            raise SystemExit("rpc_check FAILED: call %d" % number)
    for number, (answer, wanted) in enumerate(pending):
        if not torch.equal(answer.wait(), wanted):
            raise SystemExit("rpc_check FAILED: asynchronous call %d" % number)


def main():
    meeting = sys.argv.pop(2)
    rank, elements, calls, seed = (int(word) for word in sys.argv[1:])
    options = rpc.TensorPipeRpcBackendOptions(
        num_worker_threads=4, rpc_timeout=60, init_method="tcp://" + meeting,
        _transports=["ibv"], _channels=["basic"])
    rpc.init_rpc("rank%d" % rank, rank=rank, world_size=2, rpc_backend_options=options)
    if rank == 0:
        call_all(elements, calls, seed)
        print("rpc_check ok: %d calls" % calls, flush=True)
    rpc.shutdown()


if __name__ == "__main__":
    main()
