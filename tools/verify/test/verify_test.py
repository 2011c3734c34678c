#!/usr/bin/python3
"""shift-verify on emulated hosts: nothing is wrong with healthy NICs, and each check fails when what it looks at
is wrong. The fault is one of the emulator's, or a lie of the library shift-liar, which makes the stock library,
the kernel or a NIC seem to behave otherwise.

The test `verify` calls this program; --only runs one case, and --text shows what it prints."""

import concurrent.futures
import contextlib
import json
import os
import pty
import resource
import signal
import socket
import subprocess
import sys
import tempfile

from harness import ROOT
from harness.build import Build, words
from harness.devices import ip, main_inside
from harness.fabric import Fabric
from harness.options import script_parser
from harness.ports import free_port
from harness.program import Program
from harness.waiting import wait_until

PATIENCE_S = 120
PR_CAPBSET_DROP, CAP_IPC_LOCK = 24, 14


class Host:
    """A fabric of its own, whose host a is looked at."""

    def __init__(self, options, folder, nics=2):
        self.options = options
        self.fabric = Fabric(Build(options.build), folder, nics)
        self.folder = folder
        self.devices = []

    def __enter__(self):
        self.fabric.__enter__()
        for host in "ab":
            subprocess.run(self.fabric.command(host, ["true"]), check=True)
        return self

    def __exit__(self, *error):
        # While the fabric is there: another one may get its addresses.
        for device in self.devices:
            ip("link", "delete", device)
        self.fabric.__exit__(*error)

    def command(self, host, arguments, lie=""):
        verify = words([os.path.join(self.options.build, "bin", "shift-verify"), *arguments])
        if lie:
            library = os.path.abspath(os.path.join(self.options.build, "test", "shift-liar.so"))
            verify = ["sh", "-c", 'LD_PRELOAD="$LD_PRELOAD:%s" exec "$@"' % library, "sh", *verify]
        return self.fabric.command(host, verify)

    def run(self, *arguments, lie="", host="a", setup=None):
        """The exit status, what was printed, and the messages."""
        done = subprocess.run(self.command(host, arguments, lie), capture_output=True, text=True, check=False,
                              timeout=PATIENCE_S, preexec_fn=setup, env={**os.environ, "LIAR": lie})
        return done.returncode, done.stdout, done.stderr

    def json(self, *arguments, **how):
        status, said, errors = self.run(*arguments, "--json", **how)
        try:
            return status, json.loads(said)
        except ValueError:
            raise SystemExit("no JSON: %s\n%s" % (said, errors)) from None

    def address(self, nic="a/mlx5_0"):
        return self.fabric.counters(nic)["address"]


def network_devices(host, name, prefix):
    """Gives each NIC of host a a network device of its own, by a name with its number."""
    for index, nic in enumerate(host.fabric.hosts()["a"].values()):
        ip("link", "add", name % index, "type", "veth", "peer", "name", name % index + "p")
        host.devices.append(name % index)
        ip("address", "add", "%s/%d" % (nic["address"], prefix), "dev", name % index)
        ip("link", "set", name % index, "up")
        ip("link", "set", name % index + "p", "up")


# ---- A fault for each check. Each function returns arguments and further words of Host.run().

def lie(name):
    return lambda host: ([], {"lie": name})


def fault(*faults):
    def run(host):
        for one in faults:
            nic, _, what = one.partition(" ")
            host.fabric.fault(nic, what)
        return [], {}

    return run


def little_memory(host):
    def setup():
        import ctypes  # in the child
        ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, CAP_IPC_LOCK, 0, 0, 0)
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (8 << 20, 8 << 20))

    return [], {"setup": setup}


def port_taken(host):
    taken = host.taken = socket.socket()  # as long as the host

    def bound():
        with contextlib.suppress(OSError):
            taken.bind((host.address(), 9473))
            return True
        return False

    # Connections of an earlier host that had this address stay for a minute (TIME_WAIT).
    if not wait_until(bound, 90, step=0.5):
        raise RuntimeError("%s:9473 is in use" % host.address())
    return [], {}


def one_network(host):
    """The NICs' addresses are on two devices, but in one subnet."""
    if not host.options.in_namespace:
        return None
    network_devices(host, "v%d", 24)
    return [], {}


