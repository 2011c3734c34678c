#!/usr/bin/env python3
"""How long each detector takes to see the first sign of a fault.

Two emulated hosts exchange messages over a few protected QPs; then something of host a's default NIC
breaks, at a known time. The layer's records of the switches (SHIFT_EVENTS) say which detector had the
first evidence at each end, and when. The carrier of a network device needs a network namespace
(root, or user namespaces); without one that row is left out, and said so."""

import argparse
import contextlib
import dataclasses
import fcntl
import os
import pathlib
import socket
import statistics
import struct
import tempfile
import time

import environment
import switch_time
from harness.devices import INSIDE, devices_make, devices_remove, run_inside
from harness.faults import healing
from harness.report import write_json

CABLE = "a0p"  # the other end of the device that has the address of a/mlx5_0
BUDGET_MS = {"port-event": 1, "device-event": 1, "link-state": 1}
SILENT_BUDGET_MS = 100
DEFAULT_TIMEOUT = 11


@dataclasses.dataclass
class Case:
    detector: str   # the one that is looked at
    fault: str      # for `cxemu fault`, or "carrier"
    timeout: int = DEFAULT_TIMEOUT  # SHIFT_RC_TIMEOUT_MAX
    heals: bool = False  # what is looked at comes after the fault is over
    qps: int = 2

    def name(self):
        silent = self.fault.startswith("drop")
        return self.fault + (f", RC timeout {self.timeout}" if silent else "") + (
            ", healed" if self.heals else "")


def cases(options):
    yield Case("port-event", "link-down")
    yield Case("device-event", "kill")
    yield Case("link-state", "carrier")
    yield Case("address", "gid-change")
    for timeout in options.timeouts:
        yield Case("completion", "drop-data", timeout)
    yield Case("completion", "drop-acks")
    # Most of many QPs have nothing under way, and would notice later.
    yield Case("neighbour", "drop-data", qps=64)
    yield Case("peer", "link-down")
    yield Case("peer", "drop-data")
    yield Case("probe", "link-down", heals=True)
    yield Case("probe", "drop-data", heals=True)


def carrier_set(device, up):
    """Sets a device up or down; when that began, CLOCK_MONOTONIC in ns."""
    read_flags, write_flags, is_up = 0x8913, 0x8914, 1
    with socket.socket() as control:
        request = struct.pack("16sH14x", device.encode(), 0)
        flags = struct.unpack("16sH14x", fcntl.ioctl(control, read_flags, request))[1]
        flags = flags | is_up if up else flags & ~is_up
        when = time.monotonic_ns()
        fcntl.ioctl(control, write_flags, struct.pack("16sH14x", device.encode(), flags))
    return when


def breaks(fabric, fault):
    return carrier_set(CABLE, False) if fault == "carrier" else switch_time.breaks(fabric, fault)


def heals(fabric, fault):
    if fault == "carrier":
        return carrier_set(CABLE, True)
    return switch_time.breaks(fabric, healing(fault))


@contextlib.contextmanager
def settings(case):
    """Both layers': nothing waits for the hysteresis of the way back."""
    wanted = {"SHIFT_RC_TIMEOUT_MAX": str(case.timeout), "SHIFT_FAILBACK_MS": "0"}
    before = {key: os.environ.get(key) for key in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for key, value in before.items():
            os.environ.pop(key) if value is None else os.environ.update({key: value})


def signs(records, since_ns):
    """Switches that something told of after that time, at either end."""
    return [record for side in records for record in side.named("switched")
            if record["evidence_ns"] >= since_ns]


def run(fabric, case, options):
    """One run's figures in us, or None when another detector was faster everywhere."""
    with tempfile.TemporaryDirectory() as name, settings(case), switch_time.traffic(
            fabric, pathlib.Path(name), case.qps, options) as (processes, records):
        switch_time.wait_until(
            "arming", lambda: all(len(side.qps("armed")) >= case.qps for side in records),
            processes, options.arm_s)
        time.sleep(0.2)  # let the traffic be under way; nothing depends on it
        since_ns = breaks(fabric, case.fault)
        over = False
        try:
            switch_time.wait_until(
                "switching", lambda: len(signs(records, since_ns)) >= 2 * case.qps, processes,
                options.switch_s)
            if case.heals:
                since_ns, over = heals(fabric, case.fault), True
                switch_time.wait_until(
                    "coming back", lambda: any(record["detector"] == "probe" for record in
                                               signs(records, since_ns)), processes,
                    options.switch_s)
        finally:
            if not over:
                heals(fabric, case.fault)
        told = [record for record in signs(records, since_ns)
                if record["detector"] == case.detector]
        if not told:
            return None
        return {"first_sign": min(record["evidence_ns"] - since_ns for record in told) / 1e3,
                "notice": statistics.median(record["notice_us"] for record in told)}


def measure(fabric, case, options):
    runs = [one for one in (run(fabric, case, options) for _ in range(options.repeat)) if one]
    row = {"detector": case.detector, "fault": case.name(), "runs": runs}
    budget = BUDGET_MS.get(case.detector)
    if case.detector == "completion" and case.timeout == DEFAULT_TIMEOUT:
        budget = SILENT_BUDGET_MS
    row["budget_ms"] = budget
    for key in ("first_sign", "notice"):
        row[key] = statistics.median(one[key] for one in runs) if runs else None
    row["slowest"] = max((one["first_sign"] for one in runs), default=None)
    return row


def arguments():
    parser = environment.parser(__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", metavar="DETECTOR", help="these detectors only")
    parser.add_argument("--timeouts", type=int, nargs="+", default=[8, 10, DEFAULT_TIMEOUT, 12, 14],
                        help="values of SHIFT_RC_TIMEOUT_MAX for silent loss")
    parser.add_argument("--repeat", type=int, default=5, help="runs of each kind")
    parser.add_argument("--rate", type=int, default=2000, help="messages per second, all QPs")
    parser.add_argument("--arm-s", type=float, default=30, help="how long arming may take")
    parser.add_argument("--switch-s", type=float, default=30, help="how long switching may take")
    parser.add_argument(INSIDE, action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def main():
    options = arguments()
    wanted = [case for case in cases(options) if not options.only or case.detector in options.only]
    if not options.in_namespace and any(case.fault == "carrier" for case in wanted):
        status = run_inside()
        if status is not None:
            return status
    rows, problems = [], []
    for case in wanted:
        if case.fault == "carrier" and not options.in_namespace:
            problems.append("link-state: no network namespace with veth devices can be made here")
            continue
        try:
            with environment.Fabric(options.build) as fabric:
                if options.in_namespace:
                    devices_make(fabric)
                rows.append(measure(fabric, case, options))
        except environment.Failure as problem:
            problems.append(f"{case.detector}, {case.name()}: {problem}")
        if options.in_namespace:
            devices_remove()
    environment.table(
        f"Detection, ms from the fault (medians of {options.repeat} runs)",
        ["detector", "fault", "first sign", "slowest", "budget", "then left within"],
        [[row["detector"], row["fault"], switch_time.milliseconds(row["first_sign"]),
          switch_time.milliseconds(row["slowest"]),
          f"{row['budget_ms']} ms" if row["budget_ms"] else "",
          switch_time.milliseconds(row["notice"])] for row in rows],
        ["- : another detector was faster in every run. A post never fails on mlx5, whose queues are",
         "memory; where it does, the post itself is the first sign. probe: from the healing.",
         *problems])
    write_json(options.json, {"machine": environment.machine(), "rows": rows, "problems": problems})
    return 1 if problems else 0


if __name__ == "__main__":
    environment.guarded(main)
