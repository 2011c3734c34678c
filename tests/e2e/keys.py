#!/usr/bin/python3
"""Programs on two hosts have job keys: the same, older and newer ones, others, none, and files that cannot be
used.

The test `e2e_keys` calls this program. Whatever the files are, the traffic is right. Where the ends have a key in
common a fault is masked and nothing but the handshakes can be read on the wire; elsewhere the program gets the
error of the stock stack, one line says why, and an end whose file cannot be used says nothing at all to its peer.
That a listener would be seen is proved by ends without keys, whose messages must be readable.

It runs in a network namespace of its own, since it needs the right to listen on the wire, where one can be made.
Where nobody may listen it tests all else, and exits with 77.
"""

import collections.abc
import dataclasses
import os
import re
import shutil
import subprocess
import sys
import time

from harness.build import Build
from harness.checker import ENDS, ERROR
from harness.devices import main_inside
from harness.fabric import Fabric
from harness.options import script_parser
from harness.ports import free_port, is_listening
from harness.runs import run_all
from harness.waiting import wait_until

from e2e import wire
from e2e.key_files import KeyFiles, Unusable, unusable_files

BOUND = 30.0  # seconds within which anything here must happen, however busy the machine is
# With less patience a busy machine looks like a fault.
TRAFFIC = ["--until-stop", "--qps", "1", "--op", "mixed", "--bidirectional", "--rate", "1000", "--size", "512",
           "--qp-timeout", "15"]
PATIENCE = ["--timeout-ms", "90000", "--stall-ms", "30000"]
LINE = re.compile(r"shift\[\d+\]: (error|warn): (.*)")

# What may be said over TCP by ends that are not protected.
NOTHING, HELLO_ONLY = "nothing", "a Hello that nobody answers"

HANDSHAKES = ([wire.HELLO], [wire.HELLO, wire.HELLO_REPLY], [wire.HELLO, wire.CONFIRM, wire.HELLO_REPLY])

STOCK_ERROR = r"ERROR (receive )?wc status (5|12) "
MOVES_AWAY = r"warn: mlx5_0: .*: 1 QP moves away"
NOT_PROTECTED = r"warn: qp 0x[0-9a-f]+ on mlx5_0 is not protected: peer qp 0x[0-9a-f]+: .+"
NO_PORT = r"warn: cannot listen on [0-9.:]+: Address already in use; peers will not find this host there"
STRANGER = r"warn: connection from [0-9.]+ to [0-9.:]+ closed: its job key is another"


class Failure(Exception):
    """Says in one line what was wrong."""


def expect(is_right, what):
    if not is_right:
        raise Failure(what)


@dataclasses.dataclass
class Case:
    name: str
    files: tuple  # the key files of client and server: a path, None, or an Unusable
    common: str = ""  # the key with which they speak; "none" when they have none; "" when they do not meet
    said: str = NOTHING
    is_layered: bool = True
    run: collections.abc.Callable = None  # what to do on the hosts

    def __post_init__(self):
        self.run = self.run or run_pair

    def is_usable(self, end):
        return not isinstance(self.files[ENDS.index(end)], Unusable)


