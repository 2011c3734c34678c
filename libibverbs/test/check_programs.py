#!/usr/bin/env python3
"""Runs real programs with the front and with the stock library alone: output and status must be equal.

Programs that are not installed are named and left out; ibv_devices must be installed.
"""
import argparse
import os
import shutil
import subprocess
import sys

PROGRAMS = [
    ["ibv_devices"],
    ["ibv_devinfo", "-l"],
    ["ib_write_bw", "--version"],
    ["ucx_info", "-v"],
    ["/usr/bin/python3", "-c",
     "import pyverbs.device as d; print(sorted(x.name for x in d.get_device_list()))"],
]


def run(command, front_dir, **variables):
    env = dict(os.environ, LD_BIND_NOW="1", **variables)
    env.pop("LD_LIBRARY_PATH", None)
    if front_dir:
        env["LD_LIBRARY_PATH"] = front_dir
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)


def installed(command):
    if shutil.which(command[0]) is None:
        return False
    return "pyverbs" not in command[-1] or run(command[:2] + ["import pyverbs"], "").returncode == 0


def loaded_libibverbs(command, front_dir):
    """Paths of the libibverbs objects that the dynamic linker maps, in search order."""
    out = run(command, front_dir, LD_TRACE_LOADED_OBJECTS="1").stdout
    return [os.path.realpath(line.split("=>")[-1].split("(")[0].strip())
            for line in out.splitlines() if "libibverbs.so.1" in line]


def check(command, front_dir, stock):
    with_stock = run(command, "")
    with_front = run(command, front_dir)
    failures = []
    if (with_stock.returncode, with_stock.stdout) != (with_front.returncode, with_front.stdout):
        failures.append(f"stock: {with_stock}\n  front: {with_front}")
    # Where the front only passes calls through, it must not print anything either.
    if with_stock.stderr != with_front.stderr:
        failures.append(f"stderr differs: {with_stock.stderr!r} / {with_front.stderr!r}")
    missing = run(["ldd", "-r", shutil.which(command[0])], front_dir)
    if "undefined symbol" in missing.stdout + missing.stderr or "not found" in missing.stdout:
        failures.append(f"ldd -r: {missing.stdout}{missing.stderr}")
    objects = loaded_libibverbs(command, front_dir)
    front = os.path.realpath(os.path.join(front_dir, "libibverbs.so.1"))
    if objects and objects != [front, os.path.realpath(stock)]:
        failures.append(f"wrong libraries: {objects}")
    return failures


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--front-dir", required=True)
    parser.add_argument("--stock", required=True)
    args = parser.parse_args()
    failed = False
    for command in PROGRAMS:
        if not installed(command):
            print(f"not installed, left out: {command[-1] if 'python' in command[0] else command[0]}")
            failed |= command[0] == "ibv_devices"
            continue
        failures = check(command, args.front_dir, args.stock)
        print(f"{'FAIL' if failures else 'ok'}: {' '.join(command)}")
        for failure in failures:
            print(" ", failure)
        failed |= bool(failures)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
