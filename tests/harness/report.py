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