class Pair:
    """The traffic of one tenant between both hosts, whose ends have these key files."""

    def __init__(self, fabric, files, prefix="", env=None, layered=True):
        self.fabric = fabric
        self.names = [prefix + end for end in ENDS]
        envs = []
        for file in files:
            path = file.path if isinstance(file, Unusable) else file
            envs.append({"SHIFT_LOG": "warn", "SHIFT_RC_TIMEOUT_MAX": "15", **(env or {}),
                         **({} if path is None else {"SHIFT_KEY_FILE": path})})
        program = fabric.build.traffic
        self.server = fabric.start("b", self.names[1], [program, *PATIENCE], layered, envs[1])
        expect(self.server.wait_for(lambda one: one.port, BOUND), "the server does not start")
        self.client = fabric.start("a", self.names[0], [
            program, *PATIENCE, *TRAFFIC, "--port", self.server.port, "127.0.0.1"], layered, envs[0])
        self.ends = dict(zip(ENDS, (self.client, self.server)))

    def wait(self, what, condition):
        """While both ends run."""
        ended = (lambda: self.client.ended or self.server.ended)
        if not wait_until(lambda: condition() or ended(), BOUND) or ended():
            last = self.client.lines[-3:] + self.server.lines[-3:]
            raise Failure("%s: not within %g s: %s" % (what, BOUND, last))

    def goes_on(self, messages=50):
        before = self.client.progress
        self.wait("progress", lambda: self.client.progress > before + messages)

    def armed(self):
        self.wait("armed", lambda: self.fabric.all_have("armed", 1, *self.names))

    def moved(self, member):
        def there():
            last = [self.fabric.records("switched", name)[-1:] for name in self.names]
            return all(one and one[0]["member"] == member for one in last)

        self.wait("on " + member, there)
        self.goes_on()

    def qpn(self, end):
        return self.fabric.records("armed", self.names[ENDS.index(end)])[0]["qp"]

    def stop(self):
        self.client.tell("stop")
        return self.finish()

    def finish(self):
        return tuple(one.finish(BOUND) for one in (self.client, self.server))


def lines_of(program):
    """What the layer told the user."""
    return ["%s: %s" % match.groups() for match in map(LINE.search, program.lines) if match]


def lines_expect(end, program, wanted):
    """Exactly one line for each pattern, and no other."""
    lines = lines_of(program)
    left = list(lines)
    for pattern in wanted:
        found = next((line for line in left if re.fullmatch(pattern, line)), None)
        expect(found, "the %s printed no line like %r, but %s" % (end, pattern, lines))
        left.remove(found)
    expect(not left, "the %s printed more: %s" % (end, left))
    expect(not re.search("[0-9a-f]{32}", " ".join(lines)), "the %s printed what may be a key" % end)


def names_of_qps(fabric):
    """What the messages are about, as it would stand in them."""
    return [wire.qp_name(nic["address"], qp["qpn"]) for nics in fabric.hosts().values() for nic in nics.values()
            for qp in nic["qps"]]


def readable(messages, names):
    """Which share of the messages names a queue pair, and what a compressor leaves of all that they say. A message
    that went over several connections counts once."""
    said = sorted({one.secret() for one in messages})
    return sum(any(name in one for name in names) for one in said) / len(said), wire.compressed_share(said)


def handshake_expect(connection, keys):
    frames = connection.handshake()
    kinds = [frame.type for frame in frames]
    expect(kinds in HANDSHAKES, "a handshake of the types %s" % kinds)
    expect(frames[0].key_id() in (keys or {0}), "a Hello names the key %x" % frames[0].key_id())


def datagrams_expect_none(recorder):
    """Those ask who has a GID without an address, and no GID here is one."""
    expect(all(packet.sequence is not None for packet in recorder.packets()), "a datagram was sent")


def wire_expect_speech(recorder, keys, names):
    """`keys`: the ids of the keys that may be used; empty without keys."""
    datagrams_expect_none(recorder)
    ports = {wire.key_port(one) for one in keys} or {wire.PORT}
    messages = []
    for one in recorder.connections():
        if one.is_empty():
            continue  # it asked whether somebody listens
        expect(one.port in ports, "something was said to port %d, and not to %s" % (one.port, ports))
        handshake_expect(one, keys)
        messages += one.messages()
    expect(len(messages) >= 10, "only %d messages were recorded" % len(messages))
    expect(all(one.type != 0 for one in messages), "something that is no frame crossed the wire")
    naming, share = readable(messages, names)
    told = "%d messages, %.2f of them readable, compressed to %.2f" % (len(messages), naming, share)
    if keys:
        expect(all(one.is_sealed() for one in messages), "a message is not sealed: " + told)
        expect({one.key_id() for one in messages} <= keys, "a message is sealed with another key")
        expect(naming == 0 and share > 0.95, "a listener can read: " + told)
    else:
        expect(naming > 0.5 and share < 0.6, "the check does not see what can be read: " + told)
    return told


