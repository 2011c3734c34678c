#!/usr/bin/python3
"""Tests that a process which finds a NIC broken tells the user's other processes on that NIC, and that they leave
it before their own requests fail.

The test `e2e_suspect` calls this program. Two programs, each with an end on both hosts, use the same NICs: one is
busy, the other posts a request a second. A NIC silently loses everything. The busy program notices, finds that the
fault is at its own end, and says so; the quiet one gets no answer of the NIC either and leaves. Then both go on,
with every byte right. In a second run the two do not know of each other, since each has a state folder of its own.
Then the quiet one has to find the fault by itself, or the test would prove nothing.
"""

import os
import shutil
import sys

from harness.build import Build
from harness.checker import RIGHT, report_option
from harness.fabric import Fabric
from harness.options import script_parser
from harness.waiting import wait_until

ENDS = {"a": "client", "b": "server"}
WAYS = 4      # that each end keeps ready for the NIC in use
BOUND = 30.0  # seconds
TRIES = 5
# Each program's queue pairs, requests a second, and RC timeout: its NIC tries seven times before it gives up, 8 ms
# apart with 11, and 0.5 s apart with 17.
PROGRAMS = {"busy": ("2", "2000", "11"), "quiet": ("1", "1", "17")}


class Failure(Exception):
    pass


def expect(condition, problem):
    if not condition:
        raise Failure(problem)


def start(fabric, program, is_known):
    """Starts both ends of a program; `is_known` says whether programs of a host know of each other."""
    qps, rate, timeout = PROGRAMS[program]
    common = ["--timeout-ms", "120000", "--stall-ms", "60000"]
    line = {"server": common,
            "client": [*common, "--until-stop", "--op", "mixed", "--size", "512", "--qps", qps, "--rate", rate,
                       "--qp-timeout", timeout]}
    started = {}
    for host in "ba":
        end = ENDS[host]
        name = "%s-%s" % (program, end)
        state = os.path.abspath(os.path.join(fabric.directory, "state-" + (host if is_known else name)))
        os.makedirs(state, exist_ok=True)
        if end == "client":
            line[end] += ["--port", started["server"].port, "127.0.0.1"]
        started[end] = fabric.start(
            host, name, [fabric.build.traffic, *report_option(fabric, name), *line[end]],
            env={"SHIFT_STATE_DIR": state, "SHIFT_RC_TIMEOUT_MAX": timeout, "SHIFT_FAILBACK_MS": "60000"})
        if end == "server":
            expect(started[end].wait_for(lambda one: one.port, BOUND), "the server did not start")
    return started


def all_reach(fabric, kind, names):
    return all(fabric.all_have(kind, int(PROGRAMS[name.split("-")[0]][0]), name) for name in names)


def is_ready(fabric, names):
    return all(sum(record["ready"] for record in fabric.records("way", name)) >= WAYS for name in names)


def run(build, directory, host, is_known):
    """Returns by which detectors the quiet end of that host was told of the fault, and how many ms after the busy
    one's verdict it left the NIC and went on. These are None where the busy one did not find the fault at its own
    end: on a machine that stands still for a moment, its probes tell nothing."""
    shutil.rmtree(directory, ignore_errors=True)
    os.makedirs(directory)
    with Fabric(build, directory) as fabric:
        pairs = {program: start(fabric, program, is_known) for program in PROGRAMS}
        names = ["%s-%s" % (program, end) for program in PROGRAMS for end in ENDS.values()]
        expect(wait_until(lambda: all_reach(fabric, "armed", names), BOUND), "not armed")
        expect(wait_until(lambda: is_ready(fabric, names), BOUND), "the ways are not ready")
        fabric.fault(host + "/mlx5_0", "loss=100")
        expect(wait_until(lambda: all_reach(fabric, "switched", names), BOUND), "not all have left the NIC")
        busy, quiet = ("%s-%s" % (program, ENDS[host]) for program in PROGRAMS)
        verdicts = [one for one in fabric.records("incident", busy) if one["place"] == "local"]
        moves = fabric.records("switched", quiet)
        clients = [pair["client"] for pair in pairs.values()]
        before = [client.progress for client in clients]
        for client, count in zip(clients, before):
            expect(client.wait_for(lambda one, count=count: one.progress > count + 1, BOUND),
                   "a program stands still")
            client.tell("stop")
        for program, pair in pairs.items():
            codes = [pair[end].finish(BOUND) for end in ("client", "server")]
            expect(codes == [RIGHT, RIGHT], "%s ended with %s" % (program, codes))
        detectors = {move["detector"] for move in moves}
        if not verdicts:
            return detectors, None
        left = max(move["evidence_ns"] + 1000 * move["notice_us"] for move in moves)
        went_on = max(move["end_ns"] for move in moves)
        return detectors, tuple((at - verdicts[0]["t_ns"]) / 1e6 for at in (left, went_on))


def run_told(build, directory, host):
    """Without a verdict there is nothing to tell, and a machine that stands still may also let the quiet program
    find the fault first. Then the run is tried again."""
    for _ in range(TRIES):
        detectors, after = run(build, directory, host, True)
        if after is not None and detectors == {"neighbour"}:
            return after
    raise Failure("the quiet program left by %s, in the last of %d runs" % (
        ", ".join(sorted(detectors)), TRIES))


def main():
    parser = script_parser(__doc__, "out/suspect")
    parser.add_argument("--runs", type=int, default=1, help="for each host")
    options = parser.parse_args()
    build = Build(options.build)
    build.require(build.shift_run, build.traffic)
    try:
        for host in "ab" * options.runs:
            after = run_told(build, os.path.join(options.out, "told-" + host), host)
            print("right  %s: the quiet one left %.1f ms after the busy one's verdict, and went on after %.1f" %
                  (host, *after), flush=True)
        detectors, after = run(build, os.path.join(options.out, "apart"), "a", False)
        expect("neighbour" not in detectors, "a program that nobody told left by another's word")
        told = "" if after is None else " %.1f ms after the verdict, and went on after %.1f" % after
        print("right  by itself it left by %s%s" % (", ".join(sorted(detectors)), told))
    except Failure as problem:
        print("FAILED: %s" % problem)
        return 1
    shutil.rmtree(options.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
