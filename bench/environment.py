"""What the benchmarks share: where the build lies, a fabric of their own, manners to run a program, the machine's
name."""

import argparse
import os
import pathlib
import platform
import statistics
import subprocess
import sys

import harness.fabric
from harness import ROOT
from harness.build import Build

# How a program runs: on the stock library, or under SHIFT with this SHIFT_JOURNAL, or with notes and in the mode
# auto.
STOCK = "stock"
JOURNALS = ("copies", "notes")
AUTO = "auto"
SHIFTS = (*JOURNALS, AUTO)
MANNERS = (STOCK, *JOURNALS)
TITLES = {STOCK: "stock", **{journal: f"SHIFT, {journal}" for journal in JOURNALS}, AUTO: "SHIFT, auto"}


class Failure(Exception):
    """Something that had to work did not; the message says what."""


def parser(description):
    result = argparse.ArgumentParser(description=description)
    result.add_argument("--build", default=os.path.join(ROOT, "build"),
                        help="build folder (default: %(default)s)")
    result.add_argument("--json", metavar="FILE", help="write the result here as well")
    return result


def manners_add(result, default):
    """The option for the manners that are compared. Stock is always among them."""
    result.add_argument("--manners", nargs="+", choices=SHIFTS, default=list(default), metavar="MANNER",
                        help="what is compared with stock: SHIFT with copies, with notes, and with notes in the "
                             "mode auto (default: %(default)s)")


def settings(manner):
    """The environment of a program that runs in this manner."""
    if manner == STOCK:
        return dict(os.environ)
    return {**os.environ, "SHIFT_JOURNAL": "notes" if manner == AUTO else manner,
            "SHIFT_MODE": "auto" if manner == AUTO else "relaxed"}


def middle_of(values):
    """The median, and half of the range."""
    return {"middle": statistics.median(values), "spread": (max(values) - min(values)) / 2}


def compared(values):
    """values: {manner: [a figure of each turn]} -> middles, and how far they are beyond stock: the middle of the
    differences to stock's figure of the same turn, so what a mood of the machine does to a whole turn is in none
    of them."""
    stock = values[STOCK]
    return {"figures": {manner: middle_of(those) for manner, those in values.items()},
            "beyond": {manner: middle_of([one - other for one, other in zip(those, stock)])
                       for manner, those in values.items() if manner != STOCK}}


def compared_header(manners):
    """The columns of a table: stock, and each manner with its difference to stock."""
    return [STOCK, *(word for manner in manners for word in (TITLES[manner], "difference"))]


def cpu_model():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return "unknown CPU"


def processors():
    return os.cpu_count()


def machine():
    return f"{cpu_model()}, {processors()} processors, emulated NICs"


def system():
    """The name of the distribution."""
    return platform.freedesktop_os_release().get("PRETTY_NAME", "unknown system")


class Fabric(harness.fabric.Fabric):
    """Emulated hosts for measurements, which read what programs print when these have ended."""

    def __init__(self, path):
        build = Build(path)
        super().__init__(build)
        self.verbs_cost = build.program("bench", "verbs-cost")
        self.fault_at = build.program("bench", "fault-at")
        build.require(build.shift_run, self.verbs_cost, self.fault_at)

    def run(self, host, argv, manner, timeout_s=300):
        """Standard output of a finished command."""
        done = subprocess.run(self.command(host, argv, manner != STOCK), stdout=subprocess.PIPE,
                              env=settings(manner), timeout=timeout_s, check=False, text=True)
        if done.returncode != 0:
            raise Failure(f"{argv[0]} ({TITLES[manner]}) ended with status {done.returncode}")
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