def wire_expect_silence(recorder, case, address_of):
    expect(case.said == NOTHING or any(one.asked for one in recorder.connections()), "nobody said a Hello")
    mute = {address for end, host in zip(ENDS, "ab") if not case.is_usable(end) for address in address_of[host]}
    for one in recorder.connections():
        expect(one.dialer not in mute, "the end without a usable key dialed %s:%d" % (one.listener, one.port))
        expect(not one.answered, "%s:%d answered" % (one.listener, one.port))
        if case.said == NOTHING:
            expect(not one.asked, "%s said something to %s:%d" % (one.dialer, one.listener, one.port))
        for frame in wire.frames_of(one.asked):
            expect(frame.type == wire.HELLO, "a message of type %d to a stranger" % frame.type)


def lines_wanted(case, end):
    """The lines of an end in a case without protection."""
    file = case.files[ENDS.index(end)]
    if isinstance(file, Unusable):
        return ["error: no failover: the key file %s cannot be used: .*%s.*; .*%s.*" % (
            re.escape(file.path or '""'), re.escape(file.cause), re.escape(file.remedy))]
    return [NOT_PROTECTED]


def stock_error_expect(pair):
    """The programs met what the stock stack gives them when a link is down, and judged all else to be right. The
    end that is later may end with the other before its own NIC gives up."""
    errors = []
    for end, program in pair.ends.items():
        own = [line for line in program.lines if line.startswith("ERROR")]
        expect(all(re.match(STOCK_ERROR, line) for line in own), "the %s met %s" % (end, own))
        errors += own
        wrong = [line for line in program.lines if line.startswith("VIOLATION")]
        expect(not wrong, "the %s judged: %s" % (end, wrong))
    expect(errors, "no end met an error")


def run_protected(fabric, case, pair, recorder, keys):
    pair.armed()
    names = names_of_qps(fabric)
    fabric.fault("a/mlx5_0", "link-down")
    pair.moved("mlx5_1")
    codes = pair.stop()
    expect(codes == (0, 0), "client and server ended with %s and %s" % codes)
    lines_expect("client", pair.client, [MOVES_AWAY])
    lines_expect("server", pair.server, [])
    recorder.end()
    if not recorder.problem:
        return wire_expect_speech(recorder, {keys.ids[case.common]} if case.common != "none" else set(), names)
    return ""


def unprotected_lines_expect(case, end, program):
    if case.said == HELLO_ONLY and end == "server":
        # It hears a stranger some times, and tells of one in a second at most.
        lines = lines_of(program)
        strangers = [line for line in lines if re.fullmatch(STRANGER, line)]
        expect(strangers and len(lines) == len(strangers) + 1, "the server printed %s" % lines)
        expect(any(re.fullmatch(NOT_PROTECTED, line) for line in lines), "the server printed %s" % lines)
    else:
        lines_expect(end, program, lines_wanted(case, end))


def run_unprotected(fabric, case, pair, recorder):
    usable = [name for name in ENDS if case.is_usable(name)] if case.is_layered else []
    pair.wait("unprotected", lambda: fabric.events("client", "armed")
              or fabric.all_have("unprotected", 1, *usable))
    expect(not fabric.events("client", "armed"), "the ends have found each other")
    pair.goes_on(500)
    addresses = {host: [nic["address"] for nic in nics.values()] for host, nics in fabric.hosts().items()}
    fabric.fault("a/mlx5_0", "link-down")
    codes = pair.finish()
    expect(codes == (ERROR, ERROR), "client and server ended with %s and %s" % codes)
    stock_error_expect(pair)
    for end in ENDS:
        expect(not fabric.events(end, "armed") and not fabric.events(end, "switched"), "the %s is protected" % end)
        if case.is_layered:
            unprotected_lines_expect(case, end, pair.ends[end])
        else:
            expect(not lines_of(pair.ends[end]), "the stock stack printed lines of the layer")
    recorder.end()
    if not recorder.problem:
        datagrams_expect_none(recorder)
        wire_expect_silence(recorder, case, addresses)


