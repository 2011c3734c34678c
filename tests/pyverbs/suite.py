#!/usr/bin/python3
"""Runs rdma-core's own test suite (pyverbs), unmodified, on an emulated NIC.

The tests `pyverbs` and `pyverbs_layer` call this program. Every test of the suite must pass, or the suite must
skip it for a reason that is in skips.json. With --layer the device is SHIFT's virtual one over a device group,
and every test must end as without the layer, apart from what differences.json explains. The exit status is 0
when all is good, 1 when something failed or a table does not fit, 3 when the suite is not installed, 4 after a
wrong call.

The suite runs in one process, as its own runner does it. When that process dies or one of its tests hangs, the
test counts as an error, and another process goes on with the next one.
"""

import argparse
import collections
import fnmatch
import json
import os
import random
import re
import select
import signal
import subprocess
import sys
import tempfile
import time

from harness import TESTS
from harness.build import Build
from harness.fabric import Fabric
from harness.report import write_json
from harness.suite import PYTHON, SUITE, unpack

TEST_SECONDS = 60


# ---- The process that runs tests.


def run_suite(options):
    """Runs the tests that `options.done` does not name, and reports each as a line of JSON."""
    import importlib.machinery
    import unittest
    report = os.fdopen(options.report, "w", buffering=1)
    os.set_inheritable(report.fileno(), False)
    sys.path.insert(0, os.path.join(options.suite, "tests"))
    sys.argv = ["tests", "--dev", options.device, "--gid", str(options.gid)]
    tests = importlib.machinery.SourceFileLoader(
        "tests", os.path.join(options.suite, "tests", "__init__.py")).load_module()
    tests.parser.parse_args()

    class Reporter(unittest.TestResult):
        def say(self, test, outcome, text=""):
            print(json.dumps({"test": test.id(), "outcome": outcome, "text": str(text)[-4000:]}),
                  file=report)

        def startTest(self, test):
            super().startTest(test)
            random.seed("%d %s" % (options.seed, test.id()))
            self.failed = False
            self.say(test, "started")

        def addSuccess(self, test):
            self.say(test, "passed")

        def addError(self, test, err):
            self.say(test, "error", self._exc_info_to_string(err, test))

        def addFailure(self, test, err):
            self.say(test, "failed", self._exc_info_to_string(err, test))

        def addSubTest(self, test, subtest, err):
            if err is not None:
                self.say(test, "failed", self._exc_info_to_string(err, test))

        def addSkip(self, test, reason):
            self.say(test, "skipped", reason)

    def flatten(suite):
        for one in suite:
            yield from flatten(one) if isinstance(one, unittest.TestSuite) else [one]

    with open(options.done) as file:
        done = set(file.read().split("\n"))
    everything = flatten(unittest.TestLoader().loadTestsFromModule(tests))
    wanted = [test for test in everything if test.id() not in done and
              (not options.only or any(word in test.id() for word in options.only))]
    unittest.TestSuite(wanted).run(Reporter())
    report.write('{"test": "", "outcome": "end"}\n')


# ---- The process that watches.


class Runner:
    """Collects {test: [outcome, text, seconds]}."""

    def __init__(self, options, suite, layer):
        self.options, self.suite, self.layer = options, suite, layer
        self.outcomes = collections.OrderedDict()

    def run(self):
        with Fabric(Build(self.options.build)) as fabric:
            while not self.run_process(fabric):
                pass
        return self.outcomes

    def run_process(self, fabric):
        """Runs one process. Returns True when all is done, and False when the process must be replaced."""
        done = os.path.join(self.suite, "done")
        with open(done, "w") as file:
            file.write("\n".join(self.outcomes))
        reader, writer = os.pipe()
        argv = [PYTHON, os.path.abspath(__file__), "--suite", self.suite, "--report", writer,
                "--done", done, "--device", self.options.device, "--gid", self.options.gid,
                "--seed", self.options.seed]
        for word in self.options.only:
            argv += ["--only", word]
        log = os.path.join(self.suite, "log")
        with open(log, "w") as output:
            process = subprocess.Popen(
                fabric.command("a", argv, self.layer), pass_fds=[writer], stdin=subprocess.DEVNULL,
                stdout=output, stderr=output, start_new_session=True)
        os.close(writer)
        try:
            return self.follow(process, reader, log)
        finally:
            os.close(reader)
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()

    def follow(self, process, reader, log):
        running, started, buffer = None, time.monotonic(), b""
        while True:
            left = started + TEST_SECONDS - time.monotonic()
            ready = left > 0 and select.select([reader], [], [], left)[0]
            data = os.read(reader, 65536) if ready else b""
            if not data:
                problem = "hangs" if not ready else "died with status %s" % process.wait()
                with open(log, errors="replace") as file:
                    problem += "\n" + file.read()[-2000:]
                if running is None:  # the suite was not even loaded, so there is no next test
                    raise SystemExit("the suite %s" % problem)
                self.outcomes[running] = ["error", problem, time.monotonic() - started]
                return False
            buffer += data
            *lines, buffer = buffer.split(b"\n")
            for line in lines:
                event = json.loads(line)
                if event["outcome"] == "end":
                    return True
                now = time.monotonic()
                if event["outcome"] == "started":
                    running, started = event["test"], now
                    continue
                old = self.outcomes.get(event["test"])
                if old is None or old[0] in ("passed", "skipped"):
                    self.outcomes[event["test"]] = [event["outcome"], event["text"], now - started]
                started = now


