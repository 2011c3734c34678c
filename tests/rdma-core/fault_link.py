#!/usr/bin/python3
"""Breaks or heals the link of an RDMA device of this machine: fault_link.py FAULT DEVICE PORT. A value of
RDMA_TEST_FAULT_CMD for hardware and for soft-RoCE; it needs root.

link-down and link-up set the port's network device down and up, kill takes the device from its PCI bus, revive has
the bus look for it again, and heal does what link-up or revive do. A real link cannot lose some packets only. The
exit status is 0 when all is done, 77 when a fault cannot be made, 1 when one cannot be ended, and 2 after a wrong
call.
"""

import os
import subprocess
import sys
import time

SYS = os.environ.get("RDMA_TEST_FAULT_SYS", "/sys")  # its own test has another one
STATE = os.environ.get("RDMA_TEST_FAULT_STATE", "/run/rdma-test-fault")  # what revive must know of a dead device
SECONDS = float(os.environ.get("RDMA_TEST_FAULT_SECONDS", "30"))  # how long a driver may take
FAULTS = ("link-down", "link-up", "kill", "revive", "drop-acks", "drop-data", "heal")
ENDS = ("link-up", "revive", "heal")
CANNOT = 77


class Cannot(Exception):
    """Says why a fault cannot be made."""


def sys_path(*words):
    return os.path.join(SYS, *words)


def read(*words):
    try:
        with open(sys_path(*words)) as file:
            return file.read().strip()
    except OSError:  # an empty entry of a table of GIDs cannot be read
        return ""


def write(text, *words):
    try:
        with open(sys_path(*words), "w") as file:
            file.write(text)
    except OSError as error:
        raise Cannot("Cannot write to %s: %s" % (sys_path(*words), error.strerror)) from error


def listed(*words):
    try:
        return sorted(os.listdir(sys_path(*words)), key=lambda name: (len(name), name))
    except OSError:
        return []


def ip(*words):
    done = subprocess.run(["ip", *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          universal_newlines=True)
    if done.returncode != 0:
        raise Cannot("ip %s: %s" % (" ".join(words), done.stdout.strip()))
    return done.stdout


def wait_until(condition, complaint):
    deadline = time.monotonic() + SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise Cannot(complaint)
        time.sleep(0.01)


class Port:
    """One port of an RDMA device."""

    def __init__(self, device, port):
        self.device, self.port = device, port
        self.folder = ("class", "infiniband", device)
        self.memory = os.path.join(STATE, device)

    def exists(self):
        return os.path.isdir(sys_path(*self.folder, "ports", self.port))

    def is_active(self):
        return "ACTIVE" in read(*self.folder, "ports", self.port, "state")

    def netdev(self):
        """The network device of the port: that of its GIDs, of a software device, or the only one there is."""
        if read(*self.folder, "ports", self.port, "link_layer") != "Ethernet":
            raise Cannot("%s is not on Ethernet: a network device does not decide about its link" % self.device)
        ndevs = (*self.folder, "ports", self.port, "gid_attrs", "ndevs")
        names = [read(*ndevs, index) for index in listed(*ndevs)] + [read(*self.folder, "parent")]
        below = listed(*self.folder, "device", "net")
        names += below if len(below) == 1 else []
        found = [name for name in names if name]
        if not found:
            raise Cannot("%s has no network device" % self.device)
        return found[0]

    def set_link(self, state):
        name = self.netdev()
        if state == "down" and any(" dev %s " % name in line + " " for family in ("-4", "-6")
                                   for line in ip(family, "route", "show", "default").splitlines()):
            raise Cannot("%s carries the default route of this machine" % name)
        ip("link", "set", name, state)
        wait_until(lambda: self.is_active() == (state == "up"), "The port of %s does not follow %s" % (
            self.device, name))

    def kill(self):
        function = os.path.realpath(sys_path(*self.folder, "device"))
        if not os.path.exists(os.path.join(function, "remove")):
            raise Cannot("%s is not on a PCI bus" % self.device)
        name = self.netdev()
        os.makedirs(STATE, mode=0o700, exist_ok=True)
        with open(self.memory, "w") as file:
            file.write(name)
        write("1", function, "remove")

    def revive(self):
        """Looks for a device that kill has taken, and sets its link up."""
        if not os.path.exists(self.memory):
            return
        with open(self.memory) as file:
            name = file.read()
        write("1", "bus", "pci", "rescan")
        wait_until(lambda: self.exists() and os.path.exists(sys_path("class", "net", name)),
                   "%s does not come back" % self.device)
        os.remove(self.memory)
        self.set_link("up")


def make(fault, port):
    if fault in ("drop-acks", "drop-data"):
        raise Cannot("A real link does not lose packets of one direction only")
    if fault in ("revive", "heal"):
        port.revive()
        if fault == "revive":
            return
    if not port.exists():
        raise Cannot("There is no port %s of %s" % (port.port, port.device))
    if fault == "kill":
        port.kill()
    else:
        port.set_link("down" if fault == "link-down" else "up")


def main():
    if len(sys.argv) != 4 or sys.argv[1] not in FAULTS:
        print("usage: fault_link.py %s DEVICE PORT" % "|".join(FAULTS))
        return 2
    try:
        make(sys.argv[1], Port(*sys.argv[2:]))
    except Cannot as why:
        print(why)
        # A fault that is not there is a test less, but one that stays is wrong.
        return 1 if sys.argv[1] in ENDS else CANNOT
    return 0


if __name__ == "__main__":
    sys.exit(main())
