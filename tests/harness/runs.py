"""A run on emulated hosts, or many side by side."""

import concurrent.futures
import os
import shutil

from harness.build import Build
from harness.fabric import Fabric


def run_on_fabric(options, run):
    """run(fabric) on a fabric of its own, with its logs in an empty options.out. For a main(): the exit
    status, 0 where run() returns none."""
    shutil.rmtree(options.out, ignore_errors=True)
    os.makedirs(options.out)
    build = Build(options.build, getattr(options, "layer", None))
    with Fabric(build.require(build.shift_run), options.out) as fabric:
        return run(fabric) or 0


def run_all(jobs, items, run, tell):
    """run(item) for all, `jobs` at a time, for each run is a fabric of its own and mostly waits.
    tell(item, result) sees the results one by one, as they come; when it returns False, no more
    are begun."""
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        pending = {pool.submit(run, item): item for item in items}
        for future in concurrent.futures.as_completed(pending):
            if tell(pending[future], future.result()) is False:
                pool.shutdown(cancel_futures=True)
                return
