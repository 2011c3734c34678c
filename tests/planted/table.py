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
    return set(campaign), {bug for bugs in unit_hooks().values() for bug in bugs}


def unit_hooks():
    """What the bugs are about that unit tests switch on, each with the names of these bugs."""
    found = {}
    for path in glob.glob(os.path.join(ROOT, "providers", "**", "CMakeLists.txt"), recursive=True):
        with open(path, encoding="utf-8") as file:
            found |= {area: names.split() for area, names in re.findall(r"set\((\w+)_bugs ([^)]*)\)", file.read())}
    return found


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
             for area, names in unit_hooks().items() for name in names if name in left["unit"]]
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
