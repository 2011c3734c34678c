"""The page that performance.py writes: what was measured, how, what misses its budget, and what bounds it."""

import textwrap

import environment
import perftest_cost
import verbs_cost
from budgets import CONNECTING, CONNECTING_PART, CONNECTING_TEXT, CONNECTING_US, budget

JUDGED = "notes"  # the default is held against the budgets
JUDGEMENT = ("budget", f"{JUDGED}: its budget")
UNPROTECTED = ["", "not protected"]
LEAST = 0.05  # what is printed as 0.0 is no miss
COLUMNS = 110

INTRODUCTION = """\
Several manners take turns, each run of one followed by a run of the next: **stock** is the program on the
distribution's own library; **copies** is the program under SHIFT with `SHIFT_JOURNAL=copies`, where the
journal copies each request; **notes** is SHIFT as it is by default, where the journal keeps a note of what
the NIC's own queue does not hold ([decision 32](decisions/0032-salvage.md)); **auto** is notes with
`SHIFT_MODE=auto`, where the packets of each request are counted as well
([decision 33](decisions/0033-auto.md)). Memory and perftest are measured without auto. Nothing breaks in any
of the runs.

A figure is the middle of the runs, and ± is half of their range. A *difference* to stock is the middle of the
differences between two runs of the same turn, so it may be a little other than that of the two middles. What
is smaller than its ± means nothing. [bench/README.md](../bench/README.md) says how each program measures.
"""

RINGS = """\
One thread on one processor calls a verb for 128 requests or completions, between two time stamps. The
emulated NIC stands still meanwhile, so a figure holds the loop of the program, the provider's own code
(libmlx5) and, under SHIFT, the layer's; it holds no work of a NIC. All figures are for one request (WR) or
one completion (WC), or for one call that finds nothing. A call with a batch of 16 is given 16 at once, and
the frame of the call is shared by these.
"""

UNPAUSED = """\
**The emulated NIC could not be stopped in these runs, so the figures hold its work as well.**
"""

INSTRUCTIONS = """\
The same loops under callgrind, which counts the instructions of the program's own process. These counts are
the same in each run, however busy the machine is, so they have no ±.
"""

CONTROL = """\
One call at a time, while the emulated NIC works. Under SHIFT most calls are made for the twin as well, by a
thread of the background; neither what makes an object nor what destroys one waits for it. The emulator
answers a command in about a microsecond, and the firmware of a NIC takes far longer, so the difference in us
says more than its part of stock's time. Only the two steps that connect a queue pair have a budget: 5 % of
stock's time or 2 us, whichever is more.
"""

MEMORY = """\
One queue pair with a completion queue of its own. *Idle*: it is connected, and nothing was posted. *Used*:
each place of its queues was used once. A figure is what only this process has in memory (`smaps_rollup`), so
it holds the queues themselves, the twin's as well, and the emulator's memory for both; what a process needs
only once is not counted.
"""

# Beside stock's memory for the same depths.
MEMORY_BOUNDS = """\
Most of the difference is the twin with its CQ, which are as deep as the program's own: what they take is what
stock takes once more, since the same provider makes them. The layer itself adds its objects for the group and
the session, and with notes 48 bytes for each place of both queues; full entries of the journal are memory that
nothing writes before a fault. The aim was 20 KiB at any depth, and it is missed. To meet it twins would have to
be shallower than the program's queue pair, and grow, or be filled again and again, when traffic comes to them:
a queue pair cannot be resized, a CQ only by a command of the NIC in the middle of the switch ([decision
20](decisions/0020-cq-room.md)), and receives that are posted late would be missing for a peer that sends at
once. A group of many NICs has two such twins at most ([decision 35](decisions/0035-many-nics.md)).
"""

PERFTEST = """\
Debian's own programs (perftest {version}), one at each of two emulated hosts; each figure is the middle of
{repeat} runs. **Both programs and both emulated NICs share the {processors} processors of this machine.** So
a latency holds the emulator's work and the time until the next thread has a processor, and a rate is what all
four can do together; on real NICs it is another one. The differences show what SHIFT changes in such a run,
and the ± shows how far they can be trusted. Under SHIFT a thread of the background makes and connects the
twins while the program begins, which is part of the figures. A latency is perftest's typical one of half an
exchange. `ib_write_lat` waits by reading memory, at both ends, and so leaves the emulator no processor until
the kernel takes one away: its latency is mostly the scheduler's. The others wait by polling, which drives the
emulator. Up to {small} bytes the rate counts messages, of all queue pairs together (`-q`), and above it
bytes.
"""

