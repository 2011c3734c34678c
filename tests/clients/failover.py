"""Runs one cell of the client matrix: a program between two hosts, a NIC that breaks in mid-run, the verdict.

The run proves that the fault came in the middle. It comes when every queue pair has found its peer, the program
is ready, if its row says how it tells, and a share of the packets is sent. Each process must record a switch
after the fault, and after the switch the backup NICs must have moved a share of the packets, too.

Where the hosts have more than two NICs (SHIFT_TEST_NICS), the others of that side break as well, one after the
other while the traffic goes on, until one is left.
"""

import dataclasses
import math
import random
import re
import shutil
import subprocess
import threading
import time

from harness.case import Failure
from harness.pauses import Pause, kind_of, switch_ms
from harness.session import Session, run_case

MISSED = "the traffic ended before the fault"
# Shares of the packets: between these two are sent before the fault, and at least the third after the switch.
SHARES = (0.05, 0.4)
SHARE_AFTER = 0.2
SHARE_BETWEEN = 0.02  # of the packets that the other NICs of a host move between two faults
ATTEMPTS = 6
SECONDS = 60
STOCK_SECONDS = 8  # a program that does not die hangs


@dataclasses.dataclass(frozen=True)
class Column:
    fault: str  # or '' for none
    side: str   # 'a' is the server's host, 'b' is the client's
    layer: bool = True

    def title(self):
        text = "%s %s" % (self.fault, self.side) if self.fault else "healthy"
        return text + ("" if self.layer else ", stock")


class LayeredSession(Session):
    """A session whose programs run with the layer, and whose fabric has a fault."""

    def __init__(self, build, case, directory, seed, row, column):
        super().__init__(build, case, directory, seed)
        self.row, self.column = row, column
        self.share = random.Random("%s %s %d" % (row.name, column.title(), seed)).uniform(*SHARES)
        self.fault_ns = 0
        self.fault_packets = 0
        self.broken = []  # NICs of the side, in their order
        self._names = []
        self._over = threading.Event()
        self._injector = threading.Thread(target=self._inject, daemon=True)

    def __enter__(self):
        super().__enter__()
        if self.column.fault:
            self._injector.start()
        return self

    def __exit__(self, *problem):
        self.stop()
        super().__exit__(*problem)

    def stop(self):
        self._over.set()
        if self._injector.is_alive():
            self._injector.join()

    def address(self, host, device="mlx5_0"):
        return "127.0.0.1"  # no side connection of a program goes through a NIC that breaks

    def start(self, host, name, argv, env=None):
        self._names.append(name)
        return self.fabric.start(host, name, argv, shift=self.column.layer, env=env, apart=True)

    def on_host(self, host, argv):
        name = "launched%d" % len(self._names)
        self._names.append(name)
        if self.column.layer:
            argv = [self.build.shift_run, "--events", self.fabric.events_path(name), "--log", "info",
                    "--"] + argv
        return super().on_host(host, argv)

    def events(self, kind):
        return self.fabric.records(kind, *self._names)

    def sent(self, *sides):
        """How many packets each NIC has sent, by its name: those of these hosts, or of all."""
        try:
            hosts = self.fabric.hosts()
        except (subprocess.CalledProcessError, ValueError, KeyError):
            return {}  # the hosts are not there yet
        sums = {}
        for host, nics in hosts.items():
            for device, nic in nics.items() if not sides or host in sides else ():
                sums[device] = sums.get(device, 0) + nic["tx_packets"]
        return sums

    def default_packets(self):
        return self.sent().get("mlx5_0", 0)

    def _bound(self):
        """Whether every queue pair of at least two processes has found its peer."""
        found = {}
        for event in self.events("bound"):
            found.setdefault(event["pid"], set()).add(event["qp"])
        return sum(1 for qps in found.values() if len(qps) >= self.row.qps) >= 2

    def _ready(self):
        """Whether the program has said that it is ready for a fault, if its row waits for that."""
        return not self.row.ready or any(re.search(self.row.ready, program.text(), re.M)
                                         for program in self.fabric.programs)

    def _inject(self):
        wanted = self.case.packets * self.share
        while not self._over.wait(0.01):
            if self.column.layer and not self._bound():
                continue
            if not self._ready() or self.default_packets() < wanted:
                continue
            self.fault_packets = self.default_packets()
            begun = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
            self._break("mlx5_0")
            self.fault_ns = begun
            return self._break_others()

    def _break(self, device):
        self.broken.append(device)
        self.fabric.fault("%s/%s" % (self.column.side, device), self.column.fault)

    def _break_others(self):
        """Breaks the other NICs of the side but one, first of all those that carry something."""
        dice = random.Random(self.seed)
        left = ["mlx5_%d" % number for number in range(1, self.fabric.nics)]
        before = self.sent(self.column.side)
        while len(left) > 1 and not self._over.wait(0.01):
            now = self.sent(self.column.side)
            more = {device: now.get(device, 0) - before.get(device, 0) for device in left}
            if sum(more.values()) < SHARE_BETWEEN * self.case.packets:
                continue
            device = dice.choice(left) if dice.random() < 0.25 else max(more, key=more.get)
            left.remove(device)
            self._break(device)
            before = self.sent(self.column.side)

    def outlived(self):
        """Whether some process had no queue pair left when the fault came."""
        left = {event["pid"]: set() for event in self.events("bound")}
        for event in self.events("bound") + self.events("state"):
            if event["t_ns"] > self.fault_ns:
                continue
            if event["event"] == "bound":
                left[event["pid"]].add(event["qp"])
            elif event["to"] == "closed" and event["pid"] in left:
                left[event["pid"]].discard(event["qp"])
        return len([qps for qps in left.values() if qps]) < 2

    def judge_counters(self):
        """Is called when the program itself has nothing to complain of."""
        self.stop()
        counters = super().judge_counters()
        if not self.column.fault:
            return counters
        if not self.fault_ns:
            raise Failure(MISSED)
        if not self.column.layer:
            # A program that is complete in spite of a dead NIC had sent its last packet before the fault.
            raise Failure(MISSED)
        moves = self.events("switched")
        if any(move["t_ns"] < self.fault_ns for move in moves):
            raise Failure("a queue pair had switched before the fault")
        after = sum(count for device, count in self.sent().items() if device != "mlx5_0")
        if len({move["pid"] for move in moves}) < 2 or after < SHARE_AFTER * self.case.packets:
            raise Failure(MISSED)
        counters["switch_us"] = max(move["us"] for move in moves)
        counters["moves"] = len(moves)
        counters["replayed"] = sum(move["replayed"] for move in moves)
        counters["after"] = after
        counters["before"] = self.fault_packets
        counters["broken"] = len(self.broken)
        # The emulator keeps its newest events only, so the time at which it was told of the fault may have to do.
        fault_ns = self.fabric.fault_ns(self.column.side + "/mlx5_0") or self.fault_ns
        counters["fault_to_end_ms"] = switch_ms(moves, fault_ns)
        return counters


