"""What a call of the data path may cost beyond stock, by the name of a row of verbs-cost."""

import re

# (instructions, nanoseconds)
FRAME = (20, 1.0)   # of one call
WR = (4, 0.3)
RICH_WR = (8, 0.6)  # inline, or by the builder interface
WC = (10, 0.8)

# The steps that connect a queue pair, and what they may take more: a part of stock's time, or so many microseconds
# if that is more.
CONNECTING = ("modify_qp RTR", "modify_qp RTS")
CONNECTING_PART, CONNECTING_US = 0.05, 2
CONNECTING_TEXT = f"+{100 * CONNECTING_PART:.0f} % or {CONNECTING_US} us"


def budget(name):
    """(instructions, ns) for each WR, WC or empty call of that row."""
    words = re.search(r"batch (\d+)|(\d+) WCs", name)
    batch = int(words.group(1) or words.group(2)) if words else 1
    if "empty" in name:
        calls, item = 1, (0, 0)
    elif name.startswith("poll_cq"):
        calls, item = 1 / batch, WC
    elif name.startswith("start_poll"):
        calls, item = 4 + 1 / batch, WC  # start, the nexts and end; three fields of each WC are read
    elif name.startswith("ibv_wr_*"):
        calls, item = 2 / batch + 2, RICH_WR  # start and complete; the request, and its data
    else:
        calls, item = 1 / batch, RICH_WR if "inline" in name else WR
    return tuple(frame * calls + more for frame, more in zip(FRAME, item))
