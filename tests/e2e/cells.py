"""What a campaign runs: each cell is one run, made from a seed and its index alone."""

import dataclasses
import random

from harness.faults import FAULTS, SIDES

OPS = ["write", "write_imm", "send", "send_imm", "read", "mixed"]
APIS = ["classic", "wr"]

# Kinds of runs beside the masked fault, and how many of each go into a campaign of 200.
SPECIALS = {
    "clean": 4,            # no fault at all
    "late_packets": 8,     # LATE: what the old path carries arrives after the traffic moved
    "heal": 8,             # the NIC comes back while the traffic goes on
    "heal_quiet": 4,       # ... of a sender that is idle, or to whom nothing is signaled meanwhile
    "idle_backup": 6,      # the backup NIC fails while nothing uses it
    "second_fault": 8,     # then the backup NIC of either side: across rails, or the error in time
    "both_nics": 3,        # default and backup of one side fail together
    "early_fault": 5,      # before a second path is ready: masked if the ends have met
    "peer_stock": 4,       # the peer runs without the layer, no fault
    "peer_stock_fault": 4,  # ... and dies as stock does
    "peer_stock_pause": 4,  # ... and the network comes back before stock gives up
    "disabled": 2,
    "disabled_fault": 3,
    "stock_fault": 4,      # contrast: without the layer the same fault is fatal
    "atomic": 6,           # atomics in flight: masked or an error, never a wrong value
}

# A delay beyond all the retries of a protected QP, which take 70 to 120 ms, but below the pause after
# which the path that was left is tried again (100 ms later): then its QP is not the old one any more.
LATE_MS = 150
LATE = "delay=%d" % LATE_MS

# A silence that stock bears with the patience that the programs ask for then (4 s), and a protected QP
# would not (60 ms). The orders to break and to heal take their time, too.
PAUSE_S = 0.2
PATIENT = ["--qp-timeout", "17"]

# Seconds within which an error that cannot be masked must reach the program (C6).
ERROR_BOUND = 8.0
# No progress for so long is a hang (C7). Halfway through it the judge misses completions: later than
# SHIFT_EXCHANGE_MS after the NIC has noticed, on a machine that is busy.
STALL_MS = 10000


# Senders that the layer hears nothing from between the fault and the way back.
QUIET = [{"--rate": "1", "--signal-every": "1", "--batch": "1"},
         {"--rate": "20", "--signal-every": "32", "--depth": "64", "--batch": "1"}]


@dataclasses.dataclass
class Cell:
    seed: int
    index: int
    kind: str           # "masked" or one of SPECIALS
    fault: str          # "" without one
    op: str
    side: str           # host whose default NIC fails
    api: str
    at: int             # progress of the client (messages) at which it fails
    delay_ms: float     # and then so much later
    after_ms: float     # how long the traffic goes on when all is settled
    second_fault: str
    second_side: str
    options: list       # further options of shift-traffic

    def name(self):
        return "%s %s %s on %s, %s" % (self.kind, self.fault or "no-fault", self.op, self.side,
                                       self.api)


def make(seed, index, kind, fault, op, side, api):
    """Draws the rest of a cell."""
    dice = random.Random("%d/%d" % (seed, index))
    qps = dice.choice([1, 1, 1, 2, 2, 4, 8])
    bidirectional = dice.random() < 0.35
    credits_verbs = dice.random() < 0.2
    inline = dice.choice([0, 0, 0, 64, 200])
    depth = dice.choice([8, 32, 32, 64])
    rate = dice.choice([1500, 3000, 6000])
    options = ["--qps", str(qps), "--depth", str(depth), "--rate", str(rate),
               "--signal-every", str(dice.choice([1, 1, 2, depth // 4, depth // 2])),
               "--batch", str(dice.choice([1, 1, 1, 3, 8])),
               "--sges", str(dice.choice([1, 1, 2, 4])),
               "--seed", str(dice.randrange(1 << 32))]
    options += dice.choice([["--size", "64"], ["--size", "4096", "--random-size"],
                            ["--size", "4096", "--random-size"], ["--size", "16384"],
                            ["--size", "30000", "--random-size"]])
    if inline:
        options += ["--inline", str(inline)]
    if bidirectional:
        options.append("--bidirectional")
    if credits_verbs:
        options += ["--credits", "verbs"]
    elif not bidirectional and dice.random() < 0.25:
        options.append("--receiver-rtr")
    if dice.random() < 0.3:
        options.append("--events")
    if dice.random() < 0.2:
        options.append("--one-cq")
    if dice.random() < 0.15:
        options.append("--sig-all")
    if dice.random() < 0.15:
        options += ["--rnr-retry", "0"]
    at = int(rate * dice.uniform(0.01, 0.12))
    if kind == "heal_quiet":
        options = [o for o in options if o not in ("--sig-all", "--receiver-rtr")]
        for name, value in dice.choice(QUIET).items():
            options[options.index(name) + 1] = value
        at = 1
    if kind == "peer_stock_pause":
        options += PATIENT
    cell = Cell(seed=seed, index=index, kind=kind, fault=fault, op=op, side=side, api=api,
                at=at, delay_ms=dice.uniform(0, 4),
                after_ms=dice.uniform(40, 120),
                second_fault=dice.choice(FAULTS), second_side=dice.choice(SIDES),
                options=options)
    # Drawn last: what an older seed gave, it gives still.
    options += dice.choice([[], [], ["--cqs", "extended"], ["--cqs", "stamped"]])
    # Messages may meet an empty shared queue while the receives follow.
    if dice.random() < 0.2 and "--rnr-retry" not in options:
        options.append("--srq")
    # Link-local GIDs, of either version of RoCE, by which nobody finds the peer without asking.
    options += dice.choice([[]] * 8 + [["--gid-index", "0"], ["--gid-index", "1"]])
    return cell


def plan(seed, runs):
    """`runs` cells: every fault x op x side x api before any of them comes twice."""
    dice = random.Random(seed)
    kinds = [kind for kind, weight in SPECIALS.items()
             for _ in range(max(1, round(weight * runs / 200)))]
    if runs < 2 * len(SPECIALS):
        kinds = []
    matrix = [(f, o, s, a) for f in FAULTS for o in OPS for s in SIDES for a in APIS]
    drawn = []
    while len(drawn) < runs - len(kinds):
        dice.shuffle(matrix)
        drawn += matrix
    drawn = drawn[:runs - len(kinds)]
    cells = [("masked",) + d for d in drawn]
    for kind in kinds:
        fault = dice.choice(FAULTS)
        if kind in ("clean", "peer_stock", "disabled"):
            fault = ""
        elif kind == "late_packets":
            fault = LATE
        elif kind == "peer_stock_pause":
            fault = dice.choice(["drop-acks", "drop-data"])
        elif kind == "heal_quiet":
            fault = "link-down"  # an idle program does not notice a silent one, and loses nothing
        op = "atomic" if kind == "atomic" else dice.choice(OPS)
        cells.append((kind, fault, op, dice.choice(SIDES), dice.choice(APIS)))
    dice.shuffle(cells)
    return [make(seed, i, *c) for i, c in enumerate(cells)]
