#!/usr/bin/env python3
"""Takes unmodified PyTorch and NCCL through failovers on emulated NICs. One GPU and no RDMA hardware are enough.

Two ranks with different NCCL_HOSTID share the GPU and talk through NCCL's IB transport, each on an emulated host
of its own. README.md beside this file says how to take the bed to a machine with a GPU.

  pack      makes the bundle: what such a machine lacks
  run       runs the cases there; without a GPU it says so and ends with 77
  dry-run   runs a few cases with a program that stands in for PyTorch, on any machine
  list      shows the cases
  report    writes the table and the picture of a run

The exit status is 0 when all is good, 1 when a case failed, 4 after a wrong call, 77 when this machine cannot run
it.
"""

import argparse
import concurrent.futures
import json
import os
import re
import shutil
import subprocess
import sys
import time

from harness.build import NOT_BUILT, Build
from harness.report import write_text

from gpu import bundle, room
from gpu.cases import GLOO, SETTINGS, cases, standing_in
from gpu.job import run_case
from gpu.report import markdown, picture
from gpu.standin import StandIn

CANNOT = 77
HEAD = os.path.join(os.path.dirname(os.path.abspath(__file__)), "nccl.md.in")
SHOWN = ("switched", "detectors", "switch_us", "longest_ms", "median_ms", "notice_s", "died")
ASK_GPU = "import torch, sys; sys.exit(0 if torch.cuda.is_available() else 1)"


def entered(directory):
    """Enters the room of a bundle. Returns the settings that programs in it need, or None when it cannot."""
    told = bundle.described(directory)
    try:
        drivers = room.enter(directory, told["place"])
    except OSError as error:
        print("SKIPPED: this machine allows no mount namespace: %s" % error)
        return None
    libraries = os.path.join(os.path.abspath(directory), "stock")
    found = [libraries] + [one for one in [os.environ.get("LD_LIBRARY_PATH")] if one]
    return {**drivers, "LD_LIBRARY_PATH": ":".join(found), "SHIFT_LOG": "info"}


def tell(outcome):
    measured = outcome["measured"]
    shown = ["%s %s" % (name, measured[name]) for name in SHOWN if measured.get(name)]
    print("%-7s %-45s %5.1f s  %s" % ("FAILED" if outcome["problem"] else "good", outcome["name"],
                                      outcome["seconds"], outcome["problem"] or "; ".join(shown)), flush=True)


def run(options):
    if subprocess.run([sys.executable, "-c", ASK_GPU], stderr=subprocess.DEVNULL, check=False).returncode != 0:
        print("SKIPPED: no PyTorch with a GPU here")
        return CANNOT
    chosen = [case for case in cases() if re.search(options.only, case.name)]
    if not chosen:
        print("no case is named like that; see `list`", file=sys.stderr)
        return NOT_BUILT
    settings = entered(options.bundle)
    if settings is None:
        return CANNOT
    build, references, outcomes = Build(options.bundle), {}, []
    deadline = time.monotonic() + options.seconds
    wanted = {}
    for case in chosen:  # the unbroken run on the stock stack that each case is compared with
        wanted.setdefault(json.dumps(case.things), case.reference())

    def one(case):
        if time.monotonic() > deadline:
            return {"name": case.name, "problem": "not begun in time", "measured": {}, "seconds": 0, "results": {}}
        directory = os.path.join(options.out, re.sub(r"\W+", "-", case.name))
        if case.name == "reference":
            directory += "-%d" % list(wanted.values()).index(case)
        return run_case(build, case, directory, {**SETTINGS, **settings}, options.backend, references)

    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for batch in (wanted.values(), chosen):
            for outcome in pool.map(one, batch):
                outcomes.append(outcome)
                tell(outcome)
    if options.json:
        write_text(options.json, json.dumps(outcomes))
    bad = [outcome for outcome in outcomes if outcome["problem"]]
    print("%d cases, %d failed" % (len(outcomes), len(bad)))
    return 1 if bad or not outcomes else 0


def over_gloo(build, out, settings):
    """Runs the ranks themselves, without a GPU and past the NICs, where PyTorch is installed. Returns how many
    runs failed."""
    if subprocess.run([sys.executable, "-c", "import torch"], stderr=subprocess.DEVNULL, check=False).returncode:
        print("PyTorch is not installed, left out: the ranks themselves")
        return 0
    references, failed = {}, 0
    for case in (GLOO.reference(), GLOO):
        outcome = run_case(build, case, os.path.join(out, case.name), {**settings, "GLOO_SOCKET_IFNAME": "lo"},
                           "gloo", references)
        tell(outcome)
        failed += bool(outcome["problem"])
    return failed


def dry_run(options):
    directory = os.path.join(options.out, "bundle")
    if not os.path.exists(Build(options.build).nccl):
        print("not built: " + Build(options.build).nccl, file=sys.stderr)
        return NOT_BUILT
    shutil.rmtree(options.out, ignore_errors=True)
    print("bundle: %.1f MiB" % (bundle.make(options.build, directory) / (1 << 20)))
    settings = entered(directory)
    if settings is None:
        return CANNOT
    build = Build(directory)
    failed = over_gloo(build, options.out, settings)
    for case in standing_in():
        began = time.monotonic()
        with StandIn(build, case, os.path.join(options.out, re.sub(r"\W+", "-", case.name)), settings, "") as job:
            problem = job.judge(job.run())
        tell({"name": case.name, "problem": problem, "measured": {"switched": len(job.records("switched"))},
              "seconds": time.monotonic() - began})
        failed += bool(problem)
    return 1 if failed else 0


def pack(options):
    size = bundle.make(options.build, options.bundle)
    print("%s: %.1f MiB" % (options.bundle, size / (1 << 20)))
    return 0


def listed(_):
    for case in cases():
        print(case.name)
    return 0


def report(options):
    outcomes = []
    for path in options.json:
        with open(path) as file:
            outcomes += json.load(file)
    with open(HEAD) as file:
        write_text(options.markdown, markdown(outcomes, file.read()))
    if options.picture and not picture(outcomes, options.picture):
        print("no picture: python3-matplotlib is missing", file=sys.stderr)
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ways = parser.add_subparsers(required=True, metavar="WHAT")
    for function, name, what in ((pack, "pack", "make the bundle"), (run, "run", "run the cases on a GPU"),
                                 (dry_run, "dry-run", "run a few cases without a GPU"),
                                 (listed, "list", "show the cases"),
                                 (report, "report", "write table and picture")):
        way = ways.add_parser(name, help=what)
        way.set_defaults(call=function)
        if name in ("pack", "dry-run"):
            way.add_argument("--build", default="build", help="build folder")
        if name in ("pack", "run"):
            way.add_argument("--bundle", default="bundle", help="folder of the bundle")
        if name in ("run", "dry-run"):
            way.add_argument("--out", default="out/gpu", help="where logs go")
        if name == "run":
            way.add_argument("--json", help="write the results of all cases here")
            way.add_argument("--only", default="", help="run the cases whose names match this expression")
            way.add_argument("--jobs", type=int, default=1, help="cases side by side")
            way.add_argument("--seconds", type=float, default=1e9, help="begin no case later than this")
            way.add_argument("--backend", default="nccl", help=argparse.SUPPRESS)
        if name == "report":
            way.add_argument("json", nargs="+", help="results that `run` has written")
            way.add_argument("--markdown", default="docs/nccl.md", help="write the page here")
            way.add_argument("--picture", default="docs/nccl.svg", help="write the picture here")
    options = parser.parse_args()
    return options.call(options)


if __name__ == "__main__":
    sys.exit(main())
