"""One run of a case on emulated hosts: it starts the programs, waits for them, and judges them."""

import os
import re
import shutil
import subprocess
import time

from harness.case import Failure
from harness.fabric import Fabric
from harness.ports import is_listening
from harness.waiting import wait_until

SERVER_SECONDS = 20   # for a server to listen, and to end after its client
COUNTERS = ("tx_packets", "retransmits", "qp_errors", "dropped_packets")
HW_COUNTERS = ("local_ack_timeout_err",)


class Session:
    """What the body of a case works with: a new fabric, a folder of its own, a seed."""

    def __init__(self, build, case, directory, seed):
        self.build, self.case = build, case
        self.directory = os.path.abspath(directory)
        self.seed = seed
        self.fabric = None

    def __enter__(self):
        shutil.rmtree(self.directory, ignore_errors=True)
        os.makedirs(self.directory)
        self.fabric = Fabric(self.build, self.directory)
        return self

    def __exit__(self, *problem):
        self.fabric.__exit__(*problem)

    def start(self, host, name, argv, env=None):
        return self.fabric.start(host, name, argv, shift=False, env=env)

    def start_outside(self, name, argv, env=None):
        return self.fabric.start_outside(name, argv, {**os.environ, **(env or {})})

    def on_host(self, host, argv):
        """The command line that runs `argv` on an emulated host."""
        return self.fabric.command(host, argv)

    def address(self, host, device="mlx5_0"):
        return self.fabric.hosts()[host][device]["address"]

    def counters(self):
        """The counters' sums over all NICs, and the packets that each host moved."""
        total = dict.fromkeys(COUNTERS + HW_COUNTERS, 0)
        moved = {}
        for host, nics in self.fabric.hosts().items():
            moved[host] = sum(nic["tx_packets"] + nic["rx_packets"] for nic in nics.values())
            for nic in nics.values():
                for counter in COUNTERS:
                    total[counter] += nic.get(counter, 0)
                for counter in HW_COUNTERS:
                    total[counter] += nic["hw_counters"][counter]
        total["moved"] = moved
        return total

    def ended_well(self, program, name, seconds):
        code = program.finish(seconds)
        if code is None:
            raise Failure("%s did not end within %d s" % (name, seconds))
        if code != 0:
            raise Failure("%s ended with %d: %s" % (name, code, last_words(program)))
        return program.text()

    def serve(self, argv, port, env=None, host="a"):
        """Starts a server and waits until it listens."""
        server = self.start(host, "server", argv, env)
        wait_until(lambda: is_listening(port) or server.ended, SERVER_SECONDS)
        if server.ended or not is_listening(port):
            server.kill()
            raise Failure("the server does not listen: " + last_words(server))
        return server

    def pair(self, server, client, port, env=None):
        """Runs both ends of a program, which must end with 0. Returns their outputs, the client's first.

        `client` is a command line that lacks the server's address, or a function of that address.
        """
        passive = self.serve(server, port, env)
        address = self.address("a")
        argv = client(address) if callable(client) else client + [address]
        active = self.start("b", "client", argv, env)
        # When one end fails, the other may wait for ever.
        wait_until(lambda: active.ended or (passive.ended and passive.process.poll() not in (0, None)),
                   self.case.seconds, step=0.02)
        if not active.ended and not passive.ended:
            raise Failure("neither end has ended within %d s" % self.case.seconds)
        try:
            return (self.ended_well(active, "the client", SERVER_SECONDS),
                    self.ended_well(passive, "the server", SERVER_SECONDS))
        except Failure as failure:
            code = passive.process.poll()
            if code not in (0, None):
                raise Failure("%s; the server ended with %d: %s" %
                              (failure, code, last_words(passive))) from None
            raise

    def judge_counters(self):
        counters = self.counters()
        silent = [host for host, moved in counters["moved"].items() if moved == 0]
        if counters["tx_packets"] < self.case.packets or (self.case.packets and silent):
            raise Failure("only %d packets, none from %s" %
                          (counters["tx_packets"], ", ".join(silent) or "nobody"))
        if self.case.quiet and counters["qp_errors"] != 0:
            raise Failure("%d queue pairs failed on a healthy fabric" % counters["qp_errors"])
        return counters


def last_words(program):
    """A program's last lines; if some lines tell of trouble, the last of these."""
    lines = [re.sub(r"^\[[0-9.]+\] \[\S+ +:\d+\] +", "", line) for line in program.lines if line.strip()]
    told = [line for line in lines if re.search(r"rror|fail|ailed|[Cc]ouldn|nable|abort", line)]
    return " / ".join((told or lines)[-2:])[:240] or "(no output)"


def run_case(build, case, directory, seed, make=Session):
    """Runs a case. Returns a dictionary for the table and the JSON file; 'problem' is empty when all was well."""
    began = time.monotonic()
    outcome = {"name": case.name, "group": case.group, "seed": seed, "problem": "", "counters": {}}
    with make(build, case, directory, seed) as session:
        try:
            case.body(session)
            outcome["counters"] = session.judge_counters()
        except Failure as failure:
            outcome["problem"] = str(failure)
        except (OSError, subprocess.SubprocessError, KeyError) as error:
            outcome["problem"] = "%s: %s" % (type(error).__name__, error)
    outcome["seconds"] = round(time.monotonic() - began, 2)
    return outcome
