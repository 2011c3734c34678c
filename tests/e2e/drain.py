#!/usr/bin/python3
"""Tests that an operator can take a NIC out of use under load: no request runs twice, atomics included, nothing
fails, and the program hardly notices.

The test `e2e_drain` calls this program. NICs of either host are drained and taken into use again, in turns,
while traffic runs. shift-once counts how often each WRITE and each atomic is executed, and shift-traffic compares
every byte. Each drain must end with all queue pairs on the other NIC, and their records must say that nothing was
posted again.
"""

import dataclasses
import json
import os
import random
import shutil
import statistics
import sys
import time

from harness import orders
from harness.build import Build
from harness.checker import ENDS, RIGHT, report_of, report_option
from harness.events import EventTail
from harness.fabric import Fabric
from harness.options import script_parser
from harness.pauses import longest_ms
from harness.runs import run_all
from harness.waiting import wait_until

BOUND = 5.0  # seconds within which all queue pairs have moved
HOSTS = {"a": "client", "b": "server"}


@dataclasses.dataclass
class Load:
    name: str
    program: str  # of Build
    options: tuple
    qps: int
    is_steady: bool = True  # its progress without a drain has no gaps that are as long as a drain


AFTER_NS = 3_000_000  # a pause that begins so soon after a change of path belongs to it
CALM_NS = 50_000_000  # so long before a change of path nothing of it has begun
MIX = ("--qps", "4", "--rate", "4000", "--size", "4096", "--random-size", "--op", "mixed", "--bidirectional")
LOADS = (
    Load("WRITEs", "once", ("--op", "write", "--depth", "16", "--size", "16384", "--rate", "3000"), 1),
    Load("atomics", "once", ("--op", "atomic", "--depth", "8", "--rate", "3000"), 1),
    Load("a mix", "traffic", MIX, 4),
    # Each queue pair has a completion every seven milliseconds.
    Load("groups", "traffic", (*MIX, "--signal-every", "7"), 4, is_steady=False),
    Load("batches", "traffic", ("--qps", "2", "--rate", "8000", "--size", "1024", "--op", "write_imm", "--api",
                                "wr", "--batch", "4"), 2),
    Load("sleepers", "traffic", ("--qps", "2", "--rate", "2000", "--size", "512", "--op", "mixed", "--events",
                                 "--bidirectional"), 2),
)


@dataclasses.dataclass
class Planned:
    load: Load
    drains: int
    seed: int
    directory: str


@dataclasses.dataclass
class Outcome:
    drains: int
    problem: str
    us: list       # how long each change of path took, by the layer's records
    seen_ms: list  # how long the program stood still around each; empty if it does not tell
    calm_ms: list  # the same for as long a time before each: what the machine does to the program anyway


class Run:
    def __init__(self, fabric, planned, env=None):
        self.env = {"SHIFT_FAILBACK_MS": "100", "SHIFT_RC_TIMEOUT_MAX": "15", **(env or {})}
        self.fabric, self.planned = fabric, planned
        self.state = {host: os.path.abspath(os.path.join(planned.directory, "state-" + host)) for host in HOSTS}
        self.seen = dict.fromkeys(ENDS, 0)
        self.moves = {end: EventTail(fabric.events_path(end), "switched") for end in ENDS}
        self.dice = random.Random(planned.seed)
        for folder in self.state.values():
            os.mkdir(folder)

    def start(self):
        load, fabric = self.planned.load, self.fabric
        program = getattr(fabric.build, load.program)
        env = self.env
        self.server = fabric.start("b", "server", [program, "--timeout-ms", "120000"] + report_option(
            fabric, "server"), env=env | {"SHIFT_STATE_DIR": self.state["b"]})
        if not self.server.wait_for(lambda one: one.port, 15):
            return "the server did not start"
        self.client = fabric.start(
            "a", "client", [program, "--until-stop", "--timeout-ms", "120000", *load.options, "--seed",
                            str(self.planned.seed)] + report_option(fabric, "client") +
            ["--port", self.server.port, "127.0.0.1"], env=env | {"SHIFT_STATE_DIR": self.state["a"]})
        if not wait_until(lambda: fabric.all_have("armed", load.qps, *ENDS) or self.client.ended, 15):
            return "not armed"
        return self.goes_on()

    def goes_on(self):
        before = self.client.progress
        passed = self.client.wait_for(lambda one: one.progress > before + 20, 20)
        return "" if passed else "no progress"

    def moved(self, member):
        """Whether both ends have moved all queue pairs since the last time, to that NIC."""
        for end in ENDS:
            records = self.moves[end].look()
            newest = {record["qp"]: record["member"] for record in records}
            if len(records) < self.seen[end] + self.planned.load.qps or set(newest.values()) != {member}:
                return False
        return True

    def step(self, member, host, *nics):
        orders.drain(self.state[host], *nics)
        if not wait_until(lambda: self.moved(member) or self.client.ended, BOUND):
            return "not on %s within %g s" % (member, BOUND)
        for end in ENDS:
            records = self.moves[end].look()
            again = [record for record in records[self.seen[end]:] if record["replayed"] or record["completed"]]
            if again:
                return "%s posted again or completed by the peer's word: %s" % (end, again[0])
            self.seen[end] = len(records)
        return self.goes_on()

    def drain(self):
        host = self.dice.choice("ab")
        # The way home is taken when the NIC is in use again.
        return self.step("mlx5_1", host, "mlx5_0") or self.step("mlx5_0", host)

    def end(self):
        self.client.tell("stop")
        codes = self.client.finish(30), self.server.finish(10)
        return "" if codes == (RIGHT, RIGHT) else "the programs ended with %s" % (codes,)


