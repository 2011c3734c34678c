"""Finds and unpacks rdma-core's own test suite, which is among the distribution's documentation."""

import glob
import gzip
import os
import shutil

PYTHON = "/usr/bin/python3"  # the distribution's, which has the distribution's pyverbs
SUITE = "/usr/share/doc/rdma-core/tests"


def unpack(suite, directory):
    """Makes a folder of modules of the suite, `directory`/tests."""
    shutil.copytree(suite, os.path.join(directory, "tests"))
    for packed in glob.glob(os.path.join(directory, "tests", "*.gz")):
        with gzip.open(packed) as source, open(packed[:-3], "wb") as target:
            shutil.copyfileobj(source, target)
        os.remove(packed)
