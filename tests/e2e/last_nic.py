#!/usr/bin/python3
"""Tests that traffic goes on as long as one NIC of each host works, whatever the order in which the others fail.

The test `e2e_last_nic` calls this program. Two hosts have eight NICs each. In each run seven NICs of one host fail
one after the other, or seven of each host, in an order and by faults that the seed draws; a NIC that carries the
traffic is among them again and again. After each fault the traffic must go on, and at the end no byte may be
wrong, nothing lost and nothing given twice. With --plant the layer has a bug, and each run must be refused.
"""

import dataclasses
import os
import random
import shutil
import sys
import time

from harness.build import Build
from harness.checker import RIGHT, checker_start, report_option
from harness.fabric import Fabric
from harness.options import layer_add, script_parser
from harness.runs import run_all
from harness.waiting import wait_until

NICS = 8
FAULTS = ("link-down", "kill", "drop-data")
ENDS = {"a": "client", "b": "server"}
PROGRAMS = {
    "traffic": ("--qps", "4", "--rate", "2000", "--size", "4096", "--random-size", "--op", "mixed",
                "--signal-every", "3"),
    "nccl": ("--connections", "2", "--qps", "2", "--rate", "200", "--size", "65536", "--bidirectional"),
}
# Seconds until the traffic goes on. A silent fault may be met on several ways, one after the other.
BOUND, BOUND_OF_BUGS = 20.0, 4.0


@dataclasses.dataclass
class Planned:
    index: int
    program: str
    hosts: str  # whose NICs fail
    seed: int
    directory: str
    last: int   # the NIC that stays at each host; None: any
    plant: str  # the layer's bug, or None

    def bound(self):
        return BOUND_OF_BUGS if self.plant else BOUND


class Run:
    def __init__(self, fabric, planned):
        self.fabric, self.planned = fabric, planned
        self.dice = random.Random(planned.seed)
        self.left = {host: list(range(NICS)) for host in ENDS}
        # A search that takes this machine longer than a group waits by default is none of this test's business:
        # control/test/search_test.cc bounds it in virtual time.
        self.env = {"SHIFT_SPREAD": "capacity", "SHIFT_FAILBACK_MS": "100", "SHIFT_RC_TIMEOUT_MAX": "13",
                    "SHIFT_EXCHANGE_MS": "10000"}
        if planned.plant:
            self.env["SHIFT_PLANT"] = planned.plant
        self.steps = []

    def start(self):
        program = getattr(self.fabric.build, self.planned.program)
        patience = ["--timeout-ms", "120000", "--stall-ms", "%d" % (1500 * self.planned.bound())]
        traffic = [*PROGRAMS[self.planned.program], "--until-stop", "--seed", str(self.planned.seed)]
        self.server, self.client = checker_start(
            self.fabric, program, patience + report_option(self.fabric, "server"),
            patience + traffic + report_option(self.fabric, "client"), env=self.env)
        if self.client is None:
            return "the server did not start"
        if not wait_until(lambda: self.fabric.all_have("armed", 4, *ENDS.values()) or self.client.ended, 30):
            return "not armed"
        return self.goes_on()

    def goes_on(self):
        before = self.client.progress
        if self.client.wait_for(lambda one: one.progress > before + 40, self.planned.bound()):
            return ""
        steps = ", ".join(self.steps) or "the start"
        if self.client.ended or self.server.ended:
            return "a program ended after %s\nclient: %s\nserver: %s" % (
                steps, self.client.text(), self.server.text())
        return "no progress after %s" % steps

    def carriers(self, host):
        """The NICs of a host that carry queue pairs, by the newest records."""
        newest = {record["qp"]: record["member"] for record in self.fabric.records("switched", ENDS[host])}
        return {int(member.removeprefix("mlx5_")) for member in newest.values()} or {0}

    def victim(self):
        """A NIC that carries traffic, if one that is left does, and in one case of four any other."""
        host = self.dice.choice(self.planned.hosts)
        if len(self.left[host]) == 1:
            return None
        carriers = sorted(self.carriers(host) & set(self.left[host]))
        others = [nic for nic in self.left[host] if nic != self.planned.last]
        carriers = [nic for nic in carriers if nic != self.planned.last]
        return host, self.dice.choice(carriers if carriers and self.dice.random() < 0.75 else others)

    def strike(self):
        host, nic = self.victim() or (None, None)
        if host is None:
            return ""
        fault = self.dice.choice(FAULTS)
        self.left[host].remove(nic)
        self.steps.append("%s of %s/%d" % (fault, host, nic))
        self.fabric.fault("%s/mlx5_%d" % (host, nic), fault)
        time.sleep(self.dice.random() / 10)
        return self.goes_on()

    def end(self):
        self.client.tell("stop")
        codes = self.client.finish(60), self.server.finish(20)
        return "" if codes == (RIGHT, RIGHT) else "the programs ended with %s after %s" % (
            codes, ", ".join(self.steps))


def run(build, planned):
    shutil.rmtree(planned.directory, ignore_errors=True)
    os.makedirs(planned.directory)
    with Fabric(build, planned.directory, NICS) as fabric:
        one = Run(fabric, planned)
        problem = one.start()
        while not problem and any(len(one.left[host]) > 1 for host in planned.hosts):
            problem = one.strike()
        return problem or one.end()


def main():
    parser = script_parser(__doc__, "out/last-nic")
    layer_add(parser)
    parser.add_argument("--plant", help="a planted bug, which each run must show; with --layer")
    parser.add_argument("--last", type=int, help="the NIC that stays, at each host whose NICs fail")
    parser.add_argument("--runs", type=int, default=12)
    parser.add_argument("--only", type=int, action="append", help="repeat runs with these indexes")
    parser.add_argument("--jobs", type=int, default=1, help="runs side by side")
    parser.add_argument("--seed", type=int, default=int(os.environ.get("SHIFT_TEST_SEED", time.time() % 1e6)))
    options = parser.parse_args()
    build = Build(options.build, options.layer)
    build.require(build.shift_run, build.traffic, build.nccl)
    planned = [Planned(i, list(PROGRAMS)[i % 2], ("a", "b", "ab")[i // 2 % 3], options.seed + i,
                       os.path.join(options.out, str(i)), options.last, options.plant)
               for i in range(options.runs) if not options.only or i in options.only]
    failed = []

    def tell(one, problem):
        good = bool(problem) == bool(options.plant)
        print("%s: run %d (%s, NICs of %s)%s" % ("right" if good else "FAILED", one.index, one.program,
                                                 " and ".join(one.hosts), problem and ": " + problem), flush=True)
        if not good:
            failed.append(one.index)

    run_all(options.jobs, planned, lambda one: run(build, one), tell)
    print("%d runs, %d failed, seed %d" % (len(planned), len(failed), options.seed))
    return 1 if failed or not planned else 0


if __name__ == "__main__":
    sys.exit(main())
