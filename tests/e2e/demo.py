#!/usr/bin/python3
"""Shows the layer's main job: unmodified RDMA programs keep running while their NIC dies.

quickstart.sh calls this program. It makes two emulated hosts with two NICs each and runs the distribution's
programs. It ends with a verdict, and its exit status says whether all was right.
"""

import os
import shutil
import sys
import time

from harness.build import Build
from harness.checker import ENDS, report_of
from harness.faults import FAULTS
from harness.options import script_parser

from clients import failover
from clients.rows import ROWS
from e2e import cells, timeline
from e2e.judge import run_cell

SHOWN = ["ib_write_bw -s 65536", "ib_send_bw -s 65536", "ib_read_bw -s 32768", "ibv_rc_pingpong -c",
         "ibv_rc_pingpong -c -e -N"]
# Without a fault such traffic never stands still for longer than a few milliseconds.
STEADY = ["--qps", "2", "--rate", "3000", "--size", "4096", "--random-size", "--seed", "7"]


class Demo:
    def __init__(self, build, out):
        self.build, self.out = build, out
        self.failures = []
        self.runs = 0

    def directory(self):
        self.runs += 1
        path = os.path.join(self.out, "demo", str(self.runs))
        shutil.rmtree(path, ignore_errors=True)
        return path

    def tell(self, name, what, problem, good):
        print("  %-24s %-22s %s" % (name, what, "FAILED: " + problem if problem else good),
              flush=True)
        if problem:
            self.failures.append("%s, %s: %s" % (name, what, problem))

    def program(self, name, column):
        row = next(row for row in ROWS if row.name == name)
        outcome = failover.run_cell(self.build, row, column, self.directory(), 1)
        good, says = failover.verdict(outcome, column)
        self.tell(name, "%s %s/mlx5_0" % (column.fault, column.side), "" if good else says, says)

    def contrast(self):
        print("\n1. Without the layer: the stock stack, the NIC's link goes down in mid-run")
        for name in (SHOWN[0], SHOWN[3]):
            self.program(name, failover.Column("link-down", "b", layer=False))

    def programs(self):
        print("\n2. The same unmodified programs under shift-run")
        for name in SHOWN:
            for number, fault in enumerate(FAULTS):
                self.program(name, failover.Column(fault, "ab"[number % 2]))

    def bytes_checked(self):
        print("\n3. Every byte, notification and completion checked (shift-traffic)")
        for number, op in enumerate(cells.OPS):
            fault = FAULTS[number % 4]
            cell = cells.make(7, number, "masked", fault, op, "ab"[number % 2],
                              cells.APIS[number % 2])
            cell.options = STEADY + (["--events"] if number % 2 else [])
            directory = self.directory()
            result = run_cell(self.build, cell, directory)
            reports = {name: report_of(directory, name) for name in ENDS}
            moved = sum(report.get("bytes", 0) for report in reports.values())
            # Nothing tells the receiver of a plain WRITE; it looks at its memory now and then.
            seers = ["client"] if op == "write" else ENDS
            pause = max(reports[name].get("longest_gap_ms", 0) for name in seers)
            self.tell("%s, %s, %s" % (op, cell.api, "sleeps" if number % 2 else "polls"),
                      "%s %s/mlx5_0" % (fault, cell.side), ", ".join(result.problems),
                      "%.1f MB right, longest pause %.1f ms" % (moved / 1e6, pause))

    def through_time(self):
        print("\n4. Throughput while a/mlx5_0 goes down and comes back")
        recording = timeline.record(self.build, self.directory())
        print(timeline.text(recording), flush=True)
        picture = os.path.join(self.out, "demo.png")
        drawn = timeline.draw(recording, picture)
        self.tell("write_imm, 64 KiB", "link-down, link-up", recording.problem,
                  "switched in %.1f ms, longest pause %.1f ms; then the traffic %s" % (
                      recording.switch_us / 1000, recording.gap_ms,
                      "went back to mlx5_0" if recording.came_back else "stayed on mlx5_1"))
        print("  picture: %s" % (picture if drawn else "none, python3-matplotlib is missing"))


def main():
    options = script_parser(__doc__, "out").parse_args()
    build = Build(options.build)
    build.require(build.shift_run, build.traffic)
    begun = time.monotonic()
    demo = Demo(build, options.out)
    print("Two emulated hosts, a and b, with two ConnectX NICs each; programs of the distribution.")
    demo.contrast()
    demo.programs()
    demo.bytes_checked()
    demo.through_time()
    seconds = time.monotonic() - begun
    if demo.failures:
        print("\nVERDICT: %d of %d runs failed (%.0f s); logs under %s" % (
            len(demo.failures), demo.runs, seconds, os.path.join(options.out, "demo")))
        for failure in demo.failures:
            print("  " + failure)
        return 1
    print("\nVERDICT: all %d runs as they should be (%.0f s): without the layer the programs die, "
          "with it they finish, byte for byte." % (demo.runs, seconds))
    return 0


if __name__ == "__main__":
    sys.exit(main())
