#!/usr/bin/python3
"""A program sleeps on its completion channel and on a TCP connection, and takes the work of both as it comes.
When its NIC fails and comes back, it stands still for no longer than the traffic takes to move.

The test `e2e_sleepers` calls this program. Time is judged with much room, and in all of several turns but one,
since a busy machine may be late in any of them. What the switches take themselves, on a busy machine, does not
count. A layer that keeps back an event that the program has seen announced stands still in nearly each turn.
"""

import os
import sys
import time

from harness.checker import ENDS
from harness.options import script_parser
from harness.runs import run_on_fabric

from e2e.checker_pair import CheckerPair

SLEEPY = ["--events", "--credits", "tcp", "--rate", "6000"]
TURNS = 5
# The layer keeps an event back for 250 ms at the longest, from a moment in the switch on.
BOUND_MS = 150


def gap_ms(moments, begin, end):
    """The longest time between two completions, in milliseconds of the monotonic clock."""
    inside = [begin] + [moment for moment in moments if begin <= moment <= end] + [end]
    return max(b - a for a, b in zip(inside, inside[1:]))


def switch_ms(records, begin, end, fault=None):
    """The longest change of path that began in this span, from the fault on or from when it was wanted."""
    spans = [(record["evidence_ns"] / 1e6, record["end_ns"] / 1e6) for record in records]
    return max((last - (fault or first) for first, last in spans if begin <= first <= end), default=0)


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
        healed = now_ms()
        fabric.fault("a/mlx5_0", "heal")
        traffic.moved("asleep on the way home", "mlx5_0")
        traffic.goes_on(2000)
        turns.append((begin, healed, now_ms()))
    traffic.end()
    moves = fabric.records("switched", *ENDS)
    with open(timeline) as file:
        rows = [line.split(",") for line in file.read().splitlines()[1:]]
    moments = [float(moment) for moment, count in rows if int(count)]
    beyond = []
    for fault, healed, end in turns:
        away = gap_ms(moments, fault, healed), switch_ms(moves, fault, healed, fault)
        home = gap_ms(moments, healed, end), switch_ms(moves, healed, end)
        print("the program stood still for %.0f ms, of which the switch took %.0f, and %.0f ms, of which %.0f" % (
            *away, *home))
        beyond.append(max(away[0] - away[1], home[0] - home[1]))
    if sorted(beyond)[1] > BOUND_MS:
        raise SystemExit("FAILED: the program stood still for %d ms longer than its switch in nearly each turn" %
                         BOUND_MS)


def main():
    return run_on_fabric(script_parser(__doc__, "out/sleepers").parse_args(), run)


if __name__ == "__main__":
    sys.exit(main())
