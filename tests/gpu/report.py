"""Writes docs/nccl.md's measured part and its picture from the results of a run of the bed."""

import textwrap

from gpu.cases import VARIANTS
from gpu.job import FIRST_STEPS

WIDTH = 110
TITLE = "# NCCL and PyTorch through failovers"


def versions_of(outcomes):
    for outcome in outcomes:
        for told in outcome["results"].values():
            return told["versions"]
    return {}


def result(outcome):
    measured = outcome["measured"]
    if outcome["problem"]:
        return "**%s**" % outcome["problem"]
    if "notice_s" in measured:
        return "NCCL tells %s after %.1f s, the ranks end after %s" % (
            measured["notice"].replace("IBV_WC_", ""), measured["notice_s"],
            "%.0f s" % measured["gone_s"] if measured.get("gone_s") else "more than 100 s")
    if "died" in measured:
        return "ends with an error"
    return "bit-equal"


def rows(outcomes):
    yield "| case | result | QPs moved | noticed by | slowest switch |"
    yield "| --- | --- | --- | --- | --- |"
    for outcome in outcomes:
        measured = outcome["measured"]
        moved = measured.get("switched")
        yield "| %s | %s | %s | %s | %s |" % (
            outcome["name"], result(outcome), moved or "-", ", ".join(measured.get("detectors", [])) or "-",
            "%.1f ms" % (measured["switch_us"] / 1000) if moved else "-")


def name_of(outcome):
    if outcome["name"] != "reference":
        return outcome["name"]
    thing = outcome["results"]["a"]["results"][0]["thing"]
    return "%s, stock, unbroken: the longest of all" % ("training" if "train" in thing else "steps")


def timed(outcomes):
    """The runs in which steps alone were done, of which a step's time tells."""
    for outcome in outcomes:
        told = outcome["results"].get("a", {}).get("results", [])
        if told and all(one["times"] for one in told):
            yield outcome


def steps_rows(outcomes):
    yield "| case | median step | longest step in the second after the fault |"
    yield "| --- | --- | --- |"
    for outcome in timed(outcomes):
        measured = outcome["measured"]
        if measured.get("median_ms"):
            longest = measured.get("longest_ms")
            yield "| %s | %.1f ms | %s |" % (name_of(outcome), measured["median_ms"],
                                             "%.1f ms" % longest if longest else "-")


def trainings(outcomes):
    """[(name, the losses of rank a, its steps, when the fault came)] of the runs that came to their end."""
    found = []
    for outcome in outcomes:
        told = outcome["results"].get("a", {}).get("results", [])
        if told and told[0]["losses"]:
            found.append((outcome["name"], [float.fromhex(loss) for loss in told[0]["losses"]], told[0]["times"],
                          outcome["measured"].get("fault_s")))
    return found


def markdown(outcomes, head):
    """`head` is the text that a person wrote, with {versions}, {cases}, {steps} and {variants} in it."""
    told = versions_of(outcomes)
    versions = "PyTorch %s, NCCL %s, CUDA %s, one %s" % tuple(
        told.get(name, "?") for name in ("torch", "nccl", "cuda", "gpu"))
    variants = "; ".join("%s: %s" % (name, ", ".join("`%s=%s`" % pair for pair in pairs))
                         for name, pairs in VARIANTS.items() if pairs)
    shown = [one for one in outcomes if one["name"] != "reference"]
    return head.format(versions=versions, cases="\n".join(rows(shown)), steps="\n".join(steps_rows(outcomes)),
                       variants="\n".join(textwrap.wrap(variants, WIDTH)))


def picture(outcomes, path):
    """Draws losses and step times of the trainings. Returns False when matplotlib is missing."""
    try:
        import matplotlib
    except ImportError:
        return False
    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.hashsalt": "shift", "svg.fonttype": "none", "font.size": 9})
    import matplotlib.pyplot as plot

    figure, (above, below) = plot.subplots(2, 1, figsize=(9, 6), sharex=True)
    for number, (name, losses, steps, fault_s) in enumerate(trainings(outcomes)):
        label = "stock, unbroken" if name == "reference" else name
        # Curves that are equal bit by bit hide each other, so the later ones are thinner.
        above.plot(range(1, len(losses) + 1), losses, label=label, linewidth=6 - 1.5 * number)
        took = [1e3 * seconds for _, seconds in steps]
        line, = below.plot(range(FIRST_STEPS + 1, len(took) + 1), took[FIRST_STEPS:], label=label, linewidth=0.8)
        hit = [index + 1 for index, (end, _) in enumerate(steps) if fault_s and end >= fault_s][:1]
        for step in hit:
            below.axvline(step, color=line.get_color(), linestyle=":", linewidth=0.8)
    above.set_title("loss of rank 0", loc="left")
    above.legend(frameon=False)
    below.set_title("step time in ms, fault dotted", loc="left")
    below.set_ylim(bottom=0)
    below.set_xlabel("step")
    for axes in (above, below):
        axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    return True
