"""What each kind of case does with a pair of machines, and what it notes for the table.

A case returns what is wrong, or '' when nothing is wrong. vm.py makes the list of cases.
"""

import collections
import json
import time

from vm.clients import PORT, Session
from vm.pair import HEALS

FAULTS = ["link-down", "drop-data", "drop-acks", "carrier-off", "address-off", "unbind"]
# After these faults a process does not come back to the NIC: its driver has let go of it.
LASTING = {"unbind"}
MISSED = "the traffic ended before the fault"
MISSED_BACK = "the traffic ended before it was back"
# This exit code of shift-traffic says that a verbs call failed or a completion had an error.
VERBS_ERROR = 2

# A cell is one fault of one program: the seconds until both ends had left, and until both were back (None: the
# case did not wait, or the program ended before). `away` is None when the program ended as without the layer.
Cell = collections.namedtuple("Cell", "row fault host away back")


def is_half(cell):
    """Whether the program left the path and could come back, but was not seen to do so."""
    return cell.away is not None and cell.back is None and cell.fault not in LASTING


def healthy(pair, client, shift):
    """Runs a program to its end without a fault."""
    session = Session(pair, client, shift)
    problem = session.finish()
    if not problem and shift is True and session.count("bound") == 0:
        problem = "the ends did not find each other"
    return problem


def dies_on_stock(pair, client):
    """For contrast: without the layer this fault ends a program, or leaves it waiting for ever."""
    session = Session(pair, client, False)
    session.wait_bytes(100000)
    pair.fault("a", "rail0", "carrier-off")
    code = session.codes(10, 1)[0]
    pair.fault("a", "rail0", "carrier-on")
    return "the client survives" if code == 0 else ""


def gives_up_on_stock_too(pair, cells, client, host, fault, sign):
    """Runs a program that may not survive for a reason of its own. Without the layer, its end on `host` says
    `sign` and ends; with the layer it ends in that way, or survives."""
    session = Session(pair, client, False)
    session.wait_bytes(100000)
    pair.fault(host, "rail0", fault)
    session.codes(60, 0)
    pair.fault(host, "rail0", HEALS[fault])
    if sign not in session.programs[host].text():
        return "without the layer it ends otherwise"
    return survives(pair, cells, client, host, fault, sign=sign)


def survives(pair, cells, client, host, fault, is_undone=True, sign=None):
    """Runs a program of the distribution with a fault in the middle. Without `is_undone` the fault lasts until
    the program has ended. A program that was done too early gets more to do and runs again."""
    for is_last in False, True:
        seen = []
        problem = survives_once(pair, seen, client, host, fault, is_undone, sign)
        missed = problem or (MISSED_BACK if is_undone and any(is_half(cell) for cell in seen) else "")
        if is_last or missed not in (MISSED, MISSED_BACK) or client.longer is None:
            cells.extend(seen)
            return problem
        print("  %s: again, with more to do" % missed, flush=True)
        pair.renew()
        client = client.longer()


def survives_once(pair, cells, client, host, fault, is_undone, sign):
    lasts = fault in LASTING or not is_undone
    session = Session(pair, client)
    if not session.wait_count("armed", 1):
        pair.note_state()
        return "no second path: %s" % (session.finish(1) or MISSED)
    session.wait_bytes(100000)
    begun = time.monotonic()
    pair.fault(host, "rail0", fault)
    away = time.monotonic() - begun if session.wait_count("switched", 1) else None
    back = None
    # This comes before the program ends: the kernel must not find packets of a QP that is gone (README).
    if not lasts:
        pair.fault(host, "rail0", HEALS[fault])
        if session.wait_count("switched", 2):
            back = time.monotonic() - begun
    problem = session.finish()
    if lasts:
        pair.fault(host, "rail0", HEALS[fault])
    if problem and sign and sign in session.programs[host].text():
        cells.append(Cell(client.name, fault, host, None, None))
        return ""
    if not problem and away is None:
        problem = session.failure() or MISSED
    if not problem:
        cells.append(Cell(client.name, fault, host, away, back))
    return problem


