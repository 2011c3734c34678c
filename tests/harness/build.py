"""Finds the programs under test in a build folder."""

import os
import re
import shutil
import sys

SLOWED = re.compile(r"^SHIFT_SANITIZE:\w+=(.+)$|^CMAKE_CXX_FLAGS_DEBUG:\w+=.*--(coverage)", re.M)
NOT_BUILT = 4  # the exit status of a script that was called wrongly

EMULATOR = os.environ.get("SHIFT_EMULATOR", "").split()  # runs programs for aarch64: check.sh --arm64
EM_AARCH64 = (183).to_bytes(2, "little")  # in an ELF header


def words(argv):
    """The words that run a program: its own, after the emulator's if there is one, and the program is for it."""
    argv = [str(word) for word in argv]
    path = EMULATOR and shutil.which(argv[0])
    if not path:
        return argv
    with open(path, "rb") as file:
        head = file.read(20)
    is_foreign = head[:4] == b"\x7fELF" and head[18:20] == EM_AARCH64
    return [*EMULATOR, path, *argv[1:]] if is_foreign else argv


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
        self.regions = self.program("test", "shift-regions")
        self.life = self.program("test", "shift-life")

    def program(self, folder, name):
        return os.path.join(self.path, folder, name)

    def slowed_by(self):
        """Why times mean nothing in this build, or ''."""
        with open(os.path.join(self.path, "CMakeCache.txt"), errors="replace") as file:
            found = SLOWED.search(file.read())
        return "built with %s" % (found.group(1) or found.group(2)) if found else ""

    def require(self, *programs):
        """Ends the script when the emulator or one of `programs` is missing. Returns the build."""
        missing = [one for one in (self.cxemu, *programs) if not os.path.exists(one)]
        if missing:
            print("not built: %s" % ", ".join(missing), file=sys.stderr)
            sys.exit(NOT_BUILT)
        return self
