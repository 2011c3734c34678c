#!/usr/bin/env python3
"""What verbs calls cost: stock against SHIFT, in turns, on one processor."""

import json
import os
import statistics

import environment
from harness.report import write_json

BUDGET_NS = {"WR": 2.0, "WC": 1.0, "call": 1.0}


def measure(fabric, shift, options):
    words = [fabric.verbs_cost, "--cpu", options.cpu,
             "--rounds", options.rounds, "--control", options.control]
    return json.loads(fabric.run("a", words, shift))


def spread(runs):
    """Median of the runs' medians, and half of their range."""
    middle = [run["median"] for run in runs]
    return statistics.median(middle), (max(middle) - min(middle)) / 2


def merge(runs, kind, key):
    """runs: {"stock": [...], "shift": [...]} -> one dictionary per operation."""
    merged = []
    for i, first in enumerate(runs["stock"][0][kind]):
        entry = {k: first[k] for k in ("name", "unit") if k in first}
        for side in ("stock", "shift"):
            parts = [run[kind][i][key] for run in runs[side]]
            if any(part["rounds"] == 0 for part in parts):
                raise environment.Failure(f"{first['name']} ({side}): no good round")
            entry[side], entry[side + "_spread"] = spread(parts)
        entry["difference"] = entry["shift"] - entry["stock"]
        if kind == "rings":
            entry["protected"] = all(run[kind][i]["virtual"] for run in runs["shift"])
            if any(run[kind][i]["virtual"] for run in runs["stock"]):
                raise environment.Failure("the stock run did not run on the stock library")
        merged.append(entry)
    return merged


def alternate(fabric, options):
    runs = {"stock": [], "shift": []}
    for _ in range(options.repeat):
        runs["stock"].append(measure(fabric, False, options))
        runs["shift"].append(measure(fabric, True, options))
    return runs


def print_rings(rings, options):
    rows = []
    for entry in rings:
        budget = f"{BUDGET_NS[entry['unit']]:+.0f}"
        rows.append([entry["name"], entry["unit"],
                     f"{entry['stock']:.1f} ±{entry['stock_spread']:.1f}",
                     f"{entry['shift']:.1f} ±{entry['shift_spread']:.1f}",
                     f"{entry['difference']:+.1f}",
                     budget if entry["protected"] else "unprotected"])
    environment.table(f"Rings, ns per WR or WC (medians; {options.repeat} runs each, in turns)",
                      ["", "per", "stock", "SHIFT", "difference", "budget"], rows,
                      ["± half the range of the runs' medians"])


def print_control(control):
    rows = [[entry["name"], f"{entry['stock']:.1f} ±{entry['stock_spread']:.1f}",
             f"{entry['shift']:.1f} ±{entry['shift_spread']:.1f}",
             f"{entry['difference']:+.1f}",
             f"{100 * entry['difference'] / entry['stock']:+.0f} %",
             "+5 %" if entry["name"] in ("modify_qp RTR", "modify_qp RTS") else ""]
            for entry in control]
    environment.table("Control verbs, us per call (medians)",
                      ["", "stock", "SHIFT", "difference", "", "budget"], rows)


def main():
    parser = environment.parser(__doc__)
    parser.add_argument("--repeat", type=int, default=5, help="runs of each side")
    parser.add_argument("--rounds", type=int, default=300, help="rounds per ring operation")
    parser.add_argument("--control", type=int, default=64, help="calls of each control verb")
    parser.add_argument("--cpu", type=int, default=max(os.sched_getaffinity(0)),
                        help="processor to measure on (default: the last)")
    options = parser.parse_args()
    with environment.Fabric(options.build) as fabric:
        runs = alternate(fabric, options)
    result = {"machine": environment.machine(), "repeat": options.repeat,
              "engine_paused": all(run["engine_paused"] for run in runs["stock"] + runs["shift"]),
              "rings": merge(runs, "rings", "ns"), "control": merge(runs, "control", "us")}
    print(result["machine"])
    if not result["engine_paused"]:
        print("the emulator cannot be paused: the ring figures contain its work")
    if options.rounds:
        print_rings(result["rings"], options)
    if options.control:
        print_control(result["control"])
    write_json(options.json, result)
    return 0


if __name__ == "__main__":
    environment.guarded(main)
