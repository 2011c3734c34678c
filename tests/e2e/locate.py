#!/usr/bin/python3
"""Tests where the layer says that a fault is: at this end, at the peer's, or on the path between.

The test `e2e_locate` calls this program. Two hosts have two, four or eight NICs each, and one NIC, all NICs of a
host, or only the way between two NICs fails under traffic. The judge refuses a place that is wrong but called
certain, a second record for one fault, and, over many runs, more than 5 % of unknown places where probes could
tell. With --plant the layer has a bug, and each run that names a place must be refused; one that names none, as a
busy machine may bring, is tried again. --pauses compares the changes of path of runs with and without probes.
"""

import dataclasses
import os
import random
import shutil
import statistics
import sys
import time

from harness.build import Build
from harness.checker import ENDS, checker_start, report_option
from harness.fabric import Fabric
from harness.options import layer_add, runs_add, script_parser
from harness.runs import run_all
from harness.waiting import wait_until

BOUND = 10.0  # seconds in which both ends must have said something
UNKNOWN_SHARE, MANY = 0.05, 20
PLANTED_TRIES = 10
HOSTS = {"a": "client", "b": "server"}
# fault: the places that may be named at the end where it is, and at the other end
SIDED = {
    "link-down": ("local", "remote"),
    "kill": ("local", "remote"),
    "loss=100": ("local", "remote"),
    "drop-data": ("local", "remote"),
    "drop-acks": ("local", "remote"),
}
PATH = "drop-data peer="  # and a NIC of the other host
CUT = "cut"
WAYS = 4  # that each end keeps ready for the NIC in use


@dataclasses.dataclass
class Case:
    index: int
    seed: int
    nics: int
    side: str
    fault: str
    locate: str = "on"

    @property
    def other(self):
        return "b" if self.side == "a" else "a"

    def name(self):
        return "%d: %s at %s, %d NICs" % (self.index, self.fault.strip("="), self.side, self.nics)

    def places(self, host):
        """The places that this end may call certain, and whether it can know."""
        if self.fault == PATH:
            return {"path"}, True
        if self.fault == CUT:  # nothing of that host answers, so the other end cannot tell which part broke
            return ({"local"}, True) if host == self.side else ({"remote"}, False)
        place = SIDED[self.fault][host != self.side]
        return {place}, True


@dataclasses.dataclass
class Outcome:
    problem: str = ""
    unknown: int = 0
    known: int = 0
    us: tuple = ()      # from the evidence to the verdict, where probes had to tell
    pauses: tuple = ()  # of the changes of path


def draw(options, index):
    dice = random.Random("%d/%d" % (options.seed, index))
    return Case(index, dice.randrange(1 << 30), dice.choice((2, 4, 8)), dice.choice("ab"),
                dice.choice((*SIDED, PATH, CUT)))


def judge(case, records):
    """`records`: for each host the incidents that its end has told of the NIC at fault. Returns what is wrong, and
    how many places are unknown that could be known."""
    unknown = 0
    for host, incidents in records.items():
        may, can_know = case.places(host)
        if len(incidents) > 1:
            return "%s told of %d incidents: %s" % (HOSTS[host], len(incidents), incidents), 0
        if not incidents and can_know:
            return "%s told of nothing" % HOSTS[host], 0
        for one in incidents:
            if one["place"] == "unknown":
                unknown += can_know
                if one["certain"]:
                    return "%s calls an unknown place certain" % HOSTS[host], 0
            elif one["place"] not in may:
                return "%s says %s: %s" % (HOSTS[host], one["place"], one["evidence"]), 0
    return "", unknown


def judge_tried():
    """The judge must refuse what is wrong, too."""
    case = Case(0, 0, 2, "a", "loss=100")
    def record(place):
        return {"place": place, "certain": int(place != "unknown"), "evidence": ""}
    right = {"a": [record("local")], "b": [record("remote")]}
    assert judge(case, right) == ("", 0)
    assert judge(case, {**right, "b": [record("unknown")]}) == ("", 1)
    for host, incidents in (("a", [record("remote")]), ("b", [record("path")]), ("a", []),
                            ("b", [record("remote")] * 2), ("a", [{**record("unknown"), "certain": 1}])):
        assert judge(case, {**right, host: incidents})[0], (host, incidents)
    return True


def incidents_of(fabric, case):
    return {host: [one for one in fabric.records("incident", end) if one["device"] == "mlx5_0"]
            for host, end in HOSTS.items()}


def ready(fabric):
    return all(sum(record["ready"] for record in fabric.records("way", end)) >= WAYS for end in ENDS)


