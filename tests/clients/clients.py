#!/usr/bin/python3
"""Runs the client matrix: unmodified programs of the distribution under SHIFT while a NIC breaks.

The test `clients` calls this program. Rows are programs, columns are faults of the default NIC of either side.
Every program must do all its work, find its data right where it checks it, and complain of nothing. Contrast
runs show that this judge refuses the stock libraries under these faults. By default a few cells are drawn;
--all runs the whole matrix, --healthy runs all programs of tests/programs without a fault.

The exit status is 0 when all is good, 1 when something failed, 3 when nothing ran, 4 after a wrong call.
"""

import dataclasses
import os
import random
import re
import shutil
import statistics
import sys
import textwrap
import time

from harness.build import Build
from harness.faults import FAULTS, SIDES
from harness.options import script_parser, seed_add
from harness.pauses import judge_twice
from harness.report import conclude, write_json, write_text
from harness.runs import run_all

from clients.failover import SECONDS, Column, run_cell, verdict
from clients.rows import OTHER_TYPES, ROWS, Row
from programs.cases import all_cases

COLUMNS = [Column(fault, side) for fault in FAULTS for side in SIDES]
HEALTHY = Column("", "a")
DRAWN = 9  # how many cells an ordinary check runs


def parse():
    parser = script_parser(__doc__, "out/clients")
    parser.add_argument("--all", action="store_true", help="the whole matrix (SHIFT_CLIENTS=all)")
    parser.add_argument("--healthy", action="store_true",
                        help="all programs of tests/programs with the layer, without a fault")
    parser.add_argument("--only", action="append", default=[],
                        help="only programs whose name contains this, with all faults")
    parser.add_argument("--fault", action="append", default=[], help="only these faults")
    parser.add_argument("--no-contrast", action="store_true", help="leave the stock stack out")
    parser.add_argument("--complete", action="store_true",
                        help="a program that is not installed is a failure, not a skip")
    parser.add_argument("--jobs", type=int, default=1, help="cells side by side")
    parser.add_argument("--repeat", type=int, default=1, help="how often, with seeds that go up")
    seed_add(parser)
    parser.add_argument("--json", help="write the results to this file")
    parser.add_argument("--markdown", help="write the table to this file")
    return parser.parse_args()


def contrast(column):
    return Column(column.fault, column.side, layer=False)


def drawn(seed):
    """Draws a few cheap cells: programs under faults, without a fault, and one without the layer."""
    dice = random.Random(seed)
    rows = [row for row in ROWS if row.check]
    dice.shuffle(rows)
    columns = COLUMNS + dice.sample(COLUMNS, len(COLUMNS))
    dice.shuffle(columns)
    picked = list(zip(rows, columns))[:DRAWN]
    picked.append((dice.choice(rows[:4]), HEALTHY))
    picked += [(row, HEALTHY) for row in dice.sample([r for r in OTHER_TYPES if r.check], 1)]
    # For contrast: this program's death is quick to see.
    picked.append((next(row for row in ROWS if row.name == "ibv_rc_pingpong -c"),
                   contrast(dice.choice([c for c in COLUMNS if c.fault == "link-down"]))))
    return picked


def healthy_rows():
    """Rows for the cases of tests/programs, which are without a fault."""
    def kept(case):
        return lambda scale: case
    for case in all_cases():
        if case.group in ("perftest", "pingpong", "ucx", "gloo", "mpi", "torch"):
            yield Row(case.name, kept(case), case.packets), HEALTHY


def wanted(options):
    if options.healthy:
        cells_wanted = list(healthy_rows())
    elif options.all or options.only or options.fault:
        cells_wanted = [(row, column) for row in ROWS for column in COLUMNS]
        if not options.no_contrast:
            cells_wanted += [(row, contrast(column)) for row in ROWS for column in COLUMNS[:2]]
        cells_wanted += [(row, HEALTHY) for row in ROWS + OTHER_TYPES]
    else:
        cells_wanted = drawn(options.seed)
    return [(row, column) for row, column in cells_wanted
            if (not options.only or any(word in row.name for word in options.only)) and
            (not options.fault or column.fault in options.fault)]


class Run:
    def __init__(self, build, options):
        self.build, self.options = build, options
        self.outcomes = []
        self.measured = []  # (item, pause)
        self.verdicts = []

    def cell(self, item):
        number, seed, (row, column) = item
        missing = row.case(1, SECONDS).missing()
        if missing and not self.options.complete:
            return {"row": row.name, "column": column.title(), "problem": "", "counters": {},
                    "seconds": 0, "skipped": "not installed: " + ", ".join(missing), "good": True}
        directory = os.path.join(self.options.out, str(number))
        outcome = run_cell(self.build, row, column, directory, seed)
        outcome["good"], outcome["says"] = verdict(outcome, column)
        if outcome["good"] and column.fault and column.layer:
            outcome["says"] += "; " + pause_text(outcome)
        if outcome["good"]:
            shutil.rmtree(directory, ignore_errors=True)
        else:
            outcome["logs"] = directory
        return outcome

    def tell(self, item, outcome):
        self.outcomes.append(outcome)
        self.measured += [(item, outcome["pause"])] if "pause" in outcome else []
        result = "skipped" if outcome.get("skipped") else "ok" if outcome["good"] else "FAILED"
        text = outcome.get("skipped") or outcome["says"]
        if not outcome["good"]:
            text += "; seed %d, logs: %s" % (outcome["seed"], outcome["logs"])
        print("%-52s %-18s %-7s %5.1f  %s" % (outcome["row"][:52], outcome["column"], result,
                                              outcome["seconds"], text), flush=True)

    def all(self, chosen):
        items = [(len(chosen) * turn + number, self.options.seed + turn, item)
                 for turn in range(self.options.repeat) for number, item in enumerate(chosen)]
        run_all(self.options.jobs, items, self.cell, self.tell)

    def again(self, item):
        outcome = self.cell(item)
        self.tell(item, outcome)
        return outcome.get("pause")

    def judge_pauses(self):
        """Judges how long programs stood still, as far as they tell. Returns how many classes are wrong."""
        print("\nhow long programs stood still, by their own words, in the middle of their class:")
        for verdict, members in judge_twice(self.measured, self.again, self.build.slowed_by()):
            print("  " + verdict.text())
            self.verdicts.append(verdict)
            if verdict.failed:
                print("\n".join("    " + pause.text() for _, pause in members))
        if not self.verdicts:
            print("  not judged: no program tells")
        return sum(verdict.failed for verdict in self.verdicts)


