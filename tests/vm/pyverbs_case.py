"""Runs rdma-core's own test suite (pyverbs) on a virtual device and on the bare one: each test that passes on
the bare device must pass on the virtual one.

The two runs go on at the same time, one on each machine; the suite needs one host only. As in tests/pyverbs,
a new process replaces the suite's process when that dies or one of its tests hangs.
"""

import collections
import glob
import json
import os
import time

from harness import TESTS, suite

TEST_SECONDS = 120
# These tests are for one vendor's devices or for memory of GPUs; here they would all be skipped.
FOREIGN = ("mlx5", "efa", "cuda")
# Tests that the layer cannot pass, or not yet. One that passes nevertheless is a problem, too.
KNOWN = {}


class Run:
    """One run of the suite on one machine. The caller must call poll() again and again."""

    def __init__(self, pair, host, layered, env=None):
        self.pair, self.host, self.layered, self.env = pair, host, layered, env
        self.outcomes, self.said = collections.OrderedDict(), {}
        self.over, self.number = False, 0
        self.shared = pair.machines[host].shared
        self.folder = os.path.join(self.shared, "suite")
        os.makedirs(self.folder)
        self._unpack()
        self._start()

    def _unpack(self):
        suite.unpack(suite.SUITE, self.folder)
        for word in FOREIGN:
            for path in glob.glob(os.path.join(self.folder, "tests", "test_%s*" % word)):
                os.unlink(path)

    def _start(self):
        self.number += 1
        self.report = os.path.join(self.shared, "report-%d" % self.number)
        with open(self.report, "w"):
            pass
        with open(os.path.join(self.folder, "done"), "w") as file:
            file.write("\n".join(self.outcomes))
        script = ("exec 9>>/run/shared/report-%d; exec %s %s/pyverbs/suite.py"
                  " --suite /run/shared/suite --report 9 --done /run/shared/suite/done"
                  " --device rxe0 --gid %s --seed 1") % (
                      self.number, suite.PYTHON, TESTS, self.pair.gid_index(self.host))
        self.program = self.pair.start(self.host, "pyverbs-%d" % self.number, ["bash", "-c", script],
                                       self.layered, self.env)
        self.read, self.running, self.changed = 0, None, time.monotonic()

    def _lines(self):
        with open(self.report) as file:
            file.seek(self.read)
            text = file.read()
        whole = text[:text.rfind("\n") + 1]
        self.read += len(whole)
        return [json.loads(line) for line in whole.splitlines()]

    def poll(self):
        ended = self.program.ended is not None  # this must come before the report is read
        for line in self._lines():
            self.changed = time.monotonic()
            if line["outcome"] == "end":
                self.over = True
            elif line["outcome"] == "started":
                self.running = line["test"]
            elif self.outcomes.get(line["test"], "passed") in ("passed", "skipped"):
                self.outcomes[line["test"]], self.said[line["test"]] = line["outcome"], line["text"]
        hangs = time.monotonic() - self.changed > TEST_SECONDS
        if self.over or not (ended or hangs):
            return
        if self.running is None:
            raise RuntimeError("the suite does not start: " + self.program.text()[-2000:])
        self.outcomes[self.running] = "hangs" if hangs else "dies"
        self.program.finish(0)
        self._start()

    def passed(self):
        return {test for test, outcome in self.outcomes.items() if outcome == "passed"}


def same_passes(pair, unused_cells):
    bare, layered = Run(pair, "a", False), Run(pair, "b", True)
    while not (bare.over and layered.over):
        if any(machine.gone for machine in pair.machines.values()):
            return "a machine died"
        for run in (bare, layered):
            if not run.over:
                run.poll()
        time.sleep(0.2)
    for name, run in (("bare", bare), ("layered", layered)):
        with open(os.path.join(run.shared, "pyverbs.json"), "w") as file:
            json.dump(run.outcomes, file, indent=1)
        print("    %-8s %s" % (name, dict(collections.Counter(run.outcomes.values()))), flush=True)
    lost = {test: layered.outcomes.get(test, "missing") for test in bare.passed() - layered.passed()}
    problems = ["%s: %s" % (test, outcome) for test, outcome in sorted(lost.items())
                if test not in KNOWN]
    problems += ["%s passes: %s" % (test, why) for test, why in KNOWN.items()
                 if test not in lost and test in bare.passed()]
    for test in sorted(set(KNOWN) & set(lost)):
        print("    %s: %s" % (test, KNOWN[test]), flush=True)
    # A test that fails on the bare device may fail on the virtual one, but must not end the process.
    broken = ("dies", "hangs")
    problems += ["%s %s" % (test, outcome) for test, outcome in layered.outcomes.items()
                 if outcome in broken and bare.outcomes.get(test) not in ("passed", *broken)]
    if not bare.passed():
        problems.append("nothing passed on the bare device")
    return "; ".join(problems)
