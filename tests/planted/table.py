#!/usr/bin/python3
"""Writes the table of planted bugs in docs/planted.md from the tests themselves. With --check, as a test calls
it, the program only checks that the table is up to date."""

import argparse
import glob
import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.normpath(os.path.join(HERE, "..", ".."))
# The folders (from providers/shift) whose unit tests switch bugs on, and what these are about.
UNIT = [("group", "exact"), ("group", "leaving"), ("group", "receives"),
        ("group", "keys"), ("group", "notes"), ("group", "ending"),
        ("control", "verdict"), ("control", "asking"), ("control", "neighbour"), ("control", "locate"),
        ("control", "spread"), ("state", "turns"), ("net", "book"), ("ops", "begin"),
        ("ops", "channel"), ("ops", "count"), ("ops", "poll"), ("ops", "end"), ("../mlx5/test", "rings")]
BEGIN, END = "<!-- table.py: begin -->\n", "<!-- table.py: end -->\n"


def heads(folder):
    """The heads of the sed scripts in a folder, by name."""
    found = {}
    for path in sorted(glob.glob(os.path.join(ROOT, folder, "*.sed"))):
        with open(path, encoding="utf-8") as file:
            found[os.path.basename(path)[:-4]] = dict(re.findall(r"^# (\w+): (.*)$", file.read(),
                                                                 re.M))
    return found


def hooks():
    """The names in SHIFT_PLANT() that tests with real processes switch on, and those of unit tests."""
    campaign = []
    for script in ("tests/planted/planted.py", "tests/e2e/attack.py", "tests/rdma-core/run.py"):
        with open(os.path.join(ROOT, script), encoding="utf-8") as file:
            campaign += re.findall(r'^    "(\w+)": \(', file.read(), re.M)
    return set(campaign), {bug for area in UNIT for bug in unit_hooks(*area)}


def unit_hooks(folder, area):
    """The names that the unit tests of a folder of providers/shift switch on for an area."""
    with open(os.path.join(ROOT, "providers/shift", folder, "CMakeLists.txt"), encoding="utf-8") as file:
        return re.search(r"set\(%s_bugs ([^)]*)\)" % area, file.read()).group(1).split()


def table():
    model, simulation = heads("model/mutations"), heads("tests/sim/mutations")
    campaign, unit = hooks()
    left = {"model": set(model), "campaign": set(campaign), "unit": set(unit)}
    rows = []
    for name, head in simulation.items():
        same = {}
        for where, names in (("model", model), ("campaign", campaign), ("unit", unit)):
            same[where] = head.get(where)
            if same[where] is None:
                continue
            if same[where] not in names:
                sys.exit("%s: %s has no bug %s" % (name, where, same[where]))
            left[where].discard(same[where])
        rows.append((head["bug"], "`%s`: %s" % (name, head["shows"]), *[
            "`%s`" % same[where] if same[where] else "" for where in ("model", "campaign", "unit")]))
    rows += [(model[name]["bug"], "", "`%s`" % name, "", "") for name in left["model"]]
    rows += [("%s: %s" % (area, name.replace("_", " ")), "", "", "`%s`" % name if name in campaign else "",
              "`%s`" % name)
             for folder, area in UNIT for name in unit_hooks(folder, area) if name in left["unit"]]
    rows += [(name.replace("_", " "), "", "", "`%s`" % name, "") for name in left["campaign"] - left["unit"]]
    lines = ["%d bugs: %d in the simulation, %d in the model, %d with real processes, %d in unit "
             "tests.\n" % (len(rows), len(simulation), len(model), len(campaign), len(unit)), "",
             "| planted bug | simulation: rule | model | real processes | unit |",
             "| --- | --- | --- | --- | --- |"]
    lines += ["| %s |" % " | ".join(row) for row in sorted(rows)]
    return "\n".join(lines).replace("\n\n\n", "\n\n") + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--file", default=os.path.join(ROOT, "docs", "planted.md"))
    options = parser.parse_args()
    with open(options.file, encoding="utf-8") as file:
        old = file.read()
    before, rest = old.split(BEGIN)
    new = before + BEGIN + table() + END + rest.split(END)[1]
    if new == old:
        return 0
    if options.check:
        print("docs/planted.md is out of date: run tests/planted/table.py")
        return 1
    with open(options.file, "w", encoding="utf-8") as file:
        file.write(new)
    return 0


if __name__ == "__main__":
    sys.exit(main())
