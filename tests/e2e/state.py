#!/usr/bin/python3
"""Tests that operators see what runs, with shiftctl and real processes: what is told is what the programs' own
records say, a crash leaves it, and nothing about the state folder stops a program.

The test `e2e_state` calls this program.
"""

import json
import os
import shutil
import subprocess
import sys
import time

from harness.build import Build
from harness.checker import ENDS
from harness.fabric import Fabric
from harness.options import script_parser
from harness.waiting import wait_until

BOUND = 10.0


class Pair:
    """shift-traffic between host a (client) and host b (server), and shiftctl for either."""

    def __init__(self, fabric, folders, qps=3, env=None):
        self.fabric, self.folders, self.qps = fabric, folders, qps
        self.env = {"SHIFT_FAILBACK_MS": "200", "SHIFT_RC_TIMEOUT_MAX": "15", **(env or {})}
        traffic = fabric.build.traffic
        self.server = fabric.start("b", "server", [traffic, "--timeout-ms", "60000"], env=self.settings("b"))
        require(self.server.wait_for(lambda one: one.port, BOUND), "the server did not start")
        self.client = fabric.start(
            "a", "client", [traffic, "--until-stop", "--timeout-ms", "60000", "--qps", str(qps), "--rate", "2000",
                            "--op", "mixed", "--bidirectional", "--port", self.server.port, "127.0.0.1"],
            env=self.settings("a"))
        require(wait_until(lambda: fabric.all_have("armed", qps, *ENDS), BOUND), "not armed")

    def settings(self, host):
        return self.env | {"SHIFT_STATE_DIR": self.folders[host]}

    def ctl(self, host, *words, status=0):
        done = subprocess.run([os.path.join(self.fabric.build.path, "bin", "shiftctl"), "--state-dir",
                               self.folders[host], *words], capture_output=True, text=True, timeout=60)
        require(done.returncode == status, "shiftctl %s ended with %d: %s%s" % (
            " ".join(words), done.returncode, done.stdout, done.stderr))
        return done.stdout + done.stderr

    def status(self, host):
        return json.loads(self.ctl(host, "status", "--json"))

    def process(self, host):
        processes = self.status(host)["processes"]
        require(len(processes) == 1, "%d processes are told of" % len(processes))
        return processes[0]

    def paths(self, host):
        return [(one["path"] or {}).get("nic") for one in self.process(host)["qps"]]

    def are_home(self, host="a"):
        self.told(host, lambda one: all(qp["standing"] == "protected" and qp["path"]["nic"] == "mlx5_0"
                                        for qp in one["qps"]), "not back")

    def told(self, host, condition, what):
        require(wait_until(lambda: condition(self.process(host)), BOUND), what)

    def stop(self):
        self.client.tell("stop")
        codes = self.client.finish(30), self.server.finish(30)
        require(codes == (0, 0), "the programs ended with %s" % (codes,))


def require(condition, problem):
    if not condition:
        raise SystemExit("FAILED: " + problem)


def counter(text, name):
    return sum(float(line.split()[-1]) for line in text.splitlines()
               if line.startswith(name) and line[len(name)] in "{ ")


def switches_of(process):
    return [fault for fault in process["faults"] if "incident" not in fault]


def what_is_told_is_true(fabric, folders):
    pair = Pair(fabric, folders)
    for host, end in (("a", "client"), ("b", "server")):
        pair.told(host, lambda one: [qp["standing"] for qp in one["qps"]] == ["protected"] * 3, "not protected")
        one = pair.process(host)
        require(one["live"] and one["program"] == "shift-traffic", "the process is not told of: %s" % one)
        require({qp["qp"] for qp in one["qps"]} == {hex(r["qp"]) for r in fabric.records("armed", end)},
                "other QPs than those that were armed")
        require(all(qp["path"]["nic"] == "mlx5_0" and qp["ready"] == ["mlx5_1"] for qp in one["qps"]),
                "other paths: %s" % one["qps"])
    require("It can be drained" in pair.ctl("a", "explain", "mlx5_0"), "it cannot be drained")
    require("nothing is wrong" in pair.ctl("a", "health"), "health finds something")
    # A fault shows, with its cause and what it cost, and what is missing afterwards.
    fabric.fault("a/mlx5_0", "link-down")
    pair.told("a", lambda one: all(qp["standing"] == "one-path" for qp in one["qps"]), "no fault is told of")
    # A fault's list also names incidents, of NICs and not of QPs, at a time of their own.
    require(wait_until(lambda: fabric.all_have("switched", 3, "client"), BOUND), "no records of the fault")
    pair.told("a", lambda one: len(switches_of(one)) == 3, "not three changes of path are told of")
    pair.told("a", lambda one: any(fault.get("nic") == "mlx5_0" for fault in one["faults"]),
              "no incident is told of")
    one = pair.process("a")
    for told, real in zip(switches_of(one), fabric.records("switched", "client"), strict=True):
        for key, as_in in (("qp", "qp"), ("pause_us", "us"), ("replayed", "replayed"), ("cause", "cause")):
            of_record = hex(real["qp"]) if key == "qp" else real[as_in]
            require(told[key] == of_record, "%s is %s, and %s in the records" % (key, told[key], of_record))
    require(not one["devices"][0]["nics"][0]["up"], "the NIC is up")
    require("port is down" in pair.ctl("a", "health", status=1), "health does not name the port")
    fabric.fault("a/mlx5_0", "heal")
    pair.are_home()
    print("right  what is told is true", flush=True)
    return pair


