"""Programs that run side by side in a root, on emulated hosts, while faults and orders come."""

import json
import pathlib
import subprocess
import time

from harness.ports import has_listener
from root import ENVIRONMENT, Failure, enter, require


class Inside:
    """The namespaces of a root for as long as the `with` lasts: all programs see the same /dev/shm and /proc, and
    the same network, which is theirs alone.

    `environment` is that of all programs, and `user` is the number of the one whose emulated hosts these are.
    """

    def __init__(self, root, user="0", **environment):
        self.root = root
        self.as_user = ("setpriv", "--reuid=" + user, "--clear-groups")
        self.environment = environment
        self.programs = []
        words, always = enter(root, True, "sh", "-c", "echo ready; exec sleep infinity")
        self.holder = subprocess.Popen(words, env=always, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                       text=True)
        require(self.holder.stdout.readline() == "ready\n", "the root's namespaces cannot be made")
        own = self.holder.pid
        self.first = pathlib.Path("/proc/%d/task/%d/children" % (own, own)).read_text().split()[0]

    def __enter__(self):
        return self

    def __exit__(self, *problem):
        self.holder.kill()  # and with it all that runs there
        self.holder.wait()
        self.holder.stdout.close()
        for program in self.programs:
            program.wait()

    def command(self, words, before=()):
        there = ["nsenter", "--target", self.first, "--mount", "--pid", "--net"]
        return [*map(str, (*there, *before, "chroot", self.root.path, *words))]

    def start(self, name, *words, before=(), **environment):
        """Starts a program, whose output goes to a file. `before` runs outside of the root."""
        log = self.root.path / "debs" / (name + ".log")
        with log.open("w", encoding="utf-8") as file:
            program = subprocess.Popen(self.command(words, before), stdin=subprocess.DEVNULL, stdout=file,
                                       stderr=subprocess.STDOUT,
                                       env=ENVIRONMENT | self.environment | environment)
        program.name, program.log = name, log
        self.programs.append(program)
        return program

    def attempt(self, *words, **environment):
        return subprocess.run(self.command(words), env=ENVIRONMENT | self.environment | environment,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, timeout=300, check=False)

    def run(self, *words, **environment):
        done = self.attempt(*words, **environment)
        require(done.returncode == 0, "%s ends with %d:\n%s" % (" ".join(words), done.returncode, done.stdout))
        return done.stdout

    def wait(self, what, seconds, condition):
        """Waits until the condition holds, or one of the programs has failed."""
        deadline = time.monotonic() + seconds
        while not condition():
            failed = any(program.poll() for program in self.programs)
            if failed or time.monotonic() > deadline:
                raise Failure("not within %d s: %s\n%s" % (seconds, what, self.logs()))
            time.sleep(0.1)

    def ended_well(self, seconds):
        self.wait("the programs end", seconds, lambda: all(program.poll() == 0 for program in self.programs))
        self.programs.clear()

    def dies(self, seconds):
        """Whether a program fails, or hangs for so long. None is left then."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and any(program.poll() is None for program in self.programs):
            time.sleep(0.1)
        died = any(program.poll() != 0 for program in self.programs)
        for program in self.programs:
            program.kill()
        return died

    def logs(self):
        return "\n".join("%s: %s" % (program.name, program.log.read_text(errors="replace")[-1500:])
                         for program in self.programs)

    def status(self):
        """What `shiftctl status` tells of the processes that run."""
        told = json.loads(self.run("shiftctl", "status", "--json"))
        told["processes"] = [process for process in told["processes"] if process["live"]]
        return told

    def qps(self):
        return [qp for process in self.status()["processes"] for qp in process["qps"] if qp["state"] != "closed"]

    def protected(self, count, nic=None):
        """Whether there are so many protected QPs, and all of them use the NIC."""
        found = [qp for qp in self.qps() if qp["standing"] == "protected"]
        return len(found) >= count and self.on(nic, found)

    def on(self, nic, qps=None):
        return all(nic in (None, (qp["path"] or {}).get("nic")) for qp in (self.qps() if qps is None else qps))

    def packets(self, nic):
        """How many packets the NICs of this name have sent, on all hosts."""
        hosts = json.loads(self.run(*self.as_user, "cxemu", "list", "--json"))["hosts"]
        return sum(one["tx_packets"] for host in hosts for one in host["nics"] if one["device"] == nic)

    def fault(self, nic, fault):
        self.run(*self.as_user, "cxemu", "fault", nic, fault)

    def is_listening(self, port):
        return any(has_listener(pathlib.Path("/proc", self.first, "net", table).read_text(), port)
                   for table in ("tcp", "tcp6"))

    def pair(self, port, start):
        """Starts the server and, when it listens, the client, by start(name, host, ARGUMENT...)."""
        start("server", "a")
        self.wait("the server listens", 20, lambda: self.is_listening(port))
        start("client", "b", "127.0.0.1")
