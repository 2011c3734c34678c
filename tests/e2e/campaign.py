#!/usr/bin/python3
"""The failover campaign: many short runs, each with a fault at a random moment, and every byte judged.

The test `e2e_campaign` calls this program. The seed and the index of a run decide all of it, also whether it has
a job key, and in which mode it is: `--seed S --only I` repeats one run. In the modes exact and auto a witness
watches for WRITEs that run twice (e2e/witness.py).
"""

import collections
import dataclasses
import os
import shutil
import sys
import time

from harness import pauses
from harness.build import Build
from harness.checker import ENDS
from harness.options import (journal_add, journal_again, journal_settings, key_add, key_again, layer_add,
                             mode_add, mode_again, mode_settings, runs_add, script_parser)
from harness.report import write_json
from harness.runs import run_all

from e2e import cells, witness
from e2e.judge import run_cell
from e2e.key_files import JobKey


def parse():
    parser = script_parser(__doc__, "out/e2e")
    layer_add(parser)
    runs_add(parser, 200)
    key_add(parser)
    journal_add(parser)
    mode_add(parser)
    parser.add_argument("--kind", action="append", help="run cells of this kind only")
    parser.add_argument("--op", action="append", help="run cells with this operation only")
    parser.add_argument("--fault", action="append", help="run cells with this fault only")
    parser.add_argument("--stop", action="store_true", help="stop at the first failure")
    return parser.parse_args()


def chosen(options):
    picked = cells.plan(options.seed, options.runs)
    if options.only:
        picked = [c for c in picked if c.index in options.only]
    for key in ("kind", "op", "fault"):
        wanted = getattr(options, key)
        if wanted:
            picked = [c for c in picked if getattr(c, key) in wanted]
    return picked


def reproduce(options, *picked):
    layer = " --layer %s" % options.layer if options.layer else ""
    only = " ".join("--only %d" % cell.index for cell in picked)
    decided = key_again(options) + journal_again(options) + mode_again(options)
    return "%s --build %s%s%s --runs %d --seed %d %s --keep" % (
        os.path.relpath(__file__), options.build, layer, decided, options.runs, options.seed, only)


def tell_failure(options, key, result, directory):
    cell = result.cell
    print("\nFAILED run %d (%s%s): %s; exit codes client %s server %s" % (
        cell.index, cell.name(), key.word(cell.seed, cell.index), ", ".join(result.problems), *result.codes))
    for name in (*ENDS, *witness.ENDS):
        path = os.path.join(directory, name + ".log")
        if not os.path.exists(path):
            continue
        with open(path, errors="replace") as file:
            told = [line for line in file
                    if any(w in line for w in ("VIOLATION", "ERROR", "HANG", "error:", "Sanitizer"))]
        for line in told[:4]:
            print("  %s: %s" % (name, line.rstrip()))
    print("  logs: %s\n  again: %s" % (directory, reproduce(options, result.cell)), flush=True)


def percentile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(len(values) * share))] if values else 0.0


def table(results):
    """Makes a table of the runs: one line for each kind and fault."""
    groups = collections.OrderedDict()
    for r in sorted(results, key=lambda r: (r.cell.kind != "masked", r.cell.kind, r.cell.fault)):
        groups.setdefault((r.cell.kind, r.cell.fault or "-"), []).append(r)
    lines = ["%-17s %-10s %5s %5s   %s" % ("kind", "fault", "runs", "right",
                                           "pause felt by the program, median / worst ms")]
    for (kind, fault), rs in groups.items():
        gaps = [r.gap_ms for r in rs if r.ok() and r.codes == (0, 0)]
        felt = "%8.1f / %.1f" % (percentile(gaps, 0.5), max(gaps)) if gaps else "       -"
        lines.append("%-17s %-10s %5d %5d   %s" % (kind, fault, len(rs),
                                                   sum(r.ok() for r in rs), felt))
    return "\n".join(lines)


