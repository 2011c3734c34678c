#!/usr/bin/python3
"""Plants each bug of mutations/ into a copy of one of the layer's sources, links the simulation with it, and
demands that a schedule breaks a rule. The test `sim_mutations` calls this program; by hand it takes the names
of bugs. If the simulation misses a bug, it proves nothing about the rule that the bug breaks.

Each file is a sed script that changes one line. Its head says:
  bug     what is wrong
  shows   the rule that breaks first
  within  how many schedules it may take until a rule breaks, counted from the first
  file    the source that it changes, a path in providers/shift/
  model, campaign, unit: the name of this bug there (tests/planted/table.py makes a table of these)
"""

import argparse
import collections
import concurrent.futures
import difflib
import glob
import json
import os
import random
import re
import shlex
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
LAYER = os.path.normpath(os.path.join(HERE, "..", "..", "providers", "shift"))

Bug = collections.namedtuple("Bug", "name script within file")
Found = collections.namedtuple("Found", "schedules rule problem")


def bugs_read(names):
    bugs = []
    for script in sorted(glob.glob(os.path.join(HERE, "mutations", "*.sed"))):
        name = os.path.basename(script)[:-4]
        with open(script, encoding="utf-8") as file:
            head = dict(re.findall(r"^# (\w+): (.*)$", file.read(), re.M))
        bugs.append(Bug(name, script, int(head["within"]), head["file"]))
    unknown = set(names) - {bug.name for bug in bugs}
    if unknown:
        sys.exit("no such bug: " + ", ".join(sorted(unknown)))
    return [bug for bug in bugs if not names or bug.name in names]


def compile_commands(build):
    """The command that compiles each source of the layer as it is shipped, alone or with others that its file
    includes."""
    commands = {}
    with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as file:
        entries = [entry for entry in json.load(file) if "SHIFT_PLANTED_BUGS" not in entry["command"]]
    for entry in entries:
        commands[os.path.realpath(entry["file"])] = entry
        if "/Unity/" in entry["file"]:
            with open(entry["file"], encoding="utf-8") as file:
                for source in re.findall(r'^#include "(.+)"$', file.read(), re.M):
                    commands[os.path.realpath(source)] = entry
    return commands


def plant(bug, source, copy):
    """Writes the changed copy. Returns what is wrong with the script, or None."""
    changed = subprocess.run(["sed", "-E", "-f", bug.script, source], check=True,
                             capture_output=True, text=True).stdout
    with open(source, encoding="utf-8") as file:
        healthy = file.read().splitlines()
    lines = [line for line in difflib.ndiff(healthy, changed.splitlines()) if line[0] == "-"]
    if len(lines) != 1:
        return "changes %d lines instead of one" % len(lines)
    with open(copy, "w", encoding="utf-8") as file:
        file.write(changed)
    return None


def stale(bugs, out):
    """The scripts that find nothing to change. All are checked, although only a few bugs are drawn."""
    os.makedirs(out, exist_ok=True)
    copy = os.path.join(out, "stale")
    return {bug.name: problem for bug in bugs
            if (problem := plant(bug, os.path.realpath(os.path.join(LAYER, bug.file)), copy))}


def together(unity, source, copy, directory):
    """Writes a file that includes what `unity` does, but the copy in the place of the source."""
    with open(unity, encoding="utf-8") as file:
        text = file.read()
    changed = os.path.join(directory, "unity.cxx")
    with open(changed, "w", encoding="utf-8") as file:
        file.write(text.replace('#include "%s"' % source, '#include "%s"' % os.path.abspath(copy)))
    return changed


def link(entry, build, source, copy, directory, objects):
    """Compiles the copy, with the sources that are compiled together with it, and links it before the archives,
    which hold the unchanged source. Without optimisation this takes half the time."""
    command = [part for part in shlex.split(entry["command"]) if part != "-Werror"] + ["-O0", "-g0"]
    changed = os.path.join(directory, "changed.o")
    is_alone = os.path.realpath(entry["file"]) == source
    command[command.index("-o") + 1] = changed
    command[command.index("-c") + 1] = copy if is_alone else together(entry["file"], source, copy, directory)
    program = os.path.join(directory, "shift-sim")
    for step in (command, [command[0], "-o", program, changed, *objects, "-ldl", "-pthread"]):
        done = subprocess.run(step, cwd=build, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            return None, "does not build:\n" + done.stderr
    return program, None


def look(bug, options, commands, objects):
    directory = os.path.join(options.out, bug.name)
    os.makedirs(directory, exist_ok=True)
    source = os.path.realpath(os.path.join(LAYER, bug.file))
    copy = os.path.join(directory, os.path.basename(source))
    problem = plant(bug, source, copy)
    if problem is None:
        program, problem = link(commands[source], options.build, source, copy, directory, objects)
    if problem is not None:
        return Found(0, "", problem)
    count = options.count or bug.within
    run = subprocess.run([program, "--count", str(count), "--most", "1"], capture_output=True,
                         text=True, check=False)
    os.remove(program)
    if run.returncode == 0:
        return Found(count, "", None)
    broken = re.search(r"^seed (\d+): (.*)$", run.stdout, re.M)
    if broken is None:
        return Found(0, "", "the program dies: %d %s" % (run.returncode, run.stderr[-300:]))
    return Found(int(broken.group(1)), broken.group(2), None)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build")
    parser.add_argument("--objects", default="build/tests/sim/objects.txt",
                        help="a file with the objects that shift-sim is linked from")
    parser.add_argument("--out", default="build/out/sim-mutations")
    parser.add_argument("--count", type=int, help="run so many schedules for each bug")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--few", type=int, default=0, help="so many of them, drawn by "
                        "SHIFT_TEST_SEED, unless SHIFT_SIM_MUTATIONS=all")
    parser.add_argument("name", nargs="*")
    options = parser.parse_args()
    options.build = os.path.abspath(options.build)
    options.out = os.path.abspath(options.out)
    with open(options.objects, encoding="utf-8") as file:
        objects = file.read().split()
    commands = compile_commands(options.build)
    bugs = bugs_read(options.name)
    if broken := stale(bugs, options.out):
        print("\n".join("%s %s" % one for one in broken.items()))
        return 1
    if options.few and os.environ.get("SHIFT_SIM_MUTATIONS") != "all":
        seed = int(os.environ.get("SHIFT_TEST_SEED") or random.randrange(1 << 30))
        print("drawn by SHIFT_TEST_SEED=%d" % seed)
        bugs = random.Random(seed).sample(bugs, min(options.few, len(bugs)))
    begin, missed = time.monotonic(), []
    print("%-26s %8s %8s  %s" % ("bug", "caught", "within", "rule"))
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for bug, found in zip(bugs, pool.map(
                lambda bug: look(bug, options, commands, objects), bugs)):
            if not found.rule:
                missed.append(bug.name)
            verdict = found.problem or found.rule or "MISSED"
            print("%-26s %8d %8d  %s" % (bug.name, found.schedules, bug.within, verdict), flush=True)
    print("%d planted bugs, %.0f s: %s" % (len(bugs), time.monotonic() - begin,
                                          "NOT caught: " + ", ".join(missed) if missed
                                          else "all caught"))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
