"""In a dry run, SHIFT's own program with NCCL's traffic stands in for the ranks. It compares every byte itself."""

import os

from harness.case import Failure
from harness.checker import RIGHT, checker_start
from harness.waiting import wait_until

from gpu.job import Job

MESSAGES, BEFORE = 2000, 300
SECONDS = 40
STALL_MS = 20000
# The stock stack gives up after a tenth of a second, not after NCCL's half a minute.
QUICK, QUICK_STALL_MS = ["--qp-timeout", 12], 3000


class StandIn(Job):
    """Its things are messages: what a rank waits for is that so many have come."""

    def run(self):
        patience = ["--stall-ms", QUICK_STALL_MS if self.case.dies else STALL_MS]
        server, client = checker_start(
            self.fabric, self.build.nccl, patience,
            ["-n", MESSAGES, "--rate", 1000, "--size", 65536, "--qps", 2, "--split", *patience,
             *(QUICK if self.case.dies else [])],
            layered=(self.case.layer, self.case.layer), env=self.environment("a"))
        if client is None:
            raise Failure("the server did not start")
        self.ranks = {"a": client, "b": server}
        names = ("client", "server")
        if self.case.layer and not wait_until(
                lambda: self.fabric.all_have("armed", 1, *names) or client.ended, SECONDS):
            raise Failure("no second path was ready")
        client.wait_for(lambda one: one.progress >= BEFORE, SECONDS)
        for fault in self.case.faults:
            self.break_nic(fault)
        wait_until(lambda: client.ended or server.ended, SECONDS, 0.02)
        wait_until(lambda: client.ended and server.ended, 2, 0.02)
        return {host: rank.finish(0.5 if not rank.ended else 5) for host, rank in self.ranks.items()}

    def records(self, kind):
        return self.fabric.records(kind, "client", "server")

    def judge(self, codes):
        """Returns the problem, or ''."""
        switched = self.records("switched")
        if self.case.dies:
            return "" if any(code != RIGHT for code in codes.values()) else "the stock stack outlived the fault"
        for host, code in codes.items():
            if code != RIGHT:
                return "the program on %s ended with %s; see %s" % (host, code, os.path.join(self.directory))
        if self.case.switches and len({one["pid"] for one in switched}) < 2:
            return "not both ends have switched: the fault hit nothing"
        return ""
