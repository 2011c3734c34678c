#!/usr/bin/python3
"""Tests fault_link.py with a folder in place of /sys and a program in place of ip."""

import os
import subprocess
import sys
import tempfile
import unittest

SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "fault_link.py")
DONE, FAILED, WRONG, CANNOT = 0, 1, 2, 77
IP = """#!/bin/sh
echo "$@" >>"%(root)s/ip.log"
case "$*" in
  "-4 route show default") cat "%(root)s/route" ;;
  "-6 route show default") ;;
  *) [ ! -e "%(root)s/forbidden" ] || { echo "RTNETLINK answers: Operation not permitted"; exit 2; }
     [ ! -e "%(root)s/dull" ] || exit 0
     [ "$4" = up ] && state="4: ACTIVE" || state="1: DOWN"
     echo "$state" >"%(root)s/sys/class/infiniband/r0/ports/1/state" ;;
esac
"""


class FaultLinkTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="fault-link-")
        self.addCleanup(folder.cleanup)
        self.root = folder.name
        self.put("sys/class/infiniband/r0/ports/1/state", "4: ACTIVE\n")
        self.put("sys/class/infiniband/r0/ports/1/link_layer", "Ethernet\n")
        self.put("sys/class/infiniband/r0/ports/1/gid_attrs/ndevs/0", "eth7\n")
        self.put("sys/devices/0000:01:00.0/remove", "")
        self.put("sys/devices/0000:01:00.0/net/eth7/flags", "")
        self.put("sys/class/net/eth7", "")
        self.put("sys/bus/pci/rescan", "")
        os.symlink("../../../devices/0000:01:00.0", os.path.join(self.root, "sys/class/infiniband/r0/device"))
        self.put("route", "default via 192.0.2.1 dev eth0\n")
        self.put("bin/ip", IP % {"root": self.root})
        os.chmod(os.path.join(self.root, "bin/ip"), 0o755)

    def put(self, name, text):
        path = os.path.join(self.root, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as file:
            file.write(text)

    def get(self, name):
        with open(os.path.join(self.root, name)) as file:
            return file.read()

    def drop(self, name):
        os.remove(os.path.join(self.root, name))

    def expect(self, code, says, *words):
        env = dict(os.environ, PATH="%s/bin:%s" % (self.root, os.environ["PATH"]), RDMA_TEST_FAULT_SECONDS="0.1",
                   RDMA_TEST_FAULT_SYS=os.path.join(self.root, "sys"),
                   RDMA_TEST_FAULT_STATE=os.path.join(self.root, "state"))
        done = subprocess.run([sys.executable, SCRIPT, *words], env=env, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, universal_newlines=True)
        self.assertEqual(code, done.returncode, done.stdout)
        self.assertIn(says, done.stdout)

    def link_log(self):
        return [line for line in self.get("ip.log").splitlines() if line.startswith("link")]

    def test_link(self):
        self.expect(DONE, "", "link-down", "r0", "1")
        self.assertIn("DOWN", self.get("sys/class/infiniband/r0/ports/1/state"))
        self.expect(DONE, "", "link-up", "r0", "1")
        self.assertIn("ACTIVE", self.get("sys/class/infiniband/r0/ports/1/state"))
        self.assertEqual(["link set eth7 down", "link set eth7 up"], self.link_log())

    def test_heal_sets_the_link_up(self):
        self.expect(DONE, "", "link-down", "r0", "1")
        self.expect(DONE, "", "heal", "r0", "1")
        self.assertEqual(["link set eth7 down", "link set eth7 up"], self.link_log())

    def test_default_route_stays(self):
        self.put("route", "default via 192.0.2.1 dev eth7\n")
        self.expect(CANNOT, "default route", "link-down", "r0", "1")
        self.put("route", "default via 192.0.2.1 dev eth77\n")
        self.expect(DONE, "", "link-down", "r0", "1")

    def test_port_that_does_not_follow(self):
        self.put("dull", "")
        self.expect(CANNOT, "does not follow eth7", "link-down", "r0", "1")
        self.put("sys/class/infiniband/r0/ports/1/state", "1: DOWN\n")
        self.expect(FAILED, "does not follow eth7", "link-up", "r0", "1")

    def test_without_permission(self):
        self.put("forbidden", "")
        self.expect(CANNOT, "not permitted", "link-down", "r0", "1")
        self.expect(FAILED, "not permitted", "heal", "r0", "1")

    def test_network_device(self):
        self.drop("sys/class/infiniband/r0/ports/1/gid_attrs/ndevs/0")
        self.expect(DONE, "", "link-down", "r0", "1")
        self.put("sys/devices/0000:01:00.0/net/eth8/flags", "")
        self.expect(FAILED, "has no network device", "link-up", "r0", "1")
        self.put("sys/class/infiniband/r0/parent", "eth8\n")
        self.expect(DONE, "", "link-up", "r0", "1")
        self.assertEqual(["link set eth7 down", "link set eth8 up"], self.link_log())

    def test_infiniband(self):
        self.put("sys/class/infiniband/r0/ports/1/link_layer", "InfiniBand\n")
        self.expect(CANNOT, "not on Ethernet", "link-down", "r0", "1")

    def test_kill(self):
        self.expect(DONE, "", "kill", "r0", "1")
        self.assertEqual("1", self.get("sys/devices/0000:01:00.0/remove"))
        os.rename(os.path.join(self.root, "sys/class/infiniband"), os.path.join(self.root, "gone"))
        self.expect(CANNOT, "no port 1 of r0", "link-down", "r0", "1")
        self.expect(FAILED, "does not come back", "revive", "r0", "1")
        self.assertEqual("1", self.get("sys/bus/pci/rescan"))
        os.rename(os.path.join(self.root, "gone"), os.path.join(self.root, "sys/class/infiniband"))
        self.expect(DONE, "", "revive", "r0", "1")
        self.assertEqual(["link set eth7 up"], self.link_log())

    def test_revive_of_what_lives(self):
        self.expect(DONE, "", "revive", "r0", "1")
        self.assertEqual("", self.get("sys/bus/pci/rescan"))

    def test_software_device_has_no_bus(self):
        self.drop("sys/devices/0000:01:00.0/remove")
        self.expect(CANNOT, "not on a PCI bus", "kill", "r0", "1")

    def test_packets(self):
        for fault in ("drop-acks", "drop-data"):
            self.expect(CANNOT, "does not lose packets", fault, "r0", "1")

    def test_wrong_calls(self):
        self.expect(WRONG, "usage", "unplug", "r0", "1")
        self.expect(WRONG, "usage", "link-down", "r0")
        self.expect(CANNOT, "no port 2 of r0", "link-down", "r0", "2")


if __name__ == "__main__":
    unittest.main()
