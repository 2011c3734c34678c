"""Draws how long the switch of so many queue pairs takes: the layer's own code, and real processes on emulated
NICs. The same figures give the same picture, to the byte."""

import os

COLORS = {"link-down": "#2b6cb0", "kill": "#d69e2e", "drop-data": "#6b46c1"}
OTHERS = "#4a5568"


def curve(axes, points, label, **style):
    points = sorted((qps, us / 1e3) for qps, us in points if us)
    axes.plot([qps for qps, _ in points], [ms for _, ms in points], label=label, markersize=5, **style)


def draw(result, budgets_ms, path):
    """`result` is what switch_time.py writes; `budgets_ms` has so many ms for so many queue pairs. Returns False
    when matplotlib is missing."""
    try:
        import matplotlib
    except ImportError:
        return False
    matplotlib.use("svg")
    # Without these the names of parts are drawn by chance. Text stays text, so that it can be searched for.
    matplotlib.rcParams.update({"svg.hashsalt": "shift", "svg.fonttype": "none"})
    import matplotlib.pyplot as plot
    figure, axes = plot.subplots(figsize=(7.2, 4.2))
    curve(axes, [(row["qps"], row["all_us"]) for row in result["own"]], "the layer's own code", color="#1a202c",
          marker="o", linewidth=2)
    rows = [row for row in result.get("rows", []) if not row["key"]]
    for fault in dict.fromkeys(row["fault"] for row in rows):
        curve(axes, [(row["qps"], row["switch_all"]) for row in rows if row["fault"] == fault],
              "processes and emulated NICs, " + fault, color=COLORS.get(fault, OTHERS), marker="s", linewidth=1)
    axes.plot(list(budgets_ms), list(budgets_ms.values()), linestyle="none", marker="_", markersize=22,
              markeredgewidth=2, color="#c53030", label="budget")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.grid(color="#e2e8f0")
    axes.set_axisbelow(True)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter("{x:g}")  # 100, not a power of ten
    axes.set_xlabel("queue pairs on the NIC that fails")
    axes.set_ylabel("ms from detection to the last")
    axes.legend(fontsize=9, frameon=False)
    figure.tight_layout()
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    figure.savefig(path, format="svg", metadata={"Date": None, "Creator": "bench/switch_time.py"})
    plot.close(figure)
    return True
