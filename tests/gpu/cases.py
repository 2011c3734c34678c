"""The cases of the bed: what the ranks do, with which settings, and which NIC breaks when."""

import dataclasses
import random

KIB, MIB = 1 << 10, 1 << 20
OPS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all", "send_recv")
DTYPES = ("float32", "bfloat16", "int64")
SIZES = (8, 4 * KIB, 64 * KIB, MIB, 16 * MIB, 256 * MIB)
SEED = 7

# What NCCL is told in all cases, beside what follows from the bed itself.
SETTINGS = {
    "NCCL_SOCKET_IFNAME": "lo",      # its own connections go through no NIC that breaks
    "NCCL_IB_HCA": "=mlx5_0",        # the other NIC is the layer's
    "NCCL_NET": "IB",                # no TCP instead
    "NCCL_NET_PLUGIN": "none",
    "NCCL_NET_GDR_LEVEL": "LOC",     # host buffers: the emulated NICs cannot reach a GPU
    "NCCL_DEBUG": "INFO",
    "NCCL_DEBUG_SUBSYS": "INIT,ENV,NET",
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
}


@dataclasses.dataclass(frozen=True)
class Fault:
    """`what` happens to `nic` when the ranks wait before thing `at`; None: before they start. With `packet`, the
    fault waits for that many packets of the NIC, so that it comes in the middle of what they do next. `step`: it
    comes when a rank that trains has done so many steps."""
    nic: str
    what: str
    at: int = None
    packet: int = 0
    step: int = 0

    def words(self):
        return "%s@packet=%d" % (self.what, self.packet) if self.packet else self.what


@dataclasses.dataclass(frozen=True)
class Case:
    """`detectors` must be among those by which the layer noticed faults: of several faults, each has to hit."""
    name: str
    things: tuple          # of the plan; see rank.py
    faults: tuple = ()
    settings: tuple = ()   # pairs
    layer: bool = True
    groups: int = 1
    dies: bool = False     # the program must end with an error: the stock stack under a fault
    may_die: bool = False  # ... or is allowed to
    meets: bool = False    # the ranks run before, on healthy NICs, so that the hosts know each other
    switches: bool = True  # some queue pair must have gone to another NIC
    detectors: tuple = ()

    def plan(self):
        pauses = sorted({fault.at for fault in self.faults if fault.at is not None})
        return {"seed": SEED, "groups": self.groups, "pauses": pauses, "things": list(self.things)}

    def reference(self):
        """What the results are compared with: the same things on the stock stack, without a fault."""
        return dataclasses.replace(self, name="reference", faults=(), settings=(), layer=False, dies=False,
                                   may_die=False, meets=False, switches=False)


def collective(op, dtype, size):
    return {"op": op, "dtype": dtype, "bytes": size}


def sweep():
    """Every collective, type and size, but the largest size of one type each."""
    return tuple(collective(op, dtype, size) for size in SIZES for op in OPS for dtype in DTYPES
                 if size < 64 * MIB or dtype == DTYPES[OPS.index(op) % len(DTYPES)])


def medley(seed, count=24):
    """A drawn part of the sweep without the largest size, which takes long."""
    small = [one for one in sweep() if one["bytes"] < 64 * MIB]
    return tuple(random.Random(seed).sample(small, count))


LARGE = collective("all_reduce", "float32", 64 * MIB)
STEPS = {"steps": 150, "bytes": MIB}
LONG = {"steps": 700, "bytes": MIB}  # several seconds, in which the layer also finds its way back
# Before the fault, what the fault hits, and after it.
AROUND = (*medley(1, 6), LARGE, *medley(2, 12), LARGE, *medley(3, 6))
HIT = 6
MIDDLE = 3000  # packets of a NIC after which a fault comes: in the middle of LARGE

VARIANTS = {
    "as it comes": (),
    "4 QPs": (("NCCL_IB_QPS_PER_CONNECTION", "4"),),
    "4 QPs, split": (("NCCL_IB_QPS_PER_CONNECTION", "4"), ("NCCL_IB_SPLIT_DATA_ON_QPS", "1")),
    "inline": (("NCCL_IB_USE_INLINE", "1"),),
    "adaptive routing": (("NCCL_IB_ADAPTIVE_ROUTING", "1"), ("NCCL_IB_AR_THRESHOLD", "8192")),
}
FAULTS = ("link-down", "kill", "drop-acks", "drop-data")

TRAINING = {"train": 300, "width": 256, "depth": 4, "length": 64, "batch": 16}


def middle(fault, side, **more):
    return Fault(side + "/mlx5_0", fault, HIT, MIDDLE, **more)


