"""What the benchmarks share: where the build lies, a fabric of their own, the machine's name."""

import argparse
import json
import os
import pathlib
import subprocess
import sys

SOURCE = pathlib.Path(__file__).resolve().parent.parent


class Failure(Exception):
    """Something that had to work did not; the message says what."""


def parser(description):
    result = argparse.ArgumentParser(description=description)
    result.add_argument("--build", type=pathlib.Path, default=SOURCE / "build",
                        help="build folder (default: %(default)s)")
    result.add_argument("--json", type=pathlib.Path, metavar="FILE",
                        help="write the result here as well")
    return result


def cpu_model():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return "unknown CPU"


def machine():
    return f"{cpu_model()}, {os.cpu_count()} processors, emulated NICs"


class Fabric:
    """An emulated fabric, removed at the end."""

    def __init__(self, build, tag):
        self.build = build.resolve()
        self.name = f"bench-{tag}-{os.getpid()}"
        for program in ("bin/cxemu", "bin/shift-run", "bench/verbs-cost", "bench/fault-at"):
            if not (self.build / program).exists():
                raise Failure(f"{self.build / program} is missing: build it first")

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        subprocess.run([self.program("cxemu"), "clean", "--fabric", self.name],
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)

    def program(self, name, folder="bin"):
        return str(self.build / folder / name)

    def command(self, host, words, shift, events=None):
        """The words of a command line that runs `words` on `host`, with our layer or without."""
        line = [self.program("cxemu"), "exec", "--fabric", self.name, "--host", host, "--"]
        if shift:
            line += [self.program("shift-run")]
            line += ["--events", str(events)] if events else []
            line += ["--"]
        return line + [str(word) for word in words]

    def run(self, host, words, shift, timeout_s=300, events=None):
        """Standard output of a finished command."""
        done = subprocess.run(self.command(host, words, shift, events), stdout=subprocess.PIPE,
                              timeout=timeout_s, check=False, text=True)
        if done.returncode != 0:
            side = "SHIFT" if shift else "stock"
            raise Failure(f"{words[0]} ({side}) ended with status {done.returncode}")
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


def write_json(path, value):
    if path:
        path.write_text(json.dumps(value, indent=2) + "\n")


def guarded(main):
    """Runs a benchmark's main(); a failure is one line and status 1."""
    try:
        sys.exit(main())
    except (Failure, subprocess.TimeoutExpired) as failure:
        print(f"{pathlib.Path(sys.argv[0]).name}: {failure}", file=sys.stderr)
        sys.exit(1)
