#!/usr/bin/python3
"""Runs unmodified programs of the distribution on emulated hosts without SHIFT: all must do all their work.

The test `programs` calls this program. Each case has a fabric of its own, with two hosts or more. Judged are
exit codes, full counts, what the programs verify themselves, and the NICs' counters. The exit status is 0 when
all is good, 1 when something failed, 3 when nothing ran, 4 after a wrong call.
"""

import os
import shutil
import sys
import time

from harness.build import Build
from harness.case import Case
from harness.options import script_parser, seed_add
from harness.report import write_json
from harness.session import run_case

from programs import figures
from programs.cases import all_cases
from programs.cases_load import load_cases
from programs.cases_verbs import pingpong_cases


def parse():
    parser = script_parser(__doc__, "out/programs")
    parser.add_argument("--list", action="store_true", help="name the cases and end")
    parser.add_argument("--all", action="store_true", help="all cases; by default the short set")
    parser.add_argument("--only", action="append", default=[],
                        help="only cases whose name or group contains this (of all)")
    parser.add_argument("--complete", action="store_true",
                        help="a program that is not installed is a failure, not a skip")
    seed_add(parser)
    parser.add_argument("--repeat", type=int, default=1, help="how often, with seeds that go up")
    parser.add_argument("--json", help="write the results to this file")
    parser.add_argument("--figures", action="store_true", help="measure speed instead of testing")
    parser.add_argument("--selftest", action="store_true", help="show that broken NICs are noticed")
    return parser.parse_args()


def chosen(options):
    cases = all_cases()
    if options.only:
        return [case for case in cases
                if any(word in case.name or word == case.group for word in options.only)]
    return [case for case in cases if case.short or options.all]


def cell(outcome):
    counters = outcome["counters"]
    if not counters:
        return ""
    return "%d packets, %d sent again, %d time-outs" % (
        counters["tx_packets"], counters["retransmits"], counters["local_ack_timeout_err"])


def run_all(build, options):
    outcomes = []
    print("%-62s %-8s %7s  details" % ("program", "result", "seconds"))
    for number in range(options.repeat):
        for case in chosen(options):
            missing = case.missing()
            if missing and not options.complete:
                outcome = {"name": case.name, "group": case.group, "problem": "", "seconds": 0.0,
                           "counters": {}, "skipped": "not installed: " + ", ".join(missing)}
                print("%-62s %-8s %7s  %s" % (case.name, "skipped", "", outcome["skipped"]))
                outcomes.append(outcome)
                continue
            directory = os.path.join(options.out, "%d" % len(outcomes))
            outcome = run_case(build, case, directory, options.seed + number)
            outcomes.append(outcome)
            if outcome["problem"]:
                details = "%s; seed %d, logs: %s" % (outcome["problem"], outcome["seed"], directory)
            else:
                details = cell(outcome)
                shutil.rmtree(directory, ignore_errors=True)
            print("%-62s %-8s %7.1f  %s" % (case.name, "FAILED" if outcome["problem"] else "ok",
                                            outcome["seconds"], details), flush=True)
    return outcomes


def selftest(build, options):
    """Checks the judge: a case on a fabric with a fault must not pass."""
    found = []

    def broken(fault, body, expected, seconds=4):
        def with_fault(session):
            session.ended_well(session.start("a", "make_a", ["true"]), "true", 10)
            session.ended_well(session.start("b", "make_b", ["true"]), "true", 10)
            session.fabric.fault("a/mlx5_0", fault)
            body(session)
        outcome = run_case(build, Case("selftest " + fault, "selftest", with_fault, seconds=seconds),
                           os.path.join(options.out, "selftest"), 1)
        caught = expected in outcome["problem"]
        print("%-28s %s (%s)" % (fault, "noticed" if caught else "NOT NOTICED", outcome["problem"]))
        found.append(caught)

    pingpong = next(case for case in pingpong_cases() if case.name == "ibv_rc_pingpong -c")
    broken("drop-data", pingpong.body, "neither end")
    broken("kill", pingpong.body, "server does not listen")
    broken("drop-acks", pingpong.body, "neither end")
    # Nothing comes after this ping that would show its loss.
    latency = next(case for case in load_cases() if case.name.startswith("ib_send_lat"))
    broken("drop-data after=100 count=1", latency.body, "time-outs, although", seconds=60)
    return 0 if all(found) else 1


def main():
    options = parse()
    if options.list:
        for case in chosen(options) if options.only else all_cases():
            print("%-9s %-6s %s" % (case.group, "short" if case.short else "", case.name))
        return 0
    build = Build(options.build).require()
    if options.selftest:
        return selftest(build, options)
    if options.figures:
        return figures.measure(build, options)
    began = time.monotonic()
    outcomes = run_all(build, options)
    failed = sum(1 for outcome in outcomes if outcome["problem"])
    skipped = sum(1 for outcome in outcomes if outcome.get("skipped"))
    write_json(options.json, outcomes)
    print("%d passed, %d failed, %d skipped; %.0f s" %
          (len(outcomes) - failed - skipped, failed, skipped, time.monotonic() - began))
    if len(outcomes) == skipped:
        return 3
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
