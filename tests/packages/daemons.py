"""rsyslog and systemd's journal take the layer's lines, on a host with the packages. roots.py runs these cases."""

import json
import os
import pathlib
import re
import socket

from exercises import bw_start
from inside import Inside
from root import require

# What the daemon is given, as a line of the tests: "4 shift[17]: warn: ...", with the priority of syslog(3).
LINE = re.compile(r"(\d) shift\[(\d+)\]: (error|warn|info|debug): ")
PRIORITIES = {"error": "3", "warn": "4", "info": "6", "debug": "7"}
# What both ends say once for each fault of mlx5_0, and when it is over.
FAULTS = {"link-down": "goes on over mlx5_1", "link-up": "goes on over mlx5_0"}

RSYSLOG = """
module(load="imuxsock")
template(name="line" type="string" string="%syslogfacility%.%syslogseverity% %syslogtag%%msg%\\n")
action(type="omfile" file="/debs/syslog" template="line")
"""
# systemd's journal looks for the cgroups of what it hears of.
CGROUPS = 'mount -t cgroup2 cgroup2 "$0/sys/fs/cgroup" && exec "$@"'


class Daemon:
    """A daemon that can be stopped and started again while programs run."""

    def __init__(self, inside, place, *words, before=()):
        self.inside, self.socket, self.words, self.before = inside, place, words, before
        self.start()

    def start(self):
        self.process = self.inside.start("daemon", "sh", "-c", 'echo $$ >/run/daemon.pid; exec "$@"', "daemon",
                                         *self.words, before=self.before)
        self.inside.wait("the daemon listens", 20, self.listens)

    def listens(self):
        """Whether the socket can be connected to; its file may be left of an earlier daemon."""
        there = pathlib.Path("/proc/%s/root%s%s" % (self.inside.first, self.inside.root.path, self.socket))
        folder = os.open(there.parent, os.O_PATH)  # names of sockets are short
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
                return probe.connect_ex("/proc/self/fd/%d/%s" % (folder, there.name)) == 0
        finally:
            os.close(folder)

    def stop(self):
        self.inside.run("sh", "-c", "kill $(cat /run/daemon.pid)")
        self.inside.wait("the daemon ends", 20, lambda: self.process.poll() is not None)
        self.inside.programs.remove(self.process)


def rsyslog(inside):
    (inside.root.path / "debs/rsyslog.conf").write_text(RSYSLOG)
    written = inside.root.path / "debs/syslog"

    def lines():
        for line in written.read_text().splitlines():
            facility, _, rest = line.partition(".")
            if " shift[" in rest:
                require(facility == "1", "rsyslog has a line of another facility: " + line)
                yield rest

    words = ("rsyslogd", "-n", "-f", "/debs/rsyslog.conf", "-i", "/run/rsyslogd.pid")
    return Daemon(inside, "/dev/log", *words), lines


def journald(inside):
    def lines():
        for line in inside.run("journalctl", "-o", "json", "-t", "shift", "--no-pager").splitlines():
            entry = json.loads(line)
            require(entry["_COMM"] == "ib_write_bw" and entry["_PID"] == entry["SYSLOG_PID"],
                    "the journal has %s" % entry)
            yield "%s shift[%s]: %s" % (entry["PRIORITY"], entry["_PID"], entry["MESSAGE"])

    settings = inside.root.path / "etc/systemd/journald.conf.d"
    settings.mkdir(exist_ok=True)
    (settings / "test.conf").write_text("[Journal]\nAudit=\n")  # leave the machine's as it is
    inside.run("mkdir", "-p", "/run/systemd/journal")
    return Daemon(inside, "/run/systemd/journal/socket", "/usr/lib/systemd/systemd-journald",
                  before=("unshare", "--mount", "sh", "-c", CGROUPS, inside.root.path)), lines


class Job:
    """Two ends that send all the time, and what became of their lines."""

    def __init__(self, inside, lines):
        self.inside, self.lines = inside, lines
        before = list(inside.programs)
        bw_start(inside, "-n", 5000000)
        self.programs = [program for program in inside.programs if program not in before]
        inside.wait("both ends are protected", 30, lambda: inside.protected(2, "mlx5_0"))

    def on_stderr(self, words):
        return sum(program.log.read_text().count(words) for program in self.programs)

    def taken(self, words):
        return sum(words in line for line in self.lines())

    def fault(self, fault):
        """How many lines of it reach the daemon, and standard error. Each end says it once."""
        words = FAULTS[fault]
        taken, on_stderr = self.taken(words), self.on_stderr(words)
        self.inside.fault("a/mlx5_0", fault)
        self.inside.wait("both ends say: " + words, 30, lambda: self.taken(words) - taken + self.on_stderr(words)
                         - on_stderr >= 2)
        return self.taken(words) - taken, self.on_stderr(words) - on_stderr


def log_lines(root, packages, target, package, make):
    """Lines of the layer reach the daemon with their level and process. While it is away they go to standard
    error, and when it is back they reach it again."""
    root.install(*packages.now, packages.files["cxemu"], "perftest", package)
    with Inside(root, SHIFT_LOG="info", SHIFT_LOG_TARGET=target) as inside:
        daemon, lines = make(inside)
        job = Job(inside, lines)
        require(job.fault("link-down") == (2, 0) and job.fault("link-up") == (2, 0)
                and job.on_stderr("shift[") == 0, "lines went to standard error: " + inside.logs())
        pids = {str(process["pid"]) for process in inside.status()["processes"]}
        heard = set()
        for line in lines():
            parts = LINE.match(line)
            require(parts and parts[2] in pids and parts[1] == PRIORITIES[parts[3]], "the daemon has: " + line)
            heard.add(parts[2])
        require(heard == pids and len(pids) == 2, "the daemon has heard %s of %s" % (heard, pids))

        daemon.stop()
        require(job.fault("link-down") == (0, 2) and job.fault("link-up") == (0, 2),
                "the daemon is away, and this is on standard error: " + inside.logs())
        daemon.start()
        # Once a second each process looks whether the daemon is back, so the first lines may miss it.
        job.fault("link-down")
        job.fault("link-up")
        require(job.fault("link-down") == (2, 0), "the daemon is back, and is not heard: " + inside.logs())


def system_log(root, packages):
    """SHIFT_LOG_TARGET=syslog, with rsyslog."""
    log_lines(root, packages, "syslog", "rsyslog", rsyslog)


def journal(root, packages):
    """SHIFT_LOG_TARGET=journal, with systemd's."""
    log_lines(root, packages, "journal", "systemd", journald)


DAEMONS = (system_log, journal)
