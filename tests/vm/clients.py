"""The programs that run between two test machines, unmodified ones and shift-traffic, and one session of a
client and its server."""

import dataclasses
import json
import os
import re
from typing import Callable

from harness import TESTS

from vm.pair import address

MORE = 3
PORT = "7471"
# Programs print these words when they find something wrong.
COMPLAINTS = re.compile("invalid data|data mismatch|data verification failed|cma event|cma detected|"
                        "UCX +(ERROR|FATAL)|Assertion .* failed")


@dataclasses.dataclass(frozen=True)
class Client:
    """A program, and how it runs between the two machines."""

    name: str
    argv: Callable   # argv(pair, host): the whole command on this host
    pattern: str     # what the program prints when its count is complete
    ends: str        # the hosts that print the pattern
    endless: bool    # the program runs until it gets "stop", and judges itself
    nic: str         # the NIC whose address the client gets
    env: dict
    one_way: bool = False  # the server posts no requests, so it gets no acknowledgements
    serves: bool = False   # the server goes on for ever and is killed after its client
    meets: bool = False    # the ends find each other by files; neither listens
    longer: Callable = None  # longer(): the client with more to do
    spared: tuple = ()       # faults that do not concern its connections


def server_of(host, nic):
    """The address that a client gets as its last word; empty for a server."""
    return [address(nic, "b")] if host == "a" else []


def perftest(tool, count, size, *more):
    # A latency test counts exchanges, a bandwidth test the messages of all queue pairs.
    queue_pairs = int(more[more.index("-q") + 1]) if "-q" in more else 1

    def argv(pair, host):
        return [tool, "-d", "rxe0", "-x", pair.gid_index(host), "-F", "-n", str(count), "-s",
                str(size), "-p", PORT, *more, *server_of(host, "control")]
    # With some of these tools only the client prints a result.
    return Client(" ".join([tool, *more]), argv, r"^ *%d +%d +[0-9.]" % (size, count * queue_pairs), "a",
                  False, "control", {}, one_way=tool.endswith("_bw") and "-b" not in more,
                  longer=lambda: perftest(tool, MORE * count, size, *more))


def pingpong(kind, count, *more):
    program = "ibv_%s_pingpong" % kind

    def argv(pair, host):
        return [program, "-d", "rxe0", "-g", pair.gid_index(host), "-n", str(count), "-p", PORT, *more,
                *server_of(host, "control")]
    return Client(" ".join([program, *more]), argv, r"^%d iters in " % count, "ab", False, "control", {},
                  longer=lambda: pingpong(kind, MORE * count, *more))


# Only the log says when a transport silently fell back, or a queue pair is in trouble.
UCX = {"UCX_WARN_UNUSED_ENV_VARS": "n", "UCX_LOG_LEVEL": "warn"}


def uct(test, count, *more):
    """Runs one transport of UCX: -d and -x choose it, so that nothing else can do the work."""
    chosen = ["-d", "rxe0:1", "-x", "rc_verbs", "-t", test, *more]

    def argv(pair, host):
        return ["ucx_perftest", "-p", PORT, *chosen[:4 if host == "b" else None],
                *(["-n", str(count), "-w", "20"] if host == "a" else []), *server_of(host, "control")]
    return Client(" ".join(["ucx_perftest", *chosen[2:]]), argv, r"^Final: +%d " % count, "a", False,
                  "control", UCX, longer=lambda: uct(test, MORE * count, *more))


def io_demo(exchanges):
    """Both sides verify every byte (-q). Only rc_verbs is named: UCX would wire up with UD otherwise, whose
    flushed receives end the process when a NIC goes."""
    def argv(pair, host):
        return ["io_demo", "-p", PORT, *(["-i", str(exchanges), "-q"] if host == "a" else []),
                *server_of(host, "control")]
    return Client("io_demo -q", argv, r"Client exit with status 'OK'", "a", False, "control",
                  {**UCX, "UCX_TCP_CM_REUSEADDR": "y", "UCX_TLS": "rc_verbs,tcp",
                   "UCX_SOCKADDR_TLS_PRIORITY": "tcp", "UCX_NET_DEVICES": "rxe0:1,control"}, serves=True,
                  longer=lambda: io_demo(MORE * exchanges))