BOUNDS = """\
These counts are those of the code as gcc 12 makes it for x86-64, and `objdump -d` of the front
`libibverbs.so.1` shows them in `shift::ops::post_send_noted` and in `SendJournal::note_rest`, which it calls
for a chain.

**The frame of a call is 29 instructions:**

| What | Instructions | Of these |
| --- | ---: | --- |
| who am I | 2 | two loads, for the thread's slot |
| enter the hot section | 5 | the address to store, one store, one load, one compare, one branch |
| keep what a refused request needs | 1 | one store |
| find the real QP and its function, and call it | 3 | two loads, and the call |
| has it worked? | 2 | one test, one branch |
| does the journal keep notes, and is there a request? | 4 | two tests, two branches |
| leave the hot section | 1 | one store |
| save three registers and fill two of them | 8 | three pushes, three pops, two moves |
| the function itself | 3 | the mark of its begin (`endbr64`), its result, the return |

The provider's own function, which stock calls as well, is not among them: it counts on both sides.

**The note of a request is 17 instructions in a single post**: two loads and two stores for wr_id and kind
(opcode and flags), three to find the place in the ring, six for the three counts (requests, signaled ones,
notifications), and three for the next request (a load, a test, a branch). So a single post is 46 beyond
stock. A further request of a chain is 15: the counts stay in registers, so they are four, and one more goes
to the next place. A chain pays 22 once, for the call of the loop and for the counts on their way to registers
and back. So a request of a chain of 16 is (46 + 15 x 15 + 22) / 16 = 18.3, as callgrind counts it. With a
receive the frame is the same, and the note is 10, or 8 for a further one of a chain.

**A chain has to be walked.** Each step of the walk waits for a load whose address is what the load before it
found (`next`), and such a load takes four to five cycles, which is more than a nanosecond. The provider's own
walk has brought the requests into the cache, or a step would take far longer. So the 0.3 ns for each request
cannot be reached while the wr_ids are kept; and they have to be kept, because the NIC's queue does not hold
them: a completion that the layer makes after a fault needs them, and so does a request that is posted again.
"""


def table(header, rows):
    """A Markdown table, whose first column is flush left."""
    return ["| " + " | ".join(header) + " |", "| --- |" + " ---: |" * (len(header) - 1),
            *("| " + " | ".join(row) + " |" for row in rows), ""]


def paragraphs(text):
    return [*text.rstrip("\n").split("\n"), ""]


def wrapped(text, indent=""):
    return textwrap.wrap(text, COLUMNS, subsequent_indent=indent, break_on_hyphens=False)


def columns(first, entries, more=()):
    """The header of a table of these entries, which were all measured in the same manners."""
    return [*first, *environment.compared_header(entries[0]["beyond"]), *more]


def is_missed(difference, limit):
    return difference - limit >= LEAST


def judged(differences, limit):
    """The cells of a budget: what it is, and by how much it is missed."""
    more = differences[JUDGED] - limit
    allowed = f"{limit:+.2f}".rstrip("0").rstrip(".")
    return [allowed, f"missed by {more:.1f}" if is_missed(differences[JUDGED], limit) else "met"]


def rings(result):
    verbs = result["verbs"]
    rows = []
    for ring in verbs["rings"]:
        middles = {manner: one["middle"] for manner, one in ring["beyond"].items()}
        limits = judged(middles, budget(ring["name"])[1]) if ring["protected"] else UNPROTECTED
        rows.append([ring["name"], *verbs_cost.cells(ring), *limits])
    return [*paragraphs(RINGS), *([] if verbs["engine_paused"] else paragraphs(UNPAUSED)),
            f"In ns, over {verbs['repeat']} turns:", "",
            *table(columns(["call"], verbs["rings"], JUDGEMENT), rows)]


def counts(result):
    if result["instructions"] is None:
        return ["valgrind was not installed, so nothing was counted.", ""]
    rows = []
    for ring in result["instructions"]:
        limits = judged(ring["beyond"], budget(ring["name"])[0]) if ring["protected"] else UNPROTECTED
        beyond = [cell for manner, more in ring["beyond"].items()
                  for cell in (f"{ring['figures'][manner]:.1f}", f"{more:+.1f}")]
        rows.append([ring["name"], f"{ring['figures'][environment.STOCK]:.1f}", *beyond, *limits])
    return [*paragraphs(INSTRUCTIONS), *table(columns(["call"], result["instructions"], JUDGEMENT), rows)]


