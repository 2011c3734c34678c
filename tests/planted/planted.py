#!/usr/bin/python3
"""Checks that the campaign's judge, or that of object life, catches every planted bug, and that the runs pass
without the bug.

The layer under test is built with SHIFT_PLANTED_BUGS; SHIFT_PLANT names the bug to switch on. A test in
tests/planted/CMakeLists.txt calls this program with some of the bugs, which SHIFT_TEST_SEED draws; --only NAME
tests one bug.
"""

import argparse
import os
import random
import sys

from harness import pauses
from harness.build import Build
from harness.options import layer_add, script_parser
from harness.runs import run_all, run_on_fabric

from e2e import cells, commands, drain, flush, regions, short_cq, sleepers, witness
from e2e.judge import run_cell
from life import life

# A bug shows itself as wrong data, counts or completions, or as an error that should have been masked.
WRONG = {"violation", "hang"}
ANY = WRONG | {"an error reached the program"}

# bug: (kind of run, fault, operation, the problems that it may show as)
PLANTS = {
    "no_fence": ("late_packets", cells.LATE, "write_imm", WRONG),
    "counter_ignored": ("masked", "drop-acks", "send_imm", WRONG),
    "replay_delivered": ("masked", "drop-acks", "write_imm", WRONG),
    "local_keys_untranslated": ("masked", "link-down", "mixed", ANY),
    # Only this problem counts, because a second path could hide the bug.
    "remote_keys_untranslated": ("masked", "link-down", "write", {"client met a remote access error"}),
    "lose_completion": ("masked", "drop-acks", "send_imm", WRONG),
    "patience_always_bounded": ("peer_stock_pause", "drop-data", "write_imm", ANY),
    "auto_hears_nothing": ("masked", "drop-acks", "send_imm", {witness.RAN_TWICE}),
}
# The modes of those whose mode is another one than relaxed.
MODES = {"auto_hears_nothing": "auto"}
# bug: (whose judge, what the judge must say)
LIFE_PLANTS = {
    "busy_forgotten": ("life", "a channel in use: it went"),
    "replay_delivered": ("life", "instead of"),
    "own_by_number": ("life", "sends complete in another order"),
}
# bug: (the test that shows it, what its program must say)
SCENARIO_PLANTS = {
    "cq_not_grown": (short_cq, "CQ error"),
    "event_kept_long": (sleepers, "stood still"),
    "read_back_skipped": (flush, "payload-mismatch"),
    "read_back_passed_over": (flush, "payload-mismatch"),
    "drain_not_awaited": (drain, "posted again"),
    "keys_gone_ignored": (regions, "wrong-bytes"),
    "fence_waits_for_command": (commands, "the link of a NIC that hangs: not within"),
}
# bug: (how the program waits, what the judge of pauses must say of its class)
PAUSE_PLANTS = {
    "completions_late": ("polls", "FAILED"),
    "event_kept_long": ("sleeps", "FAILED"),
}
ATTEMPTS = 8


def cell_for(bug, attempt):
    kind, fault, op, _ = PLANTS[bug]
    cell = cells.make(1000 + attempt, list(PLANTS).index(bug), kind, fault, op, "a", "classic")
    # The traffic is plain and busy: what the bug breaks must be in flight at the fault.
    cell.options = ["--qps", "2", "--depth", "64", "--rate", "8000", "--size", "2000",
                    "--random-size", "--signal-every", "4", "--seed", str(attempt)]
    if kind == "peer_stock_pause":
        cell.options += cells.PATIENT
    cell.at = 200 + 100 * attempt
    return cell


class Check:
    """One bug: the run that catches it, and the healthy twin of that run. `lines` is the report."""

    def __init__(self, options, name, bug):
        self.options = options
        self.name = name
        self.bug = bug
        self.lines = [name + ":"]

    def run(self, build, attempt, planted):
        directory = os.path.join(self.options.out, "%s-%d-%s" % (
            self.bug, attempt, "planted" if planted else "healthy"))
        env = {"SHIFT_PLANT": self.bug if planted else "none", "SHIFT_MODE": MODES.get(self.bug, "relaxed")}
        result = run_cell(build, cell_for(self.bug, attempt), directory, env)
        self.lines.append("  %s, attempt %d: %s (exit codes %s and %s)" % (
            "planted" if planted else "healthy", attempt, ", ".join(result.problems) or "right",
            *result.codes))
        return set(result.problems)

    def caught(self, build):
        """True when the bug is caught and the healthy twin of the run that caught it passes."""
        wanted = PLANTS[self.bug][3]
        for attempt in range(ATTEMPTS):
            if self.run(build, attempt, True) & wanted:
                return not self.run(build, attempt, False)
        return False


