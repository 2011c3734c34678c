#!/usr/bin/env python3
"""shiftctl before processes that only say what real ones would say: what it prints, its JSON, its exit statuses,
and the orders that it gives."""
import argparse
import json
import os
import pathlib
import re
import select
import shlex
import stat
import subprocess
import sys
import tempfile
import time

PATIENCE_S = 30


class Fake:
    """One process (fake_process.cc)."""

    def __init__(self, command):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.said = b""
        self.pid = int(self.line())

    def line(self):
        while b"\n" not in self.said:
            ready, _, _ = select.select([self.process.stdout], [], [], PATIENCE_S)
            assert ready, "the process says nothing"
            more = os.read(self.process.stdout.fileno(), 4096)
            assert more, "the process has ended"
            self.said += more
        line, self.said = self.said.split(b"\n", 1)
        return line.decode()

    def say(self, word):
        self.process.stdin.write(word.encode() + b"\n")
        self.process.stdin.flush()

    def manner(self, word):
        """Has it carry orders out in another manner ("slow", "stubborn")."""
        self.say(word)
        while self.line() != word:
            pass

    def end(self, word="crash"):
        if self.process.poll() is None:
            self.say(word)
            self.process.wait(PATIENCE_S)
        self.process.stdin.close()
        self.process.stdout.close()


class Host:
    """A state folder with processes."""

    def __init__(self, args, folder):
        self.args, self.base, self.fakes = args, pathlib.Path(folder), []
        self.own = self.base / ("shift-%d" % os.geteuid())
        is_root = os.geteuid() == 0
        self.order = self.base / "shift-drained" if is_root else self.own / "drained"

    def start(self, *options):
        self.fakes.append(Fake([*self.args.emulator, self.args.fake, str(self.base), *options]))
        return self.fakes[-1]

    def command(self, *words):
        return [*self.args.emulator, self.args.shiftctl, "--state-dir", str(self.base), *words]

    def run(self, status, *words, err=()):
        """What the command prints. Its messages must contain `err`, and there must be none without that."""
        said = subprocess.run(self.command(*words), capture_output=True, text=True, timeout=PATIENCE_S,
                              check=False)
        assert said.returncode == status, (words, status, said)
        for text in [err] if isinstance(err, str) else err:
            assert text in said.stderr, (words, text, said)
        assert bool(said.stderr) == bool(err), (words, said)
        return said.stdout

    def json(self, status, *words):
        return json.loads(self.run(status, *words, "--json"))

    def end(self):
        for fake in self.fakes:
            fake.end()


def has(text, *wanted):
    for one in wanted:
        assert one in text, "no %r in:\n%s" % (one, text)


def nothing_runs(host):
    has(host.run(0, "status"), "0 processes with SHIFT, 0 QPs")
    assert host.json(0, "status")["processes"] == []
    assert host.run(0, "events") == ""
    has(host.run(0, "health"), "ok: ")
    has(host.run(0, "metrics"), "\nshift_processes 0\n")
    has(host.run(0, "drain"), "no NIC is drained")
    host.run(1, "explain", "0x1", err="there is no QP, process or NIC 0x1")
    host.run(1, "config", "4711", err="there is no process 4711")


def a_wrong_command_line_changes_nothing(host):
    for words in ([], ["nonsense"], ["drain", "../x"], ["drain", "a b"], ["undrain"], ["explain"], ["move"],
                  ["drain", "mlx5_0", "--timeout", "x"], ["status", "--watch=0"], ["move", "31"], ["config", "x"]):
        said = subprocess.run(host.command(*words), capture_output=True, text=True, timeout=PATIENCE_S,
                              check=False)
        assert said.returncode == 2 and said.stderr, (words, said)
    assert not list(host.base.iterdir())


