#!/usr/bin/python3
"""Writes into docs/verify.md what shift-verify prints: on emulated NICs, where it is run now, and on soft-RoCE,
from the logs of `tests/vm/vm.py --only shift-verify`; and the table of checks, with what makes each of them fail.

    tools/verify/page.py --build build --vm-logs build/out/vm
"""

import argparse
import glob
import os
import re
import subprocess
import sys
import tempfile
import textwrap

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tools", "verify", "test"))

import verify_test  # noqa: E402, after its folder is known

PAGE = os.path.join(ROOT, "docs", "verify.md")
COLUMNS, TEXT_COLUMN = 111, 47
BLOCK = re.compile(r"(<!-- (\S+) -->\n).*?(<!-- end -->\n)", re.S)


def shown(text):
    """Breaks long lines, as an indented block."""
    lines = []
    for line in text.strip().split("\n"):
        lines += textwrap.wrap(line, COLUMNS - 4, subsequent_indent=" " * TEXT_COLUMN, break_long_words=False,
                               break_on_hyphens=False, drop_whitespace=True, replace_whitespace=False)
    return "".join("    %s\n" % line for line in lines)


def emulated(options, *arguments, **how):
    with tempfile.TemporaryDirectory() as folder, verify_test.Host(options, folder) as host:
        return shown("$ shift-verify %s\n" % " ".join(arguments) + host.run(*arguments, **how)[1])


def logged(options, name):
    found = glob.glob(os.path.join(options.vm_logs, "*", "a-%s.log" % name))
    if not found:
        raise SystemExit("there is no log of %s: run tests/vm/vm.py --build build --only shift-verify" % name)
    with open(max(found, key=os.path.getmtime)) as file:
        return shown(re.sub(r"^\$ \S*/", "$ ", file.read()))


def table(options):
    rows = ["| check | topic | what the layer takes for granted | in the tests it fails with |\n",
            "| --- | --- | --- | --- |\n"]
    program = os.path.join(options.build, "bin", "shift-verify")
    listed = subprocess.run([program, "--list"], check=True, capture_output=True, text=True).stdout
    for line in re.sub(r"\n +", " ", listed).strip().split("\n"):
        name, topic, assumes = line.split(None, 2)
        rows.append("| `%s` | %s | %s | %s |\n" % (name, topic.rstrip(":"), assumes, verify_test.WORDS[name]))
    return "".join(rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build")
    parser.add_argument("--vm-logs", default="build/out/vm")
    options = parser.parse_args()
    options.build = os.path.abspath(options.build)
    blocks = {
        "checks": lambda: table(options),
        "cxemu": lambda: emulated(options),
        "cxemu-wrong": lambda: emulated(options, "--only", "fence", lie="unsignaled-unflushed"),
        "soft-roce": lambda: logged(options, "verify-one-host"),
        "soft-roce-two-hosts": lambda: logged(options, "verify-two-hosts"),
        "soft-roce-wrong": lambda: logged(options, "verify-lie"),
    }
    with open(PAGE) as file:
        page = file.read()
    page = BLOCK.sub(lambda found: found[1] + "\n" + blocks[found[2]]() + "\n" + found[3], page)
    with open(PAGE, "w") as file:
        file.write(page)


if __name__ == "__main__":
    main()
