#!/usr/bin/env python3
"""Runs a test program on an emulated NIC, with the stock libraries."""
import argparse
import os
import subprocess
import sys

from harness.build import words as words_of


def main():
    parser = argparse.ArgumentParser()
    for name in ("cxemu", "test"):
        parser.add_argument("--" + name, required=True)
    args = parser.parse_args()
    fabric = f"rings-{os.getpid()}"
    try:
        code = subprocess.run(
            [*words_of([args.cxemu, "exec", "--fabric", fabric, "--host", "a", "--"]),
             *words_of([args.test])], timeout=100).returncode
    finally:
        subprocess.run(words_of([args.cxemu, "clean", "--fabric", fabric]), check=True)
    sys.exit(0 if code == 0 else 1)


if __name__ == "__main__":
    main()