def status_shows_processes(host):
    good = host.start("--qps", "3")
    bad = host.start("--nics", "mlx5_0,mlx5_2", "--qps", "20", "--state", "0", "--problem", "no SHIFT at the peer",
                     "--down", "2", "--stock", "4")
    crashed = host.start()
    good.say("fault 100")
    crashed.end("crash")
    assert good.line() == "written"
    text = host.run(0, "status")
    has(text, "2 processes with SHIFT, 23 QPs: 3 protected, 20 unprotected", "ended without closing",
        "process %d (trainer): 20 QPs on mlx5_0 are not protected: no SHIFT at the peer (0x100, " % bad.pid,
        "mlx5_2 carries no traffic", "went from mlx5_0 to mlx5_1 in 4120 us (completion, test")
    assert re.search(r"^%d +\S+ +trainer +runs +mlx5_0, mlx5_1 +3 +3 " % good.pid, text, re.M), text
    assert "0x113" not in text
    has(host.run(0, "status", "--all"), "0x113", "QP 0x1100 of 10.0.0.2", "mlx5_0 to the peer's NIC 0")
    has(host.run(0, "status", "-v"), "0x113")
    said = host.json(0, "status")
    assert said["version"] == 1
    one = {process["pid"]: process for process in said["processes"]}
    assert [one[fake.pid]["live"] for fake in (good, bad, crashed)] == [True, True, False], one
    assert one[good.pid]["qps"][0]["path"] == {"nic": "mlx5_0", "peer_nic": 0}
    assert one[good.pid]["qps"][0]["standing"] == "protected"
    assert one[good.pid]["faults"][0]["cause"] == "test"
    assert one[bad.pid]["qps"][0]["problem"] == "no SHIFT at the peer"
    nic = {"name": "mlx5_2", "up": False, "drained": False, "late": False}
    assert one[bad.pid]["devices"][0]["nics"][1] == nic
    assert [nic["name"] for nic in said["nics"]] == ["mlx5_0", "mlx5_1", "mlx5_2"]
    good.end("end")
    assert {p["pid"]: p["closed"] for p in host.json(0, "status")["processes"]}[good.pid]


def status_can_be_watched(host):
    host.start()
    command = host.command("status", "--json", "--watch=0.1")
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as watch:
        for _ in range(3):
            assert json.loads(watch.stdout.readline())["version"] == 1
        watch.kill()


def events_are_followed(host):
    fake = host.start()
    command = host.command("events", "--follow", "--json")
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as follow:
        for qpn in ("100", "101"):
            fake.say("fault " + qpn)
            event = json.loads(follow.stdout.readline())
            assert (event["qp"], event["pid"], event["version"]) == ("0x" + qpn, fake.pid, 1), event
            assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", event["time"])
        follow.kill()
    lines = host.run(0, "events", "--json").splitlines()
    assert [json.loads(line)["qp"] for line in lines] == ["0x100", "0x101"]


def explain_says_what_is_missing(host):
    good = host.start("--qps", "1")
    has(host.run(0, "explain", "0x100"), "It is protected. Its traffic goes over mlx5_0 to the peer's NIC 0.",
        "A path over mlx5_1 is ready", "a fault of mlx5_0 would be masked")
    bad = host.start("--qps", "2", "--state", "0", "--problem", "the peer cannot be reached")
    has(host.run(0, "explain", "%d:0x101" % bad.pid), "It is not protected", "the peer cannot be reached",
        "What is missing: The peer's rendezvous port gave no answer", "What to do: Let TCP to the rendezvous port")
    assert host.run(0, "explain", "0x100").count("was made on") == 2
    has(host.run(0, "explain", str(bad.pid)), "2 QPs (0x100, 0x101): each is not protected", "What to do: ")
    has(host.run(0, "explain", str(good.pid)), "which is backed by mlx5_1")
    has(host.run(0, "explain", "mlx5_0"), "is a NIC of 2 processes", "It cannot be drained without harm")
    host.run(1, "explain", "mlx5_9", err="there is no")
    one = host.start("--ready", "0", "--problem", "mlx5_1 to the peer's NIC 1: nothing passes")
    has(host.run(0, "explain", "%d:0x100" % one.pid), "No other path is ready", "What to do: Look at cabling")
    one = host.start("--ready", "0", "--searching")
    has(host.run(0, "explain", "%d:0x100" % one.pid), "Its peer is being looked for")


def config_shows_settings(host):
    fake = host.start()
    has(host.run(0, "config", str(fake.pid)), "SHIFT_PORT  9473   default", "SHIFT_LOG   info   environment")
    settings = host.json(0, "config", str(fake.pid))["settings"]
    assert settings["SHIFT_LOG"] == {"value": "info", "source": "environment"}


def health_has_three_answers(host):
    host.start()
    host.run(0, "health")
    assert host.json(0, "health") == {"version": 1, "health": "ok", "problems": []}
    host.start("--ready", "0", "--problem", "nothing passes", "--late", "2").say("fault 100")
    text = host.run(1, "health")
    has(text, "have one path only: nothing passes (0x100, 0x101)", "mlx5_1 does not answer commands in time")
    assert all(line.startswith("degraded: ") for line in text.splitlines())
    host.start("--state", "9", "--qps", "1")
    has(host.run(2, "health"), "failed: process ", "QP 0x100 on mlx5_0 has failed")
    assert host.json(2, "health")["health"] == "failed"
    for fake in host.fakes:
        fake.end()
    host.run(0, "health")  # what has ended is nobody's trouble
    (host.own / "1-a.state").write_bytes(b"x" * 100)
    has(host.run(2, "health"), "failed: cannot be read: ", "1-a.state: it ends within its first record")
    host.run(1, "events", err="1-a.state")
    assert len(host.json(1, "status")["unreadable"]) == 1


