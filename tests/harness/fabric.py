"""An emulated network: it runs programs on its hosts, reads and breaks their NICs, and is removed at the end."""

import datetime
import itertools
import json
import os
import random
import re
import subprocess
import time

from harness.build import words
from harness.events import event_lines
from harness.program import Program

EPOCH = datetime.datetime.fromtimestamp(0, datetime.timezone.utc)
WRONG_ACCESS = re.compile('"cause":"((?:local protection|remote access|remote operation) error)"')


class Fabric:
    """A new fabric, removed at the end. Logs and event records of its programs go to `directory`. Each host has so
    many NICs, by default as many as SHIFT_TEST_NICS says, or two; more than two are one group. SHIFT_TEST_NICS may
    also be a list: the first number is host a's, the second one is host b's."""

    _count = itertools.count(1)

    def __init__(self, build, directory=None, nics=None):
        told = [int(count) for count in os.environ.get("SHIFT_TEST_NICS", "2").split(",")]
        self.build, self.nics = build, nics or max(told)
        self._nics_of = {} if nics or len(told) == 1 else dict(zip("ab", told))
        self.directory = directory and os.path.abspath(directory)
        self.name = "test-%d-%d-%04x" % (os.getpid(), next(Fabric._count), random.getrandbits(16))
        self.programs = []

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        for program in self.programs:
            if program.process.poll() is None:
                program.kill()
        subprocess.run(words([self.build.cxemu, "clean", "--fabric", self.name]),
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)

    def nics_of(self, host):
        """How many NICs a host has."""
        return self._nics_of.get(host, self.nics)

    # ---- Programs.

    def command(self, host, argv, layered=False):
        """The command line that runs `argv` on a host, with the layer or without it."""
        line = [self.build.cxemu, "exec", "--fabric", self.name, "--host", host, "--nics",
                self.nics_of(host), "--"]
        return words(line) + (words([self.build.shift_run, "--"]) if layered else []) + words(argv)

    def start(self, host, name, argv, shift=True, env=None, apart=False):
        """Runs `argv` on `host`; its log is NAME.log, its event records NAME.events."""
        settings = dict(os.environ)
        if shift:
            settings["SHIFT_EVENTS"] = self.events_path(name)
            settings.setdefault("SHIFT_LOG", "info")
        settings.update(env or {})
        return self.start_outside(name, self.command(host, argv, shift), settings, apart)

    def start_outside(self, name, argv, settings, apart=False):
        """Runs a program on the machine itself, such as a launcher that starts programs on emulated hosts."""
        if self.nics > 2:
            settings = {"SHIFT_SPREAD": "capacity", **settings}
        log = os.path.join(self.directory, name + ".log")
        program = Program([str(word) for word in argv], log, settings, apart)
        self.programs.append(program)
        return program

    # ---- Event records.

    def events_path(self, name):
        return os.path.join(self.directory, name + ".events")

    def events(self, name, kind):
        """The event records of one kind that a program wrote so far, as lines of text."""
        return event_lines(self.events_path(name), kind)

    def records(self, kind, *names):
        """The event records of one kind of all these programs, as dictionaries."""
        return [json.loads(line) for name in names for line in self.events(name, kind)]

    def all_have(self, kind, count, *names):
        """Whether each of these programs has recorded this event at least `count` times."""
        return all(len(self.events(name, kind)) >= count for name in names)

    def wrong_access(self, *names):
        """An error of a memory region that the layer held for a fault of the path, or ''. No NIC here loses its
        regions, so the request named a wrong one, which a second path only hides."""
        for name in names:
            for line in self.events(name, "state"):
                if found := WRONG_ACCESS.search(line):
                    return "%s met a %s" % (name, found.group(1))
        return ""

    # ---- NICs.

    def backups(self, host):
        """All NICs of a host but the default, like a/mlx5_1."""
        return ["%s/mlx5_%d" % (host, i) for i in range(1, self.nics_of(host))]

    def hosts(self):
        """{host: {device: what is known of the NIC, with its counters}}"""
        text = subprocess.run(words([self.build.cxemu, "list", "--fabric", self.name, "--json"]),
                              check=True, capture_output=True, text=True).stdout
        return {host["host"]: {nic["device"]: nic for nic in host["nics"]}
                for host in json.loads(text)["hosts"]}

    def counters(self, nic):
        """The counters of a NIC, like a/mlx5_0; empty before its host is there."""
        host, _, device = nic.partition("/")
        return self.hosts().get(host, {}).get(device, {})

    def sent_packets(self, nic):
        return self.counters(nic).get("tx_packets", 0)

    def fault(self, nic, what):
        """Breaks or heals a NIC. Returns the time of the fault (CLOCK_MONOTONIC, seconds)."""
        when = time.monotonic()
        subprocess.run(words([self.build.cxemu, "fault", "--fabric", self.name, nic, *what.split()]),
                       check=True, stdout=subprocess.DEVNULL)
        return when

    def fault_ns(self, nic):
        """When a NIC last broke or healed (CLOCK_MONOTONIC), by the emulator's own record; None if it never did.
        To start the command that breaks it takes longer than a switch does."""
        return self.event_ns(nic, "fault")

    def event_ns(self, nic, kind, first=False):
        """When the last event of a kind, or the first, happened to a NIC (CLOCK_MONOTONIC); None without one."""
        done = subprocess.run(words([self.build.cxemu, "events", "--fabric", self.name, "--json"]),
                              check=True, capture_output=True, text=True)
        found = [event["time"] for event in map(json.loads, done.stdout.splitlines())
                 if event["kind"] == kind and event["nic"] == nic]
        if not found:
            return None
        wall_us = datetime.datetime.fromisoformat(found[0 if first else -1].replace("Z", "+00:00")) - EPOCH
        return wall_us // datetime.timedelta(microseconds=1) * 1000 - (time.time_ns() - time.monotonic_ns())
