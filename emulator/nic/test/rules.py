#!/usr/bin/python3
"""Checks the table of rules in RULES.md: each planted bug must make a test of its row fail.

The program under test is built with CXEMU_PLANTED_BUGS; CXEMU_PLANT names the bug to switch on.
"""

import argparse
import concurrent.futures
import fnmatch
import os
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCES = os.path.dirname(HERE)
FAILED_TESTS = 1  # exit code of GoogleTest
TIMEOUT_S = 60


class Row:
    """One rule, its tests, and the bug that they must catch."""

    def __init__(self, cells):
        self.rule, self.clause = cells[0], cells[1]
        self.tests = [name.strip() for name in cells[2].split(",")]
        self.bug, *ways = cells[3].split()
        self.ways = {way.strip("()") for way in ways}


def rows_read():
    rows = []
    with open(os.path.join(HERE, "RULES.md"), encoding="utf-8") as table:
        for line in table:
            cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
            if line.startswith("|") and len(cells) == 4 and cells[0] not in ("rule", "---"):
                rows.append(Row(cells))
    return rows


def hooks_read():
    hooks = []
    for name in sorted(os.listdir(SOURCES)):
        if not name.endswith(".cc"):
            continue
        with open(os.path.join(SOURCES, name), encoding="utf-8") as source:
            hooks += re.findall(r"CXEMU_PLANT\((\w+)\)", source.read())
    return set(hooks)


def run(program, tests, bug):
    """Returns the exit code and the output; the exit code of a run that hung is None."""
    environment = dict(os.environ, CXEMU_PLANT=bug)
    try:
        result = subprocess.run(
            [program, "--gtest_filter=" + ":".join(tests), "--gtest_brief=1"], env=environment,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired as expired:
        return None, (expired.stdout or b"").decode(errors="replace")
    return result.returncode, result.stdout.decode(errors="replace")


def tests_list(program):
    result = subprocess.run([program, "--gtest_list_tests"], stdout=subprocess.PIPE, check=True)
    names, suite = [], ""
    for line in result.stdout.decode().splitlines():
        line = line.split("#")[0].rstrip()
        if line.startswith("  "):
            names.append(suite + line.strip())
        else:
            suite = line
    return names


def table_check(rows, program):
    """Returns what is wrong with the table itself."""
    wrong = []
    bugs = [row.bug for row in rows]
    hooks = hooks_read()
    pairs = [(row.bug, *row.tests) for row in rows]
    wrong += ["%s: twice with the same tests" % pair[0] for pair in set(pairs)
              if pairs.count(pair) > 1]
    wrong += ["%s: no such hook in the sources" % bug for bug in set(bugs) - hooks]
    wrong += ["%s: no row in RULES.md" % bug for bug in hooks - set(bugs)]
    known = tests_list(program)
    for row in rows:
        wrong += ["%s: no such test: %s" % (row.bug, test) for test in row.tests
                  if not fnmatch.filter(known, test)]
    return wrong


def bug_check(program, row):
    """Returns None if the bug is caught as its row says, else what happened."""
    code, output = run(program, row.tests, row.bug)
    if code == FAILED_TESTS and "[  FAILED  ]" in output:
        return None
    if code is None:
        return None if "hang" in row.ways else "hangs"
    if code != 0 and "crash" in row.ways:
        return None
    return "NOT caught" if code == 0 else "exit code %d\n%s" % (code, output[-2000:])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--test", required=True, help="the test program with planted bugs")
    parser.add_argument("--only", help="check this bug alone")
    options = parser.parse_args()
    rows = rows_read()
    wrong = table_check(rows, options.test)
    if options.only:
        rows = [row for row in rows if row.bug == options.only]
    code, output = run(options.test, sorted({test for row in rows for test in row.tests}), "none")
    if code != 0:
        wrong.append("without any bug: %s\n%s" % (code, output[-4000:]))
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        results = pool.map(lambda row: bug_check(options.test, row), rows)
        wrong += ["%s: %s" % (row.bug, result) for row, result in zip(rows, results) if result]
    print("%d rules, %s" % (len(rows), "all bugs caught" if not wrong else "WRONG:"))
    print("\n".join(sorted(wrong)))
    return 1 if wrong or not rows else 0


if __name__ == "__main__":
    sys.exit(main())
