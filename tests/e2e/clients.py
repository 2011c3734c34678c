#!/usr/bin/python3
"""Unmodified programs of the distribution under faults: each must finish with its full count.

perftest and the pingpong are run as they come from the package, once per fault; the contrast runs
show the same programs dying on the stock stack.
"""

import argparse
import collections
import os
import random
import re
import shutil
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cells import FAULTS  # noqa: E402
from emulated import Build, Fabric, free_port, is_listening, wait_until  # noqa: E402

# count: how often the unit of work is done; packets: about how many packets that is at least;
# make: the same client with another count.
Client = collections.namedtuple("Client", "name argv count packets pattern make")

MISSED = "the traffic ended before the fault"


def perftest(name, tool, count, size, *more):
    argv = [tool, "-d", "mlx5_0", "-x", "3", "-F", "-n", str(count), "-s", str(size)] + list(more)
    return Client(name, argv + ["-p"], count, count * max(1, size // 4096),
                  r"^ *%d +%d +[0-9.]" % (size, count),
                  lambda other: perftest(name, tool, other, size, *more))


def pingpong(name, count, *more):
    argv = ["ibv_rc_pingpong", "-d", "mlx5_0", "-g", "3", "-n", str(count)] + list(more)
    return Client(name, argv + ["-p"], count, 2 * count, r"^%d iters in " % count,
                  lambda other: pingpong(name, other, *more))


CLIENTS = [
    perftest("ib_write_bw", "ib_write_bw", 40000, 65536),
    perftest("ib_send_bw", "ib_send_bw", 30000, 65536),
    perftest("ib_read_bw", "ib_read_bw", 40000, 32768),
    pingpong("ibv_rc_pingpong -c", 6000, "-c"),
    pingpong("ibv_rc_pingpong -c -e", 4000, "-c", "-e"),
]
MORE_CLIENTS = [
    perftest("ib_write_bw -q 4", "ib_write_bw", 20000, 65536, "-q", "4"),
    perftest("ib_write_bw small", "ib_write_bw", 200000, 64),
    perftest("ib_send_bw -e", "ib_send_bw", 20000, 65536, "-e"),
    perftest("ib_write_lat", "ib_write_lat", 6000, 64),
    pingpong("ibv_rc_pingpong -N", 6000, "-c", "-N"),
]


# Not protected: they work as on the stock library (C10).
OTHER_TYPES = [
    perftest("ib_send_bw UD", "ib_send_bw", 2000, 1024, "-c", "UD"),
    perftest("ib_send_bw UD, SRQ", "ib_send_bw", 2000, 1024, "-c", "UD", "--use-srq"),
    perftest("ib_write_bw UC", "ib_write_bw", 2000, 1024, "-c", "UC"),
]


class Outcome:
    def __init__(self, client, fault, nic):
        self.client, self.fault, self.nic = client, fault, nic
        self.problem = ""
        self.codes = (None, None)
        self.switch_ms = 0.0
        self.seconds = 0.0


def sent(fabric):
    return fabric.sent_packets("a/mlx5_0") + fabric.sent_packets("b/mlx5_0")


def run_client(build, client, fault, nic, share, directory, shift=True):
    """Runs a pair, breaks `nic` once `share` of the packets are sent ('' = no fault).

    A program that ended before the fault proves nothing: it runs again with more to do. How long a
    count lasts depends on the machine.
    """
    for _ in range(4):
        outcome = run_once(build, client, fault, nic, share, directory, shift)
        if outcome.problem != MISSED:
            break
        client = client.make(3 * client.count)
    return outcome


def run_once(build, client, fault, nic, share, directory, shift):
    os.makedirs(directory, exist_ok=True)
    outcome = Outcome(client, fault, nic)
    begun = time.monotonic()
    with Fabric(build, directory) as fabric:
        port = free_port()
        server = fabric.start("b", "server", client.argv + [str(port)], shift)
        if not wait_until(lambda: is_listening(port) or server.ended, 15) or server.ended:
            outcome.problem = "the server does not listen"
            return outcome
        active = fabric.start("a", "client", client.argv + [str(port), "127.0.0.1"], shift)
        # perftest takes a second to get going: count packets from where the traffic begins.
        reached = wait_until(lambda: sent(fabric) > client.packets * share or active.ended, 30)
        if fault and (not reached or active.ended):
            outcome.problem = MISSED
        elif fault:
            fabric.fault(nic, fault)
        # On the stock stack the side that only receives waits for ever.
        outcome.codes = (active.finish(40), server.finish(15 if shift else 0.5))
        switched = fabric.events("client", "switched") + fabric.events("server", "switched")
        if not outcome.problem:
            outcome.problem = judge(client, fault, shift, outcome.codes, active, server, switched)
        micros = [int(re.search(r'"us":(\d+)', line).group(1)) for line in switched]
        outcome.switch_ms = max(micros, default=0) / 1000
    outcome.seconds = time.monotonic() - begun
    return outcome


def judge(client, fault, shift, codes, active, server, switched):
    counted = [bool(re.search(client.pattern, p.text(), re.M)) for p in (active, server)]
    if not shift and fault:
        # perftest and the pingpong exit 1; a server that hangs was killed by us (None).
        # Complete under a dead NIC it cannot be: the last packets were out before the fault.
        return MISSED if codes[0] == 0 and counted[0] else ""
    if codes != (0, 0):
        return "exit codes client %s server %s" % codes
    # Of some perftest tools only the client prints a result.
    if not counted[0] or (client.argv[0] == "ibv_rc_pingpong" and not counted[1]):
        return "the count is not complete"
    if "invalid data" in active.text() + server.text():
        return "invalid data"
    if fault and not switched:
        return MISSED
    return ""


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", default="build")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--all", action="store_true", help="more programs, both sides")
    parser.add_argument("--client", help="only programs whose name contains this")
    parser.add_argument("--fault", action="append", help="only these faults")
    parser.add_argument("--out", default="out/clients")
    return parser.parse_args()


