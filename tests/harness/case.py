"""What an unmodified program must do: a case, and the complaint when it does not."""

import os
import re
import shutil


class Failure(Exception):
    """What was wrong, in one line."""


class Case:
    """`body(session)` raises Failure. `needs`: programs, or files, without which it cannot run.

    `quiet`: nothing is broken, so no queue pair may fail. `packets`: at least so many must have crossed the
    emulated wire, so that a program that found another way, or did nothing, does not pass.
    """

    def __init__(self, name, group, body, needs=(), short=False, seconds=60, quiet=True, packets=10):
        self.name, self.group, self.body = name, group, body
        self.needs, self.short, self.seconds = tuple(needs), short, seconds
        self.quiet, self.packets = quiet, packets

    def missing(self):
        return [need for need in self.needs
                if not (os.path.exists(need) if need.startswith("/") else shutil.which(need))]


def expect(text, pattern, what):
    """The match of a line that must be there."""
    match = re.search(pattern, text, re.M)
    if not match:
        raise Failure("%s: no line like %r" % (what, pattern))
    return match
