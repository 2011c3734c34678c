"""The table of programs and faults, from what one run saw and nothing else."""

import os

from cases import FAULTS

COLUMNS = [(fault, host) for fault in FAULTS for host in "ab"]


class Book:
    def __init__(self, command):
        self.command, self.kernel = command, ""
        self.cells = {}   # (row, fault, host) -> Cell; None: it failed
        self.rows = []    # in the order of the run
        self.others = []  # (name, what is wrong) of cases that are no cells
        self.failed = []

    def add(self, case, problem, cells):
        if problem:
            self.failed.append(case.name)
        if not case.row:
            self.others.append((case.name, problem))
            return
        if case.row not in self.rows:
            self.rows.append(case.row)
        for fault, host in case.columns:
            self.cells[case.row, fault, host] = None
        for cell in cells:
            self.cells[cell.row, cell.fault, cell.host] = cell

    def _text(self, row, fault, host):
        if (row, fault, host) not in self.cells:
            return "-"
        cell = self.cells[row, fault, host]
        if cell is None:
            return "**fails**"
        if cell.away is None:
            return "as stock"
        return "%.1f" % cell.away + ("" if cell.back is None else " / %.1f" % cell.back)

    def text(self):
        lines = [
            "# Programs on Linux's soft-RoCE through a fault", "",
            "Written by `%s`: two emulated machines with Linux %s, unmodified" % (
                self.command, self.kernel),
            "programs of Debian 12 and our checker under `shift-run` ([how](../tests/vm/README.md)), on a host with",
            "%d cores for everything. In mid-run rail0 of the client's host (a) or the server's (b) breaks." %
            os.cpu_count(),
            "", "A cell gives seconds from the order to break until both ends had left rail0, and, behind the",
            "stroke, until both were back on it; the fault is undone as soon as both have left. No second figure:",
            "the program's work was done before, or, behind an unbind, there is no way back for a process that",
            "saw it. Each cell means as well that both ends exited well, that the count was complete and that what",
            "the program compares was right. Behind a dash nothing was run. As stock: the program ends there by itself,",
            "with the same error without the layer, as the same case showed.", "",
            "| program | %s |" % " | ".join("%s %s" % column for column in COLUMNS),
            "| --- |" + " --- |" * len(COLUMNS)]
        for row in self.rows:
            lines.append("| `%s` | %s |" % (
                row, " | ".join(self._text(row, *column) for column in COLUMNS)))
        if self.others:
            lines += ["", "Other cases of the same run:", ""]
            lines += ["- %s: %s" % (name, "**fails**" if problem else "ok")
                      for name, problem in self.others]
        return "\n".join(lines) + "\n"

    def write(self, path):
        with open(path + ".new", "w") as file:
            file.write(self.text())
        os.replace(path + ".new", path)
