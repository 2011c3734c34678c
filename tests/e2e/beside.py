"""Measures how long a program of a campaign stood still, and beside it the same program on the stock stack, at
the same time and without a fault."""

import contextlib
import os

from harness import checker, pauses
from harness.fabric import Fabric
from harness.waiting import wait_until

PATIENCE_S = 20


def seers(cell):
    """The ends that see each message in time. Nothing tells the receiver of plain WRITEs."""
    return ["client"] if cell.op == "write" else checker.ENDS


def seen_ms(cell, directory, begin_ns, end_ns):
    """The longest time without progress at an end; None when an end wrote no result."""
    reports = [checker.report_of(directory, name) for name in seers(cell)]
    if not all("pauses_ns" in report for report in reports):
        return None
    return max(pauses.longest_ms(report["pauses_ns"], begin_ns, end_ns) for report in reports)


class Stock:
    """The program of a cell on the stock stack, on a fabric of its own."""

    def __init__(self, fabric, cell):
        self.fabric, self.cell = fabric, cell
        patience = ["--timeout-ms", "60000"]
        self.server, self.client = checker.checker_start(
            fabric, fabric.build.traffic,
            patience + checker.report_option(fabric, "server"),
            patience + checker.report_option(fabric, "client") + [
                "--op", cell.op, "--api", cell.api, "--until-stop"] + cell.options,
            (False, False))

    def reach(self, progress):
        """Waits until its traffic is under way. A machine on which it is not is too busy to be judged."""
        if self.client is not None:
            self.client.wait_for(lambda one: one.progress >= progress, PATIENCE_S)

    def end(self):
        if self.client is not None:
            self.client.tell("stop")
            self.client.finish(PATIENCE_S)
            self.server.finish(PATIENCE_S)

    def seen_ms(self, begin_ns, end_ns):
        """How long it stood still. A program that did not come to its end stood still for ever."""
        seen = seen_ms(self.cell, self.fabric.directory, begin_ns, end_ns)
        return float("inf") if seen is None else seen


@contextlib.contextmanager
def stock_beside(build, cell, directory):
    """The program on the stock stack, or None when the pause of this cell is not measured."""
    if not cell.waits:
        yield None
        return
    place = os.path.join(directory, "stock")
    os.makedirs(place)
    with Fabric(build, place) as fabric:
        yield Stock(fabric, cell)


def measure(fabric, cell, stock, end_ns):
    """What both programs saw from the fault until `end_ns`; None when there was no fault, or no switch."""
    fault_ns = fabric.fault_ns("%s/mlx5_0" % cell.side)
    if fault_ns is None:
        return None
    seen = seen_ms(cell, fabric.directory, fault_ns, end_ns)
    switch = pauses.switch_ms(fabric.records("switched", *checker.ENDS), fault_ns)
    if seen is None or switch is None:
        return None
    return pauses.Pause(pauses.kind_of(cell.waits == "sleeps", cell.fault), cell.name(), seen, switch,
                        stock.seen_ms(fault_ns, end_ns))
