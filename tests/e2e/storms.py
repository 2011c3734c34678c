#!/usr/bin/python3
"""Runs storms: runs with many faults on any NIC of either host, where every byte is judged.

The test `e2e_storms` calls this program. There are two kinds of storms. `sheltered`: at every moment some NIC
pair has been good for a while, so the program must finish. `wild`: all paths may be lost; the program finishes
or gets an error in time. In some storms one of the two processes is killed; the other one must soon get, on
every QP, the error that the stock library gives. There may never be a wrong byte, a lost or double completion,
or a hang. The traffic is that of shift-traffic or of NCCL's net_ib transport. The seed and the index of a run
decide all of it, also whether it has a job key: `--seed S --only I` repeats one run.
"""

import dataclasses
import os
import re
import shutil
import sys
import time

from harness import checker
from harness.build import Build
from harness.fabric import Fabric
from harness.options import (journal_add, journal_again, journal_settings, key_add, key_again, layer_add, runs_add,
                             script_parser)
from harness.report import write_json
from harness.runs import run_all
from harness.waiting import wait_until

from e2e import weather
from e2e.key_files import JobKey

STALL_MS = 12000
# A survivor must get its errors within the stall bound; to start and to end takes time, too.
DEATH_BOUND_S = STALL_MS / 1000 + 3
NOT_ARMED = "not protected before the storm"
# The error is "retry exceeded", or a flush that was polled before it.
STOCK_ERROR = re.compile(r"wc status (12|5) |^post_")
TRAFFICS = ["checker", "nccl"]
KILLED = -9  # the exit code after SIGKILL


@dataclasses.dataclass
class Outcome:
    problems: list
    codes: tuple = (None, None)
    rounds: int = 0
    was_killed: bool = False
    survivor_s: float = 0.0


def blow(fabric, storm, programs):
    """Runs the script; a flap is three short losses of the link. Returns whether a program was killed."""
    for pause, name, fault in storm.script:
        if any(program.ended for program in programs.values()):
            return False
        time.sleep(pause)
        if fault == weather.DEATH:
            programs[name].slay()
            return True
        if fault == "flap":
            for _ in range(3):
                fabric.fault(name, "link-down")
                time.sleep(0.02)
                fabric.fault(name, "link-up")
                time.sleep(0.03)
        elif name:
            fabric.fault(name, fault)
    return False


def start_pair(fabric, storm, env):
    program = fabric.build.traffic if storm.traffic == "checker" else fabric.build.nccl
    common = ["--stall-ms", str(STALL_MS), "--timeout-ms", "120000", "--outlive"]
    return checker.checker_start(
        fabric, program, common + checker.report_option(fabric, "server"),
        common + checker.report_option(fabric, "client") + ["--until-stop"] + storm.options, env=env)


def is_armed(fabric, storm):
    return fabric.all_have("armed", storm.qps, *checker.ENDS)


def end_quietly(client, server):
    """Checks that the traffic goes on when everything is good again, and ends it."""
    progress = client.progress
    client.wait_for(lambda p: p.progress > progress, 12)
    client.tell("stop")
    return client.finish(60), server.finish(20)


def end_of_survivor(storm, client, server, outcome):
    begun = time.monotonic()
    programs = {"client": client, "server": server}
    programs.pop(storm.victim).finish(20)
    (survivor,) = programs.values()
    survivor.finish(DEATH_BOUND_S + 5)
    outcome.survivor_s = time.monotonic() - begun
    return client.process.returncode, server.process.returncode


def judge(fabric, storm, outcome):
    codes = dict(zip(checker.ENDS, outcome.codes))
    if outcome.was_killed and codes[storm.victim] in checker.CODES:
        outcome.was_killed = False  # it ended by itself just before it was killed
    if outcome.was_killed:
        code = codes.pop(storm.victim)
        if code != KILLED:
            outcome.problems.append("the victim ended with %s" % code)
        (name,) = codes
        error = checker.report_of(fabric.directory, name).get("error", "")
        if codes[name] == checker.RIGHT:
            outcome.problems.append("the survivor got no error")
        elif codes[name] == checker.ERROR and not STOCK_ERROR.search(error):
            outcome.problems.append("the survivor's error is not the original one: %s" % error)
        if outcome.survivor_s > DEATH_BOUND_S:
            outcome.problems.append("the survivor ended only after %.1f s" % outcome.survivor_s)
    if checker.VIOLATION in codes.values():
        outcome.problems.append("violation")
    if any(code in (None, checker.HANG, KILLED) for code in codes.values()):
        outcome.problems.append("hang")
    if (storm.kind == "sheltered" and not outcome.was_killed and not outcome.problems and
            outcome.codes != (0, 0)):
        outcome.problems.append("an error reached the program")
    if wrong := fabric.wrong_access(*checker.ENDS):
        outcome.problems.append(wrong)
    if any(code not in (*checker.CODES, KILLED, None) for code in codes.values()):
        outcome.problems.append("ended with %s" % (outcome.codes,))


