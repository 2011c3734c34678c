#!/usr/bin/python3
"""Tests the watch of network devices: a lost carrier moves the traffic, and its return brings it home.

The test `e2e_links` calls this program. It runs in a network namespace of its own, where the address of each
emulated NIC is on one end of a veth pair. The NICs themselves keep working, so that only netlink can tell of
the fault. Where no network namespace can be made, it says so and exits with 77.
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
    # A NIC is good when both its port and its device are. The port goes down and up while the device is down.
    fabric.fault("b/mlx5_0", "link-down")
    fabric.fault("b/mlx5_0", "link-up")
    ip("link", "set", "b0", "up")
    traffic.moved("device up at the peer", "mlx5_0")
    # The address leaves the host but stays in the NIC's GID table, so nothing is wrong with the path.
    address = fabric.counters("a/mlx5_0")["address"]
    ip("address", "del", address + "/32", "dev", "a0")
    traffic.untouched("an address that the GID table keeps")
    # The state of a device without an address of a NIC does not matter.
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