def run_case(build, keys, case, directory):
    """Returns what was wrong, what was seen, and why nobody listened on the wire."""
    shutil.rmtree(directory, ignore_errors=True)
    os.makedirs(directory)
    with Fabric(build, directory) as fabric:
        recorder = wire.Wire(fabric)
        try:
            env = {} if case.common else {"SHIFT_RENDEZVOUS_MS": "2000"}
            seen = case.run(fabric, case, recorder, keys, env)
            return "", seen or "", recorder.problem
        except (Failure, OSError, ValueError, subprocess.SubprocessError) as failure:
            return str(failure), "", recorder.problem
        finally:
            recorder.end()


def run_pair(fabric, case, recorder, keys, env):
    pair = Pair(fabric, case.files, env=env, layered=case.is_layered)
    if case.common:
        return run_protected(fabric, case, pair, recorder, keys)
    return run_unprotected(fabric, case, pair, recorder)


def run_tenants(fabric, case, recorder, keys, env):
    """Two jobs with different keys on the same two hosts, and NICs. A fault of one tenant's queue pair moves that
    one alone; a fault of the NIC moves both."""
    tenants = [Pair(fabric, (file, file), prefix, {"SHIFT_FAILBACK_MS": "200"})
               for prefix, file in zip(("first-", "second-"), case.files)]
    for one in tenants:
        one.armed()
    names = names_of_qps(fabric)
    fabric.fault("a/mlx5_0", "drop-data qpn=%d" % tenants[0].qpn("client"))
    tenants[0].moved("mlx5_1")
    tenants[1].goes_on()
    expect(not fabric.records("switched", *tenants[1].names), "the other tenant moved, too")
    fabric.fault("a/mlx5_0", "heal")
    tenants[0].moved("mlx5_0")
    fabric.fault("a/mlx5_0", "link-down")
    for one in tenants:
        one.moved("mlx5_1")
    for one in tenants:
        codes = one.stop()
        expect(codes == (0, 0), "client and server ended with %s and %s" % codes)
        qps = {record["qp"] for name in one.names for record in fabric.records("bound", name)}
        expect(len(qps) == 2, "%s have found %s" % (one.names, qps))
        lines = lines_of(one.client) + lines_of(one.server)
        expect(all("moves away" in line for line in lines), "%s printed %s" % (one.names, lines))
    recorder.end()
    if recorder.problem:
        return ""
    ids = {keys.ids[name] for name in case.common.split()}
    for one in recorder.connections():
        for frame in one.messages():
            expect(wire.key_port(frame.key_id()) == one.port, "one tenant spoke at the port of the other")
    return wire_expect_speech(recorder, ids, names)


def run_crowded(fabric, case, recorder, keys, env):
    """Two jobs whose keys have one port. The one that comes second has no failover, and its log says why; the
    first one bears it."""
    env = {"SHIFT_RENDEZVOUS_MS": "2000"}
    first = Pair(fabric, [case.files[0]] * 2, "first-", env)
    first.armed()
    second = Pair(fabric, [case.files[1]] * 2, "second-", env)
    second.wait("unprotected", lambda: fabric.all_have("unprotected", 1, *second.names))
    expect(not fabric.records("armed", *second.names), "the second tenant is protected")
    fabric.fault("a/mlx5_0", "drop-data qpn=%d" % first.qpn("client"))
    first.moved("mlx5_1")
    second.goes_on()
    for one in (first, second):
        codes = one.stop()
        expect(codes == (0, 0), "client and server ended with %s and %s" % codes)
    for end, program in second.ends.items():
        lines = lines_of(program)
        for pattern in (NO_PORT, NOT_PROTECTED):
            expect(any(re.fullmatch(pattern, line) for line in lines), "the second %s printed %s" % (end, lines))
    recorder.end()
    return "the second tenant has no failover"


