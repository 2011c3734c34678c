"""Runs the ranks of one case on emulated hosts, breaks the NICs, and judges."""

import glob
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import time

from harness.case import Failure
from harness.fabric import Fabric
from harness.session import last_words
from harness.waiting import wait_until

HERE = os.path.dirname(os.path.abspath(__file__))
HOSTS = "ab"  # one rank on each
JOIN_SECONDS, THING_SECONDS, NOTICE_SECONDS = 90, 60, 100
TRAIN_STEP_SECONDS = 1.0
MEETINGS = 4
# A rank that NCCL has given up ends by itself; the other one may wait for its own time-out.
LINGER_SECONDS = 10
FIRST_STEPS = 10
NCCL_NOTICES = re.compile(r"NCCL WARN .*Got completion from peer .* with status=(\S+)")


class Job:
    """The ranks of one run of a case. `settings` are those of the bed's libraries."""

    def __init__(self, build, case, directory, settings, backend):
        self.build, self.case, self.directory = build, case, os.path.abspath(directory)
        self.settings, self.backend = settings, backend
        self.fabric = None
        self.ranks = {}
        self.fault_s = None   # when the first fault took effect (CLOCK_MONOTONIC)

    def __enter__(self):
        shutil.rmtree(self.directory, ignore_errors=True)
        os.makedirs(self.directory)
        self.fabric = Fabric(self.build, self.directory)
        for host in HOSTS:  # a host is there from its first command on
            subprocess.run(self.fabric.command(host, ["true"]), check=True)
        return self

    def __exit__(self, *problem):
        self.fabric.__exit__(*problem)

    # ---- The ranks.

    def path(self, name):
        return os.path.join(self.directory, name)

    def environment(self, host):
        state = self.path("state-" + host)
        os.makedirs(state, exist_ok=True)
        return {**self.settings, "SHIFT_STATE_DIR": state, "NCCL_HOSTID": "host-" + host,
                "PYTHONUNBUFFERED": "1", **dict(self.case.settings)}

    def start(self, run, plan):
        """Starts all ranks with a plan. `run` makes the names of their files."""
        with open(self.path(run + "plan.json"), "w") as file:
            json.dump(plan, file)
        for number, host in enumerate(HOSTS):
            argv = [sys.executable, os.path.join(HERE, "rank.py"), "--rank", number, "--world", len(HOSTS),
                    "--backend", self.backend, "--store", self.path(run + "store"),
                    "--plan", self.path(run + "plan.json"), "--result", self.path(run + "result-" + host)]
            self.ranks[host] = self.fabric.start(host, run + host, argv, self.case.layer, self.environment(host))

    def reach(self, line, seconds):
        """Waits until all ranks have printed this line. Returns whether they have."""
        return wait_until(lambda: all(line in rank.lines for rank in self.ranks.values()) or
                          any(rank.ended for rank in self.ranks.values()), seconds, 0.005) and \
            all(line in rank.lines for rank in self.ranks.values())

    def meet(self):
        """The same program runs on healthy NICs, until the hosts remember each other."""
        for number in range(MEETINGS):
            self.start("meet%d-" % number, {"seed": 1, "things": [{"steps": 20, "bytes": 1 << 16}]})
            for host, rank in self.ranks.items():
                if rank.finish(JOIN_SECONDS) != 0:
                    raise Failure("rank %s met nobody: %s" % (host, last_words(rank)))
            if all(glob.glob(self.path("state-%s/*/hosts" % host)) for host in HOSTS):
                return
        raise Failure("the hosts do not remember each other")

    # ---- Faults.

    def break_nic(self, fault):
        self.fabric.fault(fault.nic, fault.words())

    def find_fault(self):
        """Finds out when the first fault took effect, by the emulator's own record."""
        if self.case.faults:
            fault = self.case.faults[0]
            when = self.fabric.event_ns(fault.nic, "triggered" if fault.packet else "fault", first=True)
            self.fault_s = when and when / 1e9

    def inject(self):
        """Sets each fault at its time. Ends early when a rank has ended."""
        plan = self.case.plan()
        for index in plan["pauses"]:
            if not self.reach("waiting %d" % index, JOIN_SECONDS + THING_SECONDS * (index + 1)):
                return
            for fault in self.case.faults:
                if fault.at == index:
                    self.break_nic(fault)
            for rank in self.ranks.values():
                rank.tell("go")
        for fault in self.case.faults:
            if fault.step:
                if not self.reach("step %d" % fault.step, JOIN_SECONDS + fault.step * TRAIN_STEP_SECONDS):
                    return
                self.break_nic(fault)

    # ---- The run.

    def limit(self):
        if self.case.dies or self.case.may_die:
            return NOTICE_SECONDS
        steps = sum(thing.get("train", 0) for thing in self.case.things)
        return THING_SECONDS + 2 * len(self.case.things) + steps * TRAIN_STEP_SECONDS

    def run(self):
        """Runs the case. Returns {host: exit status or None}."""
        if self.case.meets:
            self.meet()
        for fault in self.case.faults:
            if fault.at is None and not fault.step:
                self.break_nic(fault)
        self.start("", self.case.plan())
        if self.reach("joined", JOIN_SECONDS):
            self.inject()
        ranks = self.ranks.values()
        wait_until(lambda: any(rank.ended for rank in ranks), self.limit(), 0.02)
        wait_until(lambda: all(rank.ended for rank in ranks), LINGER_SECONDS, 0.02)
        codes = {host: rank.finish(0.5 if not rank.ended else 5) for host, rank in self.ranks.items()}
        self.find_fault()
        return codes

    def results(self):
        """{host: what the rank has told at its end}"""
        found = {}
        for host in HOSTS:
            try:
                with open(self.path("result-" + host)) as file:
                    found[host] = json.load(file)
            except OSError:
                pass
        return found

    def records(self, kind):
        return self.fabric.records(kind, *HOSTS)


