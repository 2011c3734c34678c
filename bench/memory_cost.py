#!/usr/bin/env python3
"""How much memory a queue pair takes: stock, SHIFT with copies of requests, and SHIFT with notes."""

import json

import environment
from harness.report import write_json

def measure(fabric, manner, depth, options):
    words = [fabric.build.program("bench", "memory-cost"), "--depth", depth, "--pairs", options.pairs,
             "--settle-ms", options.settle_ms]
    return json.loads(fabric.run("a", words, manner))


def measure_all(fabric, options):
    """{depth: {manner: {"idle": bytes, "used": bytes}}}"""
    return {depth: {manner: measure(fabric, manner, depth, options) for manner in environment.MANNERS}
            for depth in options.depths}


def parse(words=None):
    parser = environment.parser(__doc__)
    parser.add_argument("--depths", type=int, nargs="+", default=[16, 128, 1024], help="places of each queue")
    parser.add_argument("--pairs", type=int, default=32, help="pairs of QPs that are measured")
    parser.add_argument("--settle-ms", type=int, default=1500, help="time for the layer to make its twins")
    return parser.parse_args(words)


def main():
    options = parse()
    with environment.Fabric(options.build) as fabric:
        found = measure_all(fabric, options)
    rows = []
    for depth, manners in found.items():
        for state in ("idle", "used"):
            kib = {manner: one[state] / 1024 for manner, one in manners.items()}
            rows.append([f"{depth} places, {state}", f"{kib['stock']:.0f}",
                         *(f"{kib[manner]:.0f} ({kib[manner] - kib['stock']:+.0f})"
                           for manner in environment.JOURNALS)])
    environment.table("Memory of one QP with its CQ, KiB",
                      ["", *(environment.TITLES[manner] for manner in environment.MANNERS)], rows,
                      ["idle: connected, and nothing was posted; used: each place of the queues was used",
                       "both hold the emulator's own memory, also for the twins on the other NIC"])
    write_json(options.json, {"machine": environment.machine(), "pairs": options.pairs, "bytes": found})
    return 0


if __name__ == "__main__":
    environment.guarded(main)
