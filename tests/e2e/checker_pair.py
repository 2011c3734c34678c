"""Runs shift-traffic between both hosts while NICs come and go, and looks at the layer's event records."""

from harness.checker import ENDS, checker_start
from harness.waiting import wait_until

BOUND = 10.0  # seconds within which QPs must move
TRAFFIC_BOUND = 60.0  # seconds for more messages, which a busy machine sends slowly


# A little of everything.
MIXED = ("--qps", "2", "--rate", "2000", "--size", "512", "--events", "--op", "mixed", "--bidirectional")


class CheckerPair:
    """A client on host a, a server on host b, and what their layers did."""

    def __init__(self, fabric, options=(), env=None, traffic=MIXED, armed=True, both=()):
        """`options` are the client's, and `both` those of both ends."""
        self.fabric = fabric
        # With less patience a busy machine looks like a silent fault.
        env = {"SHIFT_FAILBACK_MS": "200", "SHIFT_RC_TIMEOUT_MAX": "15", **(env or {})}
        self.seen = dict.fromkeys(ENDS, 0)
        patience = ["--timeout-ms", "60000", *both]
        self.server, self.client = checker_start(
            fabric, fabric.build.traffic, patience, patience + ["--until-stop", *traffic, *options], env=env)
        if self.client is None:
            raise SystemExit("the server did not start")
        if armed:
            self.wait("armed", lambda: fabric.all_have("armed", 2, *ENDS))

    def wait(self, what, condition, bound=BOUND):
        if not wait_until(lambda: condition() or self.client.ended, bound) or self.client.ended:
            raise SystemExit("FAILED: %s: not within %g s\n%s" % (what, bound, self.client.text()))

    def switched(self, name):
        return self.fabric.records("switched", name)

    def noticed_by(self, name):
        return [record["detector"] for record in self.switched(name)]

    def moved(self, what, member, name="", detector=""):
        """Waits until both ends' QPs are on `member`. At the end `name`, `detector` must have seen the fault."""
        seen = self.seen

        def there(end):
            newest = {record["qp"]: record["member"] for record in self.switched(end)}
            return len(self.switched(end)) >= seen[end] + 2 and set(newest.values()) == {member}

        self.wait(what, lambda: all(there(n) for n in ENDS))
        if name and detector not in self.noticed_by(name)[seen[name]:]:
            raise SystemExit("FAILED: %s: the %s was told by %s" % (
                what, name, self.noticed_by(name)[seen[name]:]))
        print("right  %s: to %s, %s" % (what, member, detector or "home"), flush=True)
        self.seen = {n: len(self.noticed_by(n)) for n in ENDS}
        self.goes_on(50)

    def goes_on(self, messages):
        before = self.client.progress
        self.wait("progress", lambda: self.client.progress > before + messages, TRAFFIC_BOUND)

    def untouched(self, what):
        self.goes_on(1000)
        for name in ENDS:
            told = set(self.noticed_by(name)[self.seen[name]:]) & {"link-state", "address"}
            if told:
                raise SystemExit("FAILED: %s: the %s was told by %s" % (what, name, told))
        print("right  %s: nothing moves" % what, flush=True)

    def end(self):
        self.client.tell("stop")
        codes = self.client.finish(20), self.server.finish(20)
        if codes != (0, 0):
            raise SystemExit("FAILED: the checker ended with %s" % (codes,))
