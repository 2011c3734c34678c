#!/usr/bin/python3
"""Tests hosts with many processes, each with several queue pairs: all of them are bound, and when their NIC breaks
all of them change to the other one and come back when it is well, with every byte right. When it dies, they stay.

The test `e2e_many` calls this program with a few processes; `--processes 64` is a host with a process for each
of 64 cores, and `--rate 4` lets two processors carry that. It also asks shiftctl for the status of all of them,
and says how long each step took. Where two processors carry all of them and their emulated NICs, these times are
mostly the emulator's.
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
import time

from harness.build import Build
from harness.checker import RIGHT, report_option
from harness.events import EventTail
from harness.fabric import Fabric
from harness.faults import healing
from harness.options import script_parser
from harness.waiting import wait_until

TRAFFIC = ("--until-stop", "--op", "mixed", "--size", "512", "--events")  # most of them sleep
FAULTS = ("link-down", "drop-data", "kill")  # a NIC that has died is not used again
HOSTS = {"a": "client", "b": "server"}
LOOK_S = 0.05  # to look at all programs is work, too


class Failure(Exception):
    pass


def expect(condition, problem):
    if not condition:
        raise Failure(problem)


class Crowd:
    """So many pairs of shift-traffic, each with `qps` queue pairs between the hosts a and b."""

    def __init__(self, fabric, options):
        self.fabric, self.options, self.bound = fabric, options, options.bound
        self.pairs = []  # (server, client)
        self.names = [HOSTS[host] + str(i) for i in range(options.processes) for host in HOSTS]
        self.tails = {(name, kind): EventTail(fabric.events_path(name), kind)
                      for name in self.names for kind in ("armed", "switched")}
        self.env = {"SHIFT_FAILBACK_MS": "500", "SHIFT_RC_TIMEOUT_MAX": "%d" % options.rc_timeout}
        for host in HOSTS:
            os.makedirs(self.state(host))

    def state(self, host):
        return os.path.join(self.fabric.directory, "state-" + host)

    def start(self):
        patience = ["--timeout-ms", "900000", "--stall-ms", "%d" % (2000 * self.bound)]
        for i in range(self.options.processes):
            server = self.start_one("b", i, patience)
            expect(server.wait_for(lambda one: one.port, self.bound), "server %d did not start" % i)
            client = self.start_one("a", i, [
                *patience, *TRAFFIC, "--qps", str(self.options.qps), "--rate", str(self.options.rate), "--seed",
                str(i + 1), "--port", server.port, "127.0.0.1"])
            self.pairs.append((server, client))

    def start_one(self, host, number, words):
        name = HOSTS[host] + str(number)
        line = [self.fabric.build.traffic, *report_option(self.fabric, name), *words]
        return self.fabric.start(host, name, line, env=self.env | {"SHIFT_STATE_DIR": self.state(host)})

    def counted(self, kind, name):
        return len(self.tails[name, kind].look())

    def all_reach(self, kind, rounds, what):
        """Waits until each queue pair has `rounds` records of this kind; returns how long that took."""
        begin, waiting = time.monotonic(), list(self.names)

        def reached():
            waiting[:] = [name for name in waiting if self.counted(kind, name) < rounds * self.options.qps]
            return not waiting or self.ended()

        expect(wait_until(reached, self.bound, LOOK_S) and not waiting,
               "%s: %d of %d processes have not, within %g s" % (what, len(waiting), len(self.names), self.bound))
        return time.monotonic() - begin

    def ended(self):
        return any(program.ended for pair in self.pairs for program in pair)

    def goes_on(self, what):
        clients = [client for _, client in self.pairs]
        before = [client.progress for client in clients]
        for client, count in zip(clients, before):
            expect(client.wait_for(lambda one, count=count: one.progress > count + 5, self.bound),
                   "%s: a program stands still" % what)

    def status(self):
        """How long shiftctl needs for a host, and whether it tells of all queue pairs as protected ones."""
        begin = time.monotonic()
        done = subprocess.run([os.path.join(self.fabric.build.path, "bin", "shiftctl"), "--state-dir",
                               self.state("a"), "status", "--json"], capture_output=True, text=True, timeout=60)
        took = time.monotonic() - begin
        expect(done.returncode == 0, "shiftctl ended with %d: %s" % (done.returncode, done.stderr))
        qps = [qp for process in json.loads(done.stdout)["processes"] for qp in process["qps"]]
        expect([qp["standing"] for qp in qps] == ["protected"] * (self.options.processes * self.options.qps),
               "shiftctl tells of %d queue pairs, not all protected" % len(qps))
        return took, len(qps)

    def strike(self, fault, round_number):
        host = "ab"[round_number % 2]
        self.fabric.fault(host + "/mlx5_0", fault)
        away = self.all_reach("switched", 2 * round_number + 1, fault)
        self.goes_on(fault)
        print("%-10s at %s: all away after %.1f s" % (fault, host, away), flush=True)
        if fault == "kill":
            return
        self.fabric.fault(host + "/mlx5_0", healing(fault))
        back = self.all_reach("switched", 2 * round_number + 2, "the way back from " + fault)
        self.goes_on("the way back from " + fault)
        print("%-10s at %s: all back after %.1f s" % (fault, host, back), flush=True)

    def pauses_print(self):
        """A queue pair's own change of path, from its detection; the way back is the change to the default NIC."""
        us = {True: [], False: []}
        for one in self.fabric.records("switched", *self.names):
            us[one["member"] == "mlx5_0"].append(one["us"])
        for goes_home, title in ((False, "away"), (True, "back")):
            print("%s: %d changes of path, of %.1f ms in the middle and %.1f at most" % (
                title, len(us[goes_home]), statistics.median(us[goes_home]) / 1000, max(us[goes_home]) / 1000),
                flush=True)

    def end(self):
        for _, client in self.pairs:
            client.tell("stop")
        for i, (server, client) in enumerate(self.pairs):
            codes = client.finish(self.bound), server.finish(self.bound)
            expect(codes == (RIGHT, RIGHT), "pair %d ended with %s" % (i, codes))


