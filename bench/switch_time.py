#!/usr/bin/env python3
"""How long a fault goes unnoticed, and how long the switch to the backup takes after that.

Two emulated hosts exchange messages over Q protected QPs (shift-traffic). Then a NIC of host a
breaks. All times come from the event records of the layer (SHIFT_EVENTS), CLOCK_MONOTONIC. With
--key, runs without and with a job key take turns.

On a small machine both hosts and the emulated NICs share the processors. So switch-model counts what is
the layer's own: the same code on fake NICs, where each thread has a processor of its own."""

import contextlib
import json
import os
import pathlib
import statistics
import subprocess
import tempfile
import time

import environment
import switch_picture
from harness.build import Build, words
from harness.faults import healing
from harness.report import write_json

NIC = "a/mlx5_0"
DETECTION_BUDGET = {"link-down": "1 ms", "drop-data": "100 ms", "drop-acks": "100 ms"}
SWITCH_BUDGET_MS = {1: 0.1, 1000: 10}


class Records:
    """The event records of one process, read as they are written."""

    def __init__(self, path):
        self.path, self.offset, self.rest, self.all = path, 0, "", []

    def refresh(self):
        if self.path.exists():
            with self.path.open() as file:
                file.seek(self.offset)
                text = self.rest + file.read()
                self.offset = file.tell()
            *lines, self.rest = text.split("\n")
            self.all += [json.loads(line) for line in lines]
        return self.all

    def named(self, *names):
        return [record for record in self.refresh() if record["event"] in names]

    def qps(self, *names):
        return {record["qp"] for record in self.named(*names)}


def wait_until(what, condition, processes, timeout_s):
    give_up = time.monotonic() + timeout_s
    while not condition():
        for process in processes:
            if process.poll() is not None:
                raise environment.Failure(f"{what}: shift-traffic ended with {process.returncode}")
        if time.monotonic() > give_up:
            raise environment.Failure(f"{what}: not within {timeout_s} s")
        time.sleep(0.005)


def port(output):
    """The TCP port that the server prints first."""
    words = output.read_text().split()
    return words[1] if words[:1] == ["port"] and len(words) > 1 else None


@contextlib.contextmanager
def traffic(fabric, folder, qps, options, key=None):
    """A server on host b, a client on host a, with this key file; yields their processes and their records."""
    records = [Records(folder / "a.jsonl"), Records(folder / "b.jsonl")]
    program = fabric.build.traffic
    # Sleeping ends: pollers would take the processors of a small machine from the layer's thread.
    # Connecting a thousand QPs takes a while on a busy machine.
    arguments = [program, "--events", "--qps", qps, "--rate", options.rate, "--size", 256, "--depth", 8,
                 "--op", "send", "--duration-ms", 600000, "--timeout-ms", 600000, "--stall-ms", 60000]
    settings = {**os.environ, **({"SHIFT_KEY_FILE": key} if key else {})}
    with contextlib.ExitStack() as stack:
        def start(host, argv, events):
            process = stack.enter_context(subprocess.Popen(
                fabric.command(host, argv, True), env={**settings, "SHIFT_EVENTS": str(events)},
                stdout=stack.enter_context((folder / f"{host}.out").open("w")),
                stderr=stack.enter_context((folder / f"{host}.log").open("w"))))
            stack.callback(process.kill)
            return process

        server = start("b", [program, "--port", 0], records[1].path)
        wait_until("starting", lambda: port(folder / "b.out"), [server], 20)
        client = start("a", [*arguments, "localhost", "--port", port(folder / "b.out")],
                       records[0].path)
        yield (server, client), records


def thread_times(pid):
    """How long the threads of the process have run, in us: the layer's control thread, its command threads, whose
    commands the emulator carries out, and all others, which are the emulator's and the program's."""
    spent = {"control": 0, "commands": 0, "others": 0}
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        name = (task / "comm").read_text().strip()
        kind = "control" if name == "shift-control" else "commands" if name.startswith("shift-m") else "others"
        spent[kind] += int((task / "schedstat").read_text().split()[0]) / 1e3
    return spent


