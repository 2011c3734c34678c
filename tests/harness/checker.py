"""The two ends of our own traffic programs (shift-traffic and its kin), which judge what they see."""

import json
import os

# The server is on host b, the client, which decides what the traffic is, on host a.
ENDS = ("client", "server")
# Their exit codes.
CODES = RIGHT, VIOLATION, ERROR, HANG = range(4)
START_SECONDS = 15


def checker_start(fabric, program, server, client, layered=(True, True), env=None):
    """Starts both ends, with these options; `layered`: the client, the server. (server, client); no client
    where the server did not start."""
    passive = fabric.start("b", "server", [program, *server], layered[1], env)
    if not passive.wait_for(lambda one: one.port, START_SECONDS):
        return passive, None
    argv = [program, *client, "--port", passive.port, "127.0.0.1"]
    return passive, fabric.start("a", "client", argv, layered[0], env)


def report_option(fabric, name):
    """Has an end write its result where report_of() looks."""
    return ["--json", os.path.join(fabric.directory, name + ".json")]


def report_of(directory, name):
    """What an end wrote of its run; nothing when it was killed before it could."""
    try:
        with open(os.path.join(directory, name + ".json")) as file:
            return json.load(file)
    except (OSError, ValueError):
        return {}