def runs_of(options):
    dice = random.Random(options.seed)
    for client in CLIENTS + (MORE_CLIENTS if options.all else []):
        if options.client and options.client not in client.name:
            continue
        for number, fault in enumerate(options.fault or FAULTS):
            sides = "ab" if options.all else "ab"[number % 2]
            for side in sides:
                yield client, fault, side + "/mlx5_0", dice.uniform(0.05, 0.4), True
    if options.client or options.fault:
        return
    for client in (CLIENTS[0], CLIENTS[3]):
        yield client, "link-down", "a/mlx5_0", 0.1, False
    for client in OTHER_TYPES:
        yield client, "", "-", 0.1, True


def main():
    options = parse()
    build = Build(options.build)
    if build.missing():
        print("not built: %s" % ", ".join(build.missing()))
        return 4
    failed = total = 0
    print("%-24s %-10s %-9s %-6s result" % ("program", "fault", "NIC", "layer"))
    for client, fault, nic, share, shift in runs_of(options):
        total += 1
        directory = os.path.join(options.out, str(total))
        shutil.rmtree(directory, ignore_errors=True)
        outcome = run_client(build, client, fault, nic, share, directory, shift)
        if outcome.problem:
            failed += 1
            result = "FAILED: %s; logs: %s" % (outcome.problem, directory)
        elif shift and not fault:
            result = "complete, as on the stock library"
            shutil.rmtree(directory, ignore_errors=True)
        elif shift:
            result = "complete, switched in %.1f ms" % outcome.switch_ms
            shutil.rmtree(directory, ignore_errors=True)
        else:
            result = "dies, as expected (client exit %s)" % outcome.codes[0]
            shutil.rmtree(directory, ignore_errors=True)
        print("%-24s %-10s %-9s %-6s %s" % (client.name, fault, nic, "shift" if shift else "stock",
                                            result), flush=True)
    print("%d runs, %d failed" % (total, failed))
    return 1 if failed or not total else 0


if __name__ == "__main__":
    sys.exit(main())
