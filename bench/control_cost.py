#!/usr/bin/env python3
"""What a job key costs: handshakes, sealed frames and small messages, with and without a key in turns."""

import json
import os
import subprocess

import environment
from harness.build import Build, words
from harness.report import write_json


def measure(program, options):
    argv = words([program, "--handshakes", options.handshakes, "--frames", options.frames,
                  "--rounds", options.rounds, "--messages", options.messages, "--cpu", options.cpu])
    done = subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=False, timeout=300)
    if done.returncode != 0:
        raise environment.Failure(f"control-cost ended with status {done.returncode}")
    return json.loads(done.stdout)


def span(runs, *path):
    """The range over the runs of one figure."""
    values = []
    for run in runs:
        for step in path:
            run = run[step]
        values.append(run)
    texts = [f"{value:.1f}" if value < 100 else f"{value:.0f}" for value in (min(values), max(values))]
    return texts[0] if texts[0] == texts[1] else " to ".join(texts)


def tables(runs):
    rows = [[title, *(span(runs, key, side, part) for side in ("plain", "keyed") for part in ("median", "p90"))]
            for title, key in (("handshake", "handshake"), ("processor time of a message", "message"))]
    environment.table("us", ["", "no key", "90th percentile", "key", "90th percentile"], rows)
    rows = [[f"{frame['bytes']} bytes", *(span(runs, "frames", i, part, "median") for part in ("seal", "open"))]
            for i, frame in enumerate(runs[0]["frames"])]
    environment.table("Frames, us (medians)", ["", "seal", "open"], rows,
                      [f"ranges over {len(runs)} runs"])


def main():
    parser = environment.parser(__doc__)
    parser.add_argument("--repeat", type=int, default=5, help="runs")
    parser.add_argument("--handshakes", type=int, default=200, help="of each kind")
    parser.add_argument("--frames", type=int, default=2000, help="of each size")
    parser.add_argument("--rounds", type=int, default=20, help="rounds of messages of each kind")
    parser.add_argument("--messages", type=int, default=500, help="of each way in a round")
    parser.add_argument("--cpu", type=int, default=max(os.sched_getaffinity(0)),
                        help="processor to measure on (default: the last)")
    options = parser.parse_args()
    build = Build(options.build)
    program = build.program("bench", "control-cost")
    build.require(program)
    runs = [measure(program, options) for _ in range(options.repeat)]
    print(environment.machine())
    tables(runs)
    write_json(options.json, {"machine": environment.machine(), "runs": runs})
    return 0


if __name__ == "__main__":
    environment.guarded(main)
