#!/usr/bin/python3
"""Checks the dashboard, the alerts and the units of contrib/: each metric in them is one that shiftctl prints, and
each one that it prints is in docs/operations.md. Prometheus' promtool and systemd-analyze look at them, too, where
they are installed. --selftest shows that each complaint arises.
"""

import argparse
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

SOURCE = pathlib.Path(__file__).resolve().parents[2]
CONTRIB = SOURCE / "contrib"
DASHBOARD, RULES = CONTRIB / "grafana/shift.json", CONTRIB / "prometheus/shift.rules.yml"
UNITS = ("shift-metrics.service", "shift-metrics.timer")
MANUAL = SOURCE / "docs/operations.md"
METRIC = re.compile(r"(?<![\w/-])shift_[a-z_]+")
WIDTH = 24  # of Grafana's grid


def read(path):
    return path.read_text(encoding="utf-8")


def families(page):
    """The metrics that a page of shiftctl has, by name, with their types."""
    return dict(re.findall(r"^# TYPE (\S+) (\S+)$", page, re.M))


def judge_names(where, text, known):
    """Each metric in the text must be a known one; those of histograms have three endings more."""
    series = set(known)
    for name, kind in known.items():
        if kind == "histogram":
            series |= {name + end for end in ("_bucket", "_sum", "_count")}
    found = set(METRIC.findall(text))
    for name in sorted(found - series):
        yield "%s: shiftctl prints no %s" % (where, name)
    if not found:
        yield "%s: it names no metric" % where


def judge_manual(text, known):
    for name in sorted(set(known) - set(METRIC.findall(text))):
        yield "docs/operations.md: it does not tell of %s" % name


def judge_page(page):
    """Each metric has a type and a help, and no label but those that have few values."""
    known = families(page)
    helped = set(re.findall(r"^# HELP (\S+) \S.*\.$", page, re.M))
    for name in sorted(set(known) ^ helped):
        yield "shiftctl: %s has no type, or no help that is a sentence" % name
    for label in sorted(set(re.findall(r'[{,](\w+)="', page)) - {"detector", "le", "reason", "state", "device"}):
        yield "shiftctl: the label %s may have many values" % label


def judge_dashboard(text):
    board = json.loads(text)
    if len({panel["id"] for panel in board["panels"]}) != len(board["panels"]):
        yield "the dashboard has two panels of one number"
    taken = set()
    for panel in board["panels"]:
        place = panel["gridPos"]
        cells = {(x, y) for x in range(place["x"], place["x"] + place["w"])
                 for y in range(place["y"], place["y"] + place["h"])}
        if cells & taken or place["x"] + place["w"] > WIDTH:
            yield "the dashboard's panel %s has no room" % panel["title"]
        taken |= cells
        for target in panel["targets"]:
            if target["expr"].count("(") != target["expr"].count(")"):
                yield "the dashboard's panel %s: %s" % (panel["title"], target["expr"])


def judge_rules(text):
    """What can be said without a parser: each alert has what its receivers need."""
    alerts = re.split(r"^      - alert: ", text, flags=re.M)[1:]
    for alert in alerts:
        for key in ("expr", "severity", "summary", "action"):
            if not re.search(r"^ +%s: *\S" % key, alert, re.M):
                yield "the alert %s has no %s" % (alert.split("\n")[0], key)
    if not alerts:
        yield "there are no alerts"


def judge_units(service, timer, helps):
    command = re.search(r"^ExecStart=/usr/bin/shiftctl (\w+)((?: --[a-z-]+ \S+)*)$", service, re.M)
    if not command:
        yield "the service does not start /usr/bin/shiftctl"
        return
    for option in re.findall(r"--[a-z-]+", command[2]):
        if option not in helps(command[1]):
            yield "shiftctl %s has no option %s" % (command[1], option)
    folder = re.search(r"--output (\S+)/shift.prom", command[2])
    if not folder or "ReadWritePaths=%s\n" % folder[1] not in service:
        yield "the service cannot write where its output goes"
    if "[Timer]" not in timer or "WantedBy=timers.target" not in timer:
        yield "the timer starts nothing"


