"""Waits until something is so, which only looking can tell."""

import time


def wait_until(condition, timeout, step=0.005):
    """True once condition() holds; False when time is over."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(step)
    return True
