#!/usr/bin/python3
"""The network devices beneath the NICs: a carrier that is lost moves the traffic, and one that is
back brings it home. In a network namespace of its own, where each emulated NIC's address is on one
end of a veth pair; the NICs themselves keep working, so that nothing but netlink can tell.

Exit code 77, with the reason, where no network namespace can be made.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from emulated import run_on_fabric, wait_until  # noqa: E402

INSIDE = "--in-namespace"
BOUND = 10.0  # seconds


def ip(*words):
    subprocess.run(["ip", *words], check=True, stdout=subprocess.DEVNULL)


def devices_make(cxemu, fabric):
    """A veth pair for each NIC: `a0` has the address of a/mlx5_0, `a0p` is the cable's other end."""
    ip("link", "set", "lo", "up")
    for host in "ab":
        subprocess.run([cxemu, "exec", "--fabric", fabric, "--host", host, "--",
                        "true"], check=True)
    text = subprocess.run([cxemu, "list", "--fabric", fabric, "--json"],
                          check=True, capture_output=True, text=True).stdout
    for host in json.loads(text)["hosts"]:
        for index, nic in enumerate(host["nics"]):
            name = "%s%d" % (host["host"], index)
            ip("link", "add", name, "type", "veth", "peer", "name", name + "p")
            ip("address", "add", nic["address"] + "/32", "dev", name)
            ip("link", "set", name, "up")
            ip("link", "set", name + "p", "up")


def devices_remove():
    for name in ("a0", "a1", "b0", "b1"):
        subprocess.run(["ip", "link", "delete", name], stderr=subprocess.DEVNULL, check=False)


class Traffic:
    """A client on host a, a server on host b, and what their layers did."""

    NAMES = ("client", "server")

    def __init__(self, fabric):
        self.fabric = fabric
        words = [fabric.build.traffic, "--qps", "2", "--rate", "2000", "--size", "512",
                 "--timeout-ms", "60000", "--events"]
        # A busy machine must not look like a silent fault.
        env = {"SHIFT_FAILBACK_MS": "200", "SHIFT_RC_TIMEOUT_MAX": "15"}
        self.seen = {n: 0 for n in self.NAMES}
        self.server = fabric.start("b", "server", [fabric.build.traffic, "--port", "0",
                                                   "--timeout-ms", "60000"], True, env)
        if not self.server.wait_for(lambda p: p.port, 15):
            raise SystemExit("the server did not start")
        self.client = fabric.start("a", "client", words + [
            "--op", "mixed", "--until-stop", "--bidirectional", "localhost", "--port",
            str(self.server.port)], True, env)
        self.wait("armed", lambda: all(len(fabric.events(n, "armed")) >= 2 for n in self.NAMES))

    def wait(self, what, condition):
        if not wait_until(lambda: condition() or self.client.ended, BOUND) or self.client.ended:
            raise SystemExit("FAILED: %s: not within %g s\n%s" % (what, BOUND, self.client.text()))

    def switched(self, name):
        return [json.loads(line) for line in self.fabric.events(name, "switched")]

    def noticed_by(self, name):
        return [record["detector"] for record in self.switched(name)]

    def moved(self, what, member, name="", detector=""):
        """Waits until both ends' QPs are on `member`; the first that left must have been told of it
        at the end `name` by `detector`."""
        seen = self.seen

        def there(end):
            newest = {record["qp"]: record["member"] for record in self.switched(end)}
            return len(self.switched(end)) >= seen[end] + 2 and set(newest.values()) == {member}

        self.wait(what, lambda: all(there(n) for n in self.NAMES))
        if name and detector not in self.noticed_by(name)[seen[name]:]:
            raise SystemExit("FAILED: %s: the %s was told by %s" % (
                what, name, self.noticed_by(name)[seen[name]:]))
        print("right  %s: to %s, %s" % (what, member, detector or "home"), flush=True)
        self.seen = {n: len(self.noticed_by(n)) for n in self.NAMES}
        self.goes_on(50)

    def goes_on(self, messages):
        before = self.client.progress
        self.wait("progress", lambda: self.client.progress > before + messages)

    def untouched(self, what):
        self.goes_on(1000)
        for name in self.NAMES:
            told = set(self.noticed_by(name)[self.seen[name]:]) & {"link-state", "address"}
            if told:
                raise SystemExit("FAILED: %s: the %s was told by %s" % (what, name, told))
        print("right  %s: nothing moves" % what, flush=True)

    def end(self):
        self.client.tell("stop")
        codes = self.client.finish(20), self.server.finish(20)
        if codes != (0, 0):
            raise SystemExit("FAILED: the checker ended with %s" % (codes,))


def run(fabric):
    devices_make(fabric.build.cxemu, fabric.name)
    traffic = Traffic(fabric)
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


def namespace_words():
    """The words before a command that give it a network namespace; empty: none can be made."""
    for words in (["unshare", "--net"], ["unshare", "--map-root-user", "--net"]):
        probe = words + ["sh", "-c", "ip link add x0 type veth peer name x1"]
        if shutil.which(words[0]) and shutil.which("ip") and subprocess.run(
                probe, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode == 0:
            return words
    return []


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", default="build")
    parser.add_argument("--out", default="out/links")
    parser.add_argument(INSIDE, action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if not options.in_namespace:
        words = namespace_words()
        if not words:
            print("SKIPPED: no network namespace with veth devices can be made here")
            return 77
        return subprocess.run(words + [sys.executable] + sys.argv + [INSIDE], check=False).returncode
    return run_on_fabric(options, run)


if __name__ == "__main__":
    sys.exit(main())
