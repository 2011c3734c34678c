#!/usr/bin/python3
"""What SHIFT costs while nothing breaks: stock, SHIFT with SHIFT_JOURNAL=copies, with notes, and with notes in the
mode auto, side by side.

It measures with the other scripts of this folder, whose runs take turns, and writes a page with a picture. Nothing
here fails by a time."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import time

import environment
import instructions
import memory_cost
import performance_page
import performance_picture
import perftest_cost
import verbs_cost
from harness.build import Build
from harness.report import write_json, write_text

# The words for the other scripts: of a whole run, and of a quick one, which shows only that all is there.
WORDS = {False: {"verbs": ["--repeat", "9"], "instructions": [], "memory": [], "perftest": ["--repeat", "7"]},
         True: {"verbs": ["--repeat", "1", "--rounds", "2", "--control", "4"],
                "instructions": ["--rounds", "1", "--wrs", "16"],
                "memory": ["--pairs", "2", "--settle-ms", "100"], "perftest": None}}


class Parts:
    """Runs the parts of the measurement, one after the other, and tells on stderr which one is under way."""

    def __init__(self, options):
        self.options, self.words = options, WORDS[options.quick]

    def begin(self, script, part):
        print(f"{time.strftime('%H:%M:%S')} {part}", file=sys.stderr, flush=True)
        words = ["--build", self.options.build, *self.words[part]]
        if self.options.repeat and "--repeat" in words:
            words += ["--repeat", str(self.options.repeat)]  # the last one counts
        return script.parse(words)

    def verbs(self):
        options = self.begin(verbs_cost, "verbs")
        options.manners = environment.SHIFTS
        with environment.Fabric(options.build) as fabric:
            return verbs_cost.measure_all(fabric, options)

    def instructions(self):
        if shutil.which("valgrind") is None:
            return None
        options = self.begin(instructions, "instructions")
        options.manners = environment.SHIFTS
        with environment.Fabric(options.build) as fabric:
            return instructions.measure_all(fabric, options)

    def memory(self):
        options = self.begin(memory_cost, "memory")
        with environment.Fabric(options.build) as fabric:
            return memory_cost.measure_all(fabric, options)

    def perftest(self):
        if self.words["perftest"] is None or perftest_cost.missing():
            return None
        options = self.begin(perftest_cost, "perftest")
        return {"version": perftest_version(), "repeat": options.repeat,
                "rows": perftest_cost.measure_all(Build(options.build), options)}


def perftest_version():
    text = subprocess.run([perftest_cost.ROWS[0].tool, "--version"], stdout=subprocess.PIPE, text=True,
                          check=False).stdout
    return text.strip().removeprefix("Version: ")


def measure(options):
    parts = Parts(options)
    begun, load = time.monotonic(), os.getloadavg()[0]
    result = {"command": command(options), "machine": environment.machine(),
              "processors": environment.processors(), "system": environment.system(), "quick": options.quick,
              "load": load}
    for part in ("verbs", "instructions", "memory", "perftest"):
        result[part] = getattr(parts, part)()
    result["minutes"] = (time.monotonic() - begun) / 60
    return result


def command(options):
    """The command as the page shows it: without the folders of this machine."""
    words = ["bench/performance.py", *(["--repeat", str(options.repeat)] if options.repeat else []),
             *(["--quick"] if options.quick else [])]
    return " ".join(words)


def parse():
    parser = environment.parser(__doc__.splitlines()[0])
    parser.add_argument("--markdown", metavar="FILE", help="write the page here (docs/performance.md)")
    parser.add_argument("--picture", metavar="FILE",
                        help="write the picture of the page here, as SVG (docs/performance.svg)")
    parser.add_argument("--figures", metavar="FILE", type=pathlib.Path,
                        help="measure nothing: the page is that of figures which --json wrote to this file")
    parser.add_argument("--repeat", type=int,
                        help="turns, of calls and of perftest (default: 9 and 7)")
    parser.add_argument("--quick", action="store_true",
                        help="only show that all is there: the figures mean nothing, and perftest is left out")
    return parser.parse_args()


def main():
    options = parse()
    result = json.loads(options.figures.read_text()) if options.figures else measure(options)
    write_json(options.json, result)
    is_drawn = bool(options.picture) and performance_picture.draw(result, options.picture)
    if options.picture and not is_drawn:
        print("no picture: python3-matplotlib is missing", file=sys.stderr)
    picture = None
    if is_drawn:
        picture = os.path.relpath(options.picture, os.path.dirname(options.markdown or options.picture))
    page = performance_page.page(result, picture)
    if options.markdown:
        write_text(options.markdown, page)
    else:
        print(page)
    return 0


if __name__ == "__main__":
    environment.guarded(main)
