"""Judges how long programs stood still at a fault: at most as long as the traffic took to move, and as a program
of the same kind stood still meanwhile on the stock stack, without a fault.

No single run can tell, because the machine may be late in any of them. So runs are judged by class, which is how
the program waits, and whether something tells the layer of the fault. The middle of a class counts.
"""

import dataclasses
import statistics

# What a program may wait beyond the switch and the stock stack's pause, in ms, on a machine that is in time;
# bench/README.md says how it was found. When stock programs stand still for longer than BUSY_MS without a fault,
# nothing can be said.
BOUND_MS, BUSY_MS = 20.0, 50.0
RUNS_MIN = 5

TOLD = {"link-down", "kill"}  # the layer is told of these faults; all others are silent


def kind_of(sleeps, fault):
    return "%s, %s fault" % ("sleeps" if sleeps else "polls", "told" if fault in TOLD else "silent")


def longest_ms(pauses, begin_ns, end_ns):
    """The longest of these pauses, each (begin_ns, end_ns), that lie in a span of time at least in part."""
    return max((end - begin for begin, end in pauses if end > begin_ns and begin < end_ns), default=0) / 1e6


def switch_ms(records, fault_ns):
    """The time from a fault until every queue pair goes on, by the records `switched` of both ends."""
    firsts = {}
    for record in records:
        if record["evidence_ns"] >= fault_ns:
            firsts.setdefault((record["pid"], record["qp"]), record["end_ns"])
    return (max(firsts.values()) - fault_ns) / 1e6 if firsts else None


@dataclasses.dataclass(frozen=True)
class Pause:
    """What one run showed, in ms."""
    kind: str
    name: str
    seen_ms: float    # the longest time without progress after the fault, at the program
    switch_ms: float  # from the fault until both ends' traffic went on
    stock_ms: float   # the longest time without progress at a program on the stock stack

    @property
    def excess_ms(self):
        return self.seen_ms - self.switch_ms - self.stock_ms

    def text(self):
        return "%s: stood still for %.1f ms, of which the switch took %.1f; stock beside it %.1f" % (
            self.name, self.seen_ms, self.switch_ms, self.stock_ms)


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What is said of a class."""
    kind: str
    runs: int
    excess_ms: float  # the middle of what was beyond switch and stock
    stock_ms: float   # the middle of the stock stack's pauses
    unjudged: str     # why the class is not judged, or ''

    @property
    def bound_ms(self):
        """A machine that is late makes both programs late."""
        return max(BOUND_MS, 2 * self.stock_ms)

    @property
    def failed(self):
        return not self.unjudged and self.excess_ms > self.bound_ms

    def text(self):
        result = "right" if not self.failed else "FAILED"
        if self.unjudged:
            result = "not judged: " + self.unjudged
        return "%-20s %3d runs: %.1f ms beyond the switch and stock's %.1f; bound %.0f: %s" % (
            self.kind, self.runs, self.excess_ms, self.stock_ms, self.bound_ms, result)


def verdict(kind, pauses, unjudged):
    stock_ms = statistics.median(pause.stock_ms for pause in pauses)
    if not unjudged and len(pauses) < RUNS_MIN:
        unjudged = "fewer than %d runs" % RUNS_MIN
    if not unjudged and stock_ms > BUSY_MS:
        unjudged = "the machine is too busy, since the stock stack stands still, too"
    return Verdict(kind, len(pauses), statistics.median(pause.excess_ms for pause in pauses), stock_ms, unjudged)


def judge(pauses, unjudged=""):
    """One verdict for each class. `unjudged` is a reason not to judge any, such as a sanitizer."""
    kinds = {}
    for pause in pauses:
        kinds.setdefault(pause.kind, []).append(pause)
    return [verdict(kind, kinds[kind], unjudged) for kind in sorted(kinds)]


def judge_twice(measured, run, unjudged=""):
    """Yields a verdict for each class, and the runs that it is about, of `measured`, a list of (run, its pause). A
    class that fails is run once more, by run(one), which returns the pause or None, and these runs alone count,
    since the machine may have been late in most of a few runs."""
    for first in judge([pause for _, pause in measured], unjudged):
        members = [(one, pause) for one, pause in measured if pause.kind == first.kind]
        if not first.failed:
            yield first, members
            continue
        again = [(one, pause) for one, pause in ((one, run(one)) for one, _ in members) if pause]
        verdicts = judge([pause for _, pause in again])
        yield (verdicts[0] if verdicts else dataclasses.replace(first, unjudged="no run came to its end again"),
               again)