def complaint(rank, host, code):
    words = [line for line in rank.lines if re.search(r"NCCL WARN|Error: |shift\[\d+\]: error", line)]
    return "rank on %s %s: %s" % (host, "had to be killed" if code is None else "ended with %d" % code,
                                  (words or [last_words(rank)])[0][:300])


def noticed(job):
    """When NCCL first told of an error, in seconds after the fault, and which error; None when it did not."""
    found = []
    for host in HOSTS:
        with open(job.path(host + ".log"), errors="replace") as file:
            for line in file:
                if error := NCCL_NOTICES.search(line):
                    found.append((job.ranks[host].started + float(line.split()[0]) - job.fault_s, error.group(1)))
                    break
    return min(found) if found else None


def pause(results, fault_s):
    """(the median of all timed steps of all ranks, the longest step that was under way when the fault came or in
    the second after it), in ms. The latter is that of all steps without a fault, and None if the fault hit none.
    A rank's first steps do not count, since they load the GPU's kernels. None without such steps."""
    steps = []
    for one in results.values():
        steps += [step for thing in one["results"] for step in thing["times"]][FIRST_STEPS:]
    if not steps:
        return None
    hit = [took for end, took in steps if not fault_s or (end >= fault_s and end - took <= fault_s + 1)]
    return 1e3 * statistics.median(took for _, took in steps), 1e3 * max(hit) if hit else None


def judge(job, codes, reference):
    """Returns (problem or '', what was measured) of a job that has ended. `reference` has the results of the run
    without a fault, which compares the ranks with nothing."""
    case = job.case
    switched = job.records("switched")
    results = job.results()
    measured = {"switched": len(switched), "failed": len(job.records("failed")),
                "detectors": sorted({one["detector"] for one in switched if one["detector"] != "probe"}),
                "switch_us": max((one["us"] for one in switched), default=None),
                "replayed": sum(one.get("replayed", 0) for one in switched), "fault_s": job.fault_s}
    bad = {host: code for host, code in codes.items() if code != 0}
    if bad:
        # A rank that hangs is the worst. With the stock stack it only waits for the other one's time-out.
        host, code = min(bad.items(), key=lambda one: (one[1] is None) == case.dies)
        measured["died"] = complaint(job.ranks[host], host, code)
        if job.fault_s:
            if first := noticed(job):
                measured["notice_s"], measured["notice"] = round(first[0], 2), first[1]
            ends = [rank.ended for rank in job.ranks.values()]
            measured["gone_s"] = round(max(ends) - job.fault_s, 2) if all(ends) else None
    if case.dies:
        return ("" if bad else "the stock stack outlived the fault"), measured
    if bad:
        hung = any(code is None for code in codes.values())
        return ("" if case.may_die and not hung else measured["died"]), measured
    if steps := pause(results, job.fault_s):
        measured["median_ms"], measured["longest_ms"] = steps
    if set(results) != set(HOSTS):
        return "a rank told no result", measured
    if not reference:
        return "nothing to compare with: the unbroken run failed", measured
    for host, told in results.items():
        for mine, theirs in zip(told["results"], reference[host]["results"], strict=True):
            if mine["digest"] != theirs["digest"] or mine["losses"] != theirs["losses"]:
                return "rank on %s: another result of %s" % (host, json.dumps(mine["thing"])), measured
    if case.layer and case.switches:
        if len({one["pid"] for one in switched}) < len(HOSTS):
            return "not both ranks have switched: the fault hit nothing", measured
        if missing := set(case.detectors) - set(measured["detectors"]):
            return "nothing was noticed by %s: a fault hit nothing" % ", ".join(sorted(missing)), measured
    return "", measured


def run_case(build, case, directory, settings, backend, references):
    """Runs a case and judges it. `references` keeps results of runs without a fault, by their plan."""
    began = time.monotonic()
    outcome = {"name": case.name, "problem": "", "measured": {}, "results": {}}
    with Job(build, case, directory, settings, backend) as job:
        try:
            codes = job.run()
            outcome["results"] = job.results()
            key = json.dumps(case.things)
            if case.name == "reference" and all(code == 0 for code in codes.values()):
                references[key] = outcome["results"]
            outcome["problem"], outcome["measured"] = judge(job, codes, references.get(key))
        except Failure as failure:
            outcome["problem"] = str(failure)
        except (OSError, subprocess.SubprocessError, KeyError, ValueError) as error:
            outcome["problem"] = "%s: %s" % (type(error).__name__, error)
    outcome["seconds"] = round(time.monotonic() - began, 1)
    return outcome
