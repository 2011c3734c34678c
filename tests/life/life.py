#!/usr/bin/python3
"""Runs shift-life at both ends: many threads make, use and destroy objects while NICs break and heal.

shift-life judges what it sees; in a sanitizer's build the sanitizer judges the layer. The test `e2e_life`
calls this program. For a long run, call it with `--seconds 600` and a build of the preset tsan.
"""

import os
import random
import sys
import time

from harness import TESTS
from harness.checker import ENDS
from harness.faults import healing
from harness.options import script_parser, seed_add
from harness.ports import free_port
from harness.runs import run_on_fabric

FAULTS = ["link-down", "link-down", "drop-acks", "drop-data"]
# Only the NICs that the program opens die: on a host whose NICs are all dead nothing new can be made, as with the
# stock library.
FAULTS_OF_DEFAULT = FAULTS + ["kill"]
NICS = ["%s/mlx5_%d" % (host, number) for host in "ab" for number in range(2)]
# So many seconds are left for the last objects to end, which is slow under a sanitizer.
ENDING = 120


def weather(fabric, dice, client):
    """Breaks and heals NICs until the client ends: mostly one at a time, sometimes two. Returns their number."""
    count = 0
    while client.process.poll() is None:
        broken = {nic: dice.choice(FAULTS_OF_DEFAULT if nic.endswith("_0") else FAULTS)
                  for nic in dice.sample(NICS, dice.choice([1, 1, 1, 2]))}
        for nic, fault in broken.items():
            fabric.fault(nic, fault)
            count += 1
        client.wait_for(lambda program: False, dice.uniform(0.02, 0.6))
        for nic, fault in broken.items():
            fabric.fault(nic, healing(fault))
        client.wait_for(lambda program: False, dice.uniform(0.05, 1.5))
    return count


def run(fabric, options, problems=None, tell=print):
    """Does one run and returns the exit code. Adds the programs' complaints to `problems`, and gives each line of
    the report to tell()."""
    common = [fabric.build.life, "--seed", options.seed, "--threads", options.threads, "--port", free_port()]
    env = {"SHIFT_LOG": "error",
           "TSAN_OPTIONS": "suppressions=" + os.path.join(TESTS, "life", "tsan.supp"), **options.env}
    server = fabric.start("b", "server", common, env=env)
    client = fabric.start("a", "client", common + ["--seconds", options.seconds, "127.0.0.1"], env=env)
    began = time.monotonic()
    client.wait_for(lambda program: False, 0.5)
    faults = weather(fabric, random.Random(options.seed), client)
    codes = (client.finish(options.seconds + ENDING), server.finish(ENDING))
    moves = len(fabric.records("switched", *ENDS))
    if problems is not None:
        problems += [line for one in (client, server) for line in one.lines
                     if line.startswith("problem")]
    for name, one in (("client", client), ("server", server)):
        tell("%s: %s" % (name, "; ".join(line for line in one.lines if "sets," in line or
                                          line.startswith("problem"))))
    tell("%d faults, %d switches, %.0f s, seed %d" %
         (faults, moves, time.monotonic() - began, options.seed))
    if codes != (0, 0):
        tell("FAILED: exit codes %s and %s" % codes)
        return 1
    if moves == 0:
        tell("FAILED: nothing has moved")
        return 1
    return 0


def main():
    parser = script_parser(__doc__, "out/life")
    parser.add_argument("--seconds", type=int, default=6)
    parser.add_argument("--threads", type=int, default=6)
    seed_add(parser)
    parser.set_defaults(env={})
    options = parser.parse_args()
    return run_on_fabric(options, lambda fabric: run(fabric, options))


if __name__ == "__main__":
    sys.exit(main())