def control(result):
    rows = []
    for entry in result["verbs"]["control"]:
        limits = ["", ""]
        if entry["name"] in CONNECTING:
            middles = {manner: one["middle"] for manner, one in entry["beyond"].items()}
            stock = entry["figures"][environment.STOCK]["middle"]
            limits = judged(middles, max(CONNECTING_PART * stock, CONNECTING_US))
            limits[0] = CONNECTING_TEXT
        rows.append([entry["name"], *verbs_cost.cells(entry), *limits])
    return [*paragraphs(CONTROL), "In us:", "",
            *table(columns(["call"], result["verbs"]["control"], JUDGEMENT), rows)]


def memory(result):
    rows = []
    for depth, manners in result["memory"].items():
        for state in ("idle", "used"):
            kib = {manner: one[state] / 1024 for manner, one in manners.items()}
            stock = kib[environment.STOCK]
            more = [cell for manner in environment.JOURNALS
                    for cell in (f"{kib[manner]:.0f}", f"{kib[manner] - stock:+.0f}")]
            rows.append([f"{depth} places, {state}", f"{stock:.0f}", *more])
    header = ["queue pair", *environment.compared_header(environment.JOURNALS)]
    return [*paragraphs(MEMORY), "In KiB:", "", *table(header, rows), *paragraphs(MEMORY_BOUNDS)]


def perftest(result):
    found = result["perftest"]
    if found is None:
        return ["perftest's programs did not run.", ""]
    text = PERFTEST.format(version=found["version"], repeat=found["repeat"], small=perftest_cost.SMALL,
                           processors=result["processors"])
    rows = [[f"`{row['name']}`", row["unit"], *perftest_cost.cells(row)] for row in found["rows"]]
    return [*wrapped(text), "", *table(columns(["program", "unit"], found["rows"]), rows)]


def missed(result):
    """How many of the budgets of ring calls are met, and which are missed by how much."""
    found = {"ns": {ring["name"]: (ring["beyond"][JUDGED]["middle"], budget(ring["name"])[1])
                    for ring in result["verbs"]["rings"] if ring["protected"]},
             "instructions": {ring["name"]: (ring["beyond"][JUDGED], budget(ring["name"])[0])
                              for ring in result["instructions"] or [] if ring["protected"]}}
    found = {unit: pairs for unit, pairs in found.items() if pairs}
    over = {unit: [name for name, pair in pairs.items() if is_missed(*pair)] for unit, pairs in found.items()}
    told = [f"{len(pairs) - len(over[unit])} of {len(pairs)} in {unit}" for unit, pairs in found.items()]
    rows = []
    for name in found["ns"]:
        if any(name in names for names in over.values()):
            pairs = [pairs[name] for pairs in found.values()]
            rows.append([name, *(cell for value, limit in pairs
                                 for cell in (f"{value:+.1f}", *judged({JUDGED: value}, limit)))])
    head = ["call", *(word for unit in found for word in (f"{JUDGED}, {unit}", "budget", ""))]
    text = f"Of the budgets of ring calls, {JUDGED} meets {' and '.join(told)}."
    return [*wrapped(text + (" These calls miss one:" if rows else "")), "", *(table(head, rows) if rows else [])]


def page(result, picture):
    """The text of the page. `picture` is how the page reaches it, or None."""
    lines = ["# What SHIFT costs while nothing breaks", "", f"Written by `{result['command']}`.", ""]
    if result["quick"]:
        lines += ["**This was a quick run, which shows the form of the page: its figures mean nothing.**", ""]
    lines += wrapped(
        f"Measured on {result['machine']}, {result['system']}, in {result['minutes']:.0f} minutes; the machine's "
        f"load was {result['load']:.1f} when it began. These are figures of one machine and one moment, and "
        "nothing asserts them: measure again where it matters.")
    lines += ["", *paragraphs(INTRODUCTION), "## Ring calls", "", *rings(result)]
    if picture:
        lines += [f"![What each ring call costs beyond stock]({picture})", ""]
    lines += ["### Instructions", "", *counts(result), "### Where a budget is missed", "", *missed(result),
              "## Control verbs", "", *control(result), "## Memory", "", *memory(result),
              "## perftest", "", *perftest(result), "## What bounds it", "", *paragraphs(BOUNDS)]
    return "\n".join(lines).rstrip("\n") + "\n"