def run_pingpong(fabric, case, recorder, keys, env):
    """Debian's own program checks its bytes, while the key files of both ends cannot be used."""
    port = free_port()
    argv = ["ibv_rc_pingpong", "-g", "3", "-c", "-n", "2000", "-p", port]
    envs = [{"SHIFT_LOG": "warn", "SHIFT_KEY_FILE": file.path} for file in case.files]
    server = fabric.start("b", "server", argv, env=envs[1])
    expect(wait_until(lambda: is_listening(port) or server.ended, BOUND) and not server.ended,
           "the server does not listen: %s" % server.lines)
    client = fabric.start("a", "client", [*argv, "127.0.0.1"], env=envs[0])
    codes = client.finish(BOUND), server.finish(BOUND)
    expect(codes == (0, 0), "client and server ended with %s and %s" % codes)
    for end, program in zip(ENDS, (client, server)):
        expect("2000 iters" in program.text(), "the %s did not tell its result" % end)
        lines_expect(end, program, lines_wanted(case, end))
    recorder.end()
    expect(recorder.problem or not recorder.packets(), "an end without a usable key spoke")


def cases(keys):
    one, two = keys.make("one"), keys.make("two")
    new_and_old = keys.joined("new-and-old", "two", "one")
    old_and_new = keys.joined("old-and-new", "one", "two")
    yield Case("stock", (None, None), is_layered=False)
    yield Case("no keys", (None, None), "none")
    yield Case("the same key", (one, one), "one")
    yield Case("the client has a new key, too", (new_and_old, one), "one")
    yield Case("the server has a new key, too", (one, new_and_old), "one")
    yield Case("the server speaks with the new key first", (old_and_new, new_and_old), "one")
    yield Case("the client has the new key alone", (two, old_and_new), "two")
    neighbour = keys.neighbour("neighbour", "one")
    yield Case("two tenants", (one, two), "one two", run=run_tenants)
    yield Case("two tenants with one port", (one, neighbour), "one", run=run_crowded)
    yield Case("other keys", (one, two))
    yield Case("other keys with one port", (one, neighbour), said=HELLO_ONLY)
    yield Case("no key at the client", (None, one))
    yield Case("no key at the server", (one, None))
    unusable = list(unusable_files(keys, "one"))
    for number, bad in enumerate(unusable):
        # The peer has the job's key or none: a process that went on without its key would be heard by one of them.
        other = one if number % 2 == 0 else None
        place = "the client" if number % 4 < 2 else "the server"
        name = "%s at %s, whose peer has %s" % (bad.name, place, "a key" if other else "none")
        yield Case(name, (bad, other) if place == "the client" else (other, bad))
    yield Case("unusable files at both ends", (unusable[0], unusable[-1]))
    if shutil.which("ibv_rc_pingpong"):
        fifo = next(bad for bad in unusable if bad.name == "a FIFO")
        yield Case("ibv_rc_pingpong and unusable files", (fifo, unusable[1]), run=run_pingpong)
    else:
        print("left out: ibv_rc_pingpong is not installed", flush=True)


def run(options):
    begun = time.monotonic()
    shutil.rmtree(options.out, ignore_errors=True)
    os.makedirs(options.out)
    build = Build(options.build)
    build.require(build.shift_run, build.traffic)
    keys = KeyFiles(build, os.path.join(os.path.abspath(options.out), "keys"))
    planned = [case for case in cases(keys) if not options.only or options.only in case.name]
    failed, deaf = [], set()

    def tell(case, outcome):
        problem, seen, unheard = outcome
        verdict = "FAILED" if problem else "right"
        print("%-6s %s: %s" % (verdict, case.name, problem or seen or "as on stock"), flush=True)
        if problem:
            failed.append(case)
        else:
            shutil.rmtree(directory_of(case))
        if unheard:
            deaf.add(unheard)

    def directory_of(case):
        return os.path.join(options.out, re.sub(r"\W+", "-", case.name))

    run_all(options.jobs, planned, lambda case: run_case(build, keys, case, directory_of(case)), tell)
    print("%d cases, %d failed, %.0f s" % (len(planned), len(failed), time.monotonic() - begun))
    if failed or not planned:
        return 1
    if deaf:
        print("SKIPPED: nobody listened on the wire: %s" % "; ".join(sorted(deaf)))
        return 77
    return 0


def main():
    parser = script_parser(__doc__, "out/keys")
    parser.add_argument("--jobs", type=int, default=3, help="cases side by side")
    parser.add_argument("--only", help="a part of a case's name")
    return main_inside(parser, run)


if __name__ == "__main__":
    sys.exit(main())
