"""Reads the layer's event records: one JSON object on each line, in one file for each program (SHIFT_EVENTS)."""


def event_lines(path, kind):
    """The records of one kind that the program wrote so far, as text, which is enough to count them. The last line
    may be half a record, which the program is writing at this moment."""
    try:
        with open(path) as file:
            return [line for line in file if '"event":"%s"' % kind in line and line.endswith("\n")]
    except FileNotFoundError:
        return []
