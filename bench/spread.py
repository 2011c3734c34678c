#!/usr/bin/env python3
"""How much longer a job takes on a host whose NIC has failed, when its queue pairs spread over the others.

Each NIC of host a carries q queue pairs of one process, as fast as the NIC's rate lets them. Then one NIC fails
(kill), and the others share what they carry among all their queue pairs, as NICs do. The job takes as long as
its slowest process. With equal queue pairs over h healthy NICs the best is 1 + ceil(q/h)/q of the time before,
and with one backup 2. The NIC with the most queue pairs is the slowest for its own process, which so tells of
each queue pair there. The rates are so small that the machine can carry them; what was measured while its
processors were busy for more than half of the time is shown as invalid."""

import bisect
import json
import math
import os
import subprocess
import tempfile
import time

import environment
from harness.build import words
from harness.checker import CODES, RIGHT, checker_start
from harness.report import write_json
from harness.waiting import wait_until

BUSY_MOST = 50  # percent
WANTED = 1.03   # times the best
MOVING = "client-0"  # the process on the NIC that fails
SETTLE_S = 1.0  # from a fault on, and from the first traffic on, until a window begins


def processor_ticks():
    """(busy, all) since the machine was started."""
    with open("/proc/stat") as file:
        ticks = [int(word) for word in file.readline().split()[1:9]]
    return sum(ticks) - ticks[3] - ticks[4], sum(ticks)


def calibrated(build, options):
    """Bytes in a second that the machine carries with so many NICs of each host busy."""
    if options.ceiling:
        return options.ceiling
    done = subprocess.run(words([build.cxemu, "calibrate", "--nics", options.nics, "--seconds", "1", "--json"]),
                          stdout=subprocess.PIPE, check=False, text=True)
    if done.returncode != 0:
        raise environment.Failure("cxemu calibrate fails")
    return json.loads(done.stdout)["bytes_per_second"]


class Window:
    """A time in which nothing changes: how much each process completes, and how busy the processors are."""

    def __init__(self, seconds):
        begun, ticks = time.monotonic(), processor_ticks()
        time.sleep(seconds)
        self.ms = int(begun * 1000), int(time.monotonic() * 1000)
        busy, total = (now - then for now, then in zip(processor_ticks(), ticks))
        self.busy_percent = 100 * busy / max(total, 1)

    def rate(self, timeline):
        """Bytes in a second, by the rows (ms, bytes) of a process's timeline."""
        first, last = (bisect.bisect_left(timeline, (ms,)) for ms in self.ms)
        return sum(size for _, size in timeline[first:last]) / (self.ms[1] - self.ms[0]) * 1000


def read_timeline(path):
    with open(path) as file:
        return [tuple(map(int, line.split(","))) for line in file.read().split()[1:]]


def rates_set(fabric, options):
    rate = "%dKbit" % (options.rate * 1000)
    for host in ("a", "b"):
        subprocess.run(fabric.command(host, ["true"]), check=True)  # makes the host
        for nic in range(options.nics):
            subprocess.run(words([fabric.build.cxemu, "nic", "--fabric", fabric.name, "%s/mlx5_%d" % (host, nic),
                                  "rate=" + rate, "rx=" + rate]), check=True, stdout=subprocess.DEVNULL)


def start(fabric, nic, options, env):
    """A server and a client on this NIC. Returns them and the file of the client's timeline. Those of NICs that
    work are without SHIFT, which takes less of the processors: each process with SHIFT runs all NICs."""
    timeline = os.path.join(fabric.directory, "timeline-%d.csv" % nic)
    common = ["--device", "mlx5_%d" % nic, "--timeout-ms", "600000", "--stall-ms", "60000"]
    job = ["--until-stop", "--events", "--op", "write_imm", "--qps", str(options.qps), "--depth", "8", "--size",
           str(options.size), "--timeline", timeline]
    server, client = checker_start(fabric, fabric.build.traffic, common, common + job, env=env,
                                   names=("client-%d" % nic, "server-%d" % nic), layered=(nic == 0, nic == 0))
    if client is None:
        raise environment.Failure("a server did not start")
    return server, client, timeline


def finished(processes):
    for _, client, _ in processes:
        client.tell("stop")
    for server, client, _ in processes:
        if (codes := {client.finish(120), server.finish(60)}) != {RIGHT}:
            raise environment.Failure("the programs ended with %s (of %s)" % (codes, CODES))


def members(fabric):
    """{queue pair: NIC} of those that have moved. On a busy machine one may move twice."""
    return {one["qp"]: one["member"] for one in fabric.records("switched", MOVING)}