def breaks(fabric, fault):
    done = subprocess.run([fabric.fault_at, fabric.name, NIC, fault],
                          stdout=subprocess.PIPE, check=True, text=True)
    return int(done.stdout)


def first_time(records, condition):
    times = [record["t_ns"] for side in records for record in side.all if condition(record)]
    return min(times) if times else None


def figures(records, broken_ns):
    """One run's figures in us."""
    noticed = first_time(records, lambda r: r["event"] == "state" and r["from"] == "active")
    told = first_time(records, lambda r: r["event"] == "device_event" and r["t_ns"] >= broken_ns)
    switched = [record for side in records for record in side.named("switched")]
    last = max(record["t_ns"] for record in switched)
    return {"detection": (noticed - broken_ns) / 1e3,
            "device_event": (told - broken_ns) / 1e3 if told else None,
            "fence": statistics.median(record["fence_us"] for record in switched),
            "switch_qp": statistics.median(record["us"] for record in switched),
            "switch_all": (last - noticed) / 1e3}


def run(fabric, fault, qps, options, key):
    with tempfile.TemporaryDirectory() as name:
        with traffic(fabric, pathlib.Path(name), qps, options, key) as (processes, records):
            wait_until("arming", lambda: all(len(side.qps("armed")) >= qps for side in records),
                       processes, options.arm_s)
            time.sleep(0.2)  # let the traffic be under way; nothing depends on it
            before = [thread_times(process.pid) for process in processes]
            broken_ns = breaks(fabric, fault)
            try:
                wait_until("switching",
                           lambda: all(len(side.qps("switched", "failed")) >= qps
                                       for side in records), processes, options.switch_s)
                after = [thread_times(process.pid) for process in processes]
            finally:
                breaks(fabric, healing(fault))
            failed = sum(len(side.qps("failed")) for side in records)
            if failed:
                raise environment.Failure(f"{fault}, {qps} QPs: {failed} groups failed")
            spent = {kind: sum(end[kind] for end in after) - sum(end[kind] for end in before)
                     for kind in before[0]}
            return {**figures(records, broken_ns), **{f"spent_{kind}": us for kind, us in spent.items()}}


def row_of(fault, qps, has_key, runs):
    row = {"fault": fault, "qps": qps, "key": has_key, "runs": runs}
    for figure in runs[0]:
        known = [one[figure] for one in runs if one[figure] is not None]
        row[figure] = statistics.median(known) if known else None
    return row


def measure(fabric, fault, qps, options, keys):
    """A row for each of the key files, whose runs take turns: the machine's moods are the same for all."""
    turns = [[run(fabric, fault, qps, options, key) for key in keys] for _ in range(options.repeat)]
    return [row_of(fault, qps, key is not None, list(runs)) for key, runs in zip(keys, zip(*turns))]


