"""The rows of the client matrix: unmodified programs with enough to do for a fault in mid-run.

Command lines and judges are those of tests/programs; the counts are here. `packets` is how many packets cross
the wire at least; the moment of the fault and the work after it are measured by it.
"""

import dataclasses
import math
import re
from typing import Callable

from harness.case import Case

from programs.cases_jobs import gloo, mpi, torch_rpc
from programs.cases_ucx import io_demo, ucp, uct
from programs.cases_verbs import perftest, pingpong

MTU = 4096
MPI_ROUND = r"^mpi_check: round \d+ of \d+ is over$"


@dataclasses.dataclass(frozen=True)
class Row:
    name: str
    make: Callable[[int], Case]  # make(scale): the program with `scale` times the work
    packets: int
    qps: int = 1         # how many of each process must have found their peers before the fault
    check: bool = False  # cheap and typical: an ordinary check draws its rows from these
    verifies: bool = False  # the program itself compares every byte
    sleeps: bool = False    # it waits for completion events
    ready: str = ""         # the fault waits for this pattern in the program's output
    told: str = ""          # the pattern of the number and the time of each exchange or round in its output
    told_us: float = 0      # what such a time is in microseconds: a latency may be half of an exchange

    def seen_ms(self, texts, share):
        """How long the program stood still at most, by its own words, after this share of its work; None when it
        does not tell."""
        longest = 0.0
        for text in texts if self.told else []:
            found = [(int(number), float(time)) for number, time in re.findall(self.told, text, re.M)]
            last = max((number for number, _ in found), default=0)
            longest = max([longest] + [time for number, time in found if number >= share * last])
        # perftest tells 0 or inf where it could not find out how fast the processor's clock is.
        return longest * self.told_us / 1000 if 0 < longest < math.inf else None

    def case(self, scale, seconds):
        case = self.make(scale)
        case.packets, case.seconds, case.quiet = self.packets * scale, seconds, False
        return case


