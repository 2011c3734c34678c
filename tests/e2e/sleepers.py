#!/usr/bin/python3
"""A program sleeps on its completion channel and on a TCP connection, and takes the work of both as it comes.
When its NIC fails and comes back, it stands still for no longer than the traffic takes to move.

The test `e2e_sleepers` calls this program. Time is judged with much room, and in all of several turns but one,
since a busy machine may be late in any of them. A layer that keeps back an event that the program has seen
announced stands still in nearly each.
"""

import os
import sys
import time

from harness.options import script_parser
from harness.runs import run_on_fabric

from e2e.checker_pair import CheckerPair

SLEEPY = ["--events", "--credits", "tcp", "--rate", "6000"]
TURNS = 5
# The layer keeps an event back for 250 ms at the longest.
BOUND_MS = 230


def gap_ms(moments, begin, end):
    """The longest time between two completions, in milliseconds of the monotonic clock."""
    inside = [begin] + [moment for moment in moments if begin <= moment <= end] + [end]
    return max(b - a for a, b in zip(inside, inside[1:]))


def now_ms():
    return time.monotonic() * 1000


def run(fabric, env=None):
    timeline = os.path.join(fabric.directory, "timeline.csv")
    traffic = CheckerPair(fabric, env=env, traffic=["--qps", "2", *SLEEPY, "--timeline", timeline])
    turns = []
    for _ in range(TURNS):
        begin = now_ms()
        fabric.fault("a/mlx5_0", "link-down")
        traffic.moved("asleep at the fault", "mlx5_1")
        fabric.fault("a/mlx5_0", "heal")
        traffic.moved("asleep on the way home", "mlx5_0")
        traffic.goes_on(2000)
        turns.append((begin, now_ms()))
    traffic.end()
    with open(timeline) as file:
        rows = [line.split(",") for line in file.read().splitlines()[1:]]
    moments = [float(moment) for moment, count in rows if int(count)]
    gaps = [gap_ms(moments, *turn) for turn in turns]
    print("the program stood still for %s ms" % ", ".join("%.0f" % gap for gap in gaps))
    if sorted(gaps)[1] > BOUND_MS:
        raise SystemExit("FAILED: the program stood still for more than %d ms in nearly each turn" % BOUND_MS)


def main():
    return run_on_fabric(script_parser(__doc__, "out/sleepers").parse_args(), run)


if __name__ == "__main__":
    sys.exit(main())
