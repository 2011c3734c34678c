#!/usr/bin/python3
"""Runs programs between two machines with the distribution's kernel and its soft-RoCE driver.

The test `vm` calls this program. Without options it runs a short set of cases: on the bare devices, with the
layer, and through every fault and back. Where no test machine can be had, it says why and exits with 77.
"""

import collections
import contextlib
import os
import sys
import time
import traceback

from harness.options import script_parser

from vm import failover_case, image, pyverbs_case, start_case, table, verify_case
from vm.cases import (FAULTS, LASTING, dies_as_on_stock, dies_on_stock, disabled_in_mid_life,
                      gives_up_on_stock_too, healthy, journey, posted_again, survives)
from vm.clients import (fi_pingpong, fio, gloo, io_demo, perftest, pingpong, rdma_client, rping,
                        rsocket_stream, torch_rpc, traffic, ucmatose, uct)
from vm.pair import KernelStuck, Pair

# act(pair, cells) returns what is wrong. `row` and `columns` are the table's places for what it adds to `cells`.
Case = collections.namedtuple("Case", "name act row columns", defaults=("", ()))

# A case is tried so often when the kernel does not let go of a NIC.
STUCK_MAX = 3
MIXED = traffic("mixed", "--bidirectional")
# To the kernel's driver the largest retry count, 7, means "without end".
MORTAL = traffic("mixed", "--bidirectional", "--retry-count", "3")
SHORT = pingpong("rc", 300, "-c", "-e")
VERBS = [pingpong("rc", 3000, "-c", "-e"), perftest("ib_write_bw", 3000, 65536),
         perftest("ib_send_bw", 5000, 65536, "-e"), perftest("ib_read_bw", 5000, 32768, "-e"),
         pingpong("rc", 2000, "-c", "-e", "-N"),
         perftest("ib_write_bw", 2400, 16384, "-q", "4", "-t", "8"),
         perftest("ib_write_bw", 6000, 16384, "-b", "-t", "8"),
         perftest("ib_write_bw", 32000, 4096, "-l", "16"),
         perftest("ib_write_lat", 1000, 64), perftest("ib_send_lat", 5000, 64, "-e"), gloo(60, 65536)]
# In these programs several queue pairs share receives.
SHARED = [pingpong("srq", 4000, "-c", "-e", "-q", "4"),
          perftest("ib_send_bw", 8000, 4096, "-e", "--use-srq", "-q", "2", "-t", "16"),
          uct("put_lat", 2000, "-s", "8"), uct("am_lat", 2000, "-s", "8"), io_demo(3000), torch_rpc(16384, 400)]
RPING = rping(600, 32768)
# riostream watches memory that plain WRITEs change, which run twice after a fault unless the mode is exact.
RIOSTREAM = rsocket_stream("riostream", 600, 16384, {"SHIFT_MODE": "exact"})
MANAGED = [RPING, rsocket_stream("rstream", 800, 65536), RIOSTREAM, ucmatose(2500, 65536),
           fi_pingpong(1500, 16384), fio("write", 96)]
# These are started on broken NICs. Connections of rdma_cm are not: it needs the first NIC's link.
STARTING = [MIXED, VERBS[0], VERBS[2], VERBS[-1], SHARED[0]]


# (client, fault, host) -> what the program on that host says; it ends there without the layer, too.
HOPELESS = {
    # rping goes on without waiting for its completions until its send queue is full (ENOMEM).
    (RPING.name, "drop-acks", "a"): "post send error 12",
}


def through(client, fault, host):
    sign = HOPELESS.get((client.name, fault, host))
    if sign:
        return Case("%s, %s on %s: as on stock" % (client.name, fault, host),
                    lambda pair, cells: gives_up_on_stock_too(pair, cells, client, host, fault, sign),
                    client.name, ((fault, host),))
    return Case("%s, %s on %s" % (client.name, fault, host),
                lambda pair, cells: survives(pair, cells, client, host, fault),
                client.name, ((fault, host),))


def to_the_end(client, fault, host):
    """The fault lasts to the end. The kernel's connection manager cannot reach the other host, and need not."""
    return Case("%s, %s on %s to the end" % (client.name, fault, host),
                lambda pair, cells: survives(pair, [], client, host, fault, False))


