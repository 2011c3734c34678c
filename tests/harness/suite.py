"""rdma-core's own test suite, as the distribution's documentation has it."""

import glob
import gzip
import os
import shutil

PYTHON = "/usr/bin/python3"  # the distribution's, which has the distribution's pyverbs
SUITE = "/usr/share/doc/rdma-core/tests"


def unpack(suite, directory):
    """Makes it a folder of modules, `directory`/tests."""
    shutil.copytree(suite, os.path.join(directory, "tests"))
    for packed in glob.glob(os.path.join(directory, "tests", "*.gz")):
        with gzip.open(packed) as source, open(packed[:-3], "wb") as target:
            shutil.copyfileobj(source, target)
        os.remove(packed)
