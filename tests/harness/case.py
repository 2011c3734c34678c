"""Cases: what an unmodified program must do, and the complaint when it does not do so."""

import os
import re
import shutil


class Failure(Exception):
    """Says in one line what was wrong."""


class Case:
    """`body(session)` raises Failure. `needs` are programs or files without which the case cannot run.

    `quiet`: nothing is broken, so no queue pair may fail. `packets`: at least so many must have crossed the
    emulated wire, so that a program that did nothing, or found another way, does not pass.
    """

    def __init__(self, name, group, body, needs=(), short=False, seconds=60, quiet=True, packets=10):
        self.name, self.group, self.body = name, group, body
        self.needs, self.short, self.seconds = tuple(needs), short, seconds
        self.quiet, self.packets = quiet, packets

    def missing(self):
        return [need for need in self.needs
                if not (os.path.exists(need) if need.startswith("/") else shutil.which(need))]


def expect(text, pattern, what):
    """Returns the match of a line that must be there."""
    match = re.search(pattern, text, re.M)
    if not match:
        raise Failure("%s: no line like %r" % (what, pattern))
    return match
