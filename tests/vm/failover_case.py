"""Runs the failover cases of tests/rdma-core in rdma-core's own suite, on soft-RoCE: the faults of a real link,
and connections of rdma_cm.

One machine is enough, whose two rxe devices back each other. The suite is run as in pyverbs_case.
"""

import collections
import json
import os
import re
import time

from harness import TESTS, suite
from vm.pyverbs_case import Run

FAULT = os.path.join(TESTS, "rdma-core", "fault_link.py")
# Each case must pass, or say one of these when it is skipped.
SKIPS = {
    r"^A real link does not lose packets": "lost packets of one direction",
    r"^rxe0 is not on a PCI bus$": "software devices have no bus",
}


class FailoverRun(Run):
    def _unpack(self):
        suite.unpack_failover(self.folder)


def failover_cases(pair, unused_cells):
    run = FailoverRun(pair, "a", True, {"RDMA_TEST_FAULT_CMD": FAULT, "RDMA_TEST_SHIFT_BOUND": "60"})
    while not run.over:
        if pair.machines["a"].gone:
            return "the machine died"
        run.poll()
        time.sleep(0.2)
    with open(os.path.join(run.shared, "failover.json"), "w") as file:
        json.dump({test: [outcome, run.said.get(test)] for test, outcome in run.outcomes.items()}, file, indent=1)
    print("    %s" % dict(collections.Counter(run.outcomes.values())), flush=True)
    problems = ["%s: %s" % (test, run.said.get(test, outcome).strip().split("\n")[-1])
                for test, outcome in run.outcomes.items()
                if outcome != "passed" and not (outcome == "skipped" and any(
                    re.search(known, run.said[test]) for known in SKIPS))]
    if "passed" not in run.outcomes.values():
        problems.append("nothing passed")
    return "; ".join(problems)