def judge_by_others(page, units):
    """Complaints of the programs that are for these files."""
    def said(*command, **more):
        result = subprocess.run(command, capture_output=True, text=True, check=False, **more)
        return "" if result.returncode == 0 else result.stdout + result.stderr
    if shutil.which("promtool"):
        yield said("promtool", "check", "rules", str(RULES))
        yield said("promtool", "check", "metrics", input=page)
    else:
        print("skipped: promtool (Debian: prometheus) is not here to check the alerts and the metrics")
    if shutil.which("systemd-analyze"):
        with tempfile.TemporaryDirectory() as folder:
            for name in UNITS:
                # The program is not installed here, and so would be missed.
                text = read(units / name).replace("/usr/bin/shiftctl", "/bin/true")
                pathlib.Path(folder, name).write_text(text, encoding="utf-8")
            lines = said("systemd-analyze", "verify", "--man=no", *[folder + "/" + name for name in UNITS])
            yield "\n".join(line for line in lines.splitlines() if "shift-metrics" in line)
    else:
        print("skipped: systemd-analyze is not here to check the units")


def check(page, helps):
    known = families(page)
    yield from judge_page(page)
    yield from judge_names("the dashboard", read(DASHBOARD), known)
    yield from judge_names("the alerts", read(RULES), known)
    yield from judge_manual(read(MANUAL), known)
    yield from judge_dashboard(read(DASHBOARD))
    yield from judge_rules(read(RULES))
    yield from judge_units(*[read(CONTRIB / "systemd" / name) for name in UNITS], helps)
    yield from (line for line in judge_by_others(page, CONTRIB / "systemd") if line)


def selftest():
    page = '# HELP shift_a_total It is.\n# TYPE shift_a_total counter\nshift_a_total{reason="x"} 1\n'
    known = {"shift_a_total": "counter", "shift_s": "histogram"}
    board = {"panels": [{"id": 1, "title": "A", "gridPos": {"x": 0, "y": 0, "w": 8, "h": 7},
                         "targets": [{"expr": "sum(shift_a_total)"}]}]}
    wide = json.loads(json.dumps(board))
    wide["panels"][0]["gridPos"]["w"] = 25
    twice = {"panels": [board["panels"][0]] * 2}
    rules = "      - alert: A\n        expr: a\n  severity: b\n  summary: c\n  action: d\n"
    service, timer = (read(CONTRIB / "systemd" / name) for name in UNITS)

    def helps(command):
        return "--output" if command == "metrics" else ""
    cases = [
        (judge_names("", "shift_a_total shift_s_bucket", known), None),
        (judge_names("", "shift_a_total shift_b", known), "prints no shift_b"),
        (judge_names("", "shift_a_total_bucket", known), "prints no shift_a_total_bucket"),
        (judge_names("", "", known), "names no metric"),
        (judge_manual("shift_a_total, shift_s", known), None),
        (judge_manual("shift_a_total", known), "does not tell of shift_s"),
        (judge_page(page), None),
        (judge_page(page.replace("HELP", "HINT")), "no help"),
        (judge_page(page.replace("reason", "pid")), "label pid"),
        (judge_dashboard(json.dumps(board)), None),
        (judge_dashboard(json.dumps(wide)), "no room"),
        (judge_dashboard(json.dumps(twice)), "two panels"),
        (judge_dashboard(json.dumps(board).replace("total)", "total")), "sum(shift_a_total"),
        (judge_rules(rules), None),
        (judge_rules(rules.replace("  severity: b\n", "")), "has no severity"),
        (judge_rules(""), "no alerts"),
        (judge_units(service, timer, helps), None),
        (judge_units(service, timer, lambda command: ""), "no option --output"),
        (judge_units(service.replace("/usr/bin", "/bin"), timer, helps), "does not start"),
        (judge_units(service.replace("WritePaths", "OnlyPaths"), timer, helps), "cannot write"),
        (judge_units(service, timer.replace("[Timer]", "[Time]"), helps), "starts nothing"),
    ]
    wrong = 0
    for found, wanted in ((list(found), wanted) for found, wanted in cases):
        print("%s: %s" % (wanted, found))
        wrong += (wanted is None) != (not found) or not all(wanted in one for one in found[:1])
    return 1 if wrong else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shiftctl")
    parser.add_argument("--selftest", action="store_true")
    args = parser.parse_args()
    if args.selftest:
        return selftest()

    def run(*words):
        return subprocess.run([args.shiftctl, *words], check=True, capture_output=True, text=True).stdout
    with tempfile.TemporaryDirectory() as folder:
        page = run("--state-dir", folder, "metrics")
    complaints = list(check(page, lambda command: run(command, "--help")))
    for complaint in complaints:
        print(complaint)
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
