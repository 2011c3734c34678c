#!/usr/bin/env python3
"""Instructions per WR and per WC, stock against SHIFT, counted by callgrind.

Counts do not depend on what else the machine does. They contain the loop around the calls, the
same on both sides."""

import json
import pathlib
import re
import shutil
import tempfile

import environment
from harness.report import write_json

BUDGET = {"WR": 12}
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


def measure(fabric, shift, options):
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        words = [*CALLGRIND, f"--callgrind-out-file={folder}/count",
                 fabric.verbs_cost, "--rounds", options.rounds,
                 "--wrs", options.wrs, "--control", 0, "--settle-ms", options.settle_ms]
        result = json.loads(fabric.run("a", words, shift, timeout_s=600))
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


def compare(stock, shift):
    return [{"name": a["name"], "unit": a["unit"], "stock": a["instructions"],
             "shift": b["instructions"], "difference": b["instructions"] - a["instructions"],
             "protected": b["virtual"]} for a, b in zip(stock, shift)]


def main():
    parser = environment.parser(__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=2, help="rounds per operation")
    parser.add_argument("--wrs", type=int, default=128, help="WRs per round")
    parser.add_argument("--settle-ms", type=int, default=1000,
                        help="time for the layer to set up in the background")
    options = parser.parse_args()
    if shutil.which("valgrind") is None:
        raise environment.Failure("valgrind is not installed")
    with environment.Fabric(options.build) as fabric:
        rows = compare(measure(fabric, False, options), measure(fabric, True, options))
    environment.table(
        "Instructions per WR or WC (callgrind)",
        ["", "per", "stock", "SHIFT", "difference", "budget"],
        [[row["name"], row["unit"], f"{row['stock']:.1f}", f"{row['shift']:.1f}",
          f"{row['difference']:+.1f}",
          (f"{BUDGET[row['unit']]:+d}" if row["unit"] in BUDGET else "")
          if row["protected"] else "unprotected"] for row in rows])
    write_json(options.json, {"machine": environment.machine(), "rings": rows})
    return 0


if __name__ == "__main__":
    environment.guarded(main)
