"""Draws the runs of a campaign. Each run is a cell; the seed and its index decide all of it."""

import dataclasses
import random

from harness.faults import FAULTS, SIDES
from harness.pauses import TOLD

OPS = ["write", "write_imm", "send", "send_imm", "read", "mixed"]
APIS = ["classic", "wr"]

# The kinds of runs beside the masked fault, and how many of each kind a campaign of 200 runs has.
SPECIALS = {
    "clean": 4,            # no fault at all
    "late_packets": 8,     # LATE: packets of the old path arrive after the traffic has moved
    "heal": 8,             # the NIC comes back while the traffic goes on
    "heal_quiet": 4,       # ... and the sender is idle, or none of its requests is signaled
    "idle_backup": 6,      # the backup NIC fails while nothing uses it
    "second_fault": 8,     # then a backup NIC fails: traffic goes across rails, or the error comes
    "both_nics": 3,        # default and backup of one side fail together
    "early_fault": 5,      # the fault comes before a second path is ready
    "peer_stock": 4,       # the peer runs without the layer, no fault
    "peer_stock_fault": 4,  # ... the program dies as with the stock library
    "peer_stock_pause": 4,  # ... the network is back before stock retries end
    "disabled": 2,
    "disabled_fault": 3,
    "stock_fault": 4,      # for contrast: without the layer the fault is fatal
    "atomic": 6,           # atomics are in flight: they are masked or fail, without a wrong value
}

# This delay is longer than all the retries of a protected QP, which take 70 to 120 ms, but shorter than the
# time until the path that was left is tried again (100 ms later), with another QP.
LATE_MS = 150
LATE = "delay=%d" % LATE_MS

# The stock library bears this silence with the patience that the programs then ask for (4 s); a protected QP
# would not (60 ms). To break and to heal takes time, too.
PAUSE_S = 0.2
PATIENT = ["--qp-timeout", "17"]

# An error that cannot be masked must reach the program within so many seconds (C6).
ERROR_BOUND = 8.0
# So long without progress is a hang (C7). After half of it the judge looks for missing completions, which is
# later than SHIFT_EXCHANGE_MS after the NIC has noticed the fault, also on a busy machine.
STALL_MS = 10000


# Without a fault such traffic never stands still for longer than a few milliseconds.
STEADY = ["--qps", "2", "--rate", "3000", "--size", "4096", "--random-size", "--credits", "tcp"]
PACED = [(waits, op, is_told) for op in OPS for is_told in (True, False) for waits in ("polls", "sleeps")]

# With these options a sender gives the layer nothing to see between the fault and the failback.
QUIET = [{"--rate": "1", "--signal-every": "1", "--batch": "1"},
         {"--rate": "20", "--signal-every": "32", "--depth": "64", "--batch": "1"}]


@dataclasses.dataclass
class Cell:
    seed: int
    index: int
    kind: str           # "masked" or one of SPECIALS
    fault: str          # or "" when there is none
    op: str
    side: str           # the host whose default NIC fails
    api: str
    at: int             # the NIC fails when the client has completed so many messages
    delay_ms: float     # ... and then so much later
    after_ms: float     # how long the traffic goes on after the fault had its effect
    second_fault: str
    second_side: str
    options: list       # further options of shift-traffic
    waits: str = ""     # how the program waits, when its pause is judged: "polls" or "sleeps"

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
    # New options are drawn last, so that an old seed still gives the same run.
    options += dice.choice([[], [], ["--cqs", "extended"], ["--cqs", "stamped"]])
    # With a shared queue a message may come before its receive, so the RNR retries must stay on.
    if dice.random() < 0.2 and "--rnr-retry" not in options:
        options.append("--srq")
    # These are link-local GIDs of both versions of RoCE; they hold no IPv4 address of the peer.
    options += dice.choice([[]] * 8 + [["--gid-index", "0"], ["--gid-index", "1"]])
    return cell


def plan(seed, runs):
    """Makes `runs` cells. Every fault x op x side x api comes once before any of them comes twice."""
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
            fault = "link-down"  # an idle program does not notice a silent fault
        op = "atomic" if kind == "atomic" else dice.choice(OPS)
        cells.append((kind, fault, op, dice.choice(SIDES), dice.choice(APIS)))
    dice.shuffle(cells)
    return paced([make(seed, i, *c) for i, c in enumerate(cells)])


def paced(drawn):
    """Makes the pauses of a quarter of the masked runs fit to be judged: so many of each class, with all
    operations among them. Their traffic is steady, since other traffic stands still by itself."""
    left = [cell for cell in drawn if cell.kind == "masked"]
    if len(left) < 4 * len(PACED):
        return drawn
    for waits, op, is_told in PACED:
        cell = next((c for c in left if c.op == op and (c.fault in TOLD) == is_told), None)
        if cell is None:
            continue
        left.remove(cell)
        pace(cell, waits)
    return drawn


def pace(cell, waits):
    cell.waits = waits
    cell.after_ms = 40
    # A sleeper has other work, too: its credits come over TCP. So it sees that its channel is readable, and
    # then waits for the event that was announced.
    cell.options = STEADY + ["--seed", str(cell.index)] + (["--events"] if waits == "sleeps" else [])
