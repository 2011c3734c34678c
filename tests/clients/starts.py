#!/usr/bin/python3
"""Starts unmodified programs on hosts whose default NIC is broken: the server's (a), the client's (b), or both.

The programs must do all their work as if the NIC was healthy, and the other NICs must have carried it. How the
ends find each other is a column of its own: the hosts remember each other from a healthy run of the same program,
as when a job is restarted after a fault; or they have not met, and a redis server knows them. With --drawn a few
cells are run, as by the test `starts`. The stock libraries must fail in the same cells.

The exit status is 0 when all is good, 1 when something failed, 3 when nothing ran, 4 after a wrong call.
"""

import dataclasses
import glob
import os
import random
import shutil
import sys
import textwrap
import time

from harness.build import Build
from harness.case import Failure
from harness.options import script_parser, seed_add
from harness.redis_server import RedisServer
from harness.report import conclude, write_json, write_text
from harness.runs import run_all
from harness.session import Session, run_case

from clients.rows import Row, benchmark, perf, pong
from programs.cases_jobs import gloo, mpi, torch_rpc
from programs.cases_ucx import uct

FAULTS = ("link-down", "kill")
SIDES = ("a", "b", "ab")
MEMORY, REDIS = "met before", "redis"
DRAWN = 4
SECONDS, STOCK_SECONDS = 60, 8
MEETINGS = 8
SHARE = 0.5  # of the packets, which the other NICs must have sent

# UCX's workers connect over UD, which is not protected. So these rows have both NICs, as by default, and see them
# as they are: UCX then leaves a NIC whose port is down.
MPI, BOTH = "Open MPI over UCX, both NICs, SHIFT_BORN=stock, ", "mlx5_0:1,mlx5_1:1"

ROWS = [
    perf("ib_write_bw", n=1000, size=65536),
    perf("ib_send_bw", "-e", n=1000, size=65536),
    pong("rc", "-c", n=20000),
    benchmark(uct, "rc_verbs", "put_lat", "-s", 8, n=2000, packets=8000),
    Row(MPI + "2 ranks", lambda scale: mpi("rc_v", "ab", rounds=2, devices=BOTH), 500, verifies=True),
    Row(MPI + "4 ranks", lambda scale: mpi("rc_v", "abab", rounds=2, devices=BOTH), 500, verifies=True),
    Row("PyTorch RPC (TensorPipe ibv)", lambda scale: torch_rpc(4096, 50), 400, verifies=True),
    Row("Gloo allreduce ring", lambda scale: gloo("ring", 2, 65536, 60, meet=True), 10000, verifies=True),
]


@dataclasses.dataclass(frozen=True)
class Column:
    fault: str
    side: str  # one host, or both
    known: str = MEMORY
    layer: bool = True

    def title(self):
        return "%s %s" % (self.fault, self.side) + (", %s" % self.known if self.layer else ", stock")


# For the written table.
ABOUT = """Each program of Debian 12 below is started between two emulated hosts under `shift-run` while the
default NIC of the server's host (a), of the client's host (b), or of both has no link or is dead. A time means
that all work was done, that the program found its data right where it checks it, and that the other NICs
carried it; it is that of the whole cell, on a machine with %d cores. With *met before*, the same program had
run while the NICs were healthy, so the hosts remember each other. With *redis*, they have not met, and a redis
server knows them; a program had only looked at each host's NICs. The last column is the stock stack. A star
marks programs that compare every byte."""
ABOUT_UCX = """Open MPI is started with `SHIFT_BORN=stock` and may use both NICs, as on the stock stack, which
passes there, too. For UCX connects its workers over UD, which is not protected: with `mask` it takes the broken
NIC for healthy, and ends, and with one NIC (`UCX_NET_DEVICES=mlx5_0:1`) it cannot start. UCX has
`UCX_IB_GID_INDEX=3`, the RoCE v2 GID with the IPv4 address: it chooses by files in /sys, which a dead NIC does
not have, and would take index 0, by which the hosts have not met."""

COLUMNS = [Column(fault, side, known) for known in (MEMORY, REDIS) for fault in FAULTS for side in SIDES]
STOCK = Column("link-down", "a", layer=False)


