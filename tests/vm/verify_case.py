"""shift-verify over the kernel's soft-RoCE: on one host, between two, and with an assumption that does not hold.

What it prints goes to the logs of the machines; docs/verify.md shows it.
"""

import os
import re

from vm.pair import PATIENCE, address

PORT = "9472"
SECONDS = 400
SECOND = "192.0.2.101"  # in the subnet of rail0
# What soft-RoCE is known for (README), and paths across rails, which have no routes here.
KNOWN = {"last-wqe", "error-event", "marker-last", "path"}
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


def source_routing(pair, unused_cells):
    """Two NICs in one subnet, first as the kernel sets that up, and then with a table for the second one."""
    alone = "ip address del %s/24 dev rail1" % address("rail1", "a")
    pair.sh("a", alone + " && ip address add %s/24 dev rail1" % SECOND)
    try:
        problem, text = verify(pair, "verify-one-subnet", "--only", "subnets")
        if problem or not re.search(r"^warning .*what is sent from %s leaves through rail0$" % SECOND, text, re.M):
            return problem or text
        pair.sh("a", "ip rule add from %s table 101 && ip route add 192.0.2.0/24 dev rail1 table 101" % SECOND)
        problem, text = verify(pair, "verify-source-routing", "--only", "subnets")
        return problem or ("" if re.search("^ok .*with source routing$", text, re.M) else text)
    finally:
        pair.sh("a", "ip rule del table 101; ip route flush table 101; ip address del %s/24 dev rail1;"
                " ip address add %s/24 dev rail1" % (SECOND, address("rail1", "a")))


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
         "shift-verify between two hosts": two_hosts, "shift-verify and source routing": source_routing}
