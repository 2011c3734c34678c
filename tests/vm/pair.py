"""Two test machines, a and b, joined by two rails and a control network, and the faults of their NICs.

The NICs are rail0 and rail1 (with the verbs devices rxe0 and rxe1) and control. What the programs under test
say to each other without verbs goes over the control network, which never breaks.
"""

import os
import re
import shutil
import tempfile
import time

from harness.events import event_lines
from harness.ports import TABLES, has_listener
from harness.waiting import wait_until

from programs import compiled
from vm.image import HERE
from vm.machine import BOOT_MAX, Machine

NUMBERS = {"a": 1, "b": 2}
NETWORKS = {"rail0": "192.0.2", "rail1": "198.51.100", "control": "203.0.113"}
MTU = 4500  # large packets, so that there are fewer: the processors are emulated
# Emulated processors are slow, so a protected QP needs more patience, and the two ends a later deadline.
PATIENCE = {"SHIFT_RC_TIMEOUT_MAX": "14", "SHIFT_EXCHANGE_MS": "10000", "SHIFT_FENCE_MS": "5000"}


def address(nic, host):
    return "%s.%d" % (NETWORKS[nic], NUMBERS[host])


def other(host):
    return "b" if host == "a" else "a"


# The opcodes of a reliable connection's responses, 0x0d to 0x12, as value and mask. The responses of READs and
# atomics acknowledge, too, as 0x11 does. The opcode is the first byte after the UDP header.
RESPONSES = [("0x0d", "0xff"), ("0x0e", "0xfe"), ("0x10", "0xfe"), ("0x12", "0xff")]


def drop_filters(what):
    """The tc filters of the receiving side. Between link-local GIDs, RoCE uses IPv6."""
    filters = []
    for protocol, match, after_udp in (("ip", "ip", 28), ("ipv6", "ip6", 48)):
        roce = "protocol %s u32 match %s dport 4791 0xffff " % (protocol, match)
        if what == "data":
            filters.append(roce + "action drop")
        else:
            filters += [roce + "match u8 %s %s at %d action drop" % (*response, after_udp)
                        for response in RESPONSES]
    return filters


class KernelStuck(Exception):
    """The kernel does not let go of a NIC (README)."""