class StartSession(Session):
    """Each host has a state folder of its own, as if it was a machine of its own."""

    def __init__(self, build, case, directory, seed, row, column, server):
        super().__init__(build, case, directory, seed)
        self.row, self.column, self.server = row, column, server
        self._before = 0

    def settings(self, host):
        if not self.column.layer:
            return {}
        state = os.path.join(self.directory, "state-" + host)
        os.makedirs(state, exist_ok=True)
        env = {"SHIFT_STATE_DIR": state, "SHIFT_LOG": "info", "SHIFT_RC_TIMEOUT_MAX": "14",
               "UCX_IB_GID_INDEX": "3"}
        if self.row.name.startswith(MPI):
            env["SHIFT_BORN"] = "stock"
        if self.column.known == REDIS:
            env["SHIFT_RENDEZVOUS"] = "tcp " + self.server.url(self.fabric.name)
        return env

    def address(self, host, device="mlx5_0"):
        return "127.0.0.1"  # no side connection of a program goes through a NIC that breaks

    def start(self, host, name, argv, env=None):
        return self.fabric.start(host, name, argv, shift=self.column.layer,
                                 env={**self.settings(host), **(env or {})}, apart=True)

    def on_host(self, host, argv):
        if self.column.layer:
            settings = ["%s=%s" % pair for pair in self.settings(host).items()]
            argv = ["env", *settings, self.build.shift_run, "--", *argv]
        return super().on_host(host, argv)

    def elsewhere(self):
        """How many packets the NICs have sent that do not break."""
        return sum(nic["tx_packets"] for nics in self.fabric.hosts().values() for device, nic in nics.items()
                   if device != "mlx5_0")

    def look(self):
        """A program has looked at the NICs of each host while they were healthy. The hosts have not met."""
        for host in "ab":
            program = self.start(host, "look-" + host, ["ibv_devinfo", "-v"])
            if program.finish(20) != 0:
                raise Failure("ibv_devinfo: " + program.text()[-200:])

    def meet(self, body):
        """The program runs while the NICs are healthy, until both hosts remember the other one: it may be over
        before all connections stand that tell at which addresses a host is."""
        for _ in range(MEETINGS):
            body(self)
            if all(glob.glob(os.path.join(self.directory, "state-" + host, "*", "hosts")) for host in "ab"):
                return
        raise Failure("the hosts do not remember each other")

    def break_nics(self):
        self._before = self.elsewhere()
        for host in self.column.side:
            self.fabric.fault(host + "/mlx5_0", self.column.fault)

    def judge_counters(self):
        counters = self.counters()
        counters["elsewhere"] = self.elsewhere() - self._before
        if counters["elsewhere"] < SHARE * self.case.packets:
            raise Failure("the other NICs have sent %d packets only" % counters["elsewhere"])
        return counters


def run_cell(build, row, column, server, directory, seed):
    case = row.case(1, SECONDS if column.layer else STOCK_SECONDS)
    body = case.body

    def start_on_broken_nics(session):
        if column.known == MEMORY and column.layer:
            session.meet(body)
        else:
            session.look()
        session.break_nics()
        body(session)

    case.body = start_on_broken_nics
    outcome = run_case(build, case, directory, seed,
                       lambda *made: StartSession(*made, row, column, server))
    outcome.update(row=row.name, column=column.title())
    return outcome


def verdict(outcome, column):
    """Returns (good, what to print)."""
    problem = outcome["problem"]
    if not column.layer:
        return bool(problem), "fails, as it should: " + problem if problem else "the stock stack passed"
    return not problem, problem or "complete; %d packets elsewhere" % outcome["counters"]["elsewhere"]


