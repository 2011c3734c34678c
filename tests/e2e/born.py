#!/usr/bin/python3
"""Starts programs on hosts whose NIC is broken: they make their objects, connect, and run as if it was healthy.

The test `e2e_born` calls this program. Before each run a healthy pair of processes meets once, so that each host
knows the other one's addresses, or a redis server knows them instead. Then NICs break, of one host or of both,
before the programs start or while they do, and shift-traffic has to send on, with every byte right. When the NICs
heal, the traffic goes home, except after `kill`: a process does not use a device again that was dead for it. A
seed reproduces the choices of a run.
"""

import dataclasses
import glob
import os
import random
import shutil
import sys
import time

from harness.build import Build
from harness.checker import ENDS, RIGHT
from harness.fabric import Fabric
from harness.faults import FAULTS, healing
from harness.options import script_parser, seed_add
from harness.redis_server import RedisServer
from harness.runs import run_all
from harness.waiting import wait_until

HOSTS = {"a": "client", "b": "server"}
START_S, GO_S, HOME_S = 30, 30, 20
TIMES = ("before", "before", "between", "during")
REDIS = ("", "", "redis", "tcp and redis")


@dataclasses.dataclass
class Plan:
    number: int
    seed: int
    directory: str
    faults: dict = None  # host: fault
    when: str = ""
    client: tuple = ()
    both: tuple = ()
    keyed: bool = False
    redis: str = ""  # one of REDIS

    def __post_init__(self):
        dice = self.dice = random.Random(self.seed)
        hosts = dice.choice((["a"], ["b"], ["a", "b"]))
        self.faults = {host: dice.choice(FAULTS) for host in hosts}
        self.when = dice.choice(TIMES)
        self.keyed = dice.random() < 0.25
        client = ["--rate", "2000", "--size", "4096", "--random-size", "--qps", dice.choice("1124"),
                  "--op", dice.choice(("send", "send_imm", "write_imm", "mixed")),
                  "--api", dice.choice(("classic", "wr")), "--cqs", dice.choice(("classic", "extended")),
                  "--signal-every", dice.choice("137")]
        for option in ("--bidirectional", "--events", "--srq", "--one-cq", "--receiver-rtr"):
            if dice.random() < 0.3:
                client.append(option)
        if "--receiver-rtr" in client and "--bidirectional" in client:
            client.remove("--receiver-rtr")
        self.client = tuple(client)
        self.redis = dice.choice(REDIS)

    def text(self):
        return "%s %s%s%s, %s" % (self.when, ", ".join("%s: %s" % one for one in self.faults.items()),
                                  ", job key" if self.keyed else "", self.redis and ", " + self.redis,
                                  " ".join(self.client))


