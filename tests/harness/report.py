"""Result files."""

import json
import os


def write_text(path, text):
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    with open(path, "w") as file:
        file.write(text)


def write_json(path, value):
    """Nothing is written where no file was asked for."""
    if path:
        write_text(path, json.dumps(value, indent=1) + "\n")