def traffic(op, *more):
    def argv(pair, host):
        command = [os.path.join(pair.build, "test", "shift-traffic"), "-d", "rxe0", "-x",
                   pair.gid_index(host), "--port", PORT, "--stall-ms", "60000",
                   "--timeout-ms", "600000"]
        if host == "b":
            return command + ["--listen", address("control", "b")]
        return command + ["--op", op, "--events", "--until-stop", "--size", "4096", "--depth", "16",
                          *more, *server_of(host, "control")]
    return Client(" ".join(["shift-traffic", op, *more]), argv, r"", "", True, "control", {})


def gloo(rounds, count):
    """Runs allreduce over so many numbers; every rank checks every sum."""
    def argv(pair, host):
        return [pair.gloo_check(), str("ab".index(host)), "2", "/run/common/%s" % pair.meeting(host), "ring",
                str(count), str(rounds), "1", "rxe0", pair.gid_index(host), "meet"]
    return Client("Gloo allreduce ring", argv, r"^gloo_check ok: %d rounds$" % rounds, "ab", False, "control",
                  {}, meets=True, longer=lambda: gloo(MORE * rounds, count))


def torch_rpc(elements, calls):
    """TensorPipe takes the first NIC and its GID at index 0, a link-local one."""
    def argv(pair, host):
        return ["python3", os.path.join(TESTS, "programs", "rpc_check.py"), str("ab".index(host)),
                "%s:%s" % (address("control", "a"), PORT), str(elements), str(calls), "1"]
    return Client("PyTorch RPC (TensorPipe ibv)", argv, r"^rpc_check ok: %d calls$" % calls, "a", False,
                  "control", {"GLOO_SOCKET_IFNAME": "control", "TP_SOCKET_IFNAME": "control"}, meets=True,
                  longer=lambda: torch_rpc(elements, MORE * calls), spared=("address-off",))


# ---- Programs that find each other by rdma_cm: all their traffic uses rail0's address.


def managed(name, server, client, pattern, ends="a", env=None, longer=None):
    def argv(pair, host):
        return list(server) if host == "b" else [*client, *server_of(host, "rail0")]
    return Client(name, argv, pattern, ends, False, "rail0", env or {}, longer=longer)


def rping(count, size):
    """The client compares what it sent with what came back (-V), and says so in its exit status."""
    common = ["rping", "-V", "-C", str(count), "-S", str(size), "-p", PORT]
    return managed("rping -V", [*common, "-s", "-a", address("rail0", "b")],
                   [*common, "-c", "-a"], r"", longer=lambda: rping(MORE * count, size))


def ucmatose(count, size):
    common = ["ucmatose", "-C", str(count), "-S", str(size), "-p", PORT]
    return managed("ucmatose", [*common, "-b", address("rail0", "b")], [*common, "-s"],
                   r"^return status 0", "ab", longer=lambda: ucmatose(MORE * count, size))


def rsocket_stream(tool, count, size, env=None):
    """One of the rsocket programs; both ends compare what they get."""
    common = [tool, "-T", "v", "-C", "1", "-I", str(count), "-S", str(size), "-p", PORT]
    return managed(tool + " -T v", [*common, "-b", address("rail0", "b")], [*common, "-s"],
                   r"^custom +", "ab", env, lambda: rsocket_stream(tool, MORE * count, size, env))


def rdma_client():
    """One message goes each way, so it is over before anything could break."""
    return managed("rdma_client", ["rdma_server", "-s", address("rail0", "b"), "-p", PORT],
                   ["rdma_client", "-p", PORT, "-s"], r"^rdma_(client|server): end 0", "ab")


def fi_pingpong(count, size):
    """The ends tell each other by TCP where rdma_cm finds them, and when a count begins and ends."""
    def argv(pair, host):
        return ["fi_pingpong", "-p", "verbs", "-e", "msg", "-d", "rxe0", "-c", "-I", str(count), "-S", str(size),
                "-B" if host == "b" else "-P", PORT, *server_of(host, "control")]
    return Client("fi_pingpong -c", argv, r"^\S+ +\S+ +=\S+ +\S+ +[0-9.]+s ", "ab", False, "control", {},
                  longer=lambda: fi_pingpong(MORE * count, size))