def a_nic_is_drained(pair):
    before = counter(pair.ctl("a", "metrics"), "shift_switches_total")
    require("mlx5_0 is idle" in pair.ctl("a", "drain", "mlx5_0"), "not idle")
    require(pair.paths("a") == ["mlx5_1"] * 3, "still there: %s" % pair.paths("a"))
    require("drained" in pair.ctl("a", "health", status=1), "health does not tell of the order")
    pair.ctl("a", "undrain", "mlx5_0")
    pair.are_home()
    qp = pair.process("a")["qps"][0]["qp"]
    pair.ctl("a", "move", qp)
    require(sorted(pair.paths("a")) == ["mlx5_0", "mlx5_0", "mlx5_1"], "not moved: %s" % pair.paths("a"))
    pair.ctl("a", "move", "--home", qp)
    pair.are_home()
    after = counter(pair.ctl("a", "metrics"), "shift_switches_total")
    require(after - before == 8, "%g changes of path are counted, not 8" % (after - before))
    moves = [r for r in pair.fabric.records("switched", "client") if r["detector"] in ("order", "probe", "peer")]
    require(not any(r["replayed"] for r in moves[-8:]), "something was posted again")
    print("right  a NIC is drained, and a QP moved", flush=True)


def a_crash_is_seen(pair):
    counted = counter(pair.ctl("b", "metrics"), "shift_switches_total")
    require(counted > 0, "nothing was counted")
    os.kill(pair.process("b")["own_pid"], 9)
    pair.server.finish(10)
    pair.client.finish(30)
    pair.told("b", lambda one: not one["live"], "the crash is not seen")
    one = pair.process("b")
    require(not one["closed"] and len(one["qps"]) == 3, "its state is lost: %s" % one)
    require("ended without closing" in pair.ctl("b", "status"), "status does not say so")
    require(counter(pair.ctl("b", "metrics"), "shift_switches_total") == counted, "counts have shrunk")
    # The other process has ended in order, after its error.
    require(not pair.status("a")["processes"], "the client is still told of")
    require(counter(pair.ctl("a", "metrics"), "shift_switches_total") >= 11, "its counts are lost")
    print("right  a crash leaves what was told", flush=True)


def no_folder_stops_a_program(fabric, folders, directory):
    """Each of these is no worse than without the folder, and says why in one line."""
    squatted = os.path.join(directory, "squatted")
    os.mkdir(squatted)
    own = os.path.join(squatted, "shift-%d" % os.geteuid())
    os.mkdir(own, 0o755)
    os.chmod(own, 0o755)
    for host, folder, line in (("a", squatted, "shiftctl will not see this process"),
                               ("a", "/proc/none", "shiftctl will not see this process"),
                               ("a", "", None)):
        pair = Pair(fabric, {"a": folder, "b": folders["b"]}, 1)
        time.sleep(0.1)
        pair.stop()
        said = pair.client.text().count("shiftctl will not see")
        require(said == (1 if line else 0), "%r: %d lines say so" % (folder, said))
        for end in ENDS:
            os.remove(fabric.events_path(end))
    require(not os.listdir(own), "the open folder was used")
    print("right  no folder stops a program", flush=True)


def main():
    options = script_parser(__doc__, "out/state").parse_args()
    build = Build(options.build)
    build.require(build.shift_run, build.traffic, os.path.join(build.path, "bin", "shiftctl"))
    shutil.rmtree(options.out, ignore_errors=True)
    os.makedirs(options.out)
    folders = {host: os.path.join(options.out, "state-" + host) for host in "ab"}
    for folder in folders.values():
        os.mkdir(folder)
    with Fabric(build, options.out) as fabric:
        no_folder_stops_a_program(fabric, folders, options.out)
        pair = what_is_told_is_true(fabric, folders)
        a_nic_is_drained(pair)
        a_crash_is_seen(pair)
    shutil.rmtree(options.out)
    sys.exit(0)


if __name__ == "__main__":
    main()
