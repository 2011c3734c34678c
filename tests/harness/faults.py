"""The faults of an emulated NIC that tests choose from."""

# A program on either host may lose its NIC: by a link that goes down, a device that dies, or a silence in one
# direction, of what it sends or of the answers.
FAULTS = ["link-down", "kill", "drop-acks", "drop-data"]
SIDES = ["a", "b"]
HEALS = {"link-down": "link-up", "kill": "revive"}


def healing(fault):
    """The order that ends a fault."""
    return HEALS.get(fault, "heal")
