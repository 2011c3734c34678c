"""Looks for requests that run twice: beside the traffic of a cell, shift-once sends WRITEs through the same NICs,
which no notification covers, and its server counts how often each was executed."""

import re

from harness import checker
from harness.waiting import wait_until

ENDS = ("witness-client", "witness-server")
# Slow traffic: the machine's processors are for the cell's own. It waits for longer than any switch may take.
BOTH = ["--until-stop", "--timeout-ms", "60000"]
OPTIONS = ["--op", "write", "--depth", "16", "--size", "8192", "--rate", "400", "--quiet-ms", "100",
           "--stall-ms", "12000"]
# What its ends call a WRITE that ran twice.
TWICE = {"written-twice", "server"}
RAN_TWICE = "a WRITE ran twice"


class Witness:
    """Both ends of shift-once. `is_met`: its QP was protected before the fault."""

    def __init__(self, fabric, env):
        self.fabric = fabric
        self.server, self.client = checker.checker_start(
            fabric, fabric.build.once, BOTH, BOTH + OPTIONS, env=env, names=ENDS)
        self.is_met = self.client is not None and wait_until(
            lambda: fabric.all_have("armed", 1, *ENDS) or self.client.ended, 10) and not self.client.ended

    def problems(self, may_repeat, must_pass, bound):
        """Ends it. `may_repeat`: the NIC that received its WRITEs has died, and nobody asks for a proof.
        `must_pass`: it must go on within `bound` seconds, without an error."""
        if self.client is None:
            return ["the witness did not start"]
        if must_pass:
            before = self.client.progress
            self.client.wait_for(lambda one: one.progress > before, bound)
        self.client.tell("stop")
        codes = self.client.finish(20), self.server.finish(15)
        wrong = set(re.findall(r"VIOLATION ([\w-]+)", self.client.text() + self.server.text()))
        if wrong - TWICE:
            return ["the witness saw: " + ", ".join(sorted(wrong - TWICE))]
        if wrong:
            return [] if may_repeat else [RAN_TWICE]
        return ["the witness ended with %s and %s" % codes] if must_pass and codes != (0, 0) else []
