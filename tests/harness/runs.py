"""Does one run on emulated hosts, or many side by side."""

import concurrent.futures
import os
import shutil

from harness.build import Build
from harness.fabric import Fabric


def run_on_fabric(options, run):
    """Calls run(fabric) with a new fabric, whose logs go to an empty options.out. Returns the exit status for a
    main(): 0 when run() returns none."""
    shutil.rmtree(options.out, ignore_errors=True)
    os.makedirs(options.out)
    build = Build(options.build, getattr(options, "layer", None))
    with Fabric(build.require(build.shift_run), options.out) as fabric:
        return run(fabric) or 0


def run_all(jobs, items, run, tell):
    """Calls run(item) for all items, `jobs` at a time, since each run has a fabric of its own and mostly waits.
    Each result goes to tell(item, result) when it comes; when tell() returns False, no further run begins."""
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        pending = {pool.submit(run, item): item for item in items}
        for future in concurrent.futures.as_completed(pending):
            if tell(pending[future], future.result()) is False:
                pool.shutdown(cancel_futures=True)
                return
