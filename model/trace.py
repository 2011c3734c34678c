#!/usr/bin/python3
"""Checks that what two ends did is a run of the protocol's model.

Takes the event records (SHIFT_EVENTS) of both ends, and lets Spin look for a run of the model in
which each end does just what its record says: the same events in the same states and epochs, leading
to the same states, caused by messages that the model's other end has sent by then (trace.pml). Beside
that, both ends must have gone on over the same path in each epoch.

  trace.py a.events b.events      two records
  trace.py --dir DIRECTORY        all below it: client.events with server.events, X-a with X-b
  trace.py --sim shift-sim        records of the simulation, by seeds from SHIFT_TEST_SEED on
  trace.py --sim shift-sim --drift   the same against models with one row changed: each of them
                                     must refuse some record

Exit status: 0 all accepted, 1 not so, 77 Spin is not installed.
"""

import argparse
import collections
import glob
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

MODEL = os.path.dirname(os.path.abspath(__file__))
EPOCHS, DRAINS, LINES = 14, 6, 4000  # the room in trace.pml
SECONDS = 60

# Events of one role only.
LEADS = {"better-path", "path-ready", "peer-progress-current"}
FOLLOWS = {"peer-drain", "peer-drain-cancel", "target-next", "target-current"}

# One changed row of the table each, as if the model had not followed a change of the code.
DRIFTS = {
    "epoch-kept": r"/active \+ path-fault/s/go4\(S_fencing, A_enter_epoch, /go3(S_fencing, /",
    "leader-goes-on": r"/seeking \+ path-ready/s/go2\(S_exchanging/go2(S_resuming/",
    "no-target-while-fencing": r"/fencing \+ target-current/s/go1\(.*\)/ignored()/",
    "no-way-back": r"/active \+ peer-drain \*/s/go2\(.*\)/ignored()/",
}

Step = collections.namedtuple("Step", "epoch state event next")
Connection = collections.namedtuple("Connection", "name steps switched")


class Model:
    """The compiled search, with or without a change of the table."""

    def __init__(self, directory, change=None):
        self.directory = directory
        os.makedirs(directory)
        for path in glob.glob(os.path.join(MODEL, "*.pml")) + [os.path.join(MODEL, "trace.h")]:
            shutil.copy(path, directory)
        table = os.path.join(directory, "table.pml")
        if change is not None:
            with open(table, encoding="utf-8") as file:
                before = file.read()
            subprocess.run(["sed", "-E", "-i", change, table], check=True)
            with open(table, encoding="utf-8") as file:
                if file.read() == before:
                    sys.exit("the drift changes nothing: " + change)
        with open(table, encoding="utf-8") as file:
            self.numbers = {kind + name.replace("_", "-"): int(number) for kind, name, number in
                            re.findall(r"^#define ([SE])_(\w+) (\d+)$", file.read(), re.M)}
        subprocess.run(["spin", "-a", "trace.pml"], cwd=directory, check=True,
                       stdout=subprocess.DEVNULL)
        subprocess.run(["gcc", "-O0", "-w", "-DSAFETY", "-DNOFAIR", "-DNOREDUCE", "-DCOLLAPSE",
                        "-DMEMLIM=2000", "-o", "pan", "pan.c"], cwd=directory, check=True)

    def search(self, ends):
        """Returns (accepted, how many steps of each end fit)."""
        count = collections.Counter(step.event for end in ends for step in end)
        budgets = [count["path-fault"], count["channel-lost"], count["app-closed"],
                   count["app-error"], count["fence-failed"], count["replay-refused"]]
        trace = os.path.join(self.directory, "trace")
        with open(trace, "w", encoding="utf-8") as file:
            print(*[min(budget, 250) for budget in budgets], file=file)
            for number, end in enumerate(ends):
                for step in end:
                    print(number, step.epoch, self.numbers["S" + step.state],
                          self.numbers["E" + step.event], self.numbers["S" + step.next], file=file)
        try:
            run = subprocess.run(["./pan", "-n", "-m100000", "-w16"], cwd=self.directory, text=True,
                                 env=dict(os.environ, TRACE=trace), capture_output=True, check=False,
                                 timeout=SECONDS)
        except subprocess.TimeoutExpired:
            return None, (0, 0)
        reached = re.findall(r"^reached (\d+) (\d+)$", run.stdout, re.M)
        fits = tuple(map(int, reached[-1])) if reached else (0, 0)
        if "accepted" in run.stdout:
            return True, fits
        if "errors: 0" not in run.stdout or "too small" in run.stdout:
            sys.exit("the search failed:\n" + run.stdout + run.stderr)
        return False, fits


def read(path):
    """Returns the QPs of one record by number, and the peer of each."""
    steps, switched, peers = (collections.defaultdict(list), collections.defaultdict(dict), {})
    with open(path, encoding="utf-8") as file:
        for line in file:
            try:
                record = json.loads(line)
            except ValueError:
                continue  # a process was killed while it wrote the line
            kind, qp = record.get("event"), record.get("qp")
            if kind == "bound":
                peers[qp] = record["peer_qp"]
            elif kind in ("state", "stay"):
                steps[qp].append(Step(record["epoch"], record["from"], record["on"], record["to"]))
            elif kind == "switched":
                switched[qp][record["epoch"]] = (record["member"], record["peer_member"])
    return steps, switched, peers


