"""Finds the programs under test in a build folder."""

import os
import sys

NOT_BUILT = 4  # the exit status of a script that was called wrongly


class Build:
    """The programs of one build folder."""

    def __init__(self, path, layer=None):
        """`layer` is a prefix with another bin/shift-run, which finds its own front library."""
        self.path = os.path.abspath(path)
        self.cxemu = self.program("bin", "cxemu")
        self.shift_run = os.path.join(os.path.abspath(layer or path), "bin", "shift-run")
        self.traffic = self.program("test", "shift-traffic")
        self.nccl = self.program("test", "shift-nccl")
        self.once = self.program("test", "shift-once")
        self.life = self.program("test", "shift-life")

    def program(self, folder, name):
        return os.path.join(self.path, folder, name)

    def require(self, *programs):
        """Ends the script when the emulator or one of `programs` is missing. Returns the build."""
        missing = [one for one in (self.cxemu, *programs) if not os.path.exists(one)]
        if missing:
            print("not built: %s" % ", ".join(missing), file=sys.stderr)
            sys.exit(NOT_BUILT)
        return self
