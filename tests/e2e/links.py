#!/usr/bin/python3
"""The network devices beneath the NICs: a carrier that is lost moves the traffic, and one that is
back brings it home. In a network namespace of its own, where each emulated NIC's address is on one
end of a veth pair; the NICs themselves keep working, so that nothing but netlink can tell.

Exit code 77, with the reason, where no network namespace can be made.
"""

import argparse
import sys

from harness.devices import INSIDE, devices_make, ip, run_inside
from harness.options import script_parser
from harness.runs import run_on_fabric

from e2e.checker_pair import CheckerPair


def run(fabric):
    devices_make(fabric)
    traffic = CheckerPair(fabric)
    ip("link", "set", "a0p", "down")
    traffic.moved("no carrier", "mlx5_1", "client", "link-state")
    ip("link", "set", "a0p", "up")
    traffic.moved("the carrier is back", "mlx5_0")
    ip("link", "set", "b0", "down")
    traffic.moved("device down at the peer", "mlx5_1", "server", "link-state")
    # The port is as good as ever, and has to say so: it takes both.
    fabric.fault("b/mlx5_0", "link-down")
    fabric.fault("b/mlx5_0", "link-up")
    ip("link", "set", "b0", "up")
    traffic.moved("device up at the peer", "mlx5_0")
    # The address leaves the host, but not yet the NIC's GID table: nothing is wrong with the path.
    address = fabric.counters("a/mlx5_0")["address"]
    ip("address", "del", address + "/32", "dev", "a0")
    traffic.untouched("an address that the GID table keeps")
    # Nor does the state of a device matter that has none of our addresses.
    ip("link", "set", "a0", "down")
    traffic.untouched("a device of others")
    traffic.end()


def main():
    parser = script_parser(__doc__, "out/links")
    parser.add_argument(INSIDE, action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.in_namespace:
        return run_on_fabric(options, run)
    status = run_inside()
    if status is None:
        print("SKIPPED: no network namespace with veth devices can be made here")
        return 77
    return status


if __name__ == "__main__":
    sys.exit(main())