def both_links(host):
    cut = "%s fault --fabric %s a/%%s link-down" % (host.fabric.build.cxemu, host.fabric.name)
    return ["--link", "--link-down", "%s; %s" % (cut % "mlx5_0", cut % "mlx5_1"), "--link-up", "true"], {}


# The verdict that must come, and words of its reason.
FAULTS = {
    "pairing": (lambda host: ([], {}), "failure", "backed by none"),  # on a host with one NIC
    "membarrier": (lie("no-membarrier"), "warning", "membarrier(2)"),
    "link-watch": (lie("no-libnl"), "warning", "libnl-3"),
    "locked-memory": (little_memory, "failure",
                      "RLIMIT_MEMLOCK is 8 MiB, so with 2 NICs a program can register 4 MiB"),
    "registration": (fault("a/mlx5_0 slow-commands=150"), "warning", "s per GiB"),
    "port": (fault("a/mlx5_0 link-down"), "failure", "PORT_DOWN|down"),
    "address": (lie("no-ipv4"), "warning", "no GID holds an IPv4 address"),
    "subnets": (one_network, "warning", "in one subnet"),
    "rendezvous-port": (port_taken, "failure", "which another program has"),
    "control-channel": (fault("a/mlx5_0 drop-data"), "failure", "no TCP connection"),
    "path": (lie("small-packets"), "failure", "packets of 1024 bytes come through, and of 4096 do not"),
    "flush-all": (lie("unsignaled-unflushed"), "failure", "ERR gave back: 5 8"),
    "marker-last": (lie("marker-overtakes"), "failure", "after the marker's"),
    "err-shuts": (lie("err-ignored"), "failure", "changed memory after"),
    "error-event": (lie("errors-silent"), "failure", "wakes nobody"),
    "rq-psn": (lie("psn-off"), "failure", "7 packets were executed, and ibv_query_qp's rq_psn says 6"),
    "last-wqe": (lie("no-last-wqe"), "failure", "LAST_WQE_REACHED did not come"),
    "write-order": (lie("notified-early"), "failure", "came before byte"),
    "reconnect": (lie("reset-ignored"), "failure", "RESET|INIT|another state"),
    "new-psn": (lie("old-psn"), "failure", "nothing comes through"),
    "commands": (fault("a/mlx5_0 slow-commands=150"), "warning", "waits for that"),
    "cq-resize": (lie("no-resize"), "warning", "cannot be made larger"),
    "patience": (lie("waits-long"), "failure", "no error within"),
    "cost": (lie("slow-layer"), "warning", "with the layer 1"),
    "failover": (lie("wrong-byte"), "failure", "byte 5 of message 400 is wrong"),
    "link-down": (both_links, "failure", "the program sees an error"),
}
# What docs/verify.md says of these.
WORDS = {
    "pairing": "a host with one NIC",
    "membarrier": "a lie: the system call is missing",
    "link-watch": "a lie: libnl-3 is missing; a cable that is out",
    "locked-memory": "a limit of 8 MiB",
    "registration": "commands that take 150 ms",
    "port": "a link that is down",
    "address": "a lie: no GID has an IPv4 address",
    "subnets": "two network devices in one subnet",
    "rendezvous-port": "a program that has the port and does not listen",
    "control-channel": "an address that TCP cannot reach; a lie: UDP is lost",
    "path": "a lie: packets above 1024 bytes are lost; a NIC that loses acknowledgements",
    "flush-all": "a lie: requests without a signal are not flushed",
    "marker-last": "a lie: a flush comes after the marker",
    "err-shuts": "a lie: ERR does nothing",
    "error-event": "a lie: queues are not armed",
    "rq-psn": "a lie: the number is one less",
    "last-wqe": "a lie: another event comes",
    "write-order": "a lie: large WRITEs are overtaken",
    "reconnect": "a lie: RESET does nothing; commands that take 150 ms",
    "new-psn": "a lie: the first start PSN stays",
    "commands": "commands that take 150 ms; a NIC that answers none",
    "cq-resize": "a lie: the command is refused",
    "patience": "a lie: a longer timeout is set",
    "cost": "a lie: each post takes a microsecond longer with the layer",
    "failover": "a lie: one byte changes in memory",
    "link-down": "both links go down",
}

