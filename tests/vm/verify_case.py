"""shift-verify over the kernel's soft-RoCE: on one host, between two, and with an assumption that does not hold.

What it prints goes to the logs of the machines; docs/verify.md shows it.
"""

import os

from vm.pair import PATIENCE, address

PORT = "9474"
SECONDS = 400
# What soft-RoCE is known for (README), and paths between two devices of one host, which the kernel does not carry.
KNOWN = {"last-wqe", "error-event", "path"}
# These judge times, and the processors are emulated.
TIMED = {"registration", "commands", "reconnect", "control-channel", "patience", "cost"}


def verify(pair, name, *arguments, lie=""):
    """Runs it on machine a. Returns what is wrong, and what it prints, which goes to NAME.log, too."""
    command = [os.path.join(pair.build, "bin", "shift-verify"), *arguments]
    env = dict(PATIENCE)
    if lie:
        env.update({"LIAR": lie, "LD_PRELOAD": os.path.join(pair.build, "test", "shift-liar.so")})
    said = pair.machines["a"].start(name, command, env)
    code = said.finish(SECONDS)
    if code is None:
        return "%s hangs: %s" % (name, said.text()), None
    return "", said.text().split("\n", 1)[1]


def objections(text):
    """What the text says of healthy soft-RoCE that it must not say."""
    lines = [line.split(None, 2) for line in text.splitlines()
             if line.startswith(("ok ", "warning ", "FAILURE ", "skipped "))]
    bad = [" ".join(line) for line in lines
           if line[0] == "FAILURE" or (line[0] == "warning" and line[1] not in KNOWN | TIMED)]
    if not any(line[:2] == ["ok", "failover"] for line in lines):
        bad.append("no failover went well: " + text[-500:])
    return "; ".join(bad)


def one_host(pair, unused_cells):
    problem, text = verify(pair, "verify-one-host", "--without", "link-down")
    return problem or objections(text)


def one_lie(pair, unused_cells):
    """With requests that ERR does not flush, the check of these fails, and says so."""
    problem, text = verify(pair, "verify-lie", "--only", "fence", lie="unsignaled-unflushed")
    if problem:
        return problem
    failed = [line for line in text.splitlines() if line.startswith("FAILURE")]
    wanted = all("flush-all" in line and "ERR gave back: 5 8" in line for line in failed)
    return "" if len(failed) == 2 and wanted else "the text says: " + text


def two_hosts(pair, unused_cells):
    """With the links down and up."""
    server = pair.machines["b"].start("verify-server", [
        os.path.join(pair.build, "bin", "shift-verify"), "--server", "--port", PORT], dict(PATIENCE))
    try:
        if not pair.until(lambda: "waiting" in server.text(), 60):
            return "the server does not start: " + server.text()
        problem, text = verify(pair, "verify-two-hosts", address("control", "b"), "--port", PORT, "--link")
        return problem or objections(text)
    finally:
        server.finish(0)


CASES = {"shift-verify on one host": one_host, "shift-verify with a wrong assumption": one_lie,
         "shift-verify between two hosts": two_hosts}