def run(fabric, env=None):
    """A drain while packets are late, so that much is under way. For tests/planted."""
    one = Run(fabric, Planned(LOADS[0], 1, 1, fabric.directory), env)
    problem = one.start()
    if not problem:
        fabric.fault("b/mlx5_0", "delay=10")
        problem = one.goes_on() or one.step("mlx5_1", "a", "mlx5_0")
    problem = problem or one.end()
    if problem:
        raise SystemExit("FAILED: " + problem)


def run_load(build, planned):
    shutil.rmtree(planned.directory, ignore_errors=True)
    os.makedirs(planned.directory)
    with Fabric(build, planned.directory) as fabric:
        one = Run(fabric, planned)
        done, problem = 0, one.start()
        while not problem and done < planned.drains:
            problem = one.drain()
            done += not problem
        if hasattr(one, "client"):
            problem = problem or one.end()
        moves = fabric.records("switched", *ENDS)
        seen = seen_at(planned.directory, moves) if planned.load.is_steady else ([], [])
        return Outcome(done, problem, [move["us"] for move in moves], *seen)


def seen_at(directory, moves):
    """The longest pause of either program around each change of path, also one that begins when the change is
    over: the program has to get going again. And that in a span as long which ends well before the change, if no
    other change lies in it. Pauses below 1 ms are not told, and of the others only the longest ones."""
    pauses = [pause for end in ENDS for pause in report_of(directory, end).get("pauses_ns", [])]
    if not pauses:
        return [], []
    spans = [(move["evidence_ns"], move["end_ns"] + AFTER_NS) for move in moves]
    before = [(2 * begin - end - CALM_NS, begin - CALM_NS) for begin, end in spans]
    calm = [one for one in before if not any(begin < one[1] and end > one[0] for begin, end in spans)]
    return [longest_ms(pauses, *span) for span in spans], [longest_ms(pauses, *span) for span in calm]


def spread_of(ms):
    if not ms:
        return "an unknown time"
    return "%.1f at most (%d of %d above 5), %.1f in the middle" % (
        max(ms), sum(one > 5 for one in ms), len(ms), statistics.median(ms))


def main():
    parser = script_parser(__doc__, "out/drain")
    parser.add_argument("--drains", type=int, default=10, help="of each load")
    parser.add_argument("--jobs", type=int, default=1, help="runs side by side")
    parser.add_argument("--only", help="a part of a load's name")
    parser.add_argument("--seed", type=int, default=int(os.environ.get("SHIFT_TEST_SEED", time.time() % 1e6)))
    parser.add_argument("--json", help="write the result to this file")
    options = parser.parse_args()
    build = Build(options.build)
    build.require(build.shift_run, build.once, build.traffic)
    planned = [Planned(load, options.drains, options.seed + number, os.path.join(options.out, str(number)))
               for number, load in enumerate(LOADS) if not options.only or options.only in load.name]
    outcomes = []

    def tell(one, outcome):
        outcomes.append(outcome)
        times = sorted(outcome.us) or [0]
        seen = "; the program stood still for %s, and as long before for %s" % (
            spread_of(outcome.seen_ms), spread_of(outcome.calm_ms)) if outcome.seen_ms else ""
        print("%-6s %-9s %d drains; each change of path took %.1f ms at most, %.1f in the middle%s%s" % (
            "FAILED" if outcome.problem else "right", one.load.name, outcome.drains, times[-1] / 1000,
            statistics.median(times) / 1000, seen, "; " + outcome.problem if outcome.problem else ""), flush=True)
        if not outcome.problem:
            shutil.rmtree(one.directory)

    run_all(options.jobs, planned, lambda one: run_load(build, one), tell)
    drains, failed = sum(one.drains for one in outcomes), sum(bool(one.problem) for one in outcomes)
    print("%d drains, %d runs of %d failed, seed %d" % (drains, failed, len(outcomes), options.seed))
    if options.json:
        with open(options.json, "w") as file:
            json.dump([dataclasses.asdict(one) for one in outcomes], file)
    sys.exit(1 if failed else 0 if outcomes else 3)


if __name__ == "__main__":
    main()