def cases():
    """All cases, the most telling ones first."""
    yield Case("healthy", AROUND, switches=False)
    for fault in FAULTS:
        for side in "ab":
            yield Case("%s on %s in mid-collective" % (fault, side), AROUND, (middle(fault, side),))
    yield Case("stock, link-down", AROUND, (middle("link-down", "a"),), layer=False, dies=True)
    yield Case("stock, kill", AROUND, (middle("kill", "a"),), layer=False, dies=True)
    for variant, settings in VARIANTS.items():
        if settings:
            for fault in FAULTS:
                side = "ab"[FAULTS.index(fault) % 2]
                yield Case("%s, %s on %s" % (variant, fault, side), AROUND, (middle(fault, side),), settings)
    for fault in FAULTS:
        yield Case("%s between steps" % fault, AROUND, (Fault("a/mlx5_0", fault, HIT),))
    yield Case("three communicators, link-down on a", AROUND, (middle("link-down", "a"),), groups=3)
    yield Case("three communicators, kill on b", AROUND, (middle("kill", "b"),), groups=3)
    yield Case("flap on a", (LARGE, LONG, *medley(3, 6)), (Fault("a/mlx5_0", "flap=100/1500x3", 1),))
    yield Case("link-down, back, drop-acks", (LARGE, LARGE, LONG, LARGE, *medley(3, 6)),
               (Fault("a/mlx5_0", "link-down", 1, MIDDLE), Fault("a/mlx5_0", "link-up", 2),
                Fault("b/mlx5_0", "drop-acks", 3, MIDDLE)), detectors=("port-event", "completion"))
    yield Case("second fault: mlx5_1 of the peer", AROUND,
               (middle("link-down", "a"), Fault("b/mlx5_1", "link-down", HIT + 13, MIDDLE)))
    yield Case("during init, link-down on a", AROUND, (Fault("a/mlx5_0", "link-down", None, 12),), may_die=True)
    yield Case("during init, kill on b", AROUND, (Fault("b/mlx5_0", "kill", None, 12),), may_die=True)
    for fault in ("link-down", "kill"):
        yield Case("%s on a before init" % fault, AROUND, (Fault("a/mlx5_0", fault),), meets=True)
    yield Case("both NICs to NCCL, link-down on a", AROUND, (middle("link-down", "a"),),
               (("NCCL_IB_HCA", "mlx5"),))
    yield Case("both NICs to NCCL, stock, no fault", AROUND, (), (("NCCL_IB_HCA", "mlx5"),), layer=False,
               switches=False)
    yield Case("merged NICs, stock, no fault", AROUND, (),
               (("NCCL_IB_HCA", "mlx5"), ("NCCL_NET_MERGE_LEVEL", "SYS")), layer=False, switches=False)
    yield Case("merged NICs, link-down on a", AROUND, (middle("link-down", "a"),),
               (("NCCL_IB_HCA", "mlx5"), ("NCCL_NET_MERGE_LEVEL", "SYS")))
    yield Case("mode exact, link-down on a", AROUND, (middle("link-down", "a"),), (("SHIFT_MODE", "exact"),))
    yield Case("mode exact, drop-acks on b", AROUND, (middle("drop-acks", "b"),), (("SHIFT_MODE", "exact"),))
    yield Case("journal of copies, drop-data on a", AROUND, (middle("drop-data", "a"),),
               (("SHIFT_JOURNAL", "copies"),))
    yield Case("no PXN, no data direct, kill on a", AROUND, (middle("kill", "a"),),
               (("NCCL_PXN_DISABLE", "1"), ("NCCL_IB_DATA_DIRECT", "0")))
    for fault in FAULTS:
        yield Case("steps, %s on a" % fault, (STEPS, STEPS), (Fault("a/mlx5_0", fault, 1, 2000),))
    yield Case("all sizes and types, link-down on b", sweep(), (Fault("b/mlx5_0", "link-down", 20, MIDDLE),))
    yield Case("all sizes and types, kill on a", sweep(), (Fault("a/mlx5_0", "kill", 50, MIDDLE),))
    yield Case("training, link-down on a and back", (TRAINING,),
               (Fault("a/mlx5_0", "link-down", step=100), Fault("a/mlx5_0", "link-up", step=200)))
    yield Case("training, kill on b", (TRAINING,), (Fault("b/mlx5_0", "kill", step=100),))
    yield Case("training, drop-acks on a and back", (TRAINING,),
               (Fault("a/mlx5_0", "drop-acks", step=100), Fault("a/mlx5_0", "heal", step=200)))
    yield Case("training, stock, link-down on a", (TRAINING,),
               (Fault("a/mlx5_0", "link-down", step=100),), layer=False, dies=True)


# For the dry run: what any PyTorch can do without a GPU.
GLOO = Case("over Gloo", (*(collective(op, dtype, size) for op in ("all_reduce", "broadcast", "send_recv")
                            for dtype in ("float32", "int64") for size in (8, 64 * KIB)),
                          {"steps": 20, "bytes": 64 * KIB},
                          {"train": 4, "width": 32, "depth": 1, "length": 16, "batch": 2}),
            (Fault("a/mlx5_0", "link-down", 3), Fault("a/mlx5_0", "link-up", step=2)), groups=2, switches=False)


def standing_in():
    """The cases of the dry run, where SHIFT's program with NCCL's traffic stands in for the ranks."""
    return [case for case in cases() if case.name in (
        "healthy", "link-down on a in mid-collective", "kill on b in mid-collective",
        "drop-acks on a in mid-collective", "drop-data on b in mid-collective", "stock, kill")]
