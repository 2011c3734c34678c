"""Strangers: many connections to the rendezvous ports of a job, from many addresses, that say what somebody has
recorded, changed, cut or made up, or nothing."""

import errno
import os
import random
import socket
import threading
import time

from e2e import wire

BIND_ADDRESS_NO_PORT = 24  # of IPPROTO_IP
OPEN_AT_ONCE = 150
# A machine of two processors has to carry the job, too.
PAUSE = 0.001


class Crowd:
    """Runs in a thread of its own between start() and end(). `known` are streams of bytes that were recorded."""

    def __init__(self, listeners, sources, known, seed):
        self.listeners, self.sources, self.known = listeners, sources, known
        self.random = random.Random(seed)
        self.connections, self.answers = 0, []  # what was heard, connection by connection
        self._open = []  # pairs of a socket and what it has heard
        self._stops = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self):
        self._thread.start()

    def end(self):
        self._stops.set()
        self._thread.join()
        while self._open:
            self._close(*self._open.pop())

    def frames(self):
        """All frames that the strangers have heard."""
        return [frame for data in self.answers for frame in wire.frames_of(data)]

    def _run(self):
        while not self._stops.is_set():
            self._call()
            for one, heard in list(self._open):
                self._hear(one, heard)
            while len(self._open) > OPEN_AT_ONCE:
                self._close(*self._open.pop(0))
            time.sleep(PAUSE)

    def _call(self):
        one = socket.socket()
        one.setblocking(False)
        one.setsockopt(socket.IPPROTO_IP, BIND_ADDRESS_NO_PORT, 1)
        try:
            one.bind((self.random.choice(self.sources), 0))
            listener = self.random.choice(self.listeners)
            if one.connect_ex(listener) not in (0, errno.EINPROGRESS):
                raise OSError("no connection")
            said = self._speech()
            if said:
                one.send(said)
        except OSError:  # the backlog is full, or nobody listens there any more
            one.close()
            return
        self.connections += 1
        self._open.append((one, bytearray()))

    def _speech(self):
        """Silence, noise, or something recorded: as it was, without its first frame, cut, or changed."""
        kind = self.random.randrange(6)
        if kind == 0:
            return b""
        if kind == 1:
            return self.random.randbytes(self.random.randrange(1, 300))
        said = bytearray(self.random.choice(self.known))
        if kind == 2:
            return bytes(said[:self.random.randrange(len(said))])
        if kind == 3:
            said[self.random.randrange(len(said))] ^= 1 << self.random.randrange(8)
        if kind == 4 and len(said) > wire.HEADER.size:
            del said[:wire.HEADER.unpack_from(said)[4]]
        return bytes(said)

    def _hear(self, one, heard):
        try:
            data = one.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        heard += data
        if not data:
            self._open = [pair for pair in self._open if pair[0] is not one]
            self._close(one, heard)

    def _close(self, one, heard):
        one.close()
        if heard:
            self.answers.append(bytes(heard))


class Footprint:
    """What a process holds, and the most that it held between start() and end()."""

    def __init__(self, pid):
        self.pid = pid
        self.before = self.most = self._now()
        self._stops = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def end(self):
        """Returns by how many descriptors and bytes the process grew."""
        self._stops.set()
        self._thread.join()
        return tuple(most - before for most, before in zip(self.most, self.before))

    def _now(self):
        try:
            with open("/proc/%d/statm" % self.pid) as file:
                pages = int(file.read().split()[1])
            return len(os.listdir("/proc/%d/fd" % self.pid)), pages * os.sysconf("SC_PAGE_SIZE")
        except OSError:  # the process has ended
            return 0, 0

    def _run(self):
        while not self._stops.wait(0.01):
            self.most = tuple(map(max, self.most, self._now()))
