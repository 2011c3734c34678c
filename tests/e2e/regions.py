#!/usr/bin/python3
"""A program registers and deregisters memory all the time while its traffic is off the default NIC, and its NICs
give out keys again at once: what the peer writes arrives in the memory that it means.

The test `e2e_regions` calls this program. The first NIC gives out the newest key first and the second one the
oldest, so the keys of two regions change places on one NIC only, from turn to turn.
"""

import sys

from harness.checker import ENDS, checker_start
from harness.options import layer_add, script_parser
from harness.runs import run_on_fabric
from harness.waiting import wait_until

BOUND = 10.0  # seconds within which QPs must move
TURNS_BOUND = 60.0
TURNS = 100
REUSE = {"CXEMU_REUSE_KEYS": "1"}
AGAIN = "keys that came again: "


class Regions:
    """Host a writes into regions of host b, which come and go."""

    def __init__(self, fabric, env=None):
        self.fabric = fabric
        env = {"SHIFT_FAILBACK_MS": "200", "SHIFT_RC_TIMEOUT_MAX": "15", **REUSE, **(env or {})}
        patience = ["--timeout-ms", "90000", "--stall-ms", "30000"]
        self.server, self.client = checker_start(fabric, fabric.build.regions, patience,
                                                 [*patience, "--until-stop", "--qps", "1"], env=env)
        if self.client is None:
            raise SystemExit("the server did not start")
        self.wait("armed", lambda: fabric.all_have("armed", 1, *ENDS))

    def wait(self, what, condition, bound=BOUND):
        ended = (lambda: self.client.ended or self.server.ended)
        if not wait_until(lambda: condition() or ended(), bound) or ended():
            for end in (self.client, self.server):
                end.finish(5)
            raise SystemExit("FAILED: %s: not within %g s\n%s\n%s" % (
                what, bound, self.client.text(), self.server.text()))

    def moved(self, what, member):
        def there():
            last = [self.fabric.records("switched", end)[-1:] for end in ENDS]
            return all(one and one[0]["member"] == member for one in last)

        self.wait(what, there)
        before = self.client.progress
        self.wait("turns", lambda: self.client.progress > before + TURNS, TURNS_BOUND)
        if problem := self.fabric.wrong_access(*ENDS):
            raise SystemExit("FAILED: %s: %s" % (what, problem))
        print("right  %s: on %s" % (what, member), flush=True)

    def end(self):
        self.client.tell("stop")
        codes = self.client.finish(20), self.server.finish(20)
        again = [int(line[len(AGAIN):]) for line in self.server.lines if line.startswith(AGAIN)]
        if codes != (0, 0) or not again or again[0] < TURNS:
            raise SystemExit("FAILED: client and server ended with %s, keys came again: %s\n%s" % (
                codes, again, self.server.text()))


def run(fabric, env=None):
    regions = Regions(fabric, env)
    fabric.fault("a/mlx5_0", "link-down")
    regions.moved("the writer's NIC fails", "mlx5_1")
    fabric.fault("a/mlx5_0", "heal")
    regions.moved("home", "mlx5_0")
    regions.end()


def main():
    parser = script_parser(__doc__, "out/regions")
    layer_add(parser)
    return run_on_fabric(parser.parse_args(), run)


if __name__ == "__main__":
    sys.exit(main())