def drain_waits_until_a_nic_is_idle(host):
    fakes = [host.start("--qps", "4"), host.start("--qps", "4")]
    has(host.run(0, "drain", "mlx5_0"), "mlx5_0 is idle")
    assert [fake.line() for fake in fakes] == ["look", "look"]
    assert host.order.read_text() == "mlx5_0\n"
    assert stat.S_IMODE(host.order.stat().st_mode) == (0o644 if os.geteuid() == 0 else 0o600)
    for process in host.json(0, "status")["processes"]:
        assert {qp["path"]["nic"] for qp in process["qps"]} == {"mlx5_1"}, process
    has(host.run(1, "health"), "mlx5_0 is drained")
    has(host.run(0, "drain", "--list"), "mlx5_0  ")
    has(host.run(0, "explain", "mlx5_0"), "It is drained")
    has(host.run(0, "drain", "mlx5_0"), "is idle")  # again
    has(host.run(0, "undrain", "mlx5_0"), "mlx5_0 can be used again")
    assert not host.order.exists()
    host.run(0, "health")
    has(host.run(0, "undrain", "mlx5_0"), "was not drained")
    has(host.run(0, "drain", "mlx5_7", err="no process has a NIC mlx5_7"), "is idle")


def undrain_waits_until_processes_know(host):
    fakes = [host.start("--qps", "1"), host.start("--qps", "1")]
    fakes[0].manner("slow")
    host.run(0, "drain", "mlx5_0")
    host.run(0, "undrain", "mlx5_0")
    host.run(0, "health")
    host.run(0, "drain", "mlx5_0")
    fakes[1].manner("stubborn")
    host.run(0, "undrain", "mlx5_0",
             err="warning: process %d (trainer) has not taken the end of the order in yet" % fakes[1].pid)
    has(host.run(1, "health"), "mlx5_0 is drained (1 process)")


def drain_refuses_what_does_harm(host):
    host.start("--ready", "0", "--qps", "12", "--problem", "nothing passes")
    host.run(3, "drain", "mlx5_0", err=[
        "since not all can leave it", "QP 0x109 has no other path ready: nothing passes", "and 2 more"])
    assert not host.order.exists(), "the order was given all the same"
    host.run(1, "drain", "mlx5_0", "--force", "--timeout", "0.2", err=["is not idle", "The order stands"])
    assert host.order.read_text() == "mlx5_0\n"
    host.run(0, "undrain", "mlx5_0")
    host.fakes[-1].end()
    host.start("--stock", "3", "--qps", "0")
    has(host.run(0, "drain", "mlx5_0"), "mlx5_0 is idle", "has made 3 QPs there of a kind that is not protected")
    host.run(0, "undrain", "mlx5_0")
    for options, why in ((["--state", "0", "--problem", "no SHIFT"], "QP 0x100 is not protected: no SHIFT"),
                         (["--ready", "0", "--searching"], "its peer is being looked for")):
        host.fakes[-1].end()
        fake = host.start(*options)
        host.run(3, "drain", "mlx5_0", err=why)
        host.run(0, "drain", "mlx5_1")
        assert fake.line() == "look"
        host.run(0, "undrain", "mlx5_1")
    host.fakes[-1].end()
    (host.own / "1-a.state").write_bytes(b"x" * 100)
    host.run(3, "drain", "mlx5_0", err="since not all can be read")


def drain_has_an_end(host):
    fake = host.start("--stubborn", "--qps", "2")
    host.run(1, "drain", "mlx5_0", "--timeout", "0.2",
             err=["is not idle", "QP 0x100 is protected", "shiftctl undrain"])
    assert fake.line() == "look"
    deaf = host.start("--deaf", "--qps", "0")
    host.run(0, "drain", "mlx5_1", err="process %d (trainer) was not told" % deaf.pid)


