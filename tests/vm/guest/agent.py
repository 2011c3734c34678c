#!/usr/bin/python3
"""Process 1 of a test machine: it runs what the test asks for through a virtio port.

Each line is a JSON object. The test sends {"id": N, "argv": [...], "env": {...}, "log": PATH} to start a
program, {"line": TEXT, "of": N} to write a line to its standard input, and {"signal": S, "of": N} to send a
signal to the program and to all that it started. The agent sends {"up": true} at the beginning, and
{"id": N, "exit": CODE} at the end of a program; a negative code is the signal that ended it.
"""

import json
import os
import resource
import selectors
import signal

PORT = "/dev/vport0p1"
SHARED = "/run/shared"
ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LC_ALL": "C",
               "PYTHONDONTWRITEBYTECODE": "1"}


class Agent:
    def __init__(self):
        self.port = os.open(PORT, os.O_RDWR)
        self.buffer = b""
        self.running = {}  # process -> the id of its request
        self.inputs = {}   # process -> this end of its standard input

    def tell(self, message):
        data = json.dumps(message).encode() + b"\n"
        while data:
            data = data[os.write(self.port, data):]

    def start(self, request):
        # The test may read the log while it grows, so the agent buffers nothing.
        log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        stdin, ours = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                os.setsid()
                os.dup2(stdin, 0)
                os.dup2(log, 1)
                os.dup2(log, 2)
                for number in (signal.SIGCHLD, signal.SIGPIPE):
                    signal.signal(number, signal.SIG_DFL)
                argv = request["argv"]
                os.execvpe(argv[0], argv, {**ENVIRONMENT, **request.get("env", {})})
            except OSError as error:
                os.write(2, ("%s: %s\n" % (request["argv"][0], error)).encode())
            os._exit(127)
        os.close(log)
        os.close(stdin)
        self.running[pid], self.inputs[pid] = request["id"], ours

    def take(self, request):
        if "argv" in request:
            return self.start(request)
        for pid, number in self.running.items():
            if number != request["of"]:
                continue
            try:
                if "line" in request:
                    os.write(self.inputs[pid], request["line"].encode() + b"\n")
                else:
                    os.killpg(pid, request["signal"])
            except (ProcessLookupError, BrokenPipeError):
                pass  # the program is ending
        return None

    def readable(self):
        self.buffer += os.read(self.port, 65536)
        *lines, self.buffer = self.buffer.split(b"\n")
        for line in lines:
            self.take(json.loads(line))

    def reap(self):
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            number = self.running.pop(pid, None)  # None: an orphan, which process 1 inherits
            if number is not None:
                os.close(self.inputs.pop(pid))
                self.tell({"id": number, "exit": os.waitstatus_to_exitcode(status)})

    def run(self):
        reader, writer = os.pipe()
        for end in (reader, writer):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(writer)
        signal.signal(signal.SIGCHLD, lambda *unused: None)
        self.tell({"up": True})
        selector = selectors.DefaultSelector()
        selector.register(self.port, selectors.EVENT_READ)
        selector.register(reader, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fd == reader:
                    os.read(reader, 4096)
                    self.reap()
                else:
                    self.readable()


if __name__ == "__main__":
    for limit in (resource.RLIMIT_MEMLOCK, resource.RLIMIT_CORE):
        resource.setrlimit(limit, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    with open("/proc/sys/kernel/core_pattern", "w") as pattern:
        pattern.write(os.path.join(SHARED, "core.%h.%e.%p"))
    Agent().run()
