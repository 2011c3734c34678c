#!/usr/bin/python3
"""A program makes its CQ for signaled requests only, and has many without a signal under way when its NIC fails:
the traffic moves, and comes home to a NIC whose CQ still works.

The test `e2e_short_cq` calls this program. Without the layer's own room in the CQ the fence overruns it.
"""

import sys
import time

from harness.options import script_parser
from harness.runs import run_on_fabric

from e2e.checker_pair import CheckerPair

# 512 requests of a QP may be under way, 8 of them with a signal.
BUSY = ["--qps", "2", "--op", "write", "--size", "512", "--depth", "512", "--signal-every", "64", "--short-cq",
        "--rate", "20000"]
FILLING_S = 0.2  # until the NIC gives up, requests pile up


def run(fabric, env=None):
    traffic = CheckerPair(fabric, env={"SHIFT_RC_TIMEOUT_MAX": "16", **(env or {})}, traffic=BUSY)
    for turn in range(2):
        fabric.fault("a/mlx5_0", "drop-acks")
        time.sleep(FILLING_S)
        traffic.moved("many requests without a signal", "mlx5_1")
        fabric.fault("a/mlx5_0", "heal")
        traffic.moved("back on the CQ of turn %d" % turn, "mlx5_0")
    traffic.end()


def main():
    return run_on_fabric(script_parser(__doc__, "out/short-cq").parse_args(), run)


if __name__ == "__main__":
    sys.exit(main())
