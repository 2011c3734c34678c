#!/usr/bin/python3
"""The firmware of a NIC hangs: each command of its driver waits, while data may flow or not. The layer's other
NICs go on, a path that breaks is left all the same, and no call of the program waits for the hung NIC's twins.

The test `e2e_commands` calls this program.
"""

import subprocess
import sys

from harness.faults import SIDES
from harness.options import script_parser
from harness.runs import run_on_fabric

from e2e.checker_pair import CheckerPair


def hung_backup(fabric, env):
    """The backup hangs before anything is made there: the program starts, works and ends all the same."""
    for host in SIDES:
        subprocess.run(fabric.command(host, ["true"]), check=True)  # makes the host
    fabric.fault("a/mlx5_1", "hang-commands")
    traffic = CheckerPair(fabric, env=env, armed=False)
    traffic.goes_on(200)
    traffic.end()
    fabric.fault("a/mlx5_1", "heal")
    print("right  a backup that hangs from the start", flush=True)


def hung_default(fabric, env):
    """The default hangs and loses its link: traffic leaves it, and comes home when it is well."""
    traffic = CheckerPair(fabric, env=env)
    fabric.fault("a/mlx5_0", "hang-commands")
    traffic.goes_on(200)
    print("right  data flows while commands hang", flush=True)
    fabric.fault("a/mlx5_0", "link-down")
    traffic.moved("the link of a NIC that hangs", "mlx5_1")
    fabric.fault("a/mlx5_0", "heal")
    traffic.moved("home to the NIC that answers", "mlx5_0")
    fabric.fault("b/mlx5_0", "slow-commands=50")
    fabric.fault("a/mlx5_0", "link-down")
    traffic.moved("slow commands at the peer", "mlx5_1")
    # The program's last calls do not wait for the twins of a NIC that hangs.
    fabric.fault("a/mlx5_1", "hang-commands")
    traffic.end()
    print("right  the end, while a backup hangs", flush=True)


def run(fabric, env=None):
    env = {"SHIFT_COMMAND_MS": "300", **(env or {})}
    hung_backup(fabric, env)
    hung_default(fabric, env)


def main():
    return run_on_fabric(script_parser(__doc__, "out/commands").parse_args(), run)


if __name__ == "__main__":
    sys.exit(main())
