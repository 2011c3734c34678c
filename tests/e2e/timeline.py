"""Records the throughput of one run while its NIC dies and comes back, and draws it, for the demonstration."""

import bisect
import os
import time

from harness.checker import ENDS, checker_start, report_of, report_option
from harness.fabric import Fabric
from harness.waiting import wait_until

RUN_MS = 5000
DOWN_S, UP_S = 1.2, 2.4  # from the start of the traffic
BUCKET_MS = 20


class Recording:
    def __init__(self):
        self.samples = []  # (seconds, bytes): what the program completed, and when
        self.share = []    # (seconds, packets of mlx5_0, packets of mlx5_1) since the last sample
        self.marks = []    # (seconds, text)
        self.problem = ""
        self.gap_ms = 0.0
        self.switch_us = 0
        self.came_back = False

    def buckets(self):
        """MB/s of each bucket, from the first completion to the last."""
        if not self.samples:
            return []
        count = int(self.samples[-1][0] * 1000 / BUCKET_MS) + 1
        sums = [0] * count
        for seconds, size in self.samples:
            sums[int(seconds * 1000 / BUCKET_MS)] += size
        return [total / (BUCKET_MS / 1000) / 1e6 for total in sums]

    def nic_at(self, seconds):
        """The NIC of host a that carried the traffic at that time: 0, 1 or None."""
        at = bisect.bisect_left([s[0] for s in self.share], seconds)
        if at >= len(self.share):
            return None
        _, default, backup = self.share[at]
        return None if default + backup == 0 else int(backup > default)


def packets(fabric):
    nics = fabric.hosts().get("a", {})
    return [nics.get(device, {}).get("tx_packets", 0) for device in ("mlx5_0", "mlx5_1")]


def watch(fabric, client, origin, recording):
    """Samples the NICs' counters, and meanwhile breaks and heals a's default NIC."""
    down = up = False
    last = packets(fabric)
    while client.ended is None:
        time.sleep(0.02)
        now, seen = time.monotonic() - origin, packets(fabric)
        recording.share.append((now, seen[0] - last[0], seen[1] - last[1]))
        last = seen
        if not down and now >= DOWN_S:
            recording.marks.append((fabric.fault("a/mlx5_0", "link-down") - origin, "link down"))
            down = True
        if not up and now >= UP_S:
            recording.marks.append((fabric.fault("a/mlx5_0", "link-up") - origin, "link up"))
            up = True
    after = [s for s in recording.share if s[0] > UP_S + 0.2]
    recording.came_back = sum(s[1] for s in after) > 100


def record(build, directory):
    os.makedirs(directory, exist_ok=True)
    recording = Recording()
    csv = os.path.join(directory, "timeline.csv")
    with Fabric(build, directory) as fabric:
        server, client = checker_start(fabric, build.traffic, [], [
            "--op", "write_imm", "--size", "65536", "--depth", "16", "--rate", "3000",
            "--duration-ms", str(RUN_MS), "--timeline", csv, *report_option(fabric, "client")])
        if client is None:
            recording.problem = "the server did not start"
            return recording
        if not wait_until(lambda: client.progress > 0 or client.ended, 10):
            recording.problem = "no traffic"
        begun = time.monotonic()
        watch(fabric, client, begun, recording)
        codes = client.finish(20), server.finish(20)
        if codes != (0, 0):
            recording.problem = "exit codes %s and %s" % codes
        switched = fabric.records("switched", *ENDS)
        recording.switch_us = max([s["us"] for s in switched], default=0)
        if not switched and not recording.problem:
            recording.problem = "nothing switched"
        elif not recording.came_back:
            recording.problem = "the traffic did not come back to its default NIC"
    read_samples(csv, begun, recording)
    recording.gap_ms = report_of(directory, "client").get("longest_gap_ms", 0.0)
    return recording


def read_samples(path, origin, recording):
    try:
        with open(path) as file:
            rows = [line.split(",") for line in file.read().split()[1:]]
    except OSError:
        return
    for millis, size in rows:
        seconds = int(millis) / 1000 - origin
        if seconds >= 0:
            recording.samples.append((seconds, int(size)))


def text(recording, width=50):
    """Draws the recording as text, with one line for each tenth of a second."""
    buckets = recording.buckets()
    per_line = 100 // BUCKET_MS
    top = max(buckets, default=1) or 1
    lines = []
    for start in range(0, len(buckets), per_line):
        part = buckets[start:start + per_line]
        mean = sum(part) / len(part)
        begin = start * BUCKET_MS / 1000
        nic = recording.nic_at(begin + 0.05)
        told = [name for when, name in recording.marks if begin <= when < begin + 0.1]
        glyph = "-" if nic is None else "#="[nic]
        lines.append("%5.1f s %7.1f MB/s |%-*s|%s" % (begin, mean, width,
                                                   glyph * int(mean / top * width),
                                                   "  <- " + ", ".join(told) if told else ""))
    lines.append("        # carried by mlx5_0 (default)   = carried by mlx5_1 (backup)")
    return "\n".join(lines)


def draw(recording, path):
    """Draws the recording as a picture. Returns False when matplotlib is missing."""
    try:
        import matplotlib
    except ImportError:
        return False
    matplotlib.use("Agg")
    import matplotlib.pyplot as plot
    figure, axes = plot.subplots(figsize=(9, 3.6), dpi=120)
    buckets = recording.buckets()
    times = [i * BUCKET_MS / 1000 for i in range(len(buckets))]
    for nic, color, label in ((0, "#2b6cb0", "mlx5_0 (default)"), (1, "#dd6b20", "mlx5_1 (backup)")):
        heights = [b if recording.nic_at(t + BUCKET_MS / 2000) == nic else 0
                   for t, b in zip(times, buckets)]
        axes.bar(times, heights, width=BUCKET_MS / 1000, align="edge", color=color, label=label)
    for when, name in recording.marks:
        axes.axvline(when, color="#c53030" if "down" in name else "#2f855a", linestyle="--")
        axes.text(when + 0.02, axes.get_ylim()[1] * 0.97, name, va="top", fontsize=9)
    axes.set_xlabel("seconds")
    axes.set_ylabel("completed by the program, MB/s")
    axes.set_title("Host a's NIC goes down: longest pause of the program %.1f ms, 0 errors, "
                   "every byte right" % recording.gap_ms, fontsize=10)
    axes.legend(loc="lower right", fontsize=8)
    figure.tight_layout()
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    figure.savefig(path)
    return True
