#!/usr/bin/env python3
"""Instructions per WR and per WC, stock against SHIFT, counted by callgrind.

Counts do not depend on what else the machine does. They contain the loop around the calls, the
same on both sides. With --ceilings, a difference above its ceiling is a failure: whoever makes the
hot path dearer has to say so in that file."""

import json
import pathlib
import re
import shutil
import tempfile

import environment
from budgets import budget
from harness.report import write_json

CEILINGS = pathlib.Path(__file__).with_name("ceilings.json")
CEILED = ("notes", environment.AUTO)  # the manners that have ceilings
# Counted are the loops of verbs_cost/measured.h and what they call, one file per call.
LOOPS = ["measured_post_send", "measured_post_recv", "measured_poll_cq", "measured_start_poll",
         "measured_wr_write", "measured_wr_write_inline", "measured_wr_send"]
CALLGRIND = ["valgrind", "--tool=callgrind", "--quiet", "--collect-atstart=no",
             "--toggle-collect=measured_*", *(f"--dump-after={loop}" for loop in LOOPS)]


def dumps(folder):
    """Instructions of each measured call, in order."""
    files = {int(path.suffix[1:]): path for path in folder.glob("count.*")
             if path.suffix[1:].isdigit()}
    counts = []
    for _, path in sorted(files.items()):
        text = path.read_text()
        if "Trigger: --dump-after" in text:
            counts.append(int(re.search(r"^(?:totals|summary): (\d+)", text, re.M).group(1)))
    return counts


def measure(fabric, manner, options):
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        words = [*CALLGRIND, f"--callgrind-out-file={folder}/count",
                 fabric.verbs_cost, "--rounds", options.rounds,
                 "--wrs", options.wrs, "--control", 0, "--settle-ms", options.settle_ms]
        result = json.loads(fabric.run("a", words, manner, timeout_s=600))
        counts = dumps(folder)
    found = []
    for ring in result["rings"]:
        if not ring["calls"]:
            raise environment.Failure(f"{ring['name']}: no good round")
        if max(ring["calls"]) > len(counts):
            raise environment.Failure(f"callgrind wrote {len(counts)} counts only")
        if counts[ring["calls"][-1] - 1] == 0:
            raise environment.Failure(f"{ring['name']}: callgrind counted nothing")
        # The last round: everything is resolved, allocated and adopted by then.
        total = counts[ring["calls"][-1] - 1]
        found.append({"name": ring["name"], "unit": ring["unit"], "virtual": ring["virtual"],
                      "instructions": total / ring["units_per_call"]})
    return found


def compare(found):
    """found: {manner: rings} -> one dictionary per ring."""
    rows = []
    for rings in zip(*found.values()):
        counts = {manner: ring["instructions"] for manner, ring in zip(found, rings)}
        stock = counts[environment.STOCK]
        rows.append({"name": rings[0]["name"], "unit": rings[0]["unit"], "figures": counts,
                     "beyond": {manner: count - stock for manner, count in counts.items()
                                if manner != environment.STOCK},
                     "protected": all(ring["virtual"] for ring in rings[1:])})
    return rows


def measure_all(fabric, options):
    return compare({manner: measure(fabric, manner, options)
                    for manner in (environment.STOCK, *options.manners)})


def parse(words=None):
    parser = environment.parser(__doc__.splitlines()[0])
    environment.manners_add(parser, CEILED)
    parser.add_argument("--rounds", type=int, default=2, help="rounds per operation")
    parser.add_argument("--wrs", type=int, default=128, help="WRs per round")
    parser.add_argument("--settle-ms", type=int, default=1000,
                        help="time for the layer to set up in the background")
    parser.add_argument("--ceilings", action="store_true", help=f"compare with {CEILINGS.name}")
    return parser.parse_args(words)


def print_rings(rows, ceilings, options):
    lines = []
    for row in rows:
        pairs = [(row["figures"][manner], beyond) for manner, beyond in row["beyond"].items()]
        limits = ([*(f"{ceilings[manner][row['name']]:+.1f}" for manner in CEILED),
                   f"{budget(row['name'])[0]:+.1f}"] if row["protected"] else ["unprotected", "", ""])
        lines.append([row["name"], row["unit"], f"{row['figures'][environment.STOCK]:.1f}",
                      *(cell for count, beyond in pairs for cell in (f"{count:.1f}", f"{beyond:+.1f}")), *limits])
    environment.table("Instructions per WR or WC (callgrind)",
                      ["", "per", *environment.compared_header(options.manners),
                       *(f"ceiling of {manner}" for manner in CEILED), "budget"], lines)


def main():
    options = parse()
    if shutil.which("valgrind") is None:
        raise environment.Failure("valgrind is not installed")
    with environment.Fabric(options.build) as fabric:
        rows = measure_all(fabric, options)
    ceilings = json.loads(CEILINGS.read_text())
    print_rings(rows, ceilings, options)
    write_json(options.json, {"machine": environment.machine(), "rings": rows})
    above = [f"{row['name']} ({manner})" for row in rows for manner in CEILED
             if row["beyond"].get(manner, 0) > ceilings[manner][row["name"]]]
    if options.ceilings and above:
        print(f"FAILED: above the ceiling of {CEILINGS.name}: {', '.join(above)}")
        return 1
    return 0


if __name__ == "__main__":
    environment.guarded(main)
