#!/usr/bin/python3
"""Runs the failover cases of this folder inside rdma-core's own test suite, on an emulated host with the layer.

The tests `rdma_core_suite` and `rdma_core_suite_planted` call this program. Each case must pass, or be skipped for
a reason that is in skips.json. With --plants the layer is one with planted bugs, and for each of them the case
that must find it has to fail; without the bug it has to pass. The exit status is 0 when all is good, 1 when it is
not, 3 when the suite is not installed, 4 after a wrong call.
"""

import argparse
import importlib.machinery
import json
import os
import subprocess
import sys
import tempfile

from harness import TESTS
from harness.build import Build
from harness.fabric import Fabric
from harness.suite import PYTHON, SUITE, unpack_failover

HERE = os.path.join(TESTS, "rdma-core")
# The folder pyverbs has the name of a package of Python's, so its script is loaded by its path.
suite = importlib.machinery.SourceFileLoader("suite", os.path.join(TESTS, "pyverbs", "suite.py")).load_module()

# bug: (the case that must find it, what the case must say)
PLANTS = {
    "counter_ignored": ("test_unsignaled_drop_acks", "The completion of receive"),
    "replay_delivered": ("TrafficTest.test_send_drop_acks", "The completion of receive"),
    "lose_completion": ("TrafficTest.test_send_drop_acks", "The completion is not that of the oldest request"),
    "completions_late": ("test_cq_events_link_down", "Failed to get CQ event"),
    "local_keys_untranslated": ("test_send_link_down", "status=4"),
    "remote_keys_untranslated": ("test_write_imm_link_down", "status=10"),
    "flushed_taken_for_over": ("test_exact_under_way", "status=12"),
    "atomic_result_made_up": ("test_exact_result_lost", "What atomic 10 has fetched"),
}
ATTEMPTS = 4


class Cases(suite.Runner):
    """Runs cases as the suite of pyverbs is run, where a process that dies or hangs is replaced."""

    def __init__(self, build, folder, only, seed=1):
        super().__init__(argparse.Namespace(device="mlx5_0", gid=3, seed=seed, only=only), folder, True)
        self.build = build

    def run(self):
        with Fabric(self.build) as fabric:
            while not self.run_process(fabric):
                pass
        return self.outcomes


def plant(build, folder, bug):
    """Returns what is wrong with the case that must find the bug, or ''."""
    case, says = PLANTS[bug]
    for attempt in range(1, ATTEMPTS + 1):
        outcomes = {}
        for name in (bug, "none"):
            os.environ["SHIFT_PLANT"] = name
            os.environ["RDMA_TEST_SHIFT_BOUND"] = "5"  # a bug may also show as a request that never completes
            (outcomes[name],) = Cases(build, folder, [case], attempt).run().values()
        last = outcomes[bug][1].strip().split("\n")[-1][:160]
        print("%s, attempt %d: %s %s (%s), and %s without the bug" % (
            bug, attempt, case, outcomes[bug][0], last, outcomes["none"][0]), flush=True)
        if outcomes["none"][0] != "passed":
            return "%s %s without the bug:\n%s" % (case, outcomes["none"][0], outcomes["none"][1])
        if outcomes[bug][0] in ("failed", "error") and suite.re.search(says, outcomes[bug][1]):
            return ""
    return "%s has not found %s" % (case, bug)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build", help="build directory")
    parser.add_argument("--layer", help="use the bin/shift-run of this prefix")
    parser.add_argument("--only", action="append", default=[],
                        help="only cases, or bugs, whose name contains this")
    parser.add_argument("--json", help="write the results to this file")
    parser.add_argument("--verbose", action="store_true", help="print all that failed cases said")
    parser.add_argument("--plants", action="store_true", help="whether the cases find planted bugs")
    options = parser.parse_args()
    installed = subprocess.run([PYTHON, "-c", "import pyverbs.device"], capture_output=True)
    if installed.returncode != 0 or not os.path.isdir(SUITE):
        print("skipped: needs the packages python3-pyverbs and rdma-core (with documentation)")
        return 3
    build = Build(options.build, options.layer)
    build.require(build.shift_run)
    os.environ["CXEMU"] = build.cxemu
    os.environ["RDMA_TEST_FAULT_CMD"] = os.path.join(HERE, "fault_cxemu.sh")
    os.environ.setdefault("SHIFT_LOG", "error")
    with tempfile.TemporaryDirectory(prefix="rdma-core-") as folder:
        unpack_failover(folder)
        # The watching process kills the suite's at the end, which then does not remove a file of its own.
        os.environ["SHIFT_EVENTS"] = os.path.join(folder, "events")
        if options.plants:
            bugs = [bug for bug in PLANTS if not options.only or any(word in bug for word in options.only)]
            problems = [problem for problem in (plant(build, folder, bug) for bug in bugs) if problem]
            print("\n".join(problems) or "all planted bugs are found")
            return 1 if problems or not bugs else 0
        outcomes = Cases(build, folder, options.only).run()
    with open(os.path.join(HERE, "skips.json")) as file:
        problems = suite.judge(outcomes, json.load(file), not options.only)
    if not any(outcome[0] == "passed" for outcome in outcomes.values()):
        problems.append("nothing passed")
    suite.show(outcomes, problems, options)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
