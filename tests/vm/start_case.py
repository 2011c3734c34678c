"""Programs that start while the first NIC of a host, or of both, has no link: the second one carries them from
their first request on, and they go home when the link is up again."""

from vm.clients import Session
from vm.pair import HEALS

FAULTS = ("link-down", "carrier-off")
MEETINGS = 3
CARRIED = 100000  # bytes that the second NICs have sent before the links come up again


def remembers(pair, host):
    return bool(pair.sh(host, "cat /dev/shm/shift-*/hosts", check=False).strip())


def meet(pair, client):
    """The program runs while all is well, until each host remembers the other one."""
    for _ in range(MEETINGS):
        session = Session(pair, client)
        if not session.wait_count("armed", 1):
            return "healthy: no second path: %s" % session.finish(1)
        problem = session.finish()
        if problem:
            return "healthy: " + problem
        if all(remembers(pair, host) for host in "ab"):
            return ""
    return "the hosts do not remember each other"


def starts(pair, client, fault, hosts):
    problem = meet(pair, client)
    if problem:
        return problem
    sent = pair_sent(pair)
    for host in hosts:
        pair.fault(host, "rail0", fault)
    session = Session(pair, client)
    carried = pair.until(lambda: pair_sent(pair) > sent + CARRIED or session.ended(), 120)
    ended = session.ended()
    # This comes before the program ends: the kernel must not find packets of a QP that is gone (README).
    for host in hosts:
        pair.fault(host, "rail0", HEALS[fault])
    is_home = not client.endless or session.wait_count("switched", 2)
    problem = session.finish()
    if problem:
        return problem
    if ended and client.endless or not carried or pair_sent(pair) < sent + CARRIED:
        return "the second NICs have sent %d bytes" % (pair_sent(pair) - sent)
    return "" if is_home else "not back home: %s" % (session.failure() or "no reason is told")


def pair_sent(pair):
    return sum(pair.counter(host, "rail1") for host in "ab")


def cases(clients):
    """{name: act(pair, cells)}: the first client with each fault of each host, the others with one each."""
    plans = [(clients[0], fault, hosts) for fault in FAULTS for hosts in ("a", "b", "ab")]
    plans += [(client, FAULTS[number % 2], ("a", "b", "ab")[number % 3])
              for number, client in enumerate(clients[1:])]
    return {"%s starts, %s on %s" % (client.name, fault, " and ".join(hosts)):
            lambda pair, cells, plan=(client, fault, hosts): starts(pair, *plan)
            for client, fault, hosts in plans}
