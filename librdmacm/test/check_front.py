#!/usr/bin/env python3
"""Checks what the front of librdmacm exports, and that all else is found in the stock library."""
import argparse
import ctypes
import os
import subprocess
import sys


FRONT = ("rdma_get_cm_event", "rdma_ack_cm_event", "rdma_destroy_id", "rdma_destroy_ep",
         "rdma_disconnect", "rdma_migrate_id")


def exported(nm, library):
    out = subprocess.run([nm, "-D", "--defined-only", "--with-symbol-versions", library],
                         capture_output=True, text=True, check=True).stdout
    fields = [line.split() for line in out.splitlines()]
    return ({field[2] for field in fields if field[1] != "A"},
            {field[2] for field in fields if field[1] == "A"})


def main():
    parser = argparse.ArgumentParser()
    for name in ("nm", "front", "stock"):
        parser.add_argument("--" + name, required=True)
    args = parser.parse_args()
    front, front_nodes = exported(args.nm, args.front)
    stock, stock_nodes = exported(args.nm, args.stock)
    problems = []
    if front != {name + "@@RDMACM_1.0" for name in FRONT}:
        problems.append("exported: %s" % sorted(front))
    if stock_nodes - front_nodes:
        problems.append("version nodes missing: %s" % sorted(stock_nodes - front_nodes))
    # The front is searched first, as in a program.
    handle = ctypes.CDLL(args.front)
    for symbol in sorted(stock):
        name = symbol.partition("@")[0]
        if not hasattr(handle, name):
            problems.append("not found behind the front: " + name)
    with open("/proc/self/maps") as maps:
        loaded = {os.path.realpath(line.split()[-1]) for line in maps if "librdmacm" in line}
    if loaded != {os.path.realpath(args.front), os.path.realpath(args.stock)}:
        problems.append("loaded: %s" % sorted(loaded))
    print("\n".join(problems))
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
