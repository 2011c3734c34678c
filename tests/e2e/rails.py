#!/usr/bin/python3
"""Tests paths across rails, from the default NIC of one host to a backup NIC of the other, and the failback.

The test `e2e_rails` calls this program. The default path shares a NIC with a path across rails, so a trade is
needed: the default path can be tried only after the other one is given up. While the peer's default NIC is
silently broken, the trade is in vain: the traffic goes on where it was, and comes home when that NIC is good
again.
"""

import sys

from harness.checker import ENDS
from harness.options import script_parser
from harness.runs import run_on_fabric

from e2e.checker_pair import CheckerPair

IN_VAIN = "a better path may be back"
BROKEN = {"told": "link-down", "silent": "drop-data"}


class Rails(CheckerPair):
    def members(self):
        """The members that client and server use, or None while the QPs of an end are on two members."""
        newest = [{record["qp"]: record["member"] for record in self.switched(name)}
                  for name in ENDS]
        on = [set(members.values()) for members in newest]
        there = all(len(members) == 2 for members in newest) and all(len(m) == 1 for m in on)
        return tuple(m.pop() for m in on) if there else None

    def comes_to(self, what, client, server):
        self.wait(what, lambda: self.members() == (client, server))
        print("right  %s: %s to %s" % (what, client, server), flush=True)
        self.goes_on(50)

    def tried(self):
        return sum(record["cause"] == IN_VAIN for record in self.fabric.records("switched", *ENDS))


def run(fabric):
    traffic = Rails(fabric)
    for kind, fault in BROKEN.items():
        # One path is left: the NIC pair without these two NICs.
        fabric.fault("a/mlx5_1", "link-down")
        fabric.fault("b/mlx5_0", fault)
        traffic.comes_to("across, %s" % kind, "mlx5_0", "mlx5_1")
        if kind == "silent":
            before = traffic.tried()
            traffic.wait("tries in vain", lambda: traffic.tried() >= before + 2)
            traffic.comes_to("in vain", "mlx5_0", "mlx5_1")
        fabric.fault("b/mlx5_0", "heal")
        traffic.comes_to("home, %s" % kind, "mlx5_0", "mlx5_0")
        fabric.fault("a/mlx5_1", "heal")
        traffic.goes_on(50)
    traffic.end()


def main():
    return run_on_fabric(script_parser(__doc__, "out/rails").parse_args(), run)


if __name__ == "__main__":
    sys.exit(main())
