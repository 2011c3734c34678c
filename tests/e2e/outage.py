#!/usr/bin/python3
"""An outage of every path, shorter than the patience that the programs ask for: they bear it, as they do on
the stock library, and longer than SHIFT_EXCHANGE_MS, which alone would not do. Meanwhile a query of their QPs is
answered at once.
"""

import sys
import time

from harness.options import script_parser
from harness.runs import run_on_fabric

from e2e.checker_pair import CheckerPair

# 1.07 s for each try, eight times.
PATIENT = ["--qp-timeout", "18"]
EXCHANGE_MS = 1000
OUTAGE_S = 3.0
NICS = ["a/mlx5_0", "a/mlx5_1"]


def run(fabric):
    traffic = CheckerPair(fabric, PATIENT, {"SHIFT_EXCHANGE_MS": str(EXCHANGE_MS)})
    for fault, healing in (("link-down", "link-up"), ("drop-data", "heal")):
        for nic in NICS:
            fabric.fault(nic, fault)
        time.sleep(OUTAGE_S / 2)
        traffic.client.tell("inspect")
        time.sleep(OUTAGE_S / 2)
        if "inspected" not in traffic.client.lines:
            raise SystemExit("FAILED: %s: a query waits for the end of the outage" % fault)
        traffic.client.lines.remove("inspected")
        if traffic.client.ended:
            raise SystemExit("FAILED: %s: the client did not bear it\n%s" % (fault, traffic.client.text()))
        for nic in NICS:
            fabric.fault(nic, healing)
        traffic.goes_on(200)
        print("right  %s: borne for %g s" % (fault, OUTAGE_S), flush=True)
    traffic.end()


def main():
    return run_on_fabric(script_parser(__doc__, "out/outage").parse_args(), run)


if __name__ == "__main__":
    sys.exit(main())
