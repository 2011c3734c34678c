"""Draws what each ring call costs beyond stock, with copies and with notes. The same figures give the same
picture, to the byte."""

import os

from budgets import budget

COLORS = {"copies": "#a0aec0", "notes": "#2b6cb0"}
HEIGHT = 0.38  # of a bar, where the bars of two calls are 1 apart


def bars(axes, rings):
    places = range(len(rings))
    for number, (manner, color) in enumerate(COLORS.items()):
        beyond = [ring["beyond"][manner] for ring in rings]
        axes.barh([place + (number - 0.5) * HEIGHT for place in places], [one["middle"] for one in beyond],
                  xerr=[one["spread"] for one in beyond], height=HEIGHT, color=color, label=manner,
                  error_kw={"elinewidth": 0.9, "capsize": 2, "ecolor": "#1a202c"})
    limits = [(place, budget(ring["name"])[1]) for place, ring in zip(places, rings) if ring["protected"]]
    axes.plot([limit for _, limit in limits], [place for place, _ in limits], linestyle="none", marker="|",
              markersize=15, markeredgewidth=1.8, color="#c53030", label="budget")
    axes.set_yticks(list(places), [ring["name"] for ring in rings])
    axes.invert_yaxis()


def draw(result, path):
    """Returns False when matplotlib is missing."""
    try:
        import matplotlib
    except ImportError:
        return False
    matplotlib.use("svg")
    # Without these the names of parts are drawn by chance. Text stays text, so that it can be searched for.
    matplotlib.rcParams.update({"svg.hashsalt": "shift", "svg.fonttype": "none"})
    import matplotlib.pyplot as plot
    rings = result["verbs"]["rings"]
    figure, axes = plot.subplots(figsize=(8.4, 0.42 * len(rings) + 1))
    bars(axes, rings)
    axes.axvline(0, color="#1a202c", linewidth=0.8)
    axes.grid(axis="x", color="#e2e8f0")
    axes.set_axisbelow(True)
    axes.set_xlabel("ns beyond stock, for each WR or WC")
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncol=3, fontsize=9, frameon=False)
    figure.tight_layout()
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    figure.savefig(path, format="svg", metadata={"Date": None, "Creator": "bench/performance.py"})
    plot.close(figure)
    return True
