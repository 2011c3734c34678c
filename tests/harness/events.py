"""Reads the layer's event records: one JSON object on each line, in one file for each program (SHIFT_EVENTS)."""

import json


def event_lines(path, kind):
    """The records of one kind that the program wrote so far, as text, which is enough to count them. The last line
    may be half a record, which the program is writing at this moment."""
    try:
        with open(path) as file:
            return [line for line in file if '"event":"%s"' % kind in line and line.endswith("\n")]
    except FileNotFoundError:
        return []


class EventTail:
    """The records of one kind of a program that runs. A look reads what is new, so that it disturbs no program
    whose pauses are measured, however long the file grows."""

    def __init__(self, path, kind):
        self.path, self.kind = path, kind
        self.records, self._end = [], 0

    def look(self):
        """All records so far, as dictionaries."""
        try:
            with open(self.path, "rb") as file:
                file.seek(self._end)
                for line in file:
                    if not line.endswith(b"\n"):
                        break  # the program is writing it
                    self._end += len(line)
                    if b'"event":"%s"' % self.kind.encode() in line:
                        self.records.append(json.loads(line))
        except FileNotFoundError:
            pass
        return self.records
