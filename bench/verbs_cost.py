#!/usr/bin/env python3
"""What verbs calls cost: stock against SHIFT, in turns, on one processor."""

import json
import os

import environment
from budgets import CONNECTING, CONNECTING_TEXT, budget
from harness.report import write_json


def measure(fabric, manner, options):
    words = [fabric.verbs_cost, "--cpu", options.cpu,
             "--rounds", options.rounds, "--control", options.control]
    return json.loads(fabric.run("a", words, manner))


def figures(runs, kind, number, key):
    """{manner: medians of an operation, one of each run}"""
    found = {}
    for manner, results in runs.items():
        parts = [result[kind][number][key] for result in results]
        if any(part["rounds"] == 0 for part in parts):
            raise environment.Failure(f"{results[0][kind][number]['name']} ({manner}): no good round")
        found[manner] = [part["median"] for part in parts]
    return found


def merge(runs, kind, key):
    """runs: {manner: results} -> one dictionary per operation."""
    merged = []
    for i, first in enumerate(runs[environment.STOCK][0][kind]):
        entry = {k: first[k] for k in ("name", "unit") if k in first}
        entry |= environment.compared(figures(runs, kind, i, key))
        if kind == "rings":
            entry["protected"] = all(run[kind][i]["virtual"] for manner in entry["beyond"]
                                     for run in runs[manner])
            if any(run[kind][i]["virtual"] for run in runs[environment.STOCK]):
                raise environment.Failure("the stock run did not run on the stock library")
        merged.append(entry)
    return merged


def measure_all(fabric, options):
    """The result of all manners, whose runs take turns."""
    manners = (environment.STOCK, *options.manners)
    turns = [[measure(fabric, manner, options) for manner in manners] for _ in range(options.repeat)]
    runs = dict(zip(manners, zip(*turns)))
    return {"repeat": options.repeat,
            "engine_paused": all(run["engine_paused"] for turn in turns for run in turn),
            "rings": merge(runs, "rings", "ns"), "control": merge(runs, "control", "us")}


def spread(figure, sign=""):
    return f"{figure['middle']:{sign}.1f} ±{figure['spread']:.1f}"


def cells(entry):
    """The columns of compared_header."""
    found = [spread(entry["figures"][environment.STOCK])]
    for manner, beyond in entry["beyond"].items():
        found += [spread(entry["figures"][manner]), spread(beyond, "+")]
    return found


def print_rings(rings, options):
    rows = [[entry["name"], entry["unit"], *cells(entry),
             f"{budget(entry['name'])[1]:+.1f}" if entry["protected"] else "unprotected"] for entry in rings]
    environment.table(f"Rings, ns per WR or WC (medians; {options.repeat} runs each, in turns)",
                      ["", "per", *environment.compared_header(options.manners), "budget"], rows,
                      ["± half the range of the runs; differences are those of the runs of one turn"])


def print_control(control, options):
    rows = [[entry["name"], *cells(entry), CONNECTING_TEXT if entry["name"] in CONNECTING else ""]
            for entry in control]
    environment.table("Control verbs, us per call (medians)",
                      ["", *environment.compared_header(options.manners), "budget"], rows)


def parse(words=None):
    parser = environment.parser(__doc__)
    environment.manners_add(parser, ["notes"])
    parser.add_argument("--repeat", type=int, default=5, help="runs of each manner")
    parser.add_argument("--rounds", type=int, default=300, help="rounds per ring operation")
    parser.add_argument("--control", type=int, default=64, help="calls of each control verb")
    parser.add_argument("--cpu", type=int, default=max(os.sched_getaffinity(0)),
                        help="processor to measure on (default: the last)")
    return parser.parse_args(words)


def main():
    options = parse()
    with environment.Fabric(options.build) as fabric:
        result = {"machine": environment.machine(), **measure_all(fabric, options)}
    print(result["machine"])
    if not result["engine_paused"]:
        print("the emulator cannot be paused: the ring figures contain its work")
    if options.rounds:
        print_rings(result["rings"], options)
    if options.control:
        print_control(result["control"], options)
    write_json(options.json, result)
    return 0


if __name__ == "__main__":
    environment.guarded(main)
