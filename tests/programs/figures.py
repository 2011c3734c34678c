"""Measures the speed of the emulator under unmodified programs, as medians of several runs. It is no test."""

import os
import re
import statistics

from harness.case import Case
from harness.ports import free_port
from harness.session import run_case

RUNS = 7
# Each row has a program, its arguments, the pattern of the figure, and the unit.
MEASURED = [
    ("ib_write_bw", ["-s", "65536", "-n", "5000"], r"^ *65536 +\d+ +[0-9.]+ +([0-9.]+)", "MiB/s"),
    ("ib_write_bw", ["-s", "8", "-n", "100000"], r"^ *8 +\d+ +[0-9.]+ +[0-9.]+\s+([0-9.]+)", "M/s"),
    ("ib_write_lat", ["-s", "8", "-n", "2000"], r"^ *8 +\d+ +[0-9.]+ +[0-9.]+ +([0-9.]+)", "us"),
    ("ib_send_lat", ["-s", "8", "-n", "5000"], r"^ *8 +\d+ +[0-9.]+ +[0-9.]+ +([0-9.]+)", "us"),
    ("ibv_rc_pingpong", ["-n", "5000"], r"^5000 iters in .* = ([0-9.]+) usec/iter", "us"),
    ("ibv_rc_pingpong", ["-n", "5000", "-e"], r"^5000 iters in .* = ([0-9.]+) usec/iter", "us"),
    ("ucx_perftest", ["-d", "mlx5_0:1", "-x", "rc_mlx5", "-t", "put_lat", "-n", "2000", "-w", "50"],
     r"^Final: +\d+ +[0-9.]+ +([0-9.]+)", "us"),
    ("ucx_perftest", ["-d", "mlx5_0:1", "-x", "rc_verbs", "-t", "am_lat", "-n", "2000", "-w", "50"],
     r"^Final: +\d+ +[0-9.]+ +([0-9.]+)", "us"),
]


def figure(build, program, arguments, pattern, directory, number):
    values = []

    def body(session):
        port = free_port()
        argv = [program] + arguments + ["-p", port]
        if program.startswith("ib_"):
            argv += ["-d", "mlx5_0", "-x", 3, "-F"]
        elif program.startswith("ibv_"):
            argv += ["-d", "mlx5_0", "-g", 3]
        text, _ = session.pair(argv, argv, port)
        values.extend(float(value) for value in re.findall(pattern, text, re.M))
    outcome = run_case(build, Case(program, "figures", body, quiet=False), directory, number)
    return values[0] if values else outcome["problem"]


def measure(build, options):
    status = 0
    for program, arguments, pattern, unit in MEASURED:
        name = " ".join([program] + arguments)
        if options.only and not any(word in name for word in options.only):
            continue
        case = Case(name, "figures", None, [program])
        if case.missing():
            print("%-70s not installed" % name)
            continue
        found = [figure(build, program, arguments, pattern, os.path.join(options.out, "figures"), i)
                 for i in range(RUNS)]
        numbers = [value for value in found if isinstance(value, float)]
        if len(numbers) < RUNS:
            print("%-70s FAILED: %s" % (name, next(v for v in found if not isinstance(v, float))))
            status = 1
            continue
        print("%-70s %10.2f %s (%.2f to %.2f)" %
              (name, statistics.median(numbers), unit, min(numbers), max(numbers)), flush=True)
    return status
