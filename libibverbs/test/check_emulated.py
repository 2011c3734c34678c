#!/usr/bin/env python3
"""Unmodified programs on emulated NICs print the same through shift-run as without it."""
import argparse
import os
import shutil
import subprocess
import sys

from harness.build import EMULATOR, words as words_of
from harness.ports import free_port

PYVERBS = """
import pyverbs.device as d
from pyverbs.pd import PD
from pyverbs.cq import CQ
c = d.Context(name="mlx5_0")
print(sorted(x.name for x in d.get_device_list()), c.query_port(1), c.query_device())
print([str(c.query_gid_type(1, i)) for i in range(4)], c.query_gid(1, 3))
with PD(c), CQ(c, 10):
    pass
"""
PROGRAMS = [["ibv_devices"], ["ibv_devinfo"], ["ibv_devinfo", "-v"],
            ["/usr/bin/python3", "-c", PYVERBS]]


class Emulated:
    def __init__(self, cxemu, shift_run, fabric):
        self.fabric = fabric
        self.cxemu = words_of([cxemu, "exec", "--fabric", fabric])
        self.shift_run = words_of([shift_run, "--"])

    def command(self, host, words, with_layer):
        return [*self.cxemu, "--host", host, "--", *(self.shift_run if with_layer else []), *words_of(words)]

    def run(self, host, words, with_layer, **variables):
        return subprocess.run(self.command(host, words, with_layer), capture_output=True, text=True,
                              timeout=60, env=os.environ | variables)


def same_output(emulated, words):
    if shutil.which(words[0]) is None or (
            "python" in words[0] and (EMULATOR or emulated.run(
                "a", [words[0], "-c", "import pyverbs"], False).returncode)):
        print("not installed, left out:", words[0])
        return True
    stock = emulated.run("a", words, False)
    layered = emulated.run("a", words, True)
    same = (stock.returncode, stock.stdout) == (layered.returncode, layered.stdout)
    same = same and stock.returncode == 0 and "mlx5_1" in stock.stdout
    print("ok:" if same else "FAIL:", " ".join(words[:2]))
    if not same:
        print(f"stock: {stock}\nlayer: {layered}")
    return same


def pairs_are_told(emulated):
    """A name that no device has is reported in one line; SHIFT_LOG=info lists the groups."""
    bad = emulated.run("a", ["ibv_devices"], True, SHIFT_PAIRS="mlx5_0=mlx5_9").stderr.splitlines()
    good = emulated.run("a", ["ibv_devices"], True, SHIFT_LOG="info").stderr.splitlines()
    fits = (len(bad) == 1 and '"mlx5_9"' in bad[0] and "mlx5_0, mlx5_1" in bad[0] and
            sum("mlx5_0 is backed by mlx5_1" in line for line in good) == 1)
    print("ok:" if fits else "FAIL:", "what is said of SHIFT_PAIRS")
    if not fits:
        print(bad, good)
    return fits


def pingpong(emulated, *options):
    """Both ends through the layer, every byte checked by the program itself (-c)."""
    port = free_port()
    words = ["ibv_rc_pingpong", "-d", "mlx5_0", "-g", "3", "-c", "-n", "200", "-p", str(port),
             *options]
    if shutil.which(words[0]) is None:
        print("not installed, left out:", words[0])
        return True
    server = subprocess.Popen(emulated.command("a", words, True), stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True)
    # Nothing shows from outside whether the server listens yet. A client that comes too early is
    # refused and tries again, for as long as the server lives.
    while True:
        client = emulated.run("b", [*words, "127.0.0.1"], True)
        if "Couldn't connect" not in client.stderr or server.poll() is not None:
            break
    if client.returncode != 0:
        server.kill()
    out, err = server.communicate(timeout=60)
    good = client.returncode == 0 and server.returncode == 0 and "200 iters" in client.stdout
    print("ok:" if good else "FAIL:", "ibv_rc_pingpong", *options)
    if not good:
        print(f"client: {client}\nserver: {server.returncode}\n{out}\n{err}")
    return good


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--cxemu", required=True)
    parser.add_argument("--shift-run", required=True)
    parser.add_argument("--test", required=True, help="the GoogleTest program for emulated NICs")
    parser.add_argument("--newer-stock", nargs=2, metavar=("FRONT_DIR", "TEST"), required=True,
                        help="a front before a newer stock library, and its GoogleTest program")
    args = parser.parse_args()
    emulated = Emulated(args.cxemu, args.shift_run, f"front-{os.getpid()}")
    try:
        good = all([same_output(emulated, words) for words in PROGRAMS])
        good &= pairs_are_told(emulated)
        good &= all([pingpong(emulated), pingpong(emulated, "-e")])
        front_dir, test = args.newer_stock
        for words in [[args.test], ["env", "LD_LIBRARY_PATH=" + front_dir, *words_of([test])]]:
            unit = emulated.run("a", words, True)
            print(unit.stdout, unit.stderr)
            good &= unit.returncode == 0
    finally:
        subprocess.run(words_of([args.cxemu, "clean", "--fabric", emulated.fabric]), check=True)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
