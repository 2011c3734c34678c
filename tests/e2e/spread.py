#!/usr/bin/python3
"""Tests that the queue pairs of a broken NIC spread over the other NICs of the host: each gets its share, give or
take one for each end that leads, and no byte is wrong.

The test `e2e_spread` calls this program. Two hosts have eight NICs each. The default NIC of one fails, and then
one of those that took its load. All queue pairs belong to one process, or each to a process of its own. With one
backup for each NIC all queue pairs go to that one, and processes that do not see each other choose alike; the
judge must refuse both, else it proves nothing.
"""

import collections
import dataclasses
import os
import shutil
import sys
import time

from harness.build import Build
from harness.checker import RIGHT, checker_start, report_option
from harness.fabric import Fabric
from harness.options import script_parser
from harness.runs import run_all
from harness.waiting import wait_until

NICS, QPS, PROCESSES = 8, 56, 14
BOUND = 20.0  # seconds until all queue pairs have moved
UNEVEN = "not the share"


@dataclasses.dataclass
class Case:
    fault: str
    side: str  # the host whose NICs fail
    spread: str = "capacity"
    processes: int = 1  # at each host; several have one queue pair each
    see_each_other: bool = True

    def name(self):
        return "%s on %s%s%s%s" % (self.fault, self.side, ", one backup" if self.spread == "one" else "",
                                   ", %d processes" % self.processes if self.processes > 1 else "",
                                   "" if self.see_each_other else " apart")

    def is_uneven(self):
        """Whether the judge has to refuse it."""
        return self.spread == "one" or not self.see_each_other

    def qps(self):
        return QPS if self.processes == 1 else self.processes

    def names(self, end):
        return ["%s-%d" % (end, i) for i in range(self.processes)]


class Moves:
    """Where the queue pairs lie, by what the clients have recorded."""

    def __init__(self, fabric, case):
        self.fabric, self.clients = fabric, case.names("client")

    def records(self):
        return [(name, record) for name in self.clients for record in self.fabric.records("switched", name)]

    def shares(self):
        """How many queue pairs lie on each NIC, by the newest record of each."""
        newest = {(name, record["qp"]): int(record["member"].removeprefix("mlx5_"))
                  for name, record in self.records()}
        return collections.Counter(newest.values())


def spread_problem(found, qps, members, slack):
    """`members`: those that are left; each may have so many more or fewer than its share."""
    if sum(found.values()) != qps or set(found) - set(members):
        return "the queue pairs are on %s" % dict(found)
    share = qps / len(members)
    uneven = {member: found[member] for member in members if abs(found[member] - share) > slack}
    return "%s of %.1f, but %s" % (UNEVEN, share, uneven) if uneven else ""


def fail(moves, clients, case, nic, left, slack):
    """The NIC fails, and `left` are those that can take what it carries."""
    moves.fabric.fault("%s/mlx5_%d" % (case.side, nic), case.fault)

    # On a busy machine a queue pair may move twice, so records are not counted.
    def moved():
        shares = moves.shares()
        return sum(shares.values()) == case.qps() and not set(shares) - set(left)
    if not wait_until(lambda: moved() or any(client.ended for client in clients), BOUND):
        return "not all queue pairs moved away from NIC %d within %g s: %s" % (nic, BOUND, dict(moves.shares()))
    return spread_problem(moves.shares(), case.qps(), left, slack)


def start(fabric, build, case, env):
    """Starts all processes. Returns [(server, client)]; a server that did not start has the client None."""
    many = case.processes > 1
    # Many processes that poll would take the processors from those that start.
    traffic = ["--qps", str(case.qps() // case.processes), "--rate", "20" if many else "2000", "--size", "512",
               "--op", "mixed", "--stall-ms", "15000"] + (["--events"] if many else [])
    patience = ["--timeout-ms", "120000"]
    pairs = []
    for names in zip(case.names("client"), case.names("server")):
        pairs.append(checker_start(fabric, build.traffic, patience + report_option(fabric, names[1]),
                                   ["--until-stop"] + patience + traffic + report_option(fabric, names[0]),
                                   env=env, names=names))
        if pairs[-1][1] is None:
            break
    return pairs


def run(build, case, directory):
    shutil.rmtree(directory, ignore_errors=True)
    os.makedirs(directory)
    # The patience is that of a busy machine: no queue pair leaves a NIC that works.
    env = {"SHIFT_SPREAD": case.spread, "SHIFT_FAILBACK_MS": "100", "SHIFT_RC_TIMEOUT_MAX": "15",
           "SHIFT_STATE_DIR": os.path.abspath(directory) if case.see_each_other else ""}
    with Fabric(build, directory, NICS) as fabric:
        pairs = start(fabric, build, case, env)
        clients = [client for _, client in pairs]
        if clients[-1] is None:
            return "a server did not start"
        moves = Moves(fabric, case)

        def armed():
            return fabric.all_have("armed", case.qps() // case.processes, *case.names("client"),
                                   *case.names("server"))
        if not wait_until(lambda: armed() or any(client.ended for client in clients), 60) or not armed():
            return "not armed"
        # Each end shares out the queue pairs that it leads, and after the second fault by each first choice.
        few = case.processes > 1
        problem = (fail(moves, clients, case, 0, range(1, NICS), 1 if few else 2) or
                   fail(moves, clients, case, NICS - 1, range(1, NICS - 1), 2 if few else 3))
        if problem:
            return problem
        for client in clients:
            progress = client.progress
            client.wait_for(lambda p, least=progress + 100 // case.processes: p.progress > least, 10)
        for client in clients:
            client.tell("stop")
        codes = {end.finish(60) for server, client in pairs for end in (client, server)}
        print("       %s: %s" % (case.name(), dict(sorted(moves.shares().items()))), flush=True)
        return "" if codes == {RIGHT} else "the programs ended with %s" % (codes,)


def run_expected(build, case, directory):
    problem = run(build, case, directory)
    if not case.is_uneven():
        return problem
    return "" if problem.startswith(UNEVEN) else problem or "the judge has not seen that all are on one NIC"


def main():
    parser = script_parser(__doc__, "out/spread")
    parser.add_argument("--jobs", type=int, default=1, help="runs side by side")
    parser.add_argument("--only", help="a part of a case's name")
    options = parser.parse_args()
    build = Build(options.build)
    build.require(build.shift_run, build.traffic)
    begun = time.monotonic()
    cases = [case for case in (Case("link-down", "a"), Case("link-down", "a", "one"), Case("kill", "b"),
                               Case("drop-data", "a"), Case("link-down", "a", processes=PROCESSES),
               Case("link-down", "a", processes=PROCESSES, see_each_other=False))
             if not options.only or options.only in case.name()]
    failed = []

    def tell(case, problem):
        print("%-6s %s%s" % ("FAILED" if problem else "right", case.name(), ": " + problem if problem else ""),
              flush=True)
        if problem:
            failed.append(case)
        else:
            shutil.rmtree(os.path.join(options.out, case.name().replace(" ", "-")))

    run_all(options.jobs, cases,
            lambda case: run_expected(build, case, os.path.join(options.out, case.name().replace(" ", "-"))), tell)
    print("%d cases, %d failed, %.0f s" % (len(cases), len(failed), time.monotonic() - begun))
    return 1 if failed or not cases else 0


if __name__ == "__main__":
    sys.exit(main())