def pause_text(outcome):
    pause = outcome.get("pause")
    return "longest pause %.1f ms (stock %.1f)" % (pause.seen_ms, pause.stock_ms) if pause else "pause not seen"


def pause_cell(runs):
    """How long a program stood still beyond the switch and the stock stack's own pause, in the middle."""
    excesses = [run["pause"].excess_ms for run in runs if "pause" in run]
    return "%.0f ms" % max(0, statistics.median(excesses)) if excesses else "not seen"


def markdown(outcomes, verdicts, command):
    """The table: one line for each program, one column for each fault; a cell has its longest switch."""
    found = {}
    for outcome in outcomes:
        found.setdefault((outcome["row"], outcome["column"]), []).append(outcome)

    def cell(row, column):
        runs = found.get((row.name, column.title()), [])
        if not runs or any(run.get("skipped") for run in runs):
            return "-"
        if not all(run["good"] for run in runs):
            return "**fails**"
        if not column.fault:
            return "ok"
        if not column.layer:
            return "dies"
        return "%.0f ms" % (max(run["counters"]["switch_us"] for run in runs) / 1000)
    columns = COLUMNS + [contrast(COLUMNS[0]), contrast(COLUMNS[1])]
    lines = ["# Unmodified programs through a failover", "",
             "Written by `%s`." % command, "",
             "Every program of Debian 12 below runs between two emulated hosts under `shift-run`. In mid-run",
             "the default NIC of the server's host (a) or of the client's host (b) breaks. A time means that",
             "all work was done, that the program found its data right where it checks it and complained of",
             "nothing, and that its queue pairs moved after the fault and had work left then. The time is the",
             "longest that a queue pair of the run took to move once it had noticed the fault, on a machine",
             "with %d cores for everything. In the last columns the programs run without SHIFT under the same" %
             os.cpu_count(),
             "judge. A star marks programs that compare every byte themselves.",
             "",
             "The column *pause* is for programs that tell how long each exchange or round took. It says what",
             "the longest one after the fault had beyond the switch (from the fault until both ends went on) and",
             "beyond the longest one of the same program on the stock stack without a fault, in the middle of",
             "all faults; 0 is nothing. [bench/README.md](../bench/README.md#pauses) says how it is judged.",
             "",
             "| program | %s | pause |" % " | ".join(column.title() for column in columns),
             "| --- |" + " --- |" * (len(columns) + 1)]
    for row in ROWS:
        if any((row.name, column.title()) in found for column in columns):
            runs = [run for column in COLUMNS for run in found.get((row.name, column.title()), [])]
            lines.append("| `%s`%s | %s | %s |" % (
                row.name, " *" if row.verifies else "", " | ".join(cell(row, column) for column in columns),
                pause_cell(runs)))
    lines += ["", "Pauses by class:", ""]
    for one in verdicts:
        lines += textwrap.wrap("- " + re.sub(" +", " ", one.text()), 110, subsequent_indent="  ")
    others = [row for row in OTHER_TYPES if (row.name, HEALTHY.title()) in found]
    if others:
        lines += ["", "These are not protected, and complete as with the stock library (C10):", ""]
        lines += ["- `%s`" % row.name for row in others if cell(row, HEALTHY) == "ok"]
    return "\n".join(lines) + "\n"


def main():
    options = parse()
    options.all = options.all or os.environ.get("SHIFT_CLIENTS") == "all"
    build = Build(options.build)
    build.require(build.shift_run)
    begun = time.monotonic()
    chosen = wanted(options)
    print("%-52s %-18s %-7s %5s  (seed %d)" % ("program", "fault, side", "result", "s", options.seed))
    run = Run(build, options)
    run.all(chosen)
    failed = run.judge_pauses() + sum(1 for outcome in run.outcomes if not outcome["good"])
    write_json(options.json, [dict(outcome, pause=dataclasses.asdict(outcome["pause"]))
                              if "pause" in outcome else outcome for outcome in run.outcomes])
    if options.markdown:
        command = " ".join(["tests/clients/clients.py"] + sys.argv[1:])
        write_text(options.markdown, markdown(run.outcomes, run.verdicts, command))
    return conclude(run.outcomes, failed, "runs", time.monotonic() - begun)


if __name__ == "__main__":
    sys.exit(main())
