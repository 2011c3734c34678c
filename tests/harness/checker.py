"""Starts the two ends of SHIFT's traffic programs, such as shift-traffic, which judge what they see."""

import json
import os

# The server is on host b. The client, which decides what the traffic is, is on host a.
ENDS = ("client", "server")
# The exit codes of both.
CODES = RIGHT, VIOLATION, ERROR, HANG = range(4)
START_SECONDS = 15
# What a program hears when its NIC dies: ibv_event_type_str(IBV_EVENT_DEVICE_FATAL).
DEATH = "local catastrophic error"


def checker_start(fabric, program, server, client, layered=(True, True), env=None, names=ENDS):
    """Starts both ends with these options. `layered` says whether the client and the server run with the layer,
    and `names` what their logs and records are called. Returns (server, client); the client is None when the
    server did not start."""
    passive = fabric.start("b", names[1], [program, *server], layered[1], env)
    if not passive.wait_for(lambda one: one.port, START_SECONDS):
        return passive, None
    argv = [program, *client, "--port", passive.port, "127.0.0.1"]
    return passive, fabric.start("a", names[0], argv, layered[0], env)


def report_option(fabric, name):
    """The option that makes an end write its result where report_of() looks."""
    return ["--json", os.path.join(fabric.directory, name + ".json")]


def report_of(directory, name):
    """The result that an end wrote; empty when the end was killed before."""
    try:
        with open(os.path.join(directory, name + ".json")) as file:
            return json.load(file)
    except (OSError, ValueError):
        return {}


def is_only_silence(reports):
    """Whether all that these results call a violation is what the stock library does on a dead NIC: the NIC said
    that it died, and it completes nothing more, not even what the other end has consumed."""
    told = [(violation["name"], report["async_events"]) for report in reports
            for violation in report.get("violations", [])]
    return bool(told) and all(name == "completion-missing" and DEATH in events for name, events in told)
