"""Programs on emulated hosts: starts them, follows their output, breaks NICs, cleans up."""

import concurrent.futures
import contextlib
import itertools
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import threading
import time

WRONG_ACCESS = re.compile('"cause":"((?:local protection|remote access|remote operation) error)"')


class Build:
    """Where the programs under test are."""

    def __init__(self, path, layer=None):
        """`layer`: a prefix with another bin/shift-run, which finds its own front library."""
        self.path = os.path.abspath(path)
        self.cxemu = os.path.join(self.path, "bin", "cxemu")
        self.shift_run = os.path.join(os.path.abspath(layer or path), "bin", "shift-run")
        self.traffic = os.path.join(self.path, "test", "shift-traffic")
        self.nccl = os.path.join(self.path, "test", "shift-nccl")

    def missing(self, *more):
        """What is not built of what all tests need, and of `more`."""
        wanted = (self.cxemu, self.shift_run, self.traffic) + more
        return [p for p in wanted if not os.path.exists(p)]


class Program:
    """One running program; its output goes to a log file and is followed line by line."""

    def __init__(self, argv, log_path, env=None, apart=False):
        """`apart`: what goes to stderr cannot fall into the middle of a line of stdout; it comes
        behind it, when the program has ended."""
        self.argv = argv
        self.log_path = log_path
        self.progress = 0
        self.port = None
        self.lines = []
        self._changed = threading.Condition()
        self._log = open(log_path, "w", errors="replace")
        self._log.write("$ " + " ".join(argv) + "\n")
        self.started = time.monotonic()
        self.ended = None
        self._apart = log_path + ".stderr" if apart else None
        errors = open(self._apart, "w") if apart else subprocess.STDOUT
        self.process = subprocess.Popen(
            argv, stdout=subprocess.PIPE, stderr=errors, stdin=subprocess.PIPE,
            text=True, errors="replace", env=env, start_new_session=True)
        if apart:
            errors.close()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        for line in self.process.stdout:
            with self._changed:
                if line.startswith("progress "):
                    self.progress = int(line.split()[1])
                else:
                    self._log.write("%.3f " % (time.monotonic() - self.started) + line)
                    self._log.flush()
                    self.lines.append(line.rstrip("\n"))
                    if line.startswith("port "):
                        self.port = int(line.split()[1])
                self._changed.notify_all()
        with self._changed:
            self.ended = time.monotonic()
            self._changed.notify_all()

    def wait_for(self, condition, timeout):
        """True once condition(self) holds; False when the program ended before, or time is over."""
        deadline = time.monotonic() + timeout
        with self._changed:
            while not condition(self):
                left = deadline - time.monotonic()
                if left <= 0 or self.ended is not None:
                    return condition(self)
                self._changed.wait(min(left, 0.2))
        return True

    def tell(self, line):
        try:
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
        except OSError:
            pass  # it has ended

    def finish(self, timeout):
        """Exit code; None when it had to be killed."""
        try:
            code = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            code = None
        try:
            self.process.stdin.close()
        except OSError:
            pass
        self._reader.join(5)
        if self._apart:
            with open(self._apart, errors="replace") as file:
                self.lines += file.read().split("\n")
            self._apart = None
        self._log.close()
        return code

    def kill(self):
        """Ends the program and whatever it started, which is in its session."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()

    def slay(self):
        """Ends the program as a crash would, and nothing else; `finish` gives its code later."""
        os.kill(self.process.pid, signal.SIGKILL)

    def text(self):
        return "\n".join(self.lines)


class Fabric:
    """A fabric of its own, removed at the end."""

    _count = itertools.count(1)

    def __init__(self, build, directory):
        self.build = build
        self.directory = directory
        self.name = "e2e-%d-%d-%04x" % (os.getpid(), next(Fabric._count), random.getrandbits(16))
        self.nics = 2  # per host
        self.programs = []
        self.fault_log = []

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        for program in self.programs:
            if program.process.poll() is None:
                program.kill()
        subprocess.run([self.build.cxemu, "clean", "--fabric", self.name],
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)

    def start(self, host, name, command, shift=True, env=None, apart=False):
        """Runs `command` on `host`; its log is NAME.log, its event records NAME.events."""
        argv = [self.build.cxemu, "exec", "--fabric", self.name, "--host", host,
                "--nics", str(self.nics), "--"]
        settings = dict(os.environ)
        if shift:
            argv += [self.build.shift_run, "--"]
            settings["SHIFT_EVENTS"] = self.events_path(name)
            settings.setdefault("SHIFT_LOG", "info")
        settings.update(env or {})
        program = Program(argv + command, os.path.join(self.directory, name + ".log"), settings,
                          apart)
        self.programs.append(program)
        return program

    def events_path(self, name):
        return os.path.join(os.path.abspath(self.directory), name + ".events")

    def events(self, name, kind):
        """Event records of one kind that a program wrote so far, as text lines."""
        try:
            with open(self.events_path(name)) as file:
                return [line for line in file if '"event":"%s"' % kind in line]
        except FileNotFoundError:
            return []

    def wrong_access(self, *names):
        """An error of a memory region that the layer took for a path's, or ''. No NIC here loses its
        regions, so the request named a wrong one: a second path only hides it."""
        for name in names:
            for line in self.events(name, "state"):
                if found := WRONG_ACCESS.search(line):
                    return "%s met a %s" % (name, found.group(1))
        return ""

    def fault(self, nic, what):
        """`nic` is like a/mlx5_0. Returns the time of the fault (CLOCK_MONOTONIC, seconds)."""
        when = time.monotonic()
        subprocess.run([self.build.cxemu, "fault", "--fabric", self.name, nic] + what.split(),
                       check=True, stdout=subprocess.DEVNULL)
        self.fault_log.append("%s %s" % (nic, what))
        return when


    def sent_packets(self, nic):
        """How many packets a NIC has sent so far."""
        return self.counters(nic).get("tx_packets", 0)

    def counters(self, nic):
        """What a NIC has counted so far."""
        text = subprocess.run([self.build.cxemu, "list", "--fabric", self.name, "--json"],
                              check=True, capture_output=True, text=True).stdout
        host_name, _, nic_name = nic.partition("/")
        for host in json.loads(text)["hosts"]:
            if host["host"] == host_name:
                for entry in host["nics"]:
                    if entry["device"] == nic_name:
                        return entry
        return {}


def run_on_fabric(options, run):
    """run(fabric) on a fabric of its own, with its logs in an empty options.out. For a main(): the exit
    status, 0 where run() returns none."""
    shutil.rmtree(options.out, ignore_errors=True)
    os.makedirs(options.out)
    build = Build(options.build, getattr(options, "layer", None))
    with Fabric(build, options.out) as fabric:
        return run(fabric) or 0


def run_all(jobs, items, run, tell):
    """run(item) for all, `jobs` at a time, for each run is a fabric of its own and mostly waits.
    tell(item, result) sees the results one by one, as they come; when it returns False, no more
    are begun."""
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        pending = {pool.submit(run, item): item for item in items}
        for future in concurrent.futures.as_completed(pending):
            if tell(pending[future], future.result()) is False:
                pool.shutdown(cancel_futures=True)
                return


def wait_until(condition, timeout, step=0.005):
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(step)
    return True


def free_port():
    """Below the range from which the kernel (by default) takes the ports of connections: a program
    of another test that connects meanwhile must not be given it."""
    while True:
        port = random.randrange(20000, 32768)
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("", port))
            return port


def is_listening(port):
    """Without connecting: perftest serves its first connection and no other."""
    wanted = ":%04X" % port
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            with open(table) as file:
                for line in file:
                    fields = line.split()
                    if len(fields) > 3 and fields[1].endswith(wanted) and fields[3] == "0A":
                        return True
        except FileNotFoundError:
            pass
    return False
