#!/usr/bin/python3
"""A receiver reads back one byte through a QP that is connected to itself before it looks at its data, as NCCL
does with the memory of GPUs. The receiver's NICs hold what peers write until they answer such a READ. So the data
is there only if the READ went through each NIC that data came through, whichever NIC the QP itself is on.

The test `e2e_flush` calls this program.
"""

import sys

from harness.options import layer_add, script_parser
from harness.runs import run_on_fabric
from harness.waiting import wait_until

BOUND = 10.0  # seconds within which QPs must move
TRAFFIC_BOUND = 60.0
QPS = 2  # that carry data; one more reads back
# Longer than anything in the run takes: nothing arrives just because time has passed.
HOLD = {"CXEMU_HOLD_WRITES": "20000"}
PATIENCE = ["--timeout-ms", "90000", "--stall-ms", "30000"]
TRAFFIC = ["--until-stop", "--qps", str(QPS), "--rate", "1000", "--size", "2000", "--random-size"]


class Receiver:
    """Host b receives, host a sends."""

    def __init__(self, fabric, env=None):
        self.fabric = fabric
        env = {"SHIFT_FAILBACK_MS": "200", "SHIFT_RC_TIMEOUT_MAX": "15", **(env or {})}
        self.receiver = fabric.start("b", "receiver", [fabric.build.nccl, *PATIENCE], env={**env, **HOLD})
        if not self.receiver.wait_for(lambda one: one.port, BOUND):
            raise SystemExit("the receiver did not start")
        argv = [fabric.build.nccl, *PATIENCE, *TRAFFIC, "--port", self.receiver.port, "127.0.0.1"]
        self.sender = fabric.start("a", "sender", argv, env=env)
        self.wait("armed", lambda: fabric.all_have("armed", QPS + 1, "receiver"))

    def wait(self, what, condition, bound=BOUND):
        ended = (lambda: self.sender.ended or self.receiver.ended)
        if not wait_until(lambda: condition() or ended(), bound) or ended():
            raise SystemExit("FAILED: %s: not within %g s\n%s\n%s" % (
                what, bound, self.sender.text(), self.receiver.text()))

    def members(self):
        """Which NIC each QP of the receiver uses, as far as it has switched."""
        return {record["qp"]: record["member"] for record in self.fabric.records("switched", "receiver")}

    def data_comes_to(self, what, member):
        def there():
            on = list(self.members().values())
            return on.count(member) >= QPS

        self.wait(what, there)
        self.goes_on(1000)
        print("right  %s: data through %s, QPs on %s" % (
            what, member, " ".join(sorted(self.members().values()))), flush=True)

    def goes_on(self, groups):
        before = self.sender.progress
        self.wait("progress", lambda: self.sender.progress > before + groups, TRAFFIC_BOUND)

    def end(self):
        self.sender.tell("stop")
        codes = self.sender.finish(20), self.receiver.finish(20)
        if codes != (0, 0):
            raise SystemExit("FAILED: sender and receiver ended with %s\n%s" % (codes, self.receiver.text()))


def run(fabric, env=None):
    traffic = Receiver(fabric, env)
    # The peer's NIC fails: the receiver's own default NIC stays good, and so does the QP that reads back.
    for name, fault in (("sender's NIC", "a/mlx5_0"), ("receiver's NIC", "b/mlx5_0")):
        kinds = ["link-down", "drop-data"]
        if fault == "b/mlx5_0":
            # The NIC takes data, but gets no answer from itself: so what it holds cannot be read back.
            kinds.append("drop-acks peer=b/mlx5_0")
        for kind in kinds:
            fabric.fault(fault, kind)
            traffic.data_comes_to("%s, %s" % (name, kind), "mlx5_1")
            fabric.fault(fault, "heal")
            traffic.data_comes_to("%s, home" % name, "mlx5_0")
    traffic.end()


def main():
    parser = script_parser(__doc__, "out/flush")
    layer_add(parser)
    return run_on_fabric(parser.parse_args(), run)


if __name__ == "__main__":
    sys.exit(main())
