"""Waits for a condition by looking at it again and again."""

import time


def wait_until(condition, timeout, step=0.005):
    """True when condition() holds; False when time is over."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(step)
    return True
