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
from harness.pauses import TOLD

from clients import failover
from clients.rows import ROWS
from e2e import cells, timeline
from e2e.judge import run_cell

SHOWN = ["ib_write_bw -s 65536", "ib_send_bw -s 65536", "ib_read_bw -s 32768", "ibv_rc_pingpong -c",
         "ibv_rc_pingpong -c -e -N"]
# On a quiet machine no program stands still for longer, in ms: the layer is told of a fault, or the NIC's
# retries have to end first.
QUIET_MS = {"told": 20, "silent": 120}


class Demo:
    def __init__(self, build, out):
        self.build, self.out = build, out
        self.failures = []
        self.late = 0
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

    def remark(self, pause_ms, fault):
        """What a reader should know about a pause. It is no failure, since a busy machine is late, too."""
        quiet_ms = QUIET_MS["told" if fault in TOLD else "silent"]
        if pause_ms <= quiet_ms:
            return ""
        self.late += 1
        return "; more than the %d ms of a quiet machine" % quiet_ms

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
        print("\n3. Every byte, notification and completion checked (shift-traffic); beside each run the same")
        print("   traffic on the stock stack, without a fault")
        for number, op in enumerate(cells.OPS):
            fault = FAULTS[number % 4]
            cell = cells.make(7, number, "masked", fault, op, "ab"[number % 2],
                              cells.APIS[number % 2])
            cells.pace(cell, "sleeps" if number % 2 else "polls")
            directory = self.directory()
            result = run_cell(self.build, cell, directory)
            moved = sum(report_of(directory, name).get("bytes", 0) for name in ENDS)
            pause = "not seen"
            if result.pause:
                pause = "%.1f ms (stock %.1f)%s" % (result.pause.seen_ms, result.pause.stock_ms,
                                                    self.remark(result.pause.seen_ms, fault))
            self.tell("%s, %s, %s" % (op, cell.api, cell.waits), "%s %s/mlx5_0" % (fault, cell.side),
                      ", ".join(result.problems),
                      "%.1f MB right, longest pause %s" % (moved / 1e6, pause))

    def through_time(self):
        print("\n4. Throughput while a/mlx5_0 goes down and comes back")
        recording = timeline.record(self.build, self.directory())
        print(timeline.text(recording), flush=True)
        picture = os.path.join(self.out, "demo.png")
        drawn = timeline.draw(recording, picture)
        self.tell("write_imm, 64 KiB", "link-down, link-up", recording.problem,
                  "switched in %.1f ms, longest pause %.1f ms; then the traffic %s%s" % (
                      recording.switch_us / 1000, recording.gap_ms,
                      "went back to mlx5_0" if recording.came_back else "stayed on mlx5_1",
                      self.remark(recording.gap_ms, "link-down")))
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
    if demo.late:
        print("\n%d pauses were longer than on a quiet machine. Where nothing else runs, that should not be." %
              demo.late)
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
