"""Notices when the whole machine stands still, as a virtual machine does while its host is busy: nothing runs
then, and the kernel's own timers are late. A bound on time says nothing of the programs in that time."""

import threading
import time

STEP, LEAST = 0.05, 0.5  # seconds


class Standstill:
    """Watches from its first use on, until the process ends. Thread-safe."""

    def __init__(self):
        self._spans = []
        self._lock = threading.Lock()
        self._watch = None

    def begin(self):
        with self._lock:
            if self._watch is None:
                self._watch = threading.Thread(target=self._run, daemon=True)
                self._watch.start()

    def _run(self):
        before = time.monotonic()
        while True:
            time.sleep(STEP)
            now = time.monotonic()
            self.note(before + STEP, now)
            before = now

    def note(self, due, woken):
        """The watch wanted to wake at one time and woke at another."""
        if woken - due >= LEAST:
            with self._lock:
                self._spans.append((due, woken))

    def seconds(self, begin, end):
        """How long the machine stood still between two times (CLOCK_MONOTONIC, seconds)."""
        with self._lock:
            return sum(max(0.0, min(end, woken) - max(begin, due)) for due, woken in self._spans)


STANDSTILL = Standstill()