class Pair:
    def __init__(self, build, image, directory):
        self.build = os.path.abspath(build)
        self.directory = directory
        # The names of sockets must be short.
        self.scratch = tempfile.mkdtemp(prefix="shift-vm-")
        self.common = os.path.join(self.scratch, "common")
        os.mkdir(self.common)
        self.meetings = 0
        self.machines = {}
        self.unbound = {}
        self.fresh = True  # no case has run yet
        self.fault_said = ""  # by a kernel, of itself
        self.image = image

    def __enter__(self):
        begun = time.monotonic()
        try:
            for host, number in NUMBERS.items():
                rails = [tuple(os.path.join(self.scratch, "%s%d" % (end, i))
                               for end in (host, other(host))) for i in range(len(NETWORKS))]
                self.machines[host] = Machine(host, number, self.image, self.scratch,
                                              self.common, rails)
            for machine in self.machines.values():
                machine.wait_up()
            ups = [self.machines[host].start("host_up", [
                "%s/guest/host_up.sh" % HERE, str(number), str(MTU)])
                for host, number in NUMBERS.items()]
            for up in ups:
                if up.finish(BOOT_MAX) != 0:
                    raise RuntimeError("the NICs of %s: %s" % (up.machine.name, up.text()))
        except BaseException:
            self.__exit__()
            raise
        self.boot_seconds = time.monotonic() - begun
        return self

    def __exit__(self, *unused):
        for machine in self.machines.values():
            machine.stop()
        shutil.rmtree(self.directory, ignore_errors=True)
        os.makedirs(self.directory)
        for host, machine in self.machines.items():
            shutil.copy(machine.console, os.path.join(self.directory, host + ".console"))
            for name in os.listdir(machine.shared):
                shutil.move(os.path.join(machine.shared, name),
                            os.path.join(self.directory, "%s-%s" % (host, name)))
        shutil.rmtree(self.scratch)

    # ---- Programs.

    def sh(self, host, script, timeout=30, check=True):
        return self.machines[host].run(["bash", "-c", script], timeout, check)

    def start(self, host, name, argv, shift=True, env=None):
        """Starts a program. With `shift` it runs with the layer, whose events go to NAME.events."""
        settings = dict(env or {})
        if shift:
            argv = [os.path.join(self.build, "bin", "shift-run"), "--"] + argv
            settings = {**PATIENCE, "SHIFT_LOG": "info",
                        "SHIFT_EVENTS": "/run/shared/%s.events" % name, **settings}
        return self.machines[host].start(name, argv, settings)

    def events(self, host, name, kind):
        """The event records of one kind that a program wrote so far, as lines of text."""
        return event_lines(os.path.join(self.machines[host].shared, name + ".events"), kind)

    def listens(self, host, port):
        return has_listener(self.sh(host, "cat %s %s" % TABLES), port)

    def meeting(self, host):
        """A folder in the common folder for the next two ends. The server must ask for it first."""
        self.meetings += host == "b"
        os.makedirs(os.path.join(self.common, str(self.meetings)), exist_ok=True)
        return str(self.meetings)

    def gloo_check(self):
        return compiled.gloo_check(self.build)

    def managed_listeners(self, host):
        """What rdma_cm listens on at this host."""
        return self.sh(host, "rdma resource show cm_id", check=False)

    def note_state(self):
        """Writes to the logs what the kernels know of NICs, neighbours and connections."""
        for host, machine in self.machines.items():
            told = self.sh(host, "ip -s link; ip address; ip neigh; rdma link; rdma resource show cm_id;"
                           " rdma resource show qp; rdma statistic; grep -H . /sys/class/infiniband/rxe0/ports/1/"
                           "cm_*/* | grep -v ':0$'; tc qdisc; dmesg | tail -n 40", check=False)
            with open(os.path.join(machine.shared, "state.log"), "a") as file:
                file.write(told)

    def kernel_fault(self):
        """What the kernels have said of faults of their own since they were started, in one line; or ''."""
        told = [self.sh(host, "dmesg | grep -m 1 -E 'WARNING: |BUG: |Oops: '", check=False).strip()
                for host in self.machines]
        return "; ".join(line for line in told if line)

    def renew(self):
        """Makes new rxe devices on both machines. A device whose link was down when the connection manager had
        to send hears nothing of it any more (README). Some programs take the first device, so the order counts."""
        for host in self.machines:
            self.sh(host, "for i in 0 1; do rdma link del rxe$i; done &&"
                    " for i in 0 1; do rdma link add rxe$i type rxe netdev rail$i; done &&"
                    " %s/guest/nodes.sh" % HERE)

    @staticmethod
    def until(condition, timeout):
        return wait_until(condition, timeout, step=0.05)

    def counter(self, host, nic, what="tx_bytes"):
        return int(self.sh(host, "cat /sys/class/net/%s/statistics/%s" % (nic, what)))

    def gid_index(self, host, rail=0):
        """The place of the address of rxe0 or rxe1 in the GID table; it changes when the address comes back."""
        wanted = "ffff:" + ":".join("%02x%02x" % pair for pair in zip(
            *[iter(int(part) for part in address("rail%d" % rail, host).split("."))] * 2))
        table = self.sh(host, "cd /sys/class/infiniband/rxe%d/ports/1/gids && grep -H . *" % rail)
        return re.search(r"^(\d+):.*%s$" % wanted, table, re.M).group(1)

    # ---- Faults.

    def fault(self, host, nic, what):
        getattr(self, "_" + what.replace("-", "_"))(host, nic)

    def _link_down(self, host, nic):
        self.sh(host, "ip link set %s down" % nic)

    def _link_up(self, host, nic):
        self.sh(host, "ip link set %s up" % nic)

    def _carrier_off(self, host, nic):
        self._set_link(host, nic, False)

    def _carrier_on(self, host, nic):
        self._set_link(host, nic, True)

    def _set_link(self, host, nic, up):
        name = "nic%d" % list(NETWORKS).index(nic)
        self.machines[host].monitor.run("set_link", name=name, up=up)

    def _drop_data(self, host, nic):
        self._drop(host, nic, "data")

    def _drop_acks(self, host, nic):
        self._drop(host, nic, "acks")

    def _drop(self, host, nic, what):
        """Loses what comes in at the NIC."""
        self.sh(host, "tc qdisc add dev %s ingress" % nic + "".join(
            " && tc filter add dev %s parent ffff: %s" % (nic, one) for one in drop_filters(what)))

    def _pass_all(self, host, nic):
        self.sh(host, "tc qdisc del dev %s ingress" % nic)

    def _address_off(self, host, nic):
        self.sh(host, "ip address del %s/24 dev %s" % (address(nic, host), nic))

    def _address_on(self, host, nic):
        self.sh(host, "ip address add %s/24 dev %s" % (address(nic, host), nic))

    def _drain(self, host, nic):
        """An operator has the traffic leave the NIC, and waits until it has."""
        self.sh(host, self._shiftctl("drain", nic), timeout=90)

    def _undrain(self, host, nic):
        self.sh(host, self._shiftctl("undrain", nic))

    def _shiftctl(self, command, nic):
        return "%s %s rxe%d" % (os.path.join(self.build, "bin", "shiftctl"), command,
                              list(NETWORKS).index(nic))

    def _unbind(self, host, nic):
        """Takes the NIC from its driver; its verbs device goes with it. The kernel ends this only when all
        programs have closed that device."""
        device = os.path.basename(self.sh(
            host, "readlink /sys/class/net/%s/device" % nic).strip())
        unbinding = self.machines[host].start("unbind-%s-%d" % (nic, len(self.unbound)), [
            "bash", "-c", "echo %s > /sys/bus/virtio/drivers/virtio_net/unbind" % device])
        self.unbound[host, nic] = device, unbinding

    def _bind(self, host, nic):
        """Gives the NIC back to its driver and sets it up as an administrator would."""
        index = list(NETWORKS).index(nic)
        device, unbinding = self.unbound.pop((host, nic))
        if unbinding.finish(60) != 0:
            raise KernelStuck("%s on %s is not let go: %s" % (
                nic, host, self.machines[host].said()))
        self.sh(host, "echo %s > /sys/bus/virtio/drivers/virtio_net/bind" % device)
        self.sh(host, (
            "for d in /sys/class/net/*; do"
            "  [ $(<$d/address) = 52:54:00:00:0%d:0%d ] && ip link set ${d##*/} name %s; done;"
            "ip link set %s mtu %d up; ip address add %s/24 dev %s;"
            "rdma link show rxe%d/1 >/dev/null 2>&1 || rdma link add rxe%d type rxe netdev %s;"
            "%s/guest/nodes.sh") % (index, NUMBERS[host], nic, nic, MTU, address(nic, host), nic,
                                    index, index, nic, HERE))


HEALS = {"link-down": "link-up", "carrier-off": "carrier-on", "drop-data": "pass-all",
         "drop-acks": "pass-all", "address-off": "address-on", "unbind": "bind", "drain": "undrain"}