def fio(verb, megabytes):
    common = ["fio", "--name=" + verb, "--ioengine=rdma", "--thread", "--bs=64k",
              "--size=%dm" % megabytes, "--port=" + PORT, "--iodepth=8"]

    def argv(pair, host):
        if host == "b":
            return [*common, "--rw=read"]
        return [*common, "--rw=write", "--verb=" + verb,
                "--hostname=" + address("rail0", "b")]
    return Client("fio " + verb, argv, r"err= 0", "ab", False, "rail0", {}, one_way=True,
                  longer=lambda: fio(verb, MORE * megabytes))


def exit_code(program, timeout):
    """Returns the exit code, or None when the program had to be killed. rping may close the channel just before
    its other thread waits at it, which ends the process; by then it has said whether it failed."""
    code = program.finish(timeout)
    text = program.text()
    closed = "rdma_get_cm_event: Bad file descriptor" in text and " failed: " not in text
    return 0 if code == 255 and closed else code


class Session:
    """One client on host a and its server on host b."""

    _count = 0

    def __init__(self, pair, client, shift=True, env=None, off=""):
        """`shift` is True, False, or the only host with the layer. `off` is the host on which the layer is
        loaded but switched off (SHIFT_DISABLE)."""
        Session._count += 1
        self.pair, self.client = pair, client
        self.name = "%02d-%s" % (Session._count, re.sub(r"[^a-z_]+", "-", client.name).strip("-"))
        self.programs = {}
        for host in "ba":
            settings = {**client.env, **(env or {})}
            if host == off:
                settings["SHIFT_DISABLE"] = "1"
            self.programs[host] = pair.start(host, self.name, client.argv(pair, host),
                                             shift in (True, host) or host == off, settings)
            if host == "b" and not client.meets and \
                    not pair.until(lambda: self._listens() or self.ended(), 60):
                raise RuntimeError("%s: the server does not listen: %s" % (
                    self.name, pair.managed_listeners("b")))

    def _listens(self):
        if self.pair.listens("b", int(PORT)):
            return True
        return self.client.nic == "rail0" and \
            re.search(r"LISTEN.*:%s\b" % PORT, self.pair.managed_listeners("b")) is not None

    def ended(self):
        return any(program.ended is not None for program in self.programs.values())

    def events(self, host, kind):
        return self.pair.events(host, self.name, kind)

    def count(self, kind):
        """How many of these events both ends have recorded."""
        return min(len(self.events(host, kind)) for host in "ab")

    def failure(self):
        """Why a queue pair failed, which the program may have survived; '' when none failed."""
        causes = [json.loads(line)["cause"] for host in "ab" for line in self.events(host, "failed")]
        return "a queue pair failed: " + "; ".join(causes) if causes else ""

    def wait_count(self, kind, count, timeout=60):
        return self.pair.until(lambda: self.count(kind) >= count or self.ended(), timeout) and \
            self.count(kind) >= count

    def moved_bytes(self):
        return sum(self.pair.counter(host, "rail0") for host in "ab")

    def wait_bytes(self, count, timeout=60):
        """Waits until so many more bytes have gone over rail0, in both directions together."""
        begun = self.moved_bytes()
        self.pair.until(lambda: self.moved_bytes() > begun + count or self.ended(), timeout)

    def codes(self, timeout, server_timeout=90):
        """The exit codes of client and server, None for one that had to be killed. The kernel repeats a request
        to disconnect for over a minute before it tells the server."""
        return [exit_code(self.programs["a"], timeout), exit_code(self.programs["b"], server_timeout)]

    def served(self, timeout=120):
        code = exit_code(self.programs["a"], timeout)
        if self.programs["b"].ended is None:
            self.programs["b"].finish(0)
            return [code, 0]
        return [code, self.programs["b"].code or "0, too early"]

    def finish(self, timeout=120):
        """Waits for the end. Returns what is wrong with the result, or ''."""
        if self.client.endless:
            self.programs["a"].tell("stop")
        # A server that serves for ever is killed soon after its client has ended.
        codes = self.served() if self.client.serves else self.codes(timeout)
        if codes != [0, 0]:
            return "exit codes client %s, server %s" % tuple(codes)
        texts = {host: self.programs[host].text() for host in "ab"}
        if not all(re.search(self.client.pattern, texts[host], re.M) for host in self.client.ends):
            return "the count is not complete"
        complaint = COMPLAINTS.search(texts["a"] + texts["b"])
        return complaint.group(0) if complaint else ""
