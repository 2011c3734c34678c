"""Writes the table of programs and faults (docs/vm.md) from what runs saw, and reads it for a later run that
goes on from it (vm.py --resume)."""

import os
import re

from vm.cases import FAULTS, Cell, is_half

COLUMNS = [(fault, host) for fault in FAULTS for host in "ab"]
FAILS, MISSING, AS_STOCK = "**fails**", "-", "as stock"
OTHERS, AGAIN = "Other cases:", "Run more than once ([why](../tests/vm/README.md)):"


class Book:
    def __init__(self, command):
        self.command, self.kernel = command, ""
        self.cells = {}   # (row, fault, host) -> Cell, or None when it failed
        self.rows = []    # in the order of the run
        self.others = {}  # name -> what is wrong, for cases that are no cells
        self.again = []   # the names of cases that ran more than once
        self.failed = []

    def add(self, case, problem, cells):
        if problem:
            self.failed.append(case.name)
        if not case.row:
            self.others[case.name] = problem
            return
        if case.row not in self.rows:
            self.rows.append(case.row)
        for fault, host in case.columns:
            self.cells[case.row, fault, host] = None
        for cell in cells:
            self.cells[cell.row, cell.fault, cell.host] = cell

    def verdict(self, case):
        """Whether a case was right; None when it did not run, or was not seen to come back."""
        if not case.row:
            return self.others[case.name] == "" if case.name in self.others else None
        places = [(case.row, *column) for column in case.columns]
        if not all(place in self.cells for place in places):
            return None
        found = [self.cells[place] for place in places]
        if None in found:
            return False
        return None if any(is_half(cell) for cell in found) else True

    def run_again(self, case):
        """Notes that a case ran more than once."""
        if case.name not in self.again:
            self.again.append(case.name)

    def _text(self, row, fault, host):
        if (row, fault, host) not in self.cells:
            return MISSING
        cell = self.cells[row, fault, host]
        if cell is None:
            return FAILS
        if cell.away is None:
            return AS_STOCK
        return "%.1f" % cell.away + ("" if cell.back is None else " / %.1f" % cell.back)

    def text(self):
        lines = [
            "# Programs on Linux's soft-RoCE through a fault", "",
            "Written by `%s`: two emulated machines with" % self.command,
            "Linux %s, unmodified programs of Debian 12 and shift-traffic under" % self.kernel,
            "`shift-run` ([how](../tests/vm/README.md)), on a host with %d cores for everything." % os.cpu_count(),
            "In mid-run rail0 of the client's host (a) or of the server's host (b) breaks.", "",
            "A cell gives the seconds from the order to break until both ends had left rail0 and, after the",
            "stroke, until both were back on it; the fault is undone as soon as both have left. There is no",
            "second figure when the program's work was done before; or after an unbind, since a process that",
            "saw it does not come back to the NIC; or when what the program has posted at once takes longer",
            "than a drain waits (ucmatose, which posts everything). It takes long to leave where the end that",
            "must notice sends late (ucmatose's client). Each cell also means that both ends ended well, that",
            "the count was complete, and that what the program compares was right. A dash means that nothing",
            "was run. As stock: the program ends there by itself, and with the same error without the layer,",
            "as that case showed.",
            "",
            "| program | %s |" % " | ".join("%s %s" % column for column in COLUMNS),
            "| --- |" + " --- |" * len(COLUMNS)]
        for row in self.rows:
            lines.append("| `%s` | %s |" % (
                row, " | ".join(self._text(row, *column) for column in COLUMNS)))
        if self.others:
            lines += ["", OTHERS, ""]
            lines += ["- %s: %s" % (name, FAILS if problem else "ok")
                      for name, problem in self.others.items()]
        if self.again:
            lines += ["", AGAIN, ""] + ["- %s" % name for name in self.again]
        return "\n".join(lines) + "\n"

    def write(self, path):
        with open(path + ".new", "w") as file:
            file.write(self.text())
        os.replace(path + ".new", path)

    def read(self, path):
        """Reads what an earlier run wrote."""
        with open(path) as file:
            text = file.read()
        self.command, self.kernel = re.search(r"Written by `(.*)`.*\nLinux (\S+),", text).groups()
        for row, cells in re.findall(r"^\| `(.*?)` \| (.*) \|$", text, re.M):
            self.rows.append(row)
            for column, cell in zip(COLUMNS, cells.split(" | ")):
                if cell == MISSING:
                    continue
                times = [float(time) for time in re.findall(r"[0-9.]+", cell)] + [None, None]
                self.cells[(row, *column)] = None if cell == FAILS else Cell(row, *column, *times[:2])
        cases, _, again = text.partition(AGAIN)
        for name, verdict in re.findall(r"^- (.*): (ok|\*\*fails\*\*)$", cases, re.M):
            self.others[name] = "" if verdict == "ok" else "an earlier run"
        self.again = re.findall(r"^- (.*)$", again, re.M)
