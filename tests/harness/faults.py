"""The faults of an emulated NIC from which tests choose."""

# A NIC fails because its link goes down, because the device dies, or because one direction is silent: what
# the NIC sends is lost, or the answers are.
FAULTS = ["link-down", "kill", "drop-acks", "drop-data"]
SIDES = ["a", "b"]
HEALS = {"link-down": "link-up", "kill": "revive"}


def healing(fault):
    """The fault command that ends a fault."""
    return HEALS.get(fault, "heal")