class Run:
    def __init__(self, fabric, plan, server):
        self.fabric, self.plan = fabric, plan
        self.env = {"SHIFT_FAILBACK_MS": "200", "SHIFT_RC_TIMEOUT_MAX": "14"}
        if plan.keyed:
            path = os.path.join(plan.directory, "key")
            with open(path, "w") as file:
                file.write("%064x\n" % plan.seed)
            os.chmod(path, 0o600)
            self.env["SHIFT_KEY_FILE"] = path
        if plan.redis:
            url = server.url("run%d" % plan.number)
            self.env["SHIFT_RENDEZVOUS"] = url if plan.redis == "redis" else "tcp " + url
        for host in HOSTS:
            os.mkdir(self.state(host))

    def state(self, host):
        return os.path.join(os.path.abspath(self.plan.directory), "state-" + host)

    def start(self, host, name, options):
        env = self.env | {"SHIFT_STATE_DIR": self.state(host)}
        return self.fabric.start(host, name, [self.fabric.build.traffic, "--timeout-ms", "120000", *options],
                                 env=env)

    def server_start(self, name):
        server = self.start("b", name, [])
        return server if server.wait_for(lambda one: one.port, START_S) else None

    def meet(self):
        """Healthy processes meet. Their hosts remember each other."""
        server = self.server_start("server-before")
        if server is None:
            return "the healthy server did not start"
        client = self.start("a", "client-before", ["--messages", "2000", "--rate", "2000", "--bidirectional",
                                                   "--port", server.port, "127.0.0.1"])
        codes = client.finish(30), server.finish(10)
        if self.plan.redis:
            for host in HOSTS:
                self.forget_hosts(host)
        return "" if codes == (RIGHT, RIGHT) else "the healthy pair ended with %s" % (codes,)

    def forget_hosts(self, host):
        """What is known of other hosts is known by the server then."""
        for file in glob.glob(os.path.join(self.state(host), "**", "hosts"), recursive=True):
            os.unlink(file)

    def break_nics(self):
        for host, fault in self.plan.faults.items():
            self.fabric.fault(host + "/mlx5_0", fault)

    def begin(self):
        plan = self.plan
        if plan.when == "before":
            self.break_nics()
        self.server = self.server_start("server")
        if self.server is None:
            return "the server did not start"
        if plan.when == "between":
            self.break_nics()
        self.client = self.start("a", "client", ["--until-stop", *plan.client, "--seed", str(plan.seed), "--port",
                                                 self.server.port, "127.0.0.1"])
        if plan.when == "during":
            time.sleep(plan.dice.uniform(0, 0.3))
            self.break_nics()
        return self.goes_on("after the start", 50)

    def goes_on(self, what, messages):
        before = self.client.progress
        if self.client.wait_for(lambda one: one.progress > before + messages, GO_S):
            return ""
        return "%s: no progress\n%s\n%s" % (what, self.client.text()[-600:], self.server.text()[-600:])

    def is_home(self):
        """Whether both ends' queue pairs are on the default NICs again."""
        for end in ENDS:
            newest = {record["qp"]: record["member"] for record in self.fabric.records("switched", end)}
            if set(newest.values()) - {"mlx5_0"}:
                return False
        return True

    def heal(self):
        for host, fault in self.plan.faults.items():
            self.fabric.fault(host + "/mlx5_0", healing(fault))
        if "kill" not in self.plan.faults.values():
            if not wait_until(lambda: self.is_home() or self.client.ended, HOME_S) or self.client.ended:
                return "not back home within %d s" % HOME_S
        return self.goes_on("after the healing", 50)

    def end(self):
        self.client.tell("stop")
        codes = self.client.finish(30), self.server.finish(10)
        return "" if codes == (RIGHT, RIGHT) else "the programs ended with %s" % (codes,)

    def run(self):
        return self.meet() or self.begin() or self.heal() or self.end()


def run_plan(build, plan, server):
    shutil.rmtree(plan.directory, ignore_errors=True)
    os.makedirs(plan.directory)
    with Fabric(build, plan.directory) as fabric:
        return Run(fabric, plan, server).run()


def main():
    parser = script_parser(__doc__, "out/born")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--jobs", type=int, default=2, help="runs side by side")
    parser.add_argument("--only", help="only plans whose description contains this")
    seed_add(parser)
    options = parser.parse_args()
    build = Build(options.build, getattr(options, "layer", None))
    build.require(build.shift_run, build.traffic)
    plans = [Plan(number, options.seed + number, os.path.join(options.out, str(number)))
             for number in range(options.runs)]
    plans = [plan for plan in plans if not options.only or options.only in plan.text()]
    problems = []

    def tell(plan, problem):
        if problem:
            problems.append(problem)
            print("FAILED seed %d, %s: %s" % (plan.seed, plan.text(), problem), flush=True)
        else:
            shutil.rmtree(plan.directory)

    with RedisServer() as server:
        if server.problem:
            print("runs with redis are left out: %s" % server.problem)
            plans = [plan for plan in plans if not plan.redis]
        run_all(options.jobs, plans, lambda plan: run_plan(build, plan, server), tell)
    print("%d runs, %d failed, seeds from %d" % (len(plans), len(problems), options.seed))
    return 1 if problems else 0 if plans else 3


if __name__ == "__main__":
    sys.exit(main())