def judge_pauses(options, build, results, run_one):
    """Judges how long programs stood still. Returns the verdicts."""
    verdicts = []

    def again(cell):
        results.append(run_one(cell))
        return results[-1].pause

    print("\nhow long programs stood still, in the middle of their class:")
    measured = [(r.cell, r.pause) for r in results if r.pause]
    for verdict, members in pauses.judge_twice(measured, again, build.slowed_by()):
        print("  " + verdict.text())
        verdicts.append(verdict)
        if verdict.failed:
            print("\n".join("    " + pause.text() for _, pause in members))
            print("    again: %s" % reproduce(options, *[cell for cell, _ in members]))
    if not verdicts:
        print("  not judged: no run was measured")
    return verdicts


def summary(options, key, results, verdicts, seconds):
    failed = [r for r in results if not r.ok()]
    masked = [r for r in results if r.cell.kind == "masked"]
    covered = {(r.cell.fault, r.cell.op, r.cell.side, r.cell.api) for r in masked}
    print("\n" + table(results))
    spurious = sum(r.spurious for r in results)
    if spurious:
        print("%d runs switched without a fault (masked; the machine is too busy?)" % spurious)
    repeated = sum(r.repeated for r in results)
    if repeated:
        print("%d runs were repeated: they broke before they were protected (too busy?)" % repeated)
    wrong = [v.kind for v in verdicts if v.failed]
    if wrong:
        print("FAILED: programs stood still for too long: " + "; ".join(wrong))
    keyed = sum(key.has(r.cell.seed, r.cell.index) for r in results)
    print("%d runs, %d with a job key, %d with a witness, %d failed, %d of 96 cells fault x op x side x api "
          "covered, seed %d, %.0f s" % (len(results), keyed, sum(r.witnessed for r in results), len(failed),
                                        len(covered), options.seed, seconds))
    write_json(options.json, {
        "seed": options.seed, "runs": len(results), "failed": len(failed), "seconds": seconds,
        "pauses": [dict(dataclasses.asdict(v), bound_ms=v.bound_ms, failed=v.failed) for v in verdicts],
        "results": [{"index": r.cell.index, "kind": r.cell.kind, "fault": r.cell.fault, "op": r.cell.op,
                     "side": r.cell.side, "api": r.cell.api, "key": key.has(r.cell.seed, r.cell.index),
                     "problems": r.problems, "codes": r.codes, "witness": r.witnessed,
                     "gap_ms": r.gap_ms, "pause": r.pause and dataclasses.asdict(r.pause),
                     "error_s": r.error_s, "switch_us": r.switch_us,
                     "seconds": r.seconds} for r in results]})
    return 1 if failed or not results or wrong else 0


def main():
    options = parse()
    build = Build(options.build, options.layer)
    build.require(build.shift_run, build.traffic, build.once)
    picked = chosen(options)
    key = JobKey(build, options)
    results, begun = [], time.monotonic()
    place = lambda cell: os.path.join(options.out, "%d-%d" % (options.seed, cell.index))
    settings = lambda *run: key.settings(*run) | journal_settings(options, *run) | mode_settings(options, *run)
    run_one = lambda cell: run_cell(build, cell, place(cell), settings(cell.seed, cell.index))

    def tell(cell, result):
        results.append(result)
        if not result.ok():
            tell_failure(options, key, result, place(cell))
        elif not options.keep:
            shutil.rmtree(place(cell), ignore_errors=True)
        if len(results) % 20 == 0 or len(results) == len(picked):
            print("campaign: %d of %d runs, %d failed, %.0f s" % (
                len(results), len(picked), sum(not r.ok() for r in results),
                time.monotonic() - begun), flush=True)
        return result.ok() or not options.stop

    run_all(options.jobs, picked, run_one, tell)
    verdicts = judge_pauses(options, build, results, run_one)
    return summary(options, key, results, verdicts, time.monotonic() - begun)


if __name__ == "__main__":
    sys.exit(main())
