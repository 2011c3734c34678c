"""Makes network devices for emulated NICs in a network namespace, so that tests can take away their carriers
and addresses."""

import argparse
import shutil
import subprocess
import sys

INSIDE = "--in-namespace"


def ip(*words):
    subprocess.run(["ip", *words], check=True, stdout=subprocess.DEVNULL)


def namespace_words():
    """The words that run a command in a new network namespace; empty when none can be made."""
    for words in (["unshare", "--net"], ["unshare", "--map-root-user", "--net"]):
        probe = words + ["sh", "-c", "ip link add x0 type veth peer name x1"]
        if shutil.which(words[0]) and shutil.which("ip") and subprocess.run(
                probe, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode == 0:
            return words
    return []


def run_inside():
    """Runs this script again in a network namespace. Returns its exit status, or None when none can be made."""
    words = namespace_words()
    if not words:
        return None
    return subprocess.run(words + [sys.executable] + sys.argv + [INSIDE], check=False).returncode


def main_inside(parser, run):
    """Runs `run(options)` in a network namespace of its own or, where none can be made, here."""
    parser.add_argument(INSIDE, action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.in_namespace:
        ip("link", "set", "lo", "up")
        return run(options)
    status = run_inside()
    return run(options) if status is None else status


def devices_make(fabric):
    """Makes a veth pair for each NIC: `a0` has the address of a/mlx5_0, `a0p` is the cable's other end."""
    ip("link", "set", "lo", "up")
    for host in "ab":
        subprocess.run(fabric.command(host, ["true"]), check=True)
    for host, nics in fabric.hosts().items():
        for index, nic in enumerate(nics.values()):
            name = "%s%d" % (host, index)
            ip("link", "add", name, "type", "veth", "peer", "name", name + "p")
            ip("address", "add", nic["address"] + "/32", "dev", name)
            ip("link", "set", name, "up")
            ip("link", "set", name + "p", "up")


def devices_remove():
    for name in ("a0", "a1", "b0", "b1"):
        subprocess.run(["ip", "link", "delete", name], stderr=subprocess.DEVNULL, check=False)