@contextlib.contextmanager
def key_files(build, is_wanted):
    """The key files of the runs: none, and a new one if it is wanted."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "job.key")
        if is_wanted:
            subprocess.run(words([build.shift_run, "--make-key", path]), stdout=subprocess.DEVNULL, check=True)
        yield [None, path] if is_wanted else [None]


def modelled(build, qps, options):
    """The medians of some switches in the model, in us."""
    argv = words([build.program("bench", "switch-model"), "--qps", qps, "--repeat", options.repeat,
                  "--command-us", options.command_us])
    done = subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=False, timeout=600)
    if done.returncode != 0:
        raise environment.Failure(f"switch-model, {qps} QPs: status {done.returncode}")
    runs = json.loads(done.stdout)["runs"]
    middle = {figure: statistics.median(run[figure] for run in runs)
              for figure in ("all_us", "commands_us", "messages", "tasks")}
    ends = [statistics.median(run["control_us"][end] for run in runs) for end in (0, 1)]
    return {"qps": qps, **middle, "control_us": ends, "runs": runs}


def model_table(rows, options):
    environment.table(
        f"The layer's own code (medians of {options.repeat} runs)",
        ["QPs", "all QPs, ms", "budget", "control thread, us a QP: broken NIC's end", "other end",
         "messages a QP"],
        [[str(row["qps"]), milliseconds(row["all_us"]), budget_of(row["qps"]),
          *(f"{us / row['qps']:.1f}" for us in row["control_us"]), f"{row['messages'] / row['qps']:.1f}"]
         for row in rows],
        [f"fake NICs, which take {options.command_us} us for a command; each thread has a processor of its own;",
         "a message takes 30 us; no event records"])


def budget_of(qps):
    return f"{SWITCH_BUDGET_MS[qps]:g} ms" if qps in SWITCH_BUDGET_MS else ""


def milliseconds(us):
    return "-" if us is None else f"{us / 1e3:.2f}"


def files_write(result, options):
    """Writes the files that are wanted."""
    write_json(options.json, result)
    if options.picture and not switch_picture.draw(result, SWITCH_BUDGET_MS, options.picture):
        print("no picture: python3-matplotlib is missing")


def main():
    parser = environment.parser(__doc__.splitlines()[0])
    parser.add_argument("--qps", type=int, nargs="+", default=[1, 10, 100, 1000])
    parser.add_argument("--faults", nargs="+", default=["link-down", "kill", "drop-data"],
                        help="as for `cxemu fault`, on %s" % NIC)
    parser.add_argument("--repeat", type=int, default=3, help="runs of each kind")
    parser.add_argument("--key", action="store_true", help="runs with a job key, too, in turns")
    parser.add_argument("--model-only", action="store_true", help="only the layer's own code, on fake NICs")
    parser.add_argument("--command-us", type=int, default=1, help="what a fake NIC takes for a command")
    parser.add_argument("--rate", type=int, default=2000, help="messages per second, all QPs")
    parser.add_argument("--arm-s", type=float, default=60, help="how long arming may take")
    parser.add_argument("--switch-s", type=float, default=30, help="how long switching may take")
    parser.add_argument("--picture", help="draw the time by the count of queue pairs into this SVG file")
    options = parser.parse_args()
    rows, problems = [], []
    own = [modelled(Build(options.build), qps, options) for qps in options.qps]
    if options.model_only:
        model_table(own, options)
        files_write({"machine": environment.machine(), "own": own}, options)
        return 0
    with environment.Fabric(options.build) as fabric, key_files(fabric.build, options.key) as keys:
        for fault in options.faults:
            for qps in options.qps:
                try:
                    rows += measure(fabric, fault, qps, options, keys)
                except environment.Failure as problem:
                    problems.append(f"{fault}, {qps} QPs: {problem}")
    environment.table(
        f"Switch time, ms (medians of {options.repeat} runs)",
        ["fault", "QPs", "key", "device event", "detection", "budget", "fence", "one QP", "all QPs",
         "budget"],
        [[row["fault"], str(row["qps"]), "yes" if row["key"] else "no", milliseconds(row["device_event"]),
          milliseconds(row["detection"]), DETECTION_BUDGET.get(row["fault"], ""),
          milliseconds(row["fence"]), milliseconds(row["switch_qp"]),
          milliseconds(row["switch_all"]), budget_of(row["qps"])] for row in rows],
        ["device event, detection: from the fault; fence, one QP: from a QP's own detection;",
         "all QPs: from the first detection to the last QP that moved, at either end", *problems])
    environment.table(
        "Processor time until all had moved, ms, of both ends",
        ["fault", "QPs", "key", "control threads", "us a QP and end", "command threads", "emulator, program"],
        [[row["fault"], str(row["qps"]), "yes" if row["key"] else "no", milliseconds(row["spent_control"]),
          f"{row['spent_control'] / row['qps'] / 2:.1f}", milliseconds(row["spent_commands"]),
          milliseconds(row["spent_others"])] for row in rows],
        ["event records are among the control threads' time, commands that the emulator carries out among the",
         "command threads'"])
    model_table(own, options)
    files_write({"machine": environment.machine(), "rows": rows, "own": own, "problems": problems}, options)
    return 1 if problems else 0


if __name__ == "__main__":
    environment.guarded(main)
