"""What the benchmarks share: where the build lies, a fabric of their own, the machine's name."""

import argparse
import os
import pathlib
import subprocess
import sys

import harness.fabric
from harness import ROOT
from harness.build import Build


class Failure(Exception):
    """Something that had to work did not; the message says what."""


def parser(description):
    result = argparse.ArgumentParser(description=description)
    result.add_argument("--build", default=os.path.join(ROOT, "build"),
                        help="build folder (default: %(default)s)")
    result.add_argument("--json", metavar="FILE", help="write the result here as well")
    return result


def cpu_model():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return "unknown CPU"


def machine():
    return f"{cpu_model()}, {os.cpu_count()} processors, emulated NICs"


class Fabric(harness.fabric.Fabric):
    """Emulated hosts for measurements, which read what programs print when these have ended."""

    def __init__(self, path):
        build = Build(path)
        super().__init__(build)
        self.verbs_cost = build.program("bench", "verbs-cost")
        self.fault_at = build.program("bench", "fault-at")
        build.require(build.shift_run, self.verbs_cost, self.fault_at)

    def run(self, host, argv, layered, timeout_s=300):
        """Standard output of a finished command."""
        done = subprocess.run(self.command(host, argv, layered), stdout=subprocess.PIPE,
                              timeout=timeout_s, check=False, text=True)
        if done.returncode != 0:
            side = "SHIFT" if layered else "stock"
            raise Failure(f"{argv[0]} ({side}) ended with status {done.returncode}")
        return done.stdout


def table(title, header, rows, notes=()):
    """Prints rows of strings, the first column flush left, the others flush right."""
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
    print(f"\n{title}")
    for row in [header, *rows]:
        print("  " + "  ".join(cell.ljust(width) if i == 0 else cell.rjust(width)
                               for i, (cell, width) in enumerate(zip(row, widths))).rstrip())
    for note in notes:
        print(f"  {note}")


def guarded(main):
    """Runs a benchmark's main(); a failure is one line and status 1."""
    try:
        sys.exit(main())
    except (Failure, subprocess.TimeoutExpired) as failure:
        print(f"{pathlib.Path(sys.argv[0]).name}: {failure}", file=sys.stderr)
        sys.exit(1)