def measure(fabric, directory, manner, options):
    """How long each process takes after the fault, as a multiple of the time before it."""
    fabric.directory = directory
    # With less patience a NIC that has twice its load looks like a silent fault.
    env = {"SHIFT_SPREAD": manner, "SHIFT_FAILBACK_MS": "100", "SHIFT_RC_TIMEOUT_MAX": "15",
           "SHIFT_STATE_DIR": directory}
    rates_set(fabric, options)
    processes = [start(fabric, nic, options, env) for nic in range(options.nics)]
    alive = (lambda: not any(client.ended for _, client, _ in processes))
    running = (lambda: fabric.all_have("armed", options.qps, MOVING) and all(
        client.progress for _, client, _ in processes))
    if not wait_until(lambda: running() or not alive(), 120) or not alive():
        raise environment.Failure("not armed")
    time.sleep(SETTLE_S)  # what the queues took before the rates held
    before = Window(options.seconds)
    fabric.fault("a/mlx5_0", "kill")
    have_moved = (lambda: len(members(fabric)) == options.qps)
    if not wait_until(lambda: have_moved() or not alive(), 60) or not alive():
        raise environment.Failure("the queue pairs of the NIC that failed did not move")
    time.sleep(SETTLE_S)
    after = Window(options.seconds)
    moved = list(members(fabric).values())
    finished(processes)
    timelines = [read_timeline(path) for _, _, path in processes]
    rates = [(before.rate(timeline), after.rate(timeline)) for timeline in timelines]
    if not all(then and now for then, now in rates):
        raise environment.Failure("a process moved nothing: %s" % rates)
    return {"manner": manner, "slowdowns": [then / now for then, now in rates], "rates": rates,
            "queue_pairs": {member: moved.count(member) for member in sorted(set(moved))},
            "busy_percent": max(before.busy_percent, after.busy_percent)}


def judged(result, options, is_within):
    healthy = options.nics - 1
    best = 1 + (math.ceil(options.qps / healthy) / options.qps if result["manner"] == "capacity" else 1)
    # The job had its NICs' rates before, so its time was that of its slowest process, too.
    slowdown = (max(1 / now for _, now in result["rates"]) / max(1 / then for then, _ in result["rates"]))
    is_valid = is_within and result["busy_percent"] <= BUSY_MOST
    return {**result, "best": best, "slowdown": slowdown, "beyond": slowdown / best, "valid": is_valid}


def main():
    parser = environment.parser(__doc__.splitlines()[0])
    parser.add_argument("--nics", type=int, default=8, help="NICs of each host (default: %(default)s)")
    parser.add_argument("--qps", type=int, default=14, help="queue pairs on each NIC (default: %(default)s)")
    parser.add_argument("--rate", type=float, default=1, help="Mbit/s of each NIC (default: %(default)s)")
    parser.add_argument("--size", type=int, default=4096, help="bytes of a message (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=10, help="of each window (default: %(default)s)")
    parser.add_argument("--ceiling", type=float, help="bytes/s that the machine carries, if it is known")
    options = parser.parse_args()
    results, problems = [], []
    with environment.Fabric(options.build) as first:
        ceiling = calibrated(first.build, options)
    is_within = options.nics * options.rate * 1e6 / 8 < ceiling / 4
    for manner in ("capacity", "one"):
        with environment.Fabric(options.build) as fabric, tempfile.TemporaryDirectory() as directory:
            fabric.nics = options.nics
            try:
                results.append(judged(measure(fabric, directory, manner, options), options, is_within))
            except environment.Failure as problem:
                problems.append("%s: %s" % (manner, problem))
    environment.table(
        "Job time after one of %d NICs has failed, %d queue pairs on each, as a multiple of that before" % (
            options.nics, options.qps),
        ["SHIFT_SPREAD", "best", "measured", "beyond", "wanted", "busy", ""],
        [[one["manner"], "%.3f" % one["best"], "%.3f" % one["slowdown"], "%.3f" % one["beyond"],
          "%.2f" % WANTED, "%.0f %%" % one["busy_percent"], "" if one["valid"] else "invalid"] for one in results],
        ["The queue pairs of the NIC that failed went to: %s (%s)" % (one["queue_pairs"], one["manner"])
         for one in results] +
        ([] if is_within else ["The rates are more than a quarter of the %.0f MB/s that the machine carries." % (
            ceiling / 1e6)]) + problems)
    write_json(options.json, {"machine": environment.machine(), "ceiling": ceiling, "rate_mbit": options.rate,
                              "nics": options.nics, "qps": options.qps, "wanted": WANTED, "results": results,
                              "problems": problems})
    return 1 if problems else 0


if __name__ == "__main__":
    environment.guarded(main)
