"""Unmodified programs, and our checker, as they are run between two test machines."""

import collections
import os
import re

from pair import address

# argv(pair, host): the command there, the client's without the server's address.
# pattern: what a complete count prints. endless: runs until it is told to stop, and judges itself.
Client = collections.namedtuple("Client", "name argv pattern endless")
PORT = "7471"


def perftest(tool, count, size, *more):
    def argv(pair, host):
        return [tool, "-d", "rxe0", "-x", pair.gid_index(host), "-F", "-n", str(count), "-s",
                str(size), "-p", PORT, *more]
    return Client(" ".join([tool, *more]), argv, r"^ *%d +%d +[0-9.]" % (size, count), False)


def pingpong(count, *more):
    def argv(pair, host):
        return ["ibv_rc_pingpong", "-d", "rxe0", "-g", pair.gid_index(host), "-n", str(count),
                "-p", PORT, *more]
    return Client(" ".join(["ibv_rc_pingpong", *more]), argv, r"^%d iters in " % count, False)


def traffic(op, *more):
    def argv(pair, host):
        command = [os.path.join(pair.build, "test", "shift-traffic"), "-d", "rxe0", "-x",
                   pair.gid_index(host), "--port", PORT, "--stall-ms", "60000",
                   "--timeout-ms", "600000"]
        if host == "b":
            command += ["--listen", address("control", "b")]
        else:
            command += ["--op", op, "--events", "--until-stop", "--size", "4096", "--depth", "16", *more]
        return command
    return Client(" ".join(["shift-traffic", op, *more]), argv, r"", True)


class Session:
    """One client on host a and its server on host b."""

    _count = 0

    def __init__(self, pair, client, shift=True, env=None):
        """`shift`: True, False, or the host that alone has the layer."""
        Session._count += 1
        self.pair, self.client = pair, client
        self.name = "%02d-%s" % (Session._count, re.sub(r"[^a-z_]+", "-", client.name).strip("-"))
        self.programs = {}
        for host in "ba":
            argv = client.argv(pair, host)
            if host == "a":
                argv.append(address("control", "b"))
            layered = shift in (True, host)
            self.programs[host] = pair.start(host, self.name, argv, layered, env)
            if host == "b" and not pair.until(
                    lambda: pair.listens("b", int(PORT)) or self.ended(), 60):
                raise RuntimeError("%s: the server does not listen" % self.name)

    def ended(self):
        return any(program.ended is not None for program in self.programs.values())

    def events(self, host, kind):
        return self.pair.events(host, self.name, kind)

    def count(self, kind):
        """How many of these events both ends have told."""
        return min(len(self.events(host, kind)) for host in "ab")

    def wait_count(self, kind, count, timeout=60):
        return self.pair.until(lambda: self.count(kind) >= count or self.ended(), timeout) and \
            self.count(kind) >= count

    def finish(self, timeout=240):
        """What is wrong with the result; nothing: ''."""
        if self.client.endless:
            self.programs["a"].tell("stop")
        # A server that waits for ever when its client is gone is ended soon.
        codes = [self.programs["a"].finish(timeout), self.programs["b"].finish(30)]
        if codes != [0, 0]:
            return "exit codes client %s, server %s" % tuple(codes)
        texts = [self.programs[host].text() for host in "ab"]
        # Of some perftest tools only the client prints a result.
        judged = texts if self.client.name.startswith("ibv") else texts[:1]
        if not all(re.search(self.client.pattern, text, re.M) for text in judged):
            return "the count is not complete"
        if "invalid data" in "".join(texts):
            return "invalid data"
        return ""
