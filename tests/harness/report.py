"""Writes result files."""

import json
import os


def write_text(path, text):
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    with open(path, "w") as file:
        file.write(text)


def write_json(path, value):
    """Writes `value` as JSON, or nothing when `path` is empty."""
    if path:
        write_text(path, json.dumps(value, indent=1) + "\n")


def conclude(outcomes, failed, what, seconds):
    """Prints how many runs there were. Returns the exit status: 0 when all is good, 1 when something failed, 3
    when nothing ran."""
    skipped = sum(1 for outcome in outcomes if outcome.get("skipped"))
    print("%d %s, %d failed, %d skipped; %.0f s" % (len(outcomes), what, failed, skipped, seconds))
    if len(outcomes) == skipped:
        return 3
    return 1 if failed else 0