class Attempt:
    """One run of a program, and the session that it had."""

    def __init__(self, build, row, column, directory, seed, scale):
        self.build, self.row, self.column, self.directory, self.seed = build, row, column, directory, seed
        self.case = row.case(scale, SECONDS if column.layer or not column.fault else STOCK_SECONDS)
        self.session = None

    def _session(self, build, case, directory, seed):
        self.session = LayeredSession(build, case, directory, seed, self.row, self.column)
        return self.session

    def run(self):
        return run_case(self.build, self.case, self.directory, self.seed, self._session)

    def seen_ms(self, share):
        return self.row.seen_ms([program.text() for program in self.session.fabric.programs], share)


def run_once(build, row, column, directory, seed, scale):
    """One run, and after it one on the stock stack without a fault, where the program tells how long it stood
    still. Not at the same time: such programs take a processor for each of their processes."""
    attempt = Attempt(build, row, column, directory, seed, scale)
    outcome = attempt.run()
    # A little earlier than the fault was. Before it, looking for its moment keeps the machine busy.
    share = 0.9 * attempt.session.fault_packets / attempt.case.packets
    # Several faults are no measure of one.
    tells = column.fault and column.layer and not outcome["problem"] and attempt.session.fabric.nics == 2
    seen_ms = attempt.seen_ms(share) if tells else None
    if seen_ms is not None:
        stock = Attempt(build, row, Column("", "a", layer=False), directory + "-stock", seed, scale)
        # A program that did not come to its end stood still for ever.
        stock_ms = (stock.seen_ms(share) if not stock.run()["problem"] else None) or math.inf
        shutil.rmtree(stock.directory, ignore_errors=True)
        outcome["pause"] = Pause(kind_of(row.sleeps, column.fault), "%s, %s" % (row.name, column.title()),
                                 seen_ms, outcome["counters"]["fault_to_end_ms"], stock_ms)
    return outcome, attempt.session


def run_cell(build, row, column, directory, seed):
    """Returns run_case's outcome. A run that proves nothing is repeated, with more work if there was too little
    for this machine."""
    scale = 1
    for attempt in range(ATTEMPTS):
        outcome, last = run_once(build, row, column, directory, seed + 1000 * attempt, scale)
        if last.fault_ns and column.layer and last.outlived():
            outcome["problem"] = MISSED
        if outcome["problem"] == MISSED:
            scale *= 3
        elif outcome["problem"] != "a queue pair had switched before the fault":
            break
    outcome.update(row=row.name, column=column.title(), scale=scale, attempts=attempt + 1)
    return outcome


def verdict(outcome, column):
    """Returns (good, what to print)."""
    problem, counters = outcome["problem"], outcome["counters"]
    if not column.layer:
        if problem and problem != MISSED:
            return True, "dies, as it should: " + problem
        return False, "the judge passed the stock stack under a fault: " + (problem or "no problem")
    if problem:
        return False, problem
    if not column.fault:
        return True, "complete, as on the stock library"
    return True, "complete; %d packets, switched in %.1f ms, %d posted again, %d packets%s" % (
        counters["before"], counters["switch_us"] / 1000, counters["replayed"], counters["after"],
        "; %d NICs failed" % counters["broken"] if counters["broken"] > 1 else "")