# Further faults, with the check that each of them is for.
MORE = {
    "no UDP": ("control-channel", lie("no-udp"), "warning", "no UDP to port 9473"),
    "no packets": ("path", fault("a/mlx5_0 drop-acks"), "failure", "nothing comes through"),
    "slow switches": ("reconnect", fault("a/mlx5_0 slow-commands=150"), "warning", "each switch waits for that"),
    "ERR is entered twice": ("marker-last", lie("late-receives"), "warning", "only when ERR was entered again"),
    "much memory": ("locked-memory", lambda host: (["--memory", "1"], little_memory(host)[1]), "failure",
                    "not 1 GiB"),
}


def check_fails(options, case, folder):
    """Runs one check with its fault. Returns complaints."""
    name, make, verdict, reason = MORE[case] if case in MORE else (case, *FAULTS[case])
    with Host(options, folder, 1 if name == "pairing" else 2) as host:
        how = make(host)
        if how is None:
            return ["SKIPPED %s: no network namespace can be made here" % name]
        arguments, more = how
        if options.text:
            print(host.run("--only", name, *arguments, **more)[1])
        status, report = host.json("--only", name, *arguments, **more)
        found = report["checks"][0]
        wrong = [] if found["check"] == name else ["%s was run" % found["check"]]
        if found["verdict"] != verdict or not any(one in found["text"] for one in reason.split("|")):
            wrong.append("%s: %s, and a %s with '%s' had to come" % (
                found["verdict"], found["text"], verdict, reason))
        if status != (1 if verdict == "failure" else 0):
            wrong.append("the exit status is %d" % status)
        return ["%s: %s" % (case, one) for one in wrong]


# ---- Other cases.

# These judge times, and the machine may be busy: their warnings say nothing here.
TIMED = ("registration", "commands", "reconnect", "control-channel", "patience", "cost")


def objections(report):
    """What a report says of healthy NICs that it must not say."""
    return ["%s %s %s: %s: %s" % (one["check"], one["host"], one["nic"], one["verdict"], one["text"])
            for one in report["checks"]
            if one["verdict"] != "ok" and not (one["verdict"] == "warning" and one["check"] in TIMED)]


def healthy(options, folder):
    with Host(options, folder) as host:
        down = "%s fault --fabric %s a/$NIC link-" % (host.fabric.build.cxemu, host.fabric.name)
        status, report = host.json("--link", "--link-down", down + "down", "--link-up", down + "up")
        bad = objections(report)
        names = [one["check"] for one in report["checks"]]
        listed = host.run("--list")[1]
        if set(names) != set(FAULTS):
            bad.append("checks without a fault here, or without a run: %s" % (set(names) ^ set(FAULTS)))
        bad += ["%s is not listed" % name for name in FAULTS if "\n%s " % name not in "\n" + listed]
        with open(os.path.join(ROOT, "docs", "verify.md")) as file:
            page = file.read()
        bad += ["docs/verify.md does not say how %s fails" % name
                for name in FAULTS if "| `%s` |" % name not in page or WORDS[name] not in page]
        if status != 0 or report["version"] != 1 or report["failures"] != 0:
            bad.append("status %d, version %s" % (status, report["version"]))
        if not all(one["means"] and one["advice"] and one["seconds"] >= 0 for one in report["checks"]):
            bad.append("a check does not say what it means")
        text = host.run("--only", "port")[1]
        if "2 ok, 0 warnings, 0 failures, 0 skipped" not in text:
            bad.append("the text says: " + text)
        return bad


def hanging(options, folder):
    """A NIC that answers no command is a failure within the bound, and the next check runs."""
    with Host(options, folder) as host:
        host.fabric.fault("a/mlx5_1", "hang-commands")
        status, report = host.json("--only", "port", "--only", "rq-psn", "--timeout", "2")
        seen = [(one["check"], one["nic"], one["verdict"]) for one in report["checks"]]
        wanted = [(check, nic, "failure" if nic == "mlx5_1" else "ok")
                  for check in ("port", "rq-psn") for nic in ("mlx5_0", "mlx5_1")]
        return [] if (status, seen) == (1, wanted) else ["status %d: %s" % (status, seen)]


