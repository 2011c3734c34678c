"""Finds free TCP ports, and whether a server listens at a port."""

import contextlib
import random
import socket

TABLES = ("/proc/net/tcp", "/proc/net/tcp6")


def free_port():
    """Returns a free port below the range from which the kernel (by default) takes ports for connections, so
    that a connection of another test cannot take it meanwhile."""
    while True:
        port = random.randrange(20000, 32768)
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("", port))
            return port


def has_listener(table, port):
    """Whether this table of the kernel has a listener. The test cannot just connect: perftest serves its first
    connection and no other."""
    wanted = ":%04X" % port
    rows = (line.split() for line in table.splitlines())
    return any(len(row) > 3 and row[1].endswith(wanted) and row[3] == "0A" for row in rows)


def is_listening(port):
    """Whether some program of this machine listens at this port."""
    for path in TABLES:
        with contextlib.suppress(FileNotFoundError), open(path) as file:
            if has_listener(file.read(), port):
                return True
    return False
