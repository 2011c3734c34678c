#!/usr/bin/python3
"""Checks that the campaign's judge, or that of object life, catches every planted bug, and that the runs pass
without the bug.

The layer under test is built with SHIFT_PLANTED_BUGS; SHIFT_PLANT names the bug to switch on. A test in
tests/planted/CMakeLists.txt calls this program; --only NAME tests one bug.
"""

import argparse
import os
import sys

from harness.build import Build
from harness.options import layer_add, script_parser
from harness.runs import run_on_fabric

from e2e import cells
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
}
# bug: (whose judge, what the judge must say)
LIFE_PLANTS = {
    "busy_forgotten": ("life", "a channel in use: it went"),
    "replay_delivered": ("life", "instead of"),
    "own_by_number": ("life", "sends complete in another order"),
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


def run(build, bug, attempt, out, planted):
    directory = os.path.join(out, "%s-%d-%s" % (bug, attempt, "planted" if planted else "healthy"))
    env = {"SHIFT_PLANT": bug if planted else "none"}
    result = run_cell(build, cell_for(bug, attempt), directory, env)
    print("  %s, attempt %d: %s (exit codes %s and %s)" % (
        "planted" if planted else "healthy", attempt, ", ".join(result.problems) or "right",
        *result.codes), flush=True)
    return set(result.problems)


def check(build, bug, out):
    """True when a run catches the bug, and that run passes without the bug."""
    print("%s:" % bug, flush=True)
    wanted = PLANTS[bug][3]
    for attempt in range(ATTEMPTS):
        if run(build, bug, attempt, out, True) & wanted:
            return not run(build, bug, attempt, out, False)
    return False


def run_life(options, bug, attempt, planted):
    """What the judge of object life complains of; [] when the run was right."""
    name = "life-%s-%d-%s" % (bug, attempt, "planted" if planted else "healthy")
    one = argparse.Namespace(build=options.build, layer=options.layer, seconds=4, threads=6,
                             seed=attempt, out=os.path.join(options.out, name),
                             env={"SHIFT_PLANT": bug if planted else "none"})
    problems = []
    code = run_on_fabric(one, lambda fabric: life.run(fabric, one, problems))
    return problems or ["exit code %d" % code] if code != 0 else []


def check_life(options, bug):
    print("life, %s:" % bug, flush=True)
    wanted = LIFE_PLANTS[bug][1]
    for attempt in range(1, ATTEMPTS + 1):
        if any(wanted in problem for problem in run_life(options, bug, attempt, True)):
            return not run_life(options, bug, attempt, False)
    return False


def main():
    parser = script_parser(__doc__, "out/planted")
    layer_add(parser, "build/test/planted")
    parser.add_argument("--only", choices=sorted(PLANTS.keys() | LIFE_PLANTS.keys()))
    options = parser.parse_args()
    build = Build(options.build, options.layer)
    build.require(build.shift_run, build.traffic, build.life)
    chosen = {options.only} if options.only else PLANTS.keys() | LIFE_PLANTS.keys()
    missed = [bug for bug in PLANTS if bug in chosen and not check(build, bug, options.out)]
    missed += ["life: " + bug for bug in LIFE_PLANTS
               if bug in chosen and not check_life(options, bug)]
    print("NOT caught: " + ", ".join(missed) if missed else "all planted bugs caught")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