def trip(name, steps, env=None, row=""):
    return Case(name, lambda pair, cells: journey(pair, cells, MIXED, steps, env), row,
                tuple((fault, host) for host, fault in steps))


def drains(count, part=""):
    """So many drains of either host's NIC under load, nothing else: no request may be posted again."""
    steps = [(host, "drain") for _ in range(count) for host in "ab"]
    return Case("mixed traffic, %d drains%s" % (len(steps), part),
                lambda pair, cells: journey(pair, [], MIXED, steps, judge=posted_again))


def smoke_set():
    """The cases that check.sh has time for."""
    return [trip("mixed traffic, two faults", [("a", "link-down"), ("b", "drop-data")]),
            through(RPING, "link-down", "a"), drains(1)]


def short_set():
    return [
        Case("stock, healthy", lambda pair, cells: healthy(pair, SHORT, False)),
        Case("layer, healthy", lambda pair, cells: healthy(pair, SHORT, True)),
        Case("layer on a only, healthy", lambda pair, cells: healthy(pair, SHORT, "a")),
        Case("stock, carrier-off on a: dies", lambda pair, cells: dies_on_stock(pair, VERBS[0])),
        trip("mixed traffic there and back", [
            (host, fault) for fault in FAULTS if fault not in LASTING for host in "ab"],
            row=MIXED.name),
        # This passes only if the NIC tells its responder's packet number, so that no request runs twice.
        trip("mixed traffic in the mode exact", [("a", "link-down"), ("b", "drop-acks"),
                                                 ("b", "carrier-off"), ("a", "drop-data")],
             {"SHIFT_MODE": "exact"}),
        through(RPING, "link-down", "a"), through(RPING, "drop-data", "b"),
        through(MANAGED[1], "link-down", "b"),
        through(RIOSTREAM, "link-down", "a"), through(SHARED[0], "link-down", "a"),
        to_the_end(RPING, "carrier-off", "a"), to_the_end(RPING, "drop-data", "b"),
        Case("rdma_client, healthy",
             lambda pair, cells: healthy(pair, rdma_client(), False) or
             healthy(pair, rdma_client(), "b")),
        Case("layer on b only, a loses its address: as on stock",
             lambda pair, cells: dies_as_on_stock(pair, MORTAL, "a", "address-off", "b")),
        Case("layer off on b, which loses its carrier: as on stock",
             lambda pair, cells: dies_as_on_stock(pair, MORTAL, "b", "carrier-off", "a", "b")),
        Case("a server with the layer, clients with it and without",
             lambda pair, cells: disabled_in_mid_life(pair, RPING)),
        *(Case(name, act) for name, act in verify_case.CASES.items()),
        *(Case(name, act) for name, act in start_case.cases(STARTING[:1]).items()),
    ]


def whole_set():
    cases = [trip("mixed traffic, unbind on %s" % host, [(host, "unbind")], row=MIXED.name)
             for host in "ab"]
    for client in VERBS + SHARED + MANAGED:
        for fault in (fault for fault in FAULTS if fault not in client.spared):
            for host in "a" if fault == "drop-acks" and client.one_way else "ab":
                cases.append(through(client, fault, host))
    cases += [Case(name, act) for name, act in start_case.cases(STARTING).items()]
    cases.append(Case("pyverbs on the layer as on the bare device", pyverbs_case.same_passes))
    cases.append(Case("failover cases of rdma-core's suite", failover_case.failover_cases))
    known = {case.name for case in short_set()}
    return short_set() + [case for case in cases if case.name not in known]


SETS = {"1": short_set, "smoke": smoke_set, "all": whole_set,
        "drains": lambda: [drains(5, ", part %d" % part) for part in range(1, 11)]}