def run_once(build, storm, directory, settings):
    os.makedirs(directory, exist_ok=True)
    outcome = Outcome([])
    env = {**settings, "SHIFT_FAILBACK_MS": "200"}
    if storm.reads_back and storm.index % 2:
        env["CXEMU_HOLD_WRITES"] = "3"  # data is there when it was read back, and perhaps not before
    if storm.nics > 2:
        env["SHIFT_PAIRS"] = "=".join("mlx5_%d" % i for i in range(storm.nics))
    with Fabric(build, directory, storm.nics) as fabric:
        server, client = start_pair(fabric, storm, env)
        if client is None:
            return Outcome(["the server did not start"])
        # An end that has not begun yet when the other one dies ends without asking its QPs.
        wait_until(lambda: (is_armed(fabric, storm) and client.progress > 0) or client.ended, 20)
        if client.ended or not is_armed(fabric, storm):
            client.tell("stop")
            return Outcome([NOT_ARMED], (client.finish(60), server.finish(20)))
        outcome.was_killed = blow(fabric, storm, {"client": client, "server": server})
        outcome.codes = (end_of_survivor(storm, client, server, outcome) if outcome.was_killed else
                         end_quietly(client, server))
        outcome.rounds = len(fabric.records("switched", *checker.ENDS))
        judge(fabric, storm, outcome)
    return outcome


def run_storm(build, storm, directory, settings):
    for _ in range(3):
        shutil.rmtree(directory, ignore_errors=True)  # event records are appended to old ones
        outcome = run_once(build, storm, directory, settings)
        # When the machine gives a host no processor for a tenth of a second, a QP breaks before it is
        # protected, as it does with the stock library.
        if outcome.problems != [NOT_ARMED]:
            break
    return outcome


def parse():
    parser = script_parser(__doc__, "out/storms")
    layer_add(parser)
    runs_add(parser, 20)  # for each kind of traffic
    key_add(parser)
    journal_add(parser)
    parser.add_argument("--traffic", choices=TRAFFICS, action="append", help="default: both")
    parser.add_argument("--kind", choices=["sheltered", "wild"], help="run storms of this kind only")
    parser.add_argument("--deaths", action="store_true", help="run storms with a death only")
    parser.add_argument("--keep-records", action="store_true", help="keep their event records")
    return parser.parse_args()


def chosen(options):
    for traffic in options.traffic or TRAFFICS:
        for index in options.only or range(options.runs):
            storm = weather.make(options.seed, index, traffic)
            if (options.kind in (None, storm.kind)) and (storm.victim or not options.deaths):
                yield storm


def draw(storm):
    return storm.seed, storm.index, storm.traffic


def tell(options, key, storm, outcome, directory):
    word = "right" if not outcome.problems else "FAILED: " + ", ".join(outcome.problems)
    late = ", survivor ended after %.1f s" % outcome.survivor_s if outcome.was_killed else ""
    print("storm %d (%s%s): %d rounds, exit codes %s and %s%s: %s" % (
        storm.index, storm.name(), key.word(*draw(storm)), outcome.rounds, *outcome.codes, late, word), flush=True)
    if outcome.problems:
        write_json(os.path.join(directory, "storm.json"), dataclasses.asdict(storm))
        print("  again: %s --build %s%s --traffic %s --seed %d --only %d --keep" % (
            os.path.relpath(__file__), options.build, key_again(options) + journal_again(options), storm.traffic,
            options.seed, storm.index), flush=True)
    elif options.keep_records:
        for entry in os.scandir(directory):
            if entry.is_file() and not entry.name.endswith(".events"):
                os.remove(entry.path)
    elif not options.keep:
        shutil.rmtree(directory, ignore_errors=True)


def main():
    options = parse()
    build = Build(options.build, options.layer)
    build.require(build.shift_run, build.traffic, build.nccl)
    key = JobKey(build, options)
    begun, outcomes = time.monotonic(), []
    place = lambda storm: os.path.join(
        options.out, "%s-%d-%d" % (storm.traffic, storm.seed, storm.index))

    def note(storm, outcome):
        outcomes.append(outcome)
        tell(options, key, storm, outcome, place(storm))

    picked = list(chosen(options))
    settings = lambda *run: key.settings(*run) | journal_settings(options, *run)
    run_all(options.jobs, picked, lambda s: run_storm(build, s, place(s), settings(*draw(s))), note)
    figures = {"storms": len(outcomes), "finished": sum(o.codes == (0, 0) for o in outcomes),
               "with_key": sum(key.has(*draw(storm)) for storm in picked),
               "killed": sum(o.was_killed for o in outcomes),
               "failed": sum(bool(o.problems) for o in outcomes),
               "rounds": sum(o.rounds for o in outcomes), "seed": options.seed}
    print("%(storms)d storms, %(with_key)d with a job key, %(finished)d finished, %(killed)d with a death, "
          "%(failed)d failed, %(rounds)d rounds, seed %(seed)d" % figures
          + ", %.0f s" % (time.monotonic() - begun))
    write_json(options.json, figures)
    return 1 if figures["failed"] or not outcomes else 0


if __name__ == "__main__":
    sys.exit(main())