# ---- The tables.


def entries_for(test, outcome, table):
    """The numbers of the entries that explain why the test ended like this."""
    return [number for number, entry in enumerate(table)
            if any(fnmatch.fnmatchcase(test, "tests." + pattern) for pattern in entry["tests"])
            and entry.get("outcome", "skipped") == outcome[0]
            and re.search(entry["says"], outcome[1])]


def explain(test, outcome, table, used):
    """Returns the problem, or None after adding to the outcome why it is right."""
    known = entries_for(test, outcome, table)
    if len(known) == 1:
        used.add(known[0])
        outcome.append(table[known[0]]["why"])
        return None
    last = outcome[1].strip().split("\n")[-1][:200]
    return "%s %s, and %s of the table explains it: %s" % (
        test, outcome[0], "more than one entry" if known else "no entry", last)


def unused(table, used):
    return ["nothing is explained any more by the entry %r" % entry["why"]
            for number, entry in enumerate(table)
            if number not in used and not entry.get("machine")]


def judge(outcomes, table, complete):
    """Returns problems as lines; adds to every skip why it is right."""
    problems, used = [], set()
    for test, outcome in outcomes.items():
        if outcome[0] != "passed":
            problems.append(explain(test, outcome, table, used))
    return [problem for problem in problems if problem] + (unused(table, used) if complete else [])


def compare(bare, outcomes, table, complete):
    """Returns problems with tests that ended in another way than on the bare NIC, as lines."""
    problems, used = [], set()
    for test in sorted(bare.keys() | outcomes.keys()):
        if test not in bare or test not in outcomes:
            problems.append("%s ran only %s the layer" % (test, "without" if test in bare else "with"))
        elif bare[test] != outcomes[test][0]:
            problems.append(explain(test, outcomes[test], table, used))
    return [problem for problem in problems if problem] + (unused(table, used) if complete else [])


def bare_outcomes(options, directory):
    """{test: outcome} without the layer, from an earlier run if there is one."""
    if options.bare and os.path.exists(options.bare):
        with open(options.bare) as file:
            tests = {test: one["outcome"] for test, one in json.load(file)["tests"].items()}
        return {test: outcome for test, outcome in tests.items()
                if not options.only or any(word in test for word in options.only)}
    return {test: one[0] for test, one in Runner(options, directory, False).run().items()}


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", default="build", help="where cxemu was built")
    parser.add_argument("--only", action="append", default=[],
                        help="only tests whose name contains this")
    parser.add_argument("--device", default="mlx5_0")
    parser.add_argument("--gid", type=int, default=3)
    parser.add_argument("--layer", action="store_true", help="run on the virtual device, and compare")
    parser.add_argument("--bare", help="with --layer: what --json wrote about the bare device")
    parser.add_argument("--seed", type=int, default=1, help="seed of what the suite chooses at random")
    parser.add_argument("--json", help="write the results to this file")
    parser.add_argument("--verbose", action="store_true", help="print all that failed tests said")
    parser.add_argument("--suite", default=SUITE, help=argparse.SUPPRESS)
    parser.add_argument("--report", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--done", help=argparse.SUPPRESS)
    return parser.parse_args()


def show(outcomes, problems, options):
    for test, outcome in outcomes.items():
        why = ": " + outcome[3] if len(outcome) > 3 else ""
        print("%-8s %6.2f s  %s%s" % (outcome[0], outcome[2], test[len("tests."):], why))
        if options.verbose and outcome[0] in ("failed", "error"):
            print(outcome[1])
    counts = collections.Counter(outcome[0] for outcome in outcomes.values())
    for problem in problems:
        print("PROBLEM: " + problem)
    print("%d tests: %d passed, %d failed, %d errors, %d skipped; %d problems" % (
        len(outcomes), counts["passed"], counts["failed"], counts["error"], counts["skipped"],
        len(problems)))
    write_json(options.json, {
        "tests": {test: {"outcome": o[0], "text": o[1], "seconds": round(o[2], 3),
                         "why": o[3] if len(o) > 3 else ""} for test, o in outcomes.items()},
        "problems": problems})


def main():
    options = parse()
    if options.report is not None:
        run_suite(options)
        return 0
    installed = subprocess.run([PYTHON, "-c", "import pyverbs.device"], capture_output=True)
    if installed.returncode != 0 or not os.path.isdir(options.suite):
        print("skipped: needs the packages python3-pyverbs and rdma-core (with documentation)")
        return 3
    build = Build(options.build)
    build.require(*([build.shift_run] if options.layer else []))
    with open(os.path.join(TESTS, "pyverbs", "differences.json" if options.layer else "skips.json")) as file:
        table = json.load(file)
    with tempfile.TemporaryDirectory(prefix="pyverbs-") as directory:
        unpack(options.suite, directory)
        bare = bare_outcomes(options, directory) if options.layer else None
        outcomes = Runner(options, directory, options.layer).run()
    if options.layer:
        problems = compare(bare, outcomes, table, not options.only)
    else:
        problems = judge(outcomes, table, not options.only)
    if not any(outcome[0] == "passed" for outcome in outcomes.values()):
        problems.append("nothing passed")
    show(outcomes, problems, options)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
