#!/usr/bin/python3
"""Programs between two machines with the distribution's kernel and its soft-RoCE driver.

Without options a short set: on the bare devices, with the layer, and through every fault and back.
Exit code 77, with the reason, where no test machine can be had.
"""

import argparse
import contextlib
import os
import sys
import time
import traceback

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import image  # noqa: E402
from clients import Session, perftest, pingpong, traffic  # noqa: E402
from pair import HEALS, Pair  # noqa: E402

FAULTS = ["link-down", "drop-data", "drop-acks", "carrier-off", "address-off", "unbind"]
# A process that saw a NIC's driver go does not come back to that NIC.
LASTING = {"unbind"}
SHORT_CLIENT = pingpong(300, "-c", "-e")
CLIENTS = [pingpong(3000, "-c", "-e"), perftest("ib_write_bw", 4000, 65536),
           perftest("ib_send_bw", 3000, 65536, "-e"), perftest("ib_read_bw", 6000, 32768, "-e")]
MISSED = "the traffic ended before the fault"


def healthy(pair, shift):
    """A program to its end, nothing broken."""
    session = Session(pair, SHORT_CLIENT, shift)
    problem = session.finish()
    if not problem and shift is True and session.count("armed") == 0:
        problem = "no second path was ready"
    return problem


def dies_on_stock(pair):
    """The contrast: a fault that ends a program without the layer, or leaves it waiting for ever."""
    session = Session(pair, CLIENTS[0], False)
    sent = pair.counter("a", "rail0")
    pair.until(lambda: pair.counter("a", "rail0") > sent + 100000 or session.ended(), 60)
    pair.fault("a", "rail0", "carrier-off")
    code = session.programs["a"].finish(10)
    session.programs["b"].finish(1)
    pair.fault("a", "rail0", "carrier-on")
    return "the client survives" if code == 0 else ""


def survives(pair, client, host, fault):
    """A program of the distribution, a fault in the middle of it."""
    session = Session(pair, client)
    if not session.wait_count("armed", 1):
        return "no second path: %s" % (session.finish(1) or MISSED)
    sent = pair.counter("a", "rail0") + pair.counter("b", "rail0")
    pair.until(lambda: pair.counter("a", "rail0") + pair.counter("b", "rail0") > sent + 100000 or
               session.ended(), 60)
    pair.fault(host, "rail0", fault)
    moved = session.wait_count("switched", 1)
    # Before the program ends: the kernel must not find packets of a QP that is gone (README).
    if fault not in LASTING:
        pair.fault(host, "rail0", HEALS[fault])
    problem = session.finish()
    if fault in LASTING:
        pair.fault(host, "rail0", HEALS[fault])
    return problem or ("" if moved else MISSED)


def journey(pair, client, steps, env=None):
    """Our checker through all these faults, one after the other, and back each time. What it sends is
    judged byte by byte, and so is that it sees nothing of the faults."""
    session = Session(pair, client, True, env)
    moves = 0
    if not session.wait_count("armed", 1):
        return "no second path: %s" % session.finish(10)
    for host, fault in steps:
        begun = time.monotonic()
        pair.fault(host, "rail0", fault)
        moves += 1
        if not session.wait_count("switched", moves):
            return "%s on %s: not switched: %s" % (fault, host, session.finish(10))
        print("    %-12s on %s: away after %.1f s" % (fault, host, time.monotonic() - begun), end="")
        if fault in LASTING:
            print(flush=True)
            problem = session.finish()
            pair.fault(host, "rail0", HEALS[fault])
            return problem
        pair.fault(host, "rail0", HEALS[fault])
        moves += 1
        if not session.wait_count("switched", moves):
            return "%s on %s: not back: %s" % (fault, host, session.finish(10))
        print(", back after %.1f s" % (time.monotonic() - begun), flush=True)
    return session.finish()


def short_set():
    there_and_back = [(host, fault) for fault in FAULTS if fault not in LASTING for host in "ab"]
    yield "stock, healthy", lambda pair: healthy(pair, False)
    yield "layer, healthy", lambda pair: healthy(pair, True)
    yield "layer on a only, healthy", lambda pair: healthy(pair, "a")
    yield "stock, carrier-off on a: dies", dies_on_stock
    yield "mixed traffic there and back", lambda pair: journey(
        pair, traffic("mixed", "--bidirectional"), there_and_back)
    # Only a NIC that tells its responder's packet number can pass: none of the requests runs twice.
    yield "mixed traffic in the mode exact", lambda pair: journey(
        pair, traffic("mixed", "--bidirectional"),
        [("a", "link-down"), ("b", "drop-acks"), ("b", "carrier-off"), ("a", "drop-data")],
        {"SHIFT_MODE": "exact"})


def whole_set():
    yield "mixed traffic, unbind on b", lambda pair: journey(
        pair, traffic("mixed", "--bidirectional"), [("b", "unbind")])
    for client in CLIENTS:
        for fault in FAULTS:
            # One-way programs send no acknowledgements to their server.
            for host in "ab" if client is CLIENTS[0] or fault != "drop-acks" else "a":
                yield ("%s, %s on %s" % (client.name, fault, host),
                       lambda pair, c=client, h=host, f=fault: survives(pair, c, h, f))


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", default="build")
    parser.add_argument("--out", help="logs; below the build otherwise")
    parser.add_argument("--all", action="store_true", help="each program through each fault")
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--if-asked", action="store_true", help="skip unless SHIFT_VM=1")
    return parser.parse_args()


def run(pair, name, case):
    print("%s ..." % name, flush=True)
    begun = time.monotonic()
    try:
        problem = case(pair)
    except Exception:  # the next case may still tell something
        problem = traceback.format_exc()
    for machine in pair.machines.values():
        if machine.gone:
            problem = "machine %s died: %s" % (machine.name, machine.said())
    print("  %s (%.0f s)" % ("FAILED: " + problem if problem else "ok",
                             time.monotonic() - begun), flush=True)
    return not problem


def main():
    options = parse()
    if options.if_asked and os.environ.get("SHIFT_VM") != "1":
        print("skipped: two emulated machines need minutes of processor time; SHIFT_VM=1 runs them")
        return 77
    out = os.path.abspath(options.out or os.path.join(options.build, "out", "vm"))
    begun = time.monotonic()
    try:
        booted = image.prepare(os.path.join(options.build, "out", "vm-image"))
    except image.Missing as reason:
        print("skipped: %s" % reason)
        return 77
    cases = list(short_set()) + (list(whole_set()) if options.all else [])
    cases = [(name, case) for name, case in cases if options.only in name]
    failed = []
    with contextlib.ExitStack() as machines:
        pair = None
        for number, (name, case) in enumerate(cases, 1):
            if pair is None:
                pair = machines.enter_context(
                    Pair(options.build, booted, os.path.join(out, "from-case-%d" % number)))
                print("both machines are up after %.0f s" % pair.boot_seconds, flush=True)
            if not run(pair, name, case):
                failed.append(name)
                # What it left behind is nobody else's business.
                machines.close()
                pair = None
    print("%d cases, %d failed, %.0f s; logs: %s" % (
        len(cases), len(failed), time.monotonic() - begun, out))
    return 1 if failed or not cases else 0


if __name__ == "__main__":
    sys.exit(main())
