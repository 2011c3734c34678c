#!/usr/bin/python3
"""Which lines and branches of providers/shift do its unit tests and a short simulation execute? Builds the preset
`coverage`, runs them and prints a line for each folder. A line that is executed need not be tested: tools/mutate
tells what the tests notice."""

import argparse
import collections
import glob
import json
import os
import re
import subprocess
import sys

ROOT = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
BUILD = os.path.join(ROOT, "build", "coverage")
LAYER = os.path.join(ROOT, "providers", "shift")


def run(*command):
    if subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, check=False).returncode != 0:
        sys.exit("failed: " + " ".join(command))


def data_files():
    return glob.glob(os.path.join(BUILD, "**", "*.gcda"), recursive=True)


def build_and_run(jobs):
    run("cmake", "--preset", "coverage")
    shown = subprocess.run(["ctest", "--test-dir", BUILD, "-N", "-L", "unit", "-R", "^shift_.*_test$"], check=True,
                           capture_output=True, text=True).stdout
    tests = re.findall(r"^ *Test +#\d+: (\S+)$", shown, re.MULTILINE)
    run("ninja", "-C", BUILD, "shift-sim", *tests)
    for path in data_files():
        os.remove(path)
    run("ctest", "--test-dir", BUILD, "-L", "unit", "-R", "^shift_.*_test$", "-j", str(jobs))
    run(os.path.join(BUILD, "bin", "shift-sim"), "--count", "1000", "--jobs", "1")


def read():
    """By file of the layer: by line, whether it was executed; by branch, whether it was taken."""
    lines, branches = collections.defaultdict(dict), collections.defaultdict(dict)
    for path in data_files():
        result = subprocess.run(["gcov", "--json-format", "--stdout", "--branch-probabilities", path],
                                cwd=os.path.dirname(path), capture_output=True, text=True, check=True)
        for text in result.stdout.splitlines():
            for file in json.loads(text)["files"]:
                name = os.path.normpath(os.path.join(BUILD, file["file"]))
                if not name.startswith(LAYER + os.sep) or "/test/" in name:
                    continue
                name = os.path.relpath(name, LAYER)
                for line in file["lines"]:
                    number = line["line_number"]
                    lines[name][number] = lines[name].get(number, False) or line["count"] > 0
                    for at, branch in enumerate(line["branches"]):
                        if branch["throw"]:
                            continue
                        key = (number, at)
                        branches[name][key] = branches[name].get(key, False) or branch["count"] > 0
    return lines, branches


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="tests side by side")
    parser.add_argument("--files", action="store_true", help="a line for each file instead of each folder")
    parser.add_argument("--missed", metavar="FILE", help="show the lines of this file that nothing executes")
    parser.add_argument("--json", help="write the counts here")
    options = parser.parse_args()
    build_and_run(options.jobs)
    lines, branches = read()
    if options.missed:
        with open(os.path.join(LAYER, options.missed), encoding="utf-8") as file:
            text = file.read().splitlines()
        for number in sorted(number for number, is_run in lines[options.missed].items() if not is_run):
            print("%5d  %s" % (number, text[number - 1]))
        return
    counts = collections.defaultdict(lambda: [0, 0, 0, 0])
    for name in lines:
        for key in (name if options.files else name.split(os.sep)[0], "all"):
            for at, found in ((0, lines[name]), (2, branches[name])):
                counts[key][at] += sum(found.values())
                counts[key][at + 1] += len(found)
    rows = sorted(counts.items(), key=lambda item: (item[0] == "all", item))
    for key, (line, of_lines, branch, of_branches) in rows:
        print("%-32s lines %5.1f %% of %5d   branches %5.1f %% of %5d" % (
            key, 100 * line / of_lines, of_lines, 100 * branch / max(of_branches, 1), of_branches))
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({key: dict(zip(("lines_run", "lines", "branches_taken", "branches"), value))
                       for key, value in counts.items()}, file, indent=1)


if __name__ == "__main__":
    main()
