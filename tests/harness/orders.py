"""Gives a process with the layer an operator's orders, as shiftctl does, but without it."""

import glob
import os
import socket


def user_folder(state_dir):
    return os.path.join(state_dir, "shift-%d" % os.geteuid())


def drain(state_dir, *nics):
    """These NICs, and no others, are drained for the processes of this user that publish their state there."""
    folder = user_folder(state_dir)
    new = os.path.join(folder, "drained.new")
    with open(new, "w", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
        file.write("".join(nic + "\n" for nic in nics))
    os.rename(new, os.path.join(folder, "drained"))
    tell(state_dir, "look")


def tell(state_dir, order):
    """Sends an order to every process."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        for path in glob.glob(os.path.join(user_folder(state_dir), "*.ctl")):
            try:
                sender.sendto(order.encode(), path)
            except ConnectionRefusedError:
                pass  # its process was killed