def run(build, options):
    shutil.rmtree(options.out, ignore_errors=True)
    os.makedirs(options.out)
    with Fabric(build, options.out) as fabric:
        crowd = Crowd(fabric, options)
        begin = time.monotonic()
        crowd.start()
        crowd.all_reach("armed", 1, "the start")
        crowd.goes_on("the start")
        print("%d processes on each host, %d queue pairs each: all protected after %.1f s" % (
            options.processes, options.qps, time.monotonic() - begin), flush=True)
        took, qps = crowd.status()
        print("shiftctl status: %.0f ms for %d queue pairs" % (took * 1000, qps), flush=True)
        for number, fault in enumerate(FAULTS):
            crowd.strike(fault, number)
        crowd.pauses_print()
        crowd.end()


def main():
    parser = script_parser(__doc__, "out/many")
    parser.add_argument("--processes", type=int, default=16, help="on each host (default: %(default)s)")
    parser.add_argument("--qps", type=int, default=32, help="of each process (default: %(default)s)")
    parser.add_argument("--rate", type=int, default=20, help="operations a second of each process")
    parser.add_argument("--rc-timeout", type=int, default=18,
                        help="SHIFT_RC_TIMEOUT_MAX: busy processors need more (default: %(default)s)")
    parser.add_argument("--bound", type=float, default=120, help="seconds within which each step must be over")
    options = parser.parse_args()
    build = Build(options.build)
    build.require(build.shift_run, build.traffic, os.path.join(build.path, "bin", "shiftctl"))
    try:
        run(build, options)
    except Failure as problem:
        print("FAILED: %s" % problem)
        return 1
    print("right")
    return 0


if __name__ == "__main__":
    sys.exit(main())