def users_give_orders_for_themselves(host):
    if os.geteuid() != 0:
        return "only root can be another user"
    host.base.chmod(0o1777)
    mask = os.umask(0)
    try:
        said = subprocess.run(host.command("drain", "mlx5_0"), user=65534, extra_groups=[], capture_output=True,
                              text=True, check=False)
    finally:
        os.umask(mask)
    assert said.returncode == 0, said
    order = host.base / "shift-65534" / "drained"
    assert order.read_text() == "mlx5_0\n" and stat.S_IMODE(order.stat().st_mode) == 0o600
    assert not host.order.exists()
    host.start()  # of root, whom the other user's order does not concern
    has(host.run(0, "drain", "--list"), "nobody")
    has(host.run(0, "undrain", "mlx5_0"), "the order of nobody still drains it")
    return None


def one_qp_moves(host):
    fake = host.start("--qps", "2")
    name = "%d:0x101" % fake.pid
    has(host.run(0, "move", name), "goes over mlx5_1")
    assert fake.line() == "move 0x101 mlx5_0"
    assert [qp["path"]["nic"] for qp in host.json(0, "status")["processes"][0]["qps"]] == ["mlx5_0", "mlx5_1"]
    text = host.run(0, "explain", "0x101")
    has(text, "It keeps away from mlx5_0, by an order")
    assert "goes back there" not in text, text
    has(host.run(0, "move", "--home", "0x101"), "keeps away from no NIC")
    assert fake.line() == "home 0x101 mlx5_0"
    host.run(1, "move", "0x999", err="no live process has a QP 0x999")
    host.start("--ready", "0", "--problem", "nothing passes", "--qps", "1")
    host.run(1, "move", "0x100", err="is not one QP only")
    host.run(3, "move", "%d:0x100" % host.fakes[-1].pid, err="has one path only: nothing passes")
    stubborn = host.start("--stubborn", "--qps", "1")
    host.run(1, "move", "%d:0x100" % stubborn.pid, "--timeout", "0.2", err="is still where it was")


def metrics_go_into_a_file(host):
    host.start("--switches", "3")
    host.start("--switches", "2", "--dead").end()
    file = host.base / "shift.prom"
    assert host.run(0, "metrics", "--output", str(file)) == ""
    text = host.run(0, "metrics")
    assert file.read_text() == text and stat.S_IMODE(file.stat().st_mode) == 0o644
    has(text, 'shift_switches_total{detector="completion"} 5\n', "shift_processes 1\n",
        "shift_processes_not_closed 1\n", 'shift_nic_up{device="mlx5_1"} 1\n')
    assert str(host.fakes[0].pid) not in re.sub(r"(?m)^.* ", "", text), "a PID is in the metrics"
    host.run(1, "metrics", "--output", str(host.base / "no" / "such"), err="No such file")


def the_folder_comes_from_the_environment(host):
    host.start()
    command = [*host.args.emulator, host.args.shiftctl, "health"]
    for variable, status in ((str(host.base), 0), (str(host.base / "none"), 2)):
        said = subprocess.run(command, env={**os.environ, "SHIFT_STATE_DIR": variable}, capture_output=True,
                              text=True, check=False)
        assert said.returncode == status, (variable, said)


def many_processes_take_no_time(host):
    """The time is printed, and judged only as far as a busy machine cannot be at fault."""
    for _ in range(8):
        host.start("--qps", "250")
    for option in ([], ["--json"], ["--all"]):
        times = []
        for _ in range(5):
            begin = time.monotonic()
            host.run(0, "status", *option)
            times.append(time.monotonic() - begin)
        print("  status %s: %.0f ms in the middle" % (" ".join(option), sorted(times)[2] * 1000))
        assert sorted(times)[2] < 5, times


CASES = (nothing_runs, a_wrong_command_line_changes_nothing, status_shows_processes, status_can_be_watched,
         events_are_followed, explain_says_what_is_missing, config_shows_settings, health_has_three_answers,
         drain_waits_until_a_nic_is_idle, undrain_waits_until_processes_know, drain_refuses_what_does_harm,
         drain_has_an_end, users_give_orders_for_themselves, one_qp_moves, metrics_go_into_a_file,
         the_folder_comes_from_the_environment, many_processes_take_no_time)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shiftctl", required=True)
    parser.add_argument("--fake", required=True)
    parser.add_argument("--emulator", type=lambda text: shlex.split(text.replace(";", " ")), default=[])
    parser.add_argument("--only", help="the name of one case")
    args = parser.parse_args()
    for case in CASES:
        if args.only not in (None, case.__name__):
            continue
        with tempfile.TemporaryDirectory() as folder:
            host = Host(args, folder)
            try:
                skipped = case(host)
            finally:
                host.end()
        print("%s: %s" % ("skipped, %s" % skipped if skipped else "ok", case.__name__))
    return 0


if __name__ == "__main__":
    sys.exit(main())