def parse():
    parser = script_parser(__doc__, None)  # by default logs go to the build folder
    parser.add_argument("--all", action="store_const", dest="set", const="all", default="1",
                        help="each program through each fault on either host (SHIFT_VM=all)")
    parser.add_argument("--smoke", action="store_const", dest="set", const="smoke",
                        help="a set of three cases (SHIFT_VM=smoke)")
    parser.add_argument("--drains", action="store_const", dest="set", const="drains",
                        help="a hundred drains under load (SHIFT_VM=drains)")
    parser.add_argument("--only", action="append", default=[],
                        help="only cases whose name contains this, of all cases")
    parser.add_argument("--markdown", help="write the table to this file")
    parser.add_argument("--resume", action="store_true",
                        help="go on with that table: run cases that are missing, failed, or did not come back")
    parser.add_argument("--if-asked", action="store_true",
                        help="skip unless SHIFT_VM names a set: 1, smoke, drains or all")
    options = parser.parse_args()
    if options.resume and not (options.markdown and os.path.exists(options.markdown)):
        parser.error("--resume goes on with the table that --markdown names: there is none")
    return options


def run(pair, case, cells):
    print("%s ..." % case.name, flush=True)
    begun = time.monotonic()
    try:
        if not pair.fresh:
            pair.renew()
        pair.fresh = False
        problem = case.act(pair, cells)
    except KernelStuck:
        raise
    except Exception:  # the next case may still show something
        problem = traceback.format_exc()
    for machine in pair.machines.values():
        if machine.gone:
            problem = "machine %s died: %s" % (machine.name, machine.said())
    if not any(machine.gone for machine in pair.machines.values()):
        pair.fault_said = pair.kernel_fault()
    if pair.fault_said:
        print("  the kernel says: %s" % pair.fault_said, flush=True)
        if problem:
            raise KernelStuck(problem)
    print("  %s (%.0f s)" % ("FAILED: " + problem if problem else "ok",
                             time.monotonic() - begun), flush=True)
    return problem


class Machines:
    """The pair of machines in use; after drop() it is a new one."""

    def __init__(self, build, booted, out):
        self.build, self.booted, self.out = build, booted, out
        self.stack, self.pair = contextlib.ExitStack(), None

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.drop()

    def get(self, number):
        if self.pair is None:
            self.pair = self.stack.enter_context(
                Pair(self.build, self.booted, os.path.join(self.out, "from-case-%d" % number)))
            print("both machines are up after %.0f s" % self.pair.boot_seconds, flush=True)
        return self.pair

    def drop(self):
        self.stack.close()
        self.pair = None


def judged(machines, book, case, number):
    """Runs a case. Returns what is wrong, and the cells that it noted."""
    for _ in range(STUCK_MAX):
        pair, cells = machines.get(number), []
        book.kernel = book.kernel or pair.sh("a", "uname -r").strip()
        try:
            return run(pair, case, cells), cells
        except KernelStuck as stuck:
            problem = str(stuck)
        print("  %s\n  the kernel is stuck: again, on fresh machines" % problem, flush=True)
        book.run_again(case)
        machines.drop()
    return problem, []


def chosen(options):
    if options.if_asked:
        options.set = os.environ["SHIFT_VM"]
    if options.only:
        return [case for case in smoke_set()[:1] + whole_set()
                if any(word in case.name for word in options.only)]
    return SETS[options.set]()


def main():
    options = parse()
    if options.if_asked and os.environ.get("SHIFT_VM") not in SETS:
        print("skipped: two emulated machines need minutes of processor time; SHIFT_VM=1 runs them")
        return 77
    cases = chosen(options)
    out = os.path.abspath(options.out or os.path.join(options.build, "out", "vm"))
    begun = time.monotonic()
    try:
        booted = image.prepare(os.path.join(options.build, "out", "vm-image"))
    except image.Missing as reason:
        print("skipped: %s" % reason)
        return 77
    book = table.Book(" ".join(["tests/vm/vm.py"] + sys.argv[1:]))
    if options.resume:
        book.read(options.markdown)
        cases = [case for case in cases if book.verdict(case) is not True]
    with Machines(options.build, booted, out) as machines:
        for number, case in enumerate(cases, 1):
            if book.verdict(case) is False:
                book.run_again(case)
            problem, cells = judged(machines, book, case, number)
            book.add(case, problem, cells)
            if problem or machines.pair.fault_said:
                machines.drop()  # nothing that the case left may reach the next one
            if options.markdown:
                book.write(options.markdown)  # a run that is broken off leaves its results
    print("%d cases, %d failed, %.0f s; logs: %s" % (
        len(cases), len(book.failed), time.monotonic() - begun, out))
    return 1 if book.failed or not (cases or options.resume) else 0


if __name__ == "__main__":
    sys.exit(main())