def command_line(options, folder):
    bad = []
    with Host(options, folder) as host:
        for arguments in (["--only", "nonsense"], ["--port", "0"], ["--nonsense"], ["--server", "b"],
                          ["--device", "a", "--device", "a"], ["--link-down", "true"]):
            status, said, errors = host.run(*arguments)
            if status != 2 or said or not errors:
                bad.append("%s: status %d, %s%s" % (arguments, status, said, errors))
        status, said, errors = host.run("127.0.0.1", "--port", "1")
        if status != 3 or "no shift-verify --server" not in errors:
            bad.append("no server: status %d, %s%s" % (status, said, errors))
        status, said, errors = host.run("--device", "mlx5_9", "--only", "port")
        if status != 1 or "mlx5_9" not in said:
            bad.append("no such NIC: status %d, %s%s" % (status, said, errors))
    return bad


def link_of(device):
    return subprocess.run(["ip", "-o", "link", "show", device], check=True, capture_output=True, text=True).stdout


def network_device_down(options, folder):
    """Root takes a link down without saying how. Only netlink tells the layer of it: the emulated NICs go on."""
    if not options.in_namespace:
        return ["SKIPPED: no network namespace can be made here"]
    with Host(options, folder) as host:
        network_devices(host, "w%d", 32)
        status, report = host.json("--link", "--only", "link-down")
        bad = objections(report)
        bad += [one["text"] for one in report["checks"] if "(link-state)" not in one["text"]]
        ip("link", "set", "w1p", "down")
        # The kernel tells of the other end's carrier later, once a second at most.
        if not wait_until(lambda: " state UP " not in link_of("w1"), PATIENCE_S, step=0.05):
            bad.append("the kernel does not notice that w1 has no carrier: " + link_of("w1"))
        said = host.run("--only", "link-watch")[1]
        if status != 0 or "w1 is down or has no carrier" not in said:
            bad.append("status %d; %s" % (status, said))
        return bad


def beneath_the_layer(options, folder):
    """Where the layer is in front, the stock library beneath it is looked at."""
    with Host(options, folder) as host:
        events = host.fabric.events_path("verify")
        verify = os.path.join(options.build, "bin", "shift-verify")
        for argv, wanted in (([verify, "--only", "responder"], False),
                             ([verify, "internal", "cost", "mlx5_0"], True)):
            done = subprocess.run(host.fabric.command("a", argv, True), capture_output=True, text=True,
                                  check=False, timeout=PATIENCE_S, env={**os.environ, "SHIFT_EVENTS": events})
            recorded = os.path.exists(events) and os.path.getsize(events) > 0
            if done.returncode != 0 or recorded != wanted:
                return ["status %d, event records: %s; %s" % (done.returncode, recorded, done.stdout)]
    return []


def interrupted(options, folder):
    """A link that is down comes up again when the tool is ended in the middle."""
    with Host(options, folder) as host:
        down, up = os.path.join(folder, "down"), os.path.join(folder, "up")
        command = host.command("a", ["--only", "link-down", "--link", "--link-down", "touch %s; sleep 60" % down,
                                     "--link-up", "touch %s" % up])
        with subprocess.Popen(command, stdout=subprocess.PIPE) as running:
            is_down = wait_until(lambda: os.path.exists(down), 30) and not os.path.exists(up)
            running.send_signal(signal.SIGINT)
            is_up = wait_until(lambda: os.path.exists(up), 30)
        return [] if (is_down, is_up) == (True, True) else ["down %s, up again %s" % (is_down, is_up)]


def progress(options, folder):
    """Whoever watches at a terminal sees what runs."""
    with Host(options, folder) as host:
        ours, theirs = pty.openpty()
        done = subprocess.run(host.command("a", ["--only", "port"]), stdout=subprocess.PIPE, stderr=theirs,
                              timeout=PATIENCE_S, check=False)
        os.close(theirs)
        seen = ""
        with contextlib.suppress(OSError):  # that is the end, at a terminal
            while more := os.read(ours, 65536):
                seen += more.decode()
        os.close(ours)
        return [] if "1 checks done; port, mlx5_1" in seen and done.returncode == 0 else [repr(seen)]