def perf(tool, *options, n, size, check=False):
    """A bandwidth tool counts messages, a latency tool exchanges of two packets and two acknowledgements."""
    options = [str(option) for option in options]
    qps = int(options[options.index("-q") + 1]) if "-q" in options else 1
    packets = n * max(1, size // MTU)
    if tool.endswith("_bw"):
        packets *= qps * (2 if "-b" in options else 1)
    else:
        packets *= 2 if "read" in tool else 4
    shown = [tool] + options + ([] if "atomic" in tool else ["-s %d" % size])
    if tool.endswith("_bw"):
        return Row(" ".join(shown), lambda scale: perftest(tool, *options, n=n * scale, size=size),
                   packets, qps, check)
    # The longest latency in the summary is the second longest; with -U a line tells of each. All but READs count
    # half of an exchange.
    return Row(" ".join(shown), lambda scale: perftest(tool, *options, "-U", n=n * scale, size=size),
               packets, qps, check, sleeps="-e" in options, told=r"^(\d+), ([0-9.]+|inf)$",
               told_us=1 if "read" in tool else 2)


# An exchange is 4 KiB each way, in packets of 1 KiB.
def pong(kind, *options, n, qps=1, check=False):
    return Row(" ".join(["ibv_%s_pingpong" % kind] + [str(option) for option in options]),
               lambda scale: pingpong(kind, *options, n=n * scale), 10 * n, qps, check, "-c" in options)


def benchmark(make, transport, test, *options, n, packets, check=False):
    case = make(transport, test, *options, n=n)
    return Row(case.name, lambda scale: make(transport, test, *options, n=n * scale), packets, 1, check)


ROWS = [
    perf("ib_write_bw", n=15000, size=65536, check=True),
    perf("ib_write_bw", "-q", 4, "-b", n=2500, size=65536, check=True),
    perf("ib_write_bw", "-l", 16, n=80000, size=4096, check=True),
    perf("ib_write_bw", n=200000, size=64),
    perf("ib_write_lat", n=4000, size=64, check=True),
    perf("ib_send_bw", n=15000, size=65536, check=True),
    perf("ib_send_bw", "-e", n=10000, size=65536, check=True),
    perf("ib_send_bw", "--use-srq", "-q", 2, n=20000, size=4096, check=True),
    perf("ib_send_lat", n=4000, size=64),
    perf("ib_read_bw", n=20000, size=32768, check=True),
    perf("ib_read_lat", "-e", n=4000, size=64),
    pong("rc", "-c", n=3000, check=True),
    pong("rc", "-c", "-e", "-N", n=2500, check=True),
    pong("rc", "-c", "-t", n=2500),
    pong("srq", "-c", "-q", 4, n=1500, qps=4, check=True),
    pong("srq", "-c", "-e", "-q", 4, n=1000, qps=4),
    benchmark(uct, "rc_verbs", "put_lat", "-s", 8, n=10000, packets=40000, check=True),
    benchmark(uct, "rc_verbs", "am_lat", "-s", 8, n=10000, packets=40000, check=True),
    benchmark(uct, "rc_verbs", "am_bw", "-s", 8, n=100000, packets=100000),
    benchmark(uct, "rc_verbs", "put_bw", "-s", 65536, "-D", "zcopy", n=10000, packets=160000),
    benchmark(uct, "rc_verbs", "get", "-s", 65536, "-D", "zcopy", n=4000, packets=64000),
    benchmark(ucp, "rc_v", "tag_bw", "-s", 1 << 20, n=500, packets=100000),
    benchmark(ucp, "rc_v", "stream_bw", "-s", 65536, n=5000, packets=80000),
    # An exchange has a request, data and an answer; a busy machine sends few acknowledgements.
    Row("io_demo -q", lambda scale: io_demo("rc_v", exchanges=8000 * scale), 24000, check=True,
        verifies=True),
    # halving_doubling is not here: it waits for no send, so it overruns its own send queue of 8 requests
    # (ENOMEM) when acknowledgements are missing while messages arrive, with the stock library, too.
    Row("Gloo allreduce ring", lambda scale: gloo("ring", 2, 65536, 40 * scale, meet=True), 40000, check=True,
        verifies=True, sleeps=True, told=r"round (\d+) took ([0-9.]+) ms$", told_us=1000),
    # UCX connects each of its workers over UD, which is not protected: a fault in the middle of that ends the
    # program, with the stock library, too. Open MPI connects at first use, so each has met all after a round.
    Row("Open MPI over UCX, 2 ranks", lambda scale: mpi("rc_v", "ab", rounds=6 * scale), 20000,
        verifies=True, ready=MPI_ROUND),
    Row("Open MPI over UCX, messages, 4 ranks",
        lambda scale: mpi("rc_v", "abab", rounds=4 * scale, what="messages"), 15000, verifies=True,
        ready=MPI_ROUND),
    # TensorPipe always takes GID index 0 of the first NIC, which is link-local.
    Row("PyTorch RPC (TensorPipe ibv)", lambda scale: torch_rpc(16384, 200 * scale), 10000, verifies=True),
]

# These are not protected: they work as with the stock library (C10).
OTHER_TYPES = [
    Row("ib_send_bw -c UD", lambda scale: perftest("ib_send_bw", "-c", "UD", n=2000, size=1024), 2000,
        check=True),
    Row("ib_send_bw -c UD --use-srq",
        lambda scale: perftest("ib_send_bw", "-c", "UD", "--use-srq", n=2000, size=1024), 2000,
        check=True),
    Row("ib_write_bw -c UC", lambda scale: perftest("ib_write_bw", "-c", "UC", n=2000, size=1024), 2000,
        check=True),
    Row("ibv_uc_pingpong -c", lambda scale: pingpong("uc", "-c", n=500), 1000),
    Row("ibv_ud_pingpong -c", lambda scale: pingpong("ud", "-c", n=500), 1000),
]