def run(options, build, case):
    directory = os.path.join(options.out, "%d-%s" % (case.index, case.locate))
    shutil.rmtree(directory, ignore_errors=True)
    os.makedirs(directory)
    env = {"SHIFT_SPREAD": "capacity", "SHIFT_LOCATE": case.locate}
    if options.plant:
        env["SHIFT_PLANT"] = options.plant
    with Fabric(build, directory, case.nics) as fabric:
        qps = 1 + case.seed % 6
        server, client = checker_start(
            fabric, build.traffic, ["--timeout-ms", "120000"] + report_option(fabric, "server"),
            ["--until-stop", "--timeout-ms", "120000", "--qps", str(qps), "--rate", "2000", "--size", "512",
             "--op", "mixed", "--bidirectional", "--stall-ms", "30000"] + report_option(fabric, "client"), env=env)
        if client is None:
            return Outcome("the server did not start")
        if not wait_until(lambda: fabric.all_have("armed", qps, *ENDS) or client.ended, 60) or client.ended:
            return Outcome("not armed")
        if case.locate == "on" and not wait_until(lambda: ready(fabric) or client.ended, 60):
            return Outcome("the ways are not ready")
        fault = case.fault + "%s/mlx5_0" % case.other if case.fault == PATH else case.fault
        fabric.fault(case.side if case.fault == CUT else case.side + "/mlx5_0", fault)

        def over():
            if case.locate == "off" or case.fault == CUT:
                return fabric.all_have("switched", 1, *ENDS) or bool(incidents_of(fabric, case)[case.side])
            return all(incidents_of(fabric, case).values())
        wait_until(lambda: over() or client.ended, BOUND)
        wait_until(lambda: False, 0.5)  # a second record may follow
        records = incidents_of(fabric, case)
        pauses = tuple(one["us"] for one in fabric.records("switched", *ENDS) if one["us"])
        for program in (client, server):
            program.kill()
    if case.locate == "off":
        return Outcome(pauses=pauses)
    problem, unknown = judge(case, records)
    us = tuple(one["us"] for incidents in records.values() for one in incidents if "-" in one["evidence"])
    known = sum(case.places(host)[1] for host in HOSTS)
    return Outcome(problem, unknown, known, us, pauses)


def run_planted(options, build, case):
    """A planted bug shows only where the layer names a place at all."""
    for _ in range(PLANTED_TRIES):
        outcome = run(options, build, case)
        if outcome.problem or not outcome.unknown:
            break
    return outcome


def pauses_compare(options, build):
    """Runs with probes and without them in turns, so that the machine is the same for both."""
    found = {"on": [], "off": []}
    for index in range(2 * options.pauses):
        case = Case(index, index // 2 * 5 + 3, 2, "ab"[index // 2 % 2], ("loss=100", "link-down")[index // 4 % 2],
                    ("on", "off")[index % 2])
        outcome = run(options, build, case)
        if outcome.problem:
            print("FAILED %s: %s" % (case.name(), outcome.problem))
            return 1
        found[case.locate] += outcome.pauses
    for locate, us in found.items():
        print("SHIFT_LOCATE=%-3s %4d changes of path: middle %.2f ms, nine tenths below %.2f ms" % (
            locate, len(us), statistics.median(us) / 1000, statistics.quantiles(us, n=10)[-1] / 1000))
    return 0


def main():
    parser = script_parser(__doc__, "out/locate")
    runs_add(parser, 6)
    layer_add(parser)
    parser.add_argument("--plant", help="a planted bug, which each run must show; with --layer")
    parser.add_argument("--fault", choices=[*SIDED, PATH, CUT], help="of all runs")
    parser.add_argument("--pauses", type=int, default=0, help="compare so many runs with and without probes")
    options = parser.parse_args()
    build = Build(options.build, options.layer)
    build.require(build.shift_run, build.traffic)
    judge_tried()
    if options.pauses:
        return pauses_compare(options, build)
    begun, failed, sums = time.monotonic(), [], Outcome()
    cases = [draw(options, index) for index in options.only or range(options.runs)]
    if options.fault:
        cases = [dataclasses.replace(case, fault=options.fault) for case in cases]

    def tell(case, outcome):
        refused = bool(outcome.problem)
        good = refused == bool(options.plant)
        print("%-6s %s%s" % ("right" if good else "FAILED", case.name(), refused and ": " + outcome.problem or ""),
              flush=True)
        if outcome.unknown:
            print("       unknown where it could be known: %d" % outcome.unknown)
        sums.unknown += outcome.unknown
        sums.known += outcome.known
        sums.us += outcome.us
        if not good:
            failed.append(case)
            print("again: tests/e2e/locate.py --build %s --seed %d --only %d" % (
                options.build, options.seed, case.index))
        elif not options.keep:
            shutil.rmtree(os.path.join(options.out, "%d-%s" % (case.index, case.locate)), ignore_errors=True)

    one = run_planted if options.plant else run
    run_all(options.jobs, cases, lambda case: one(options, build, case), tell)
    if sums.us:
        print("from the evidence to the verdict by probes: middle %.0f ms, at most %.0f ms" % (
            statistics.median(sums.us) / 1000, max(sums.us) / 1000))
    share = sums.unknown / max(sums.known, 1)
    print("%d runs, %d failed, %.1f %% unknown, %.0f s" % (
        len(cases), len(failed), 100 * share, time.monotonic() - begun))
    too_many = len(cases) >= MANY and share > UNKNOWN_SHARE and not options.plant
    return 1 if failed or not cases or too_many else 0


if __name__ == "__main__":
    sys.exit(main())