STRANGE = [b"", b"\n", b"{}\n", b"[1]\n", b"\xff\xfe\x00" * 100 + b"\n", b"GET / HTTP/1.1\r\n\r\n",
           b"x" * 100000,
           b'{"shift-verify":2,"do":"nics"}\n', b'{"shift-verify":"1"}\n', b'{"shift-verify":1,"do":7}\n',
           b'{"shift-verify":1,"do":"run","check":"no"}\n',
           b'{"shift-verify":1,"do":"run","check":"failover"}\n',
           b'{"shift-verify":1,"do":"run","check":"port","nic":"../x"}\n',
           b'{"shift-verify":1,"do":"answer","check":"path","nic":"mlx5_0"}\n{"address":{"qpn":-1}}\n']


def stranger(address, port, strange):
    """What the server says to a stranger."""
    with socket.create_connection((address, port), timeout=10) as talk:
        try:
            talk.sendall(strange)
            talk.shutdown(socket.SHUT_WR)
            said = b""
            while more := talk.recv(4096):
                said += more
            return said
        except TimeoutError:
            return b"nothing, and it is not closed"
        except OSError:  # it was closed before all was sent
            return b""


def two_hosts(options, folder):
    bad, port = [], free_port()
    with Host(options, folder) as host:
        server = Program(host.command("b", ["--server", "--port", str(port)]),
                         os.path.join(folder, "server.log"))
        host.fabric.programs.append(server)
        if not wait_until(lambda: "waiting" in server.text(), 20):
            return ["the server does not start: " + server.text()]
        address = host.address("b/mlx5_0")
        status, report = host.json(address, "--port", str(port), "--without", "cost")
        bad += [one for one in objections(report) if not one.startswith("link-down both")]
        hosts = {one["host"] for one in report["checks"]}
        if status != 0 or hosts != {"here", "there", "both"}:
            bad.append("status %d, hosts %s" % (status, hosts))
        for strange in STRANGE:
            said = stranger(address, port, strange)
            if said and b'"trouble"' not in said and b'"go"' not in said:
                bad.append("a stranger's %r is answered with %r" % (strange[:60], said))
        host.fabric.fault("b/mlx5_1", "drop-data")
        status, report = host.json(address, "--port", str(port), "--only", "path", "--only", "port")
        seen = {(one["nic"], one["peer_nic"]): one["verdict"] for one in report["checks"]
                if one["check"] == "path"}
        wanted = {("mlx5_0", "mlx5_0"): "ok", ("mlx5_1", "mlx5_0"): "ok",
                  ("mlx5_0", "mlx5_1"): "warning", ("mlx5_1", "mlx5_1"): "failure"}
        if seen != wanted:
            bad.append("with a NIC that loses data there: %s" % seen)
        if server.ended:
            bad.append("the server has ended: " + server.text())
    return bad


CASES = {"healthy": healthy, "hanging": hanging, "command line": command_line, "progress": progress,
         "network device down": network_device_down, "beneath the layer": beneath_the_layer,
         "interrupted": interrupted,
         "two hosts": two_hosts}


def run(options):
    options.build = os.path.abspath(options.build)
    names = options.only or [*CASES, *FAULTS, *MORE]

    def one(name):
        with tempfile.TemporaryDirectory(prefix="verify-") as folder:
            if name in CASES:
                return ["%s: %s" % (name, complaint) for complaint in CASES[name](options, folder)]
            return check_fails(options, name, folder)

    failures = 0
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for name, complaints in zip(names, pool.map(one, names)):
            print("%-6s %s" % ("wrong" if complaints else "right", name), flush=True)
            for complaint in complaints:
                print("       " + complaint, flush=True)
            failures += any("SKIPPED" not in complaint for complaint in complaints)
    return 1 if failures else 0


def main():
    parser = script_parser(__doc__, "out/verify")
    parser.add_argument("--jobs", type=int, default=3, help="runs side by side")
    parser.add_argument("--only", action="append", help="run this case or check only")
    parser.add_argument("--text", action="store_true", help="show what is printed, too")
    return main_inside(parser, run)


if __name__ == "__main__":
    sys.exit(main())
