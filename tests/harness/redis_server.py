"""A redis server of Debian's for one test, which keeps nothing on disk."""

import shutil
import subprocess

from harness.ports import free_port, is_listening
from harness.waiting import wait_until

START_S = 20


class RedisServer:
    """Listens on 127.0.0.1 from the entry into its context to the exit. `problem` says why there is none."""

    def __init__(self):
        self.problem = "" if shutil.which("redis-server") else "redis-server is not here"
        self.port = 0
        self._process = None

    def __enter__(self):
        if self.problem:
            return self
        self.port = free_port()
        self._process = subprocess.Popen(
            ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"],
            stdout=subprocess.DEVNULL, cwd="/")
        if not wait_until(lambda: is_listening(self.port), START_S):
            self.__exit__()
            raise RuntimeError("redis-server does not listen")
        return self

    def __exit__(self, *_):
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def url(self, prefix):
        return "redis://127.0.0.1:%d,prefix=%s" % (self.port, prefix)