def posted_again(session):
    """What speaks against a change of path that was no fault; '' when nothing does."""
    moves = [json.loads(line) for host in "ab" for line in session.events(host, "switched")]
    again = [move for move in moves if move["replayed"] or move["completed"]]
    return "posted again: %s" % again[0] if again else ""


def journey(pair, cells, client, steps, env=None, judge=lambda session: ""):
    """Takes shift-traffic through all these faults, one after the other, and back each time. It judges its
    data byte by byte, and must see no sign of the faults. `judge` says what else is wrong."""
    session = Session(pair, client, True, env)
    moves = 0
    if not session.wait_count("armed", 1):
        return "no second path: %s" % session.finish(10)
    noted = []
    for host, fault in steps:
        begun = time.monotonic()
        pair.fault(host, "rail0", fault)
        moves += 1
        if not session.wait_count("switched", moves):
            return "%s on %s: not switched: %s" % (fault, host, session.finish(10))
        away, back = time.monotonic() - begun, None
        if fault not in LASTING:
            pair.fault(host, "rail0", HEALS[fault])
            moves += 1
            if not session.wait_count("switched", moves):
                return "%s on %s: not back: %s" % (fault, host, session.finish(10))
            back = time.monotonic() - begun
        noted.append(Cell(client.name, fault, host, away, back))
        print("    %-12s on %s: away after %.1f s%s" % (
            fault, host, away, "" if back is None else ", back after %.1f s" % back), flush=True)
    problem = session.finish() or judge(session)
    for host, fault in steps:
        if fault in LASTING:
            pair.fault(host, "rail0", HEALS[fault])
    if not problem:
        cells.extend(noted)
    return problem


# ---- Hosts with the layer and hosts without it (C10).


def dies_as_on_stock(pair, client, host, fault, shift, off=""):
    """With the layer at one end only, a fault ends shift-traffic at both ends with an error, as it does
    without the layer: there is no wrong byte, no success, and no hang."""
    ends = {}
    for name, how in (("stock", {"shift": False}), ("one end", {"shift": shift, "off": off})):
        session = Session(pair, client, **how)
        session.wait_bytes(100000)
        pair.fault(host, "rail0", fault)
        codes = session.codes(40, 40)
        pair.fault(host, "rail0", HEALS[fault])
        ends[name] = codes
        if codes != [VERBS_ERROR, VERBS_ERROR]:
            return "%s: exit codes client %s, server %s" % (name, *codes)
        if name == "one end" and any(session.events(end, "bound") for end in "ab"):
            return "an end without the layer was found"
    return ""


def disabled_in_mid_life(pair, rping):
    """A server process with the layer lives on while clients come with the layer and without it. Each is
    protected, or works as with the stock library."""
    argv = rping.argv(pair, "b")
    server = pair.start("b", "persistent", [argv[0], "-P", *argv[1:]])

    def found():
        return len(pair.events("b", "persistent", "bound"))

    def client(name, off):
        return pair.start("a", name, rping.argv(pair, "a"), True,
                          {"SHIFT_DISABLE": "1"} if off else {})

    def run(name, off, fault):
        """Returns a client's exit code. If there is a fault, it hits host a after the client's first bytes."""
        one = client(name, off)
        if fault:
            begun = pair.counter("a", "rail0")
            pair.until(lambda: pair.events("a", name, "armed") and
                       pair.counter("a", "rail0") > begun + 100000 or one.ended is not None, 60)
            pair.fault("a", "rail0", fault)
            moved = pair.until(lambda: pair.events("a", name, "switched"), 60)
            pair.fault("a", "rail0", HEALS[fault])
            if not moved:
                return MISSED
        return one.finish(90)

    try:
        if not pair.until(lambda: ":" + PORT in pair.managed_listeners("b"), 60):
            return "the server does not listen"
        for name, off, fault, bound in (("first", False, "", 1), ("off", True, "", 1),
                                        ("last", False, "carrier-off", 2)):
            code = run(name, off, fault)
            if code != 0:
                return "the client %s: %s" % (name, "hangs" if code is None else code)
            if found() != bound:
                return "the server has found %d clients after %s" % (found(), name)
            if server.ended is not None:
                return "the server ended after %s" % name
        return ""
    finally:
        server.finish(0)
