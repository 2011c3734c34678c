#!/usr/bin/python3
"""Tests that the queue pairs of a broken NIC spread over the other NICs of the host: each gets its share, give or
take one for each end that leads, and no byte is wrong.

The test `e2e_spread` calls this program. Two hosts have eight NICs each. The default NIC of one fails, and then
one of those that took its load. With one backup for each NIC all queue pairs go to that one, which the judge must
refuse, else it proves nothing.
"""

import collections
import dataclasses
import os
import shutil
import sys
import time

from harness.build import Build
from harness.checker import ENDS, RIGHT, checker_start, report_option
from harness.fabric import Fabric
from harness.options import script_parser
from harness.runs import run_all
from harness.waiting import wait_until

NICS, QPS = 8, 56
BOUND = 20.0  # seconds until all queue pairs have moved
UNEVEN = "not the share"


@dataclasses.dataclass
class Case:
    fault: str
    side: str  # the host whose NICs fail
    spread: str = "capacity"

    def name(self):
        return "%s on %s%s" % (self.fault, self.side, ", one backup" if self.spread == "one" else "")


def shares(fabric):
    """How many queue pairs lie on each NIC, by the newest record of each at the client."""
    records = fabric.records("switched", "client")
    newest = {record["qp"]: int(record["member"].removeprefix("mlx5_")) for record in records}
    return collections.Counter(newest.values())


def spread_problem(found, members, slack):
    """`members`: those that are left; each may have so many more or fewer than its share."""
    if sum(found.values()) != QPS or set(found) - set(members):
        return "the queue pairs are on %s" % dict(found)
    share = QPS / len(members)
    uneven = {member: found[member] for member in members if abs(found[member] - share) > slack}
    return "%s of %.1f, but %s" % (UNEVEN, share, uneven) if uneven else ""


def fail(fabric, client, case, nic, left, slack):
    """The NIC fails, and `left` are those that can take what it carries."""
    before = len(fabric.records("switched", "client"))
    moving = shares(fabric)[nic] or QPS  # nothing has moved to the default yet
    fabric.fault("%s/mlx5_%d" % (case.side, nic), case.fault)

    def moved():
        return (len(fabric.records("switched", "client")) >= before + moving and
                not set(shares(fabric)) - set(left))
    if not wait_until(lambda: moved() or client.ended, BOUND):
        return "%d of %d queue pairs moved away from NIC %d within %g s: %s" % (
            len(fabric.records("switched", "client")) - before, moving, nic, BOUND, dict(shares(fabric)))
    return spread_problem(shares(fabric), left, slack)


def run(build, case, directory):
    shutil.rmtree(directory, ignore_errors=True)
    os.makedirs(directory)
    env = {"SHIFT_SPREAD": case.spread, "SHIFT_FAILBACK_MS": "100"}
    with Fabric(build, directory, NICS) as fabric:
        server, client = checker_start(
            fabric, build.traffic, ["--timeout-ms", "120000"] + report_option(fabric, "server"),
            ["--until-stop", "--timeout-ms", "120000", "--qps", str(QPS), "--rate", "2000", "--size", "512",
             "--op", "mixed", "--stall-ms", "15000"] + report_option(fabric, "client"), env=env)
        if client is None:
            return "the server did not start"
        if not wait_until(lambda: fabric.all_have("armed", QPS, *ENDS) or client.ended, 60) or client.ended:
            return "not armed"
        # Each end shares out the queue pairs that it leads, and after the second fault by each first choice.
        problem = (fail(fabric, client, case, 0, range(1, NICS), 2) or
                   fail(fabric, client, case, NICS - 1, range(1, NICS - 1), 3))
        if problem:
            return problem
        progress = client.progress
        client.wait_for(lambda p: p.progress > progress + 100, 10)
        client.tell("stop")
        codes = client.finish(60), server.finish(20)
        print("       %s: %s" % (case.name(), dict(sorted(shares(fabric).items()))), flush=True)
        return "" if codes == (RIGHT, RIGHT) else "the programs ended with %s" % (codes,)


def run_expected(build, case, directory):
    problem = run(build, case, directory)
    if case.spread == "capacity":
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
                               Case("drop-data", "a"))
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
