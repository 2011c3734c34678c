"""TCP ports: free ones, and whether a server listens yet."""

import contextlib
import random
import socket

TABLES = ("/proc/net/tcp", "/proc/net/tcp6")


def free_port():
    """Below the range from which the kernel (by default) takes the ports of connections: a program
    of another test that connects meanwhile must not be given it."""
    while True:
        port = random.randrange(20000, 32768)
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("", port))
            return port


def has_listener(table, port):
    """What a table of the kernel's says. Nobody connects to find out: perftest serves its first connection
    and no other."""
    wanted = ":%04X" % port
    rows = (line.split() for line in table.splitlines())
    return any(len(row) > 3 and row[1].endswith(wanted) and row[3] == "0A" for row in rows)


def is_listening(port):
    """Whether some program of this machine listens there."""
    for path in TABLES:
        with contextlib.suppress(FileNotFoundError), open(path) as file:
            if has_listener(file.read(), port):
                return True
    return False
