#!/usr/bin/env python3
"""Direct verbs through shift-run on emulated NICs: calls in each mode, and how UCX reacts."""
import argparse
import os
import re
import shutil
import subprocess
import sys

from harness.build import EMULATOR, words as words_of

UNPROTECTED = "SHIFT_DIRECT_VERBS=unprotected"


class Emulated:
    def __init__(self, args):
        self.fabric = f"direct-{os.getpid()}"
        self.cxemu = args.cxemu
        self.shift_run = args.shift_run

    def run(self, words, variable=""):
        return subprocess.run(
            [*words_of([self.cxemu, "exec", "--fabric", self.fabric, "--host", "a", "--"]),
             "env", variable or "A=", *words_of([self.shift_run, "--"]), *words_of(words)],
            capture_output=True, text=True, timeout=100)


def calls(emulated, test):
    good = True
    for mode in ("refuse", "answer", "unprotected"):
        result = emulated.run([test], "SHIFT_DIRECT_VERBS=" + mode)
        print("ok:" if result.returncode == 0 else "FAIL:", "calls,", mode)
        if result.returncode != 0:
            print(result.stdout, result.stderr)
        good &= result.returncode == 0
    return good


def ucx(emulated):
    """UCX falls back by itself, or uses direct verbs by explicit choice; one line reports which."""
    if EMULATOR or shutil.which("ucx_info") is None:
        print("not installed, left out: ucx_info")
        return True
    good = True
    for variable, offered in (("", False), (UNPROTECTED, True)):
        result = emulated.run(["ucx_info", "-d"], variable)
        found = set(re.findall(r"Transport: (\S+)", result.stdout))
        said = [line for line in result.stderr.splitlines() if "direct verbs" in line]
        fits = (result.returncode == 0 and "rc_verbs" in found and
                ("rc_mlx5" in found) == offered and len(said) == 1 and
                "UCX  ERROR" not in result.stdout + result.stderr)
        print("ok:" if fits else "FAIL:", "ucx_info", variable)
        if not fits:
            print(sorted(found), result.returncode, result.stderr)
        good &= fits
    return good


def main():
    parser = argparse.ArgumentParser()
    for name in ("cxemu", "shift-run", "test"):
        parser.add_argument("--" + name, required=True)
    args = parser.parse_args()
    emulated = Emulated(args)
    try:
        good = calls(emulated, args.test)
        good &= ucx(emulated)
    finally:
        subprocess.run(words_of([args.cxemu, "clean", "--fabric", emulated.fabric]), check=True)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
