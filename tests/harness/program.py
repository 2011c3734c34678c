"""Runs one program, follows its output line by line, and keeps the output in a log."""

import os
import signal
import subprocess
import threading
import time


class Program:
    """`progress` and `port` are what SHIFT's own traffic programs print."""

    def __init__(self, argv, log_path, env=None, apart=False):
        """With `apart`, stderr cannot come into the middle of a line of stdout: it follows all of stdout when the
        program has ended."""
        self.argv = argv
        self.log_path = log_path
        self.progress = 0
        self.port = None
        self.lines = []
        self._changed = threading.Condition()
        self._log = open(log_path, "w", errors="replace")
        self._log.write("$ " + " ".join(argv) + "\n")
        self.started = time.monotonic()
        self.ended = None
        self._apart = log_path + ".stderr" if apart else None
        errors = open(self._apart, "w") if apart else subprocess.STDOUT
        # A process group of its own, so that kill() finds all of it, but no session: Linux deals out processors to
        # sessions (sched_autogroup), and the pollers of two sessions kept each other from running for 30 ms while
        # a processor was idle.
        self.process = subprocess.Popen(
            argv, stdout=subprocess.PIPE, stderr=errors, stdin=subprocess.PIPE,
            text=True, errors="replace", env=env, process_group=0)
        if apart:
            errors.close()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        for line in self.process.stdout:
            with self._changed:
                if line.startswith("progress "):
                    self.progress = int(line.split()[1])
                else:
                    self._log.write("%.3f " % (time.monotonic() - self.started) + line)
                    self._log.flush()
                    self.lines.append(line.rstrip("\n"))
                    if line.startswith("port "):
                        self.port = int(line.split()[1])
                self._changed.notify_all()
        with self._changed:
            self.ended = time.monotonic()
            self._changed.notify_all()

    def wait_for(self, condition, timeout):
        """True when condition(self) holds; False when the program has ended before, or time is over."""
        deadline = time.monotonic() + timeout
        with self._changed:
            while not condition(self):
                left = deadline - time.monotonic()
                if left <= 0 or self.ended is not None:
                    return condition(self)
                self._changed.wait(min(left, 0.2))
        return True

    def tell(self, line):
        try:
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
        except OSError:
            pass  # the program has ended

    def finish(self, timeout):
        """Waits for the end. Returns the exit code, or None when the program had to be killed."""
        try:
            code = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            code = None
        try:
            self.process.stdin.close()
        except OSError:
            pass
        self._reader.join(5)
        if self._apart:
            with open(self._apart, errors="replace") as file:
                self.lines += file.read().split("\n")
            self._apart = None
        self._log.close()
        return code

    def kill(self):
        """Ends the program and all that it started, which is in its process group."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()

    def slay(self):
        """Ends only the program, as a crash would; `finish` returns its exit code later."""
        os.kill(self.process.pid, signal.SIGKILL)

    def text(self):
        return "\n".join(self.lines)
