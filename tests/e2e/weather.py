"""Draws storms: the faults of a run, when they come, and the traffic under them.

The seed and the index of a storm decide all of it.
"""

import dataclasses
import random

from harness.faults import SIDES

FAULTS = ["link-down", "link-down", "drop-acks", "drop-data", "drop-data", "flap"]
# A refuge is a NIC pair that stays good for REFUGE_S; then it and the next one are good for OVERLAP_S.
REFUGE_S, OVERLAP_S = 1.8, 1.2
DEATH = "death"


@dataclasses.dataclass
class Storm:
    seed: int
    index: int
    traffic: str
    kind: str
    nics: int
    qps: int       # how many are protected at each end
    options: list
    script: list   # (seconds since the last fault, "host/device" or program, fault)
    victim: str    # the program that dies, or ""

    def name(self):
        more = ", death of the %s" % self.victim if self.victim else ""
        return "%s %s %s, %d NICs, %d events%s" % (
            self.kind, self.traffic, self.shape(), self.nics, len(self.script), more)

    @property
    def reads_back(self):
        """Whether the receiver READs through a QP that is connected to itself before it looks at the data."""
        return self.traffic == "nccl" and "--no-flush" not in self.options

    def shape(self):
        option = "--op" if self.traffic == "checker" else "--qps"
        return "%s %s" % (option[2:], self.options[self.options.index(option) + 1])


def nic(host, index):
    return "%s/mlx5_%d" % (host, index)


def sheltered_script(dice, nics, phases):
    """Each phase has its refuge; all other NICs break and heal at random."""
    script, broken = [], set()

    def heal(name, pause):
        if name in broken:
            broken.discard(name)
            script.append((pause, name, "heal"))

    refuge = {nic("a", 0), nic("b", 0)}
    for _ in range(phases):
        left = REFUGE_S
        while left > 0:
            pause = dice.uniform(0.02, 0.7)
            left -= pause
            name = nic(dice.choice(SIDES), dice.randrange(nics))
            if name in refuge:
                script.append((pause, "", ""))
            elif name in broken:
                heal(name, pause)
            else:
                broken.add(name)
                script.append((pause, name, dice.choice(FAULTS)))
        # The next refuge is any NIC pair, also one across rails.
        following = {nic(host, dice.randrange(nics)) for host in SIDES}
        for name in following:
            heal(name, 0.0)
        script.append((OVERLAP_S, "", ""))
        refuge = following
    for name in sorted(broken):
        script.append((0.05, name, "heal"))
    return script


def wild_script(dice, nics, events):
    script = []
    for _ in range(events):
        name = nic(dice.choice(SIDES), dice.randrange(nics))
        fault = dice.choice(FAULTS + ["heal", "heal", "heal", "heal", "heal", "kill"])
        # Faults often come close together: during a failover, or during the failback.
        pause = dice.choice([dice.uniform(0, 0.01), dice.uniform(0, 0.2), dice.uniform(0.2, 1.5)])
        script.append((pause, name, fault))
    for host in SIDES:
        for index in range(nics):
            script.append((0.05, nic(host, index), "heal"))
    return script


def with_death(dice, script, victim):
    """Cuts the script off at some event. Soon after it, often during the failover, the victim dies."""
    script = script[:dice.randrange(len(script) + 1)]
    pause = dice.choice([dice.uniform(0, 0.02), dice.uniform(0, 0.15), dice.uniform(0.1, 1.0)])
    return script + [(pause, victim, DEATH)]


def checker_options(dice):
    qps = dice.choice([1, 1, 2, 4])
    options = ["--op", dice.choice(["write", "write_imm", "send", "send_imm", "read", "mixed"]),
               "--api", dice.choice(["classic", "wr"]),
               "--qps", str(qps), "--depth", str(dice.choice([8, 32, 64])),
               "--rate", str(dice.choice([300, 1500, 3000])),
               "--signal-every", str(dice.choice([1, 1, 2, 4])),
               "--size", str(dice.choice([64, 4096, 16384])), "--random-size",
               "--seed", str(dice.randrange(1 << 32))]
    for chance, option in ((0.4, "--bidirectional"), (0.3, "--events"), (0.2, "--sig-all"),
                           (0.2, "--one-cq")):
        if dice.random() < chance:
            options.append(option)
    return qps, options


def nccl_options(dice):
    qps, connections = dice.choice([1, 4, 16]), dice.choice([1, 1, 2])
    options = ["--qps", str(qps), "--connections", str(connections),
               "--depth", str(dice.choice([4, 8, 32])), "--rate", str(dice.choice([200, 1000])),
               "--group", str(dice.choice([1, 1, 4, 8])),
               "--size", str(dice.choice([2000, 8192, 32768])), "--random-size",
               "--separate-from", str(dice.choice([0, 1000])),
               "--qp-timeout", str(dice.choice([18, 20])),
               "--seed", str(dice.randrange(1 << 32))]
    for chance, option in ((0.5, "--split"), (0.3, "--cts-inline"), (0.2, "--no-flush"),
                           (0.7, "--bidirectional")):
        if dice.random() < chance:
            options.append(option)
    return connections * (qps + 1), options


def make(seed, index, traffic):
    dice = random.Random("storm %s %d/%d" % (traffic, seed, index))
    kind = dice.choice(["sheltered", "wild"])
    nics = dice.choice([2, 2, 2, 3, 5, 8])
    qps, options = checker_options(dice) if traffic == "checker" else nccl_options(dice)
    script = (sheltered_script(dice, nics, dice.choice([1, 2, 3])) if kind == "sheltered" else
              wild_script(dice, nics, dice.choice([4, 8, 12])))
    victim = dice.choice(["client", "server"]) if dice.random() < 0.2 else ""
    if victim:
        script = with_death(dice, script, victim)
        # If no path is left, nothing tells the survivor of the death: it waits as long as its QPs' timeout
        # asks. That must end within the stall bound.
        if "--qp-timeout" in options:
            options[options.index("--qp-timeout") + 1] = "14"
    return Storm(seed, index, traffic, kind, nics, qps, options, script, victim)