class LifeCheck(Check):
    """As Check, for the stress of object life."""

    def run(self, build, attempt, planted):
        """What the judge of object life complained of; [] when the run was right."""
        name = "life-%s-%d-%s" % (self.bug, attempt, "planted" if planted else "healthy")
        one = argparse.Namespace(build=self.options.build, layer=self.options.layer, seconds=4, threads=6,
                                 seed=attempt, out=os.path.join(self.options.out, name),
                                 env={"SHIFT_PLANT": self.bug if planted else "none"})
        problems = []
        code = run_on_fabric(one, lambda fabric: life.run(fabric, one, problems, self.lines.append))
        return problems or ["exit code %d" % code] if code != 0 else []

    def caught(self, build):
        wanted = LIFE_PLANTS[self.bug][1]
        for attempt in range(1, ATTEMPTS + 1):
            if any(wanted in problem for problem in self.run(build, attempt, True)):
                return not self.run(build, attempt, False)
        return False


class ScenarioCheck(Check):
    """As Check, for a test with one fixed course of events."""

    def run(self, build, attempt, planted):
        """What the test complained of; "" when it passed."""
        name = "%s-%d-%s" % (self.bug, attempt, "planted" if planted else "healthy")
        one = argparse.Namespace(build=self.options.build, layer=self.options.layer,
                                 out=os.path.join(self.options.out, name))
        env = {"SHIFT_PLANT": self.bug if planted else "none"}
        try:
            run_on_fabric(one, lambda fabric: SCENARIO_PLANTS[self.bug][0].run(fabric, env))
        except SystemExit as failure:
            self.lines.append("  %s: %s" % (name, failure))
            return str(failure)
        self.lines.append("  %s: right" % name)
        return ""

    def caught(self, build):
        """True when the test refuses the bug, and not its healthy twin. Some judge time, and a machine that has
        too much to do can make the twin fail once."""
        for attempt in range(ATTEMPTS):
            if SCENARIO_PLANTS[self.bug][1] in self.run(build, attempt, True):
                return any(not self.run(build, again, False) for again in range(2))
        return False


class PauseCheck(Check):
    """As Check, for the judge of pauses, which needs several runs. On a busy machine it does not judge; then the
    check says so, and proves nothing."""

    def run(self, build, attempt, planted):
        """The verdict on a class of runs."""
        waits = PAUSE_PLANTS[self.bug][0]
        measured = []
        for number, op in enumerate(cells.OPS):
            fault = ("link-down", "kill")[number % 2]
            cell = cells.make(2000 + attempt, number, "masked", fault, op, "a", "classic")
            cells.pace(cell, waits)
            directory = os.path.join(self.options.out, "pause-%s-%d-%s-%d" % (
                self.bug, attempt, "planted" if planted else "healthy", number))
            result = run_cell(build, cell, directory, {"SHIFT_PLANT": self.bug if planted else "none"})
            measured += [result.pause] if result.pause else []
        verdicts = pauses.judge(measured, build.slowed_by())
        text = verdicts[0].text() if verdicts else "not judged: no run came to its end"
        self.lines.append("  %s, attempt %d: %s" % ("planted" if planted else "healthy", attempt, text))
        return text

    def caught(self, build):
        """True when the judge refuses the bug, and not its healthy twin. A late machine can make the twin fail
        once."""
        wanted, unjudged = PAUSE_PLANTS[self.bug][1], 0
        for attempt in range(ATTEMPTS):
            planted = self.run(build, attempt, True)
            if wanted in planted:
                return any(wanted not in self.run(build, again, False) for again in range(2))
            unjudged += "not judged" in planted
        return unjudged == ATTEMPTS


def main():
    parser = script_parser(__doc__, "out/planted")
    layer_add(parser, "build/test/planted")
    parser.add_argument("--jobs", type=int, default=1, help="bugs side by side")
    parser.add_argument("--only", choices=sorted(
        PLANTS.keys() | LIFE_PLANTS.keys() | SCENARIO_PLANTS.keys() | PAUSE_PLANTS.keys()))
    parser.add_argument("--few", type=int, default=0, help="so many bugs, drawn by SHIFT_TEST_SEED")
    options = parser.parse_args()
    build = Build(options.build, options.layer)
    build.require(build.shift_run, build.traffic, build.once, build.nccl, build.life, build.regions)
    # Those of object life take longest.
    checks = [LifeCheck(options, "life, " + bug, bug) for bug in LIFE_PLANTS]
    checks += [Check(options, bug, bug) for bug in PLANTS]
    checks += [ScenarioCheck(options, bug, bug) for bug in SCENARIO_PLANTS]
    checks += [PauseCheck(options, "pause, " + bug, bug) for bug in PAUSE_PLANTS]
    checks = [check for check in checks if options.only in (None, check.bug)]
    if options.few and options.few < len(checks):
        seed = int(os.environ.get("SHIFT_TEST_SEED") or random.randrange(1 << 30))
        drawn = set(random.Random(seed).sample(range(len(checks)), options.few))
        checks = [check for number, check in enumerate(checks) if number in drawn]
        print("drawn by SHIFT_TEST_SEED=%d" % seed, flush=True)
    missed = []

    def tell(check, caught):
        print("\n".join(check.lines), flush=True)
        if not caught:
            missed.append(check.name)

    run_all(options.jobs, checks, lambda check: check.caught(build), tell)
    print("NOT caught: " + "; ".join(missed) if missed else "all planted bugs caught")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