def markdown(outcomes, command):
    found = {(outcome["row"], outcome["column"]): outcome for outcome in outcomes}

    def cell(row, column):
        outcome = found.get((row.name, column.title()))
        if outcome is None or outcome.get("skipped"):
            return "-"
        if not column.layer:
            return "fails" if outcome["problem"] else "**passes**"
        return "%.1f s" % outcome["seconds"] if not outcome["problem"] else "**fails**"

    columns = COLUMNS + [STOCK]
    lines = ["# Unmodified programs that start on broken NICs", "", "Written by `%s`." % command, "",
             *textwrap.wrap(ABOUT % os.cpu_count(), 110), "",
             "| program | %s |" % " | ".join(column.title() for column in columns),
             "| --- |" + " --- |" * len(columns)]
    lines += ["| `%s`%s | %s |" % (row.name, " *" if row.verifies else "",
                                   " | ".join(cell(row, column) for column in columns)) for row in ROWS]
    lines += ["", *textwrap.wrap(ABOUT_UCX, 110)]
    return "\n".join(lines) + "\n"


def parse():
    parser = script_parser(__doc__, "out/starts")
    parser.add_argument("--drawn", action="store_true", help="only a few cells, which the seed chooses")
    parser.add_argument("--only", action="append", default=[], help="only programs whose name contains this")
    parser.add_argument("--column", action="append", default=[], help="only columns whose title contains this")
    parser.add_argument("--complete", action="store_true", help="a program that is not installed is a failure")
    parser.add_argument("--jobs", type=int, default=1, help="cells side by side")
    seed_add(parser)
    parser.add_argument("--json", help="write the results to this file")
    parser.add_argument("--markdown", help="write the table to this file")
    return parser.parse_args()


def wanted(options):
    cells = [(row, column) for row in ROWS for column in [*COLUMNS, STOCK]
             if not (row.name.startswith(MPI) and column is STOCK)]
    if options.drawn:
        dice = random.Random(options.seed)
        torch = next(row for row in ROWS if row.name.startswith("PyTorch"))  # many QPs on a shared receive queue
        cells = dice.sample([cell for cell in cells if cell[1] is not STOCK], DRAWN) + [
            (torch, Column("link-down", "a", REDIS)), (ROWS[2], STOCK)]
    return [(row, column) for row, column in cells
            if (not options.only or any(word in row.name for word in options.only)) and
            (not options.column or any(word in column.title() for word in options.column))]


class Run:
    def __init__(self, build, options, server):
        self.build, self.options, self.server = build, options, server
        self.outcomes = []

    def cell(self, item):
        number, (row, column) = item
        missing = row.case(1, SECONDS).missing()
        if self.server.problem and column.known == REDIS and column.layer:
            missing.append("redis-server")
        if missing and not self.options.complete:
            return {"row": row.name, "column": column.title(), "problem": "", "good": True, "seconds": 0,
                    "skipped": "not installed: " + ", ".join(missing)}
        directory = os.path.join(self.options.out, str(number))
        outcome = run_cell(self.build, row, column, self.server, directory, self.options.seed)
        outcome["good"], outcome["says"] = verdict(outcome, column)
        if outcome["good"]:
            shutil.rmtree(directory, ignore_errors=True)
        else:
            outcome["says"] += "; logs: " + directory
        return outcome

    def tell(self, _, outcome):
        self.outcomes.append(outcome)
        result = "skipped" if outcome.get("skipped") else "ok" if outcome["good"] else "FAILED"
        print("%-32s %-26s %-7s %5.1f  %s" % (outcome["row"][:32], outcome["column"], result, outcome["seconds"],
                                              outcome.get("skipped") or outcome["says"]), flush=True)


def main():
    options = parse()
    build = Build(options.build)
    build.require(build.shift_run)
    begun = time.monotonic()
    cells = wanted(options)
    print("%-32s %-26s %-7s %5s  (seed %d)" % ("program", "fault, hosts", "result", "s", options.seed))
    with RedisServer() as server:
        run = Run(build, options, server)
        run_all(options.jobs, list(enumerate(cells)), run.cell, run.tell)
    failed = sum(1 for outcome in run.outcomes if not outcome["good"])
    write_json(options.json, run.outcomes)
    if options.markdown:
        write_text(options.markdown, markdown(run.outcomes, " ".join(["tests/clients/starts.py"] + sys.argv[1:])))
    return conclude(run.outcomes, failed, "cells", time.monotonic() - begun)


if __name__ == "__main__":
    sys.exit(main())
