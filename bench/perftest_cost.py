#!/usr/bin/env python3
"""What perftest's programs measure between two emulated hosts: stock against SHIFT, in turns.

Both programs and both emulated NICs share the processors, so a rate is that of all of them together."""

import dataclasses
import math
import os
import shutil
import tempfile

import environment
from harness.build import Build
from harness.case import Case, Failure, expect
from harness.ports import free_port
from harness.report import write_json
from harness.session import Session

TRIES = 5
SMALL = 4096  # up to this size the number of messages counts, above it that of bytes


@dataclasses.dataclass(frozen=True)
class Row:
    tool: str
    size: int
    number: int  # exchanges, or messages of each queue pair
    qps: int = 1

    @property
    def name(self):
        return f"{self.tool} -s {self.size}" + (f" -q {self.qps}" if self.qps > 1 else "")

    @property
    def unit(self):
        return "us" if self.tool.endswith("_lat") else "messages/us" if self.size <= SMALL else "MiB/s"

    def argv(self, port):
        return [self.tool, "-d", "mlx5_0", "-x", 3, "-F", "-p", port, "-s", self.size, "-n", self.number,
                *(["-q", self.qps, "-N"] if self.tool.endswith("_bw") else [])]

    def figure(self, text):
        """The figure that perftest printed, or None where it could not find out how fast the clock is."""
        columns = expect(text, rf"^\s*{self.size}\s+\d+(\s+(?:[0-9.]+|-?nan|inf))+\s*$", "the result")[0].split()
        # A latency tool prints the shortest, the longest and the typical; the others the peak, the mean and the
        # million messages of a second.
        value = float(columns[3 if self.unit == "MiB/s" else 4])
        return value if 0 < value < math.inf else None


ROWS = [
    Row("ib_write_lat", 8, 10000), Row("ib_send_lat", 8, 10000),
    *(Row(tool, 64, 480000 // qps, qps) for tool in ("ib_write_bw", "ib_send_bw") for qps in (1, 4, 16)),
    *(Row(tool, size, (1 << 30) // size) for tool in ("ib_write_bw", "ib_send_bw") for size in (65536, 1 << 20)),
]


class MannerSession(Session):
    """A session whose programs all run in one manner."""

    def __init__(self, build, case, directory, manner):
        super().__init__(build, case, directory, seed=0)
        self.manner = manner

    def start(self, host, name, argv, env=None):
        return self.fabric.start_outside(name, self.fabric.command(host, argv, self.manner != environment.STOCK),
                                         {**environment.settings(self.manner), **(env or {})})


def measure(build, manner, row):
    """What the program tells, of its first try that gave a figure."""
    for _ in range(TRIES):
        with tempfile.TemporaryDirectory() as folder:
            case = Case(row.name, "perftest", None, seconds=120)
            with MannerSession(build, case, os.path.join(folder, "run"), manner) as session:
                port = free_port()
                try:
                    text, _ = session.pair(row.argv(port), row.argv(port), port)
                    figure = row.figure(text)
                except Failure as failure:
                    raise environment.Failure(f"{row.name} ({environment.TITLES[manner]}): {failure}") from None
        if figure is not None:
            return figure
    raise environment.Failure(f"{row.name}: no figure in {TRIES} tries; the machine is too busy for perftest")


def measure_all(build, options):
    """The results of the rows, whose runs take turns."""
    manners = (environment.STOCK, *options.manners)
    results = []
    for row in options.rows:
        turns = [[measure(build, manner, row) for manner in manners] for _ in range(options.repeat)]
        results.append({"name": row.name, "unit": row.unit,
                        **environment.compared(dict(zip(manners, zip(*turns))))})
    return results


def missing():
    """The tools that are not installed."""
    return sorted({row.tool for row in ROWS if not shutil.which(row.tool)})


def spread(figure, percent_of=None):
    """A figure with its spread, or as a part of another one."""
    if percent_of:
        return f"{100 * figure['middle'] / percent_of:+.1f} % ±{100 * figure['spread'] / percent_of:.1f}"
    digits = 0 if figure["middle"] >= 100 else 2
    return f"{figure['middle']:.{digits}f} ±{figure['spread']:.{digits}f}"


def cells(result):
    """Stock's figure, and each other manner's with its difference."""
    stock = result["figures"][environment.STOCK]
    found = [spread(stock)]
    for manner, beyond in result["beyond"].items():
        found += [spread(result["figures"][manner]), spread(beyond, stock["middle"])]
    return found


def parse(words=None):
    parser = environment.parser(__doc__.splitlines()[0])
    environment.manners_add(parser, environment.JOURNALS)
    parser.add_argument("--repeat", type=int, default=5, help="runs of each manner")
    parser.add_argument("--only", default="", help="only rows whose names contain this")
    options = parser.parse_args(words)
    options.rows = [row for row in ROWS if options.only in row.name]
    return options


def main():
    options = parse()
    if missing():
        raise environment.Failure(f"not installed: {', '.join(missing())}")
    build = Build(options.build)
    build.require(build.shift_run)
    results = measure_all(build, options)
    print(environment.machine())
    environment.table(f"perftest, two emulated hosts on these processors (medians of {options.repeat} runs)",
                      ["", "unit", *environment.compared_header(options.manners)],
                      [[result["name"], result["unit"], *cells(result)] for result in results],
                      ["± half the range of the runs; differences are those of the runs of one turn"])
    write_json(options.json, {"machine": environment.machine(), "repeat": options.repeat, "perftest": results})
    return 0


if __name__ == "__main__":
    environment.guarded(main)
