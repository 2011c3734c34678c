"""Finds and unpacks rdma-core's own test suite, which is among the distribution's documentation, and puts failover
cases into it."""

import glob
import gzip
import os
import shutil

from harness import TESTS

PYTHON = "/usr/bin/python3"  # the distribution's, which has the distribution's pyverbs
SUITE = "/usr/share/doc/rdma-core/tests"


def unpack(suite, directory):
    """Makes a folder of modules of the suite, `directory`/tests."""
    shutil.copytree(suite, os.path.join(directory, "tests"))
    for packed in glob.glob(os.path.join(directory, "tests", "*.gz")):
        with gzip.open(packed) as source, open(packed[:-3], "wb") as target:
            shutil.copyfileobj(source, target)
        os.remove(packed)


def unpack_failover(directory):
    """Makes a suite that has only the cases of tests/rdma-core, and the modules that they need."""
    unpack(SUITE, directory)
    for path in glob.glob(os.path.join(directory, "tests", "test_*")):
        os.remove(path)
    for pattern in ("shift_*.py", "test_shift*.py"):
        for path in glob.glob(os.path.join(TESTS, "rdma-core", pattern)):
            shutil.copy(path, os.path.join(directory, "tests"))