def connections(paths):
    """Returns pairs of ends."""
    (steps_a, switched_a, peers_a), (steps_b, switched_b, peers_b) = map(read, paths)
    for a, b in sorted(peers_a.items()):
        if peers_b.get(b) == a:
            yield Connection("qp 0x%x and 0x%x" % (a, b), (steps_a[a], steps_b[b]),
                             (switched_a[a], switched_b[b]))


def shortened(end):
    """Returns the beginning of a record for which trace.pml has room."""
    drains = 0
    for at, step in enumerate(end):
        drains += step.event in ("better-path", "peer-drain")
        if step.epoch >= EPOCHS or drains > DRAINS or at == LINES:
            return end[:at]
    return end


def roles(ends):
    """Returns the possible orders of the two ends, leader first."""
    orders = []
    for leader in (0, 1):
        leads = not any(step.event in FOLLOWS for step in ends[leader])
        follows = not any(step.event in LEADS for step in ends[1 - leader])
        if leads and follows:
            orders.append((ends[leader], ends[1 - leader]))
    return orders


def paths_differ(switched):
    """Returns how the ends' paths differ, or None. Each end names its own NIC and numbers the
    other's NIC; each name must have one number."""
    numbers = ({}, {})
    for epoch in sorted(set(switched[0]) & set(switched[1])):
        for end in (0, 1):
            name, number = switched[end][epoch][0], switched[1 - end][epoch][1]
            if numbers[end].setdefault(name, number) != number:
                return "epoch %d: one end goes on over %s, the other to its NIC %d" % (
                    epoch, name, number)
    return None


def judge(model, connection):
    """Returns why the record is refused, or None if it is accepted."""
    problem = paths_differ(connection.switched)
    if problem:
        return problem
    ends = tuple(map(shortened, connection.steps))
    if not ends[0] and not ends[1]:
        return None
    orders = roles(ends)
    if not orders:
        return "both ends lead, or none"
    for order in orders:
        accepted, fits = model.search(order)
        if accepted:
            return None
    if accepted is None:
        return "no answer after %d s" % SECONDS
    text = ["not a run of the model; fits up to:"]
    for name, end, at in zip(("leader", "follower"), order, fits):
        text.append("    %s: %s" % (name, "its end" if at == len(end) else
                                    "step %d, epoch %d, %s + %s -> %s" % ((at,) + end[at])))
    return "\n".join(text)


def simulated(program, first, count, directory):
    """Yields records of schedules. Those that end before the two ends have met say little."""
    for seed in range(first, first + count):
        prefix = os.path.join(directory, "seed-%d" % seed)
        subprocess.run([program, "--seed", str(seed), "--record", prefix], check=True,
                       stdout=subprocess.DEVNULL)
        yield prefix + "-a.events", prefix + "-b.events"


def recorded(directory):
    for path, _, files in sorted(os.walk(directory)):
        for name in sorted(files):
            other = (name.replace("client", "server") if name == "client.events" else
                     name.replace("-a.events", "-b.events"))
            if name.endswith(".events") and other != name and other in files:
                yield os.path.join(path, name), os.path.join(path, other)


def check(model, pairs, quiet=False):
    """Returns (records, steps, refused)."""
    records = steps = refused = 0
    for pair in pairs:
        for connection in connections(pair):
            problem = judge(model, connection)
            records += 1
            steps += sum(map(len, connection.steps))
            if problem is None:
                continue
            refused += 1
            if not quiet:
                print("%s, %s: %s" % (pair[0], connection.name, problem), flush=True)
            if quiet:
                return records, steps, refused
    return records, steps, refused


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sim", help="the program shift-sim")
    parser.add_argument("--count", type=int, default=40, help="schedules of it")
    parser.add_argument("--drift", action="store_true")
    parser.add_argument("--dir", action="append", default=[])
    parser.add_argument("record", nargs="*")
    options = parser.parse_args()
    for tool in ("spin", "gcc"):
        if shutil.which(tool) is None:
            print("%s is not installed" % tool)
            return 77
    with tempfile.TemporaryDirectory() as work:
        pairs = list(zip(options.record[::2], options.record[1::2]))
        for directory in options.dir:
            pairs += recorded(directory)
        if options.sim:
            first = int(os.environ.get("SHIFT_TEST_SEED", "1"))
            print("schedules from SHIFT_TEST_SEED=%d on" % first)
            pairs += simulated(options.sim, first, options.count, work)
        records, steps, refused = check(Model(os.path.join(work, "model")), pairs)
        print("%d records with %d steps: %d refused" % (records, steps, refused), flush=True)
        failed = refused > 0 or records == 0
        for name, change in DRIFTS.items() if options.drift else ():
            drifted = check(Model(os.path.join(work, name), change), pairs, quiet=True)
            print("drift %s: %s" % (name, "noticed by record %d" % drifted[0] if drifted[2] else
                                    "NOT noticed"), flush=True)
            failed = failed or drifted[2] == 0
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
