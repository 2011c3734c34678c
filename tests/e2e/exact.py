#!/usr/bin/python3
"""Tests the modes exact and auto: nothing runs twice. Without a proof, a request gets an error in the mode exact,
and runs again in the mode auto.

The test `e2e_exact` calls this program. shift-once counts how often each WRITE and each atomic was executed.
In the mode relaxed it must see a WRITE that ran twice, else it proves nothing about the other modes.
"""

import dataclasses
import os
import re
import shutil
import sys
import time

from harness.build import Build
from harness.checker import ENDS, ERROR, HANG, RIGHT, VIOLATION, checker_start
from harness.fabric import Fabric
from harness.options import script_parser
from harness.runs import run_all
from harness.waiting import wait_until

TWICE = {"written-twice", "server"}  # what the server says of a WRITE that ran twice, and the client then
BOUND = 8.0  # seconds until all QPs have moved or the program has its error (C6, C7)


@dataclasses.dataclass
class Case:
    mode: str
    op: str
    fault: str
    side: str      # the host whose default NIC fails; host b is written to
    allowed: tuple  # exit codes of the client
    why: str = ""

    def name(self):
        return "%s %s %s on %s" % (self.mode, self.op, self.fault, self.side)


@dataclasses.dataclass
class Planned:
    case: Case
    directory: str


@dataclasses.dataclass
class Outcome:
    client: int  # exit code, None without one
    server: int
    problem: str
    skipped: bool  # a WRITE went on in its middle
    wrong: set     # the names of what both ends found wrong
    right: bool


def cases():
    for mode in ("exact", "auto"):
        for fault in ("link-down", "drop-acks", "drop-data", "drop-data after=6"):
            for side in "ab":
                yield Case(mode, "write", fault, side, (RIGHT,))
        yield Case(mode, "write", "kill", "a", (RIGHT,))
        for side in "ab":
            yield Case(mode, "atomic", "drop-data", side, (RIGHT,))
            for fault in ("link-down", "drop-acks", "kill"):
                yield Case(mode, "atomic", fault, side, (RIGHT, ERROR), "a result may be lost")
    yield Case("exact", "write", "kill", "b", (RIGHT, ERROR), "the dead NIC says nothing")
    yield Case("auto", "write", "kill", "b", (RIGHT, VIOLATION), "the dead NIC says nothing")
    yield Case("relaxed", "write", "drop-acks", "a", (VIOLATION,), "the checker sees what relaxed allows")


def run(build, case, directory):
    """Returns the exit codes of client and server, a problem, whether a WRITE went on in its middle, and the names
    of what both ends found wrong."""
    shutil.rmtree(directory, ignore_errors=True)
    os.makedirs(directory)
    env = {"SHIFT_MODE": case.mode}
    with Fabric(build, directory) as fabric:
        server, client = checker_start(
            fabric, build.once, ["--until-stop", "--timeout-ms", "30000"],
            ["--until-stop", "--op", case.op, "--depth", "16", "--size", "16384", "--rate", "3000",
             "--quiet-ms", "100", "--stall-ms", "7000"], env=env)
        if client is None:
            return None, None, "the server did not start", False, set()
        problem = ""
        is_armed = wait_until(lambda: fabric.all_have("armed", 1, *ENDS) or client.ended, 10)
        if not is_armed or client.ended:
            problem = "not armed"
        elif not client.wait_for(lambda p: p.progress >= 100, 10):
            problem = "no progress"
        else:
            fabric.fault("%s/mlx5_0" % case.side, case.fault)
            if case.fault == "drop-acks":
                # Ends the traffic before anything runs again, so that no later message hides a second WRITE.
                time.sleep(0.015)
                client.tell("stop")
            if not wait_until(lambda: fabric.all_have("switched", 1, *ENDS) or client.ended, BOUND):
                problem = "neither moved nor failed in time"
            before = client.progress
            client.wait_for(lambda p: p.progress > before, 2)
        client.tell("stop")
        codes = client.finish(20), server.finish(10)
        skipped = any('"skipped_packets":0' not in line for line in fabric.events("client", "switched"))
        wrong = set(re.findall(r"VIOLATION ([\w-]+)", client.text() + server.text()))
        return codes + (problem, skipped, wrong)


def run_armed(build, planned):
    case = planned.case
    for _ in range(5):
        client, server, problem, skipped, wrong = run(build, case, planned.directory)
        # The machine gave no processor for 70 ms; a QP that is not protected yet then breaks.
        if problem == "not armed":
            continue
        # A client that had no processor has posted nothing between the fault and its end, so nothing could run
        # twice.
        if case.mode == "relaxed" and client == RIGHT:
            continue
        break
    # Both ends must agree that nothing ran twice, whatever else happened. Where that may be, nothing else may be
    # wrong.
    right = not problem and client in case.allowed and server not in (None, HANG) and wrong <= (
        TWICE if VIOLATION in case.allowed else set())
    return Outcome(client, server, problem, skipped, wrong, right)


def main():
    parser = script_parser(__doc__, "out/exact")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1, help="runs side by side")
    parser.add_argument("--only", help="a part of a case's name")
    options = parser.parse_args()
    build = Build(options.build)
    build.require(build.shift_run, build.once)
    begun = time.monotonic()
    planned = [Planned(case, os.path.join(options.out, "%d-%d" % (turn, number)))
               for turn in range(options.rounds) for number, case in enumerate(cases())
               if not options.only or options.only in case.name()]
    outcomes = []

    def tell(one, outcome):
        outcomes.append(outcome)
        print("%-6s %-38s client %s server %s %s" % (
            "right" if outcome.right else "FAILED", one.case.name(), outcome.client, outcome.server,
            outcome.problem or ", ".join(sorted(outcome.wrong)) or one.case.why), flush=True)
        if outcome.right:
            shutil.rmtree(one.directory)

    run_all(options.jobs, planned, lambda one: run_armed(build, one), tell)
    runs, failed = len(outcomes), sum(not o.right for o in outcomes)
    proven, continued = sum(o.client == RIGHT for o in outcomes), sum(o.skipped for o in outcomes)
    print("%d runs, %d failed, %d without an error, %d went on in the middle of a WRITE, %.0f s" % (
        runs, failed, proven, continued, time.monotonic() - begun))
    return 1 if failed or not runs else 0


if __name__ == "__main__":
    sys.exit(main())
