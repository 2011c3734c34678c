"""One test machine: QEMU without KVM, its monitor, and programs that the agent inside runs."""

import ctypes
import json
import os
import signal
import socket
import subprocess
import threading
import time

from vm.image import HERE, QEMU

BOOT_MAX = 90  # seconds; an idle machine needs three
KERNEL_WORDS = ("console=ttyS0 quiet panic=-1 nokaslr mitigations=off tsc=reliable no_timer_check "
                "random.trust_cpu=on")
PR_SET_PDEATHSIG = 1


def die_with_parent():
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Monitor:
    """A client of QEMU's machine protocol."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(20)
        self.socket.connect(path)
        self.file = self.socket.makefile("rw")
        self.file.readline()  # the greeting
        self.run("qmp_capabilities")

    def run(self, command, **arguments):
        request = {"execute": command, "arguments": arguments}
        self.file.write(json.dumps(request) + "\n")
        self.file.flush()
        while True:
            answer = json.loads(self.file.readline())
            if "error" in answer:
                raise RuntimeError("%s: %s" % (request, answer["error"]["desc"]))
            if "return" in answer:  # else it is an event
                return answer["return"]


class Program:
    """A program that runs, or ran, on a machine. Its output is in `log_path` on this host."""

    def __init__(self, machine, number, log_path):
        self.machine, self.number, self.log_path = machine, number, log_path
        self.code = None
        self.begun, self.ended = time.monotonic(), None

    def wait(self, timeout):
        """The exit code, or None while the program runs or when the machine is gone."""
        with self.machine.changed:
            self.machine.changed.wait_for(
                lambda: self.ended is not None or self.machine.gone, timeout)
        return self.code

    def kill(self, number=signal.SIGKILL):
        self.machine.ask({"signal": int(number), "of": self.number})

    def tell(self, line):
        self.machine.ask({"line": line, "of": self.number})

    def finish(self, timeout):
        """Like wait(), but kills a program that still runs then; it leaves a core and its threads' places."""
        code = self.wait(timeout)
        if self.ended is None and not self.machine.gone:
            if timeout > 0:
                self.machine.note_threads(self.log_path)
                self.kill(signal.SIGABRT)
                self.wait(20)
            self.kill()
            self.wait(20)
            return None
        return code

    def text(self):
        with open(self.log_path, errors="replace") as file:
            return file.read()


class Machine:
    """`rails` has for each NIC the socket of this end and that of the other end. `common` is a folder that
    all machines write to."""

    def __init__(self, name, number, image, directory, common, rails, memory_mb=512):
        self.name, self.number, self.directory = name, number, directory
        self.changed = threading.Condition()
        self.programs = {}
        self.gone = self.up = False
        self.shared = os.path.join(directory, name + ".shared")
        os.makedirs(self.shared)
        self.console = os.path.join(directory, name + ".console")
        with open(self.console, "w") as log:
            self.process = subprocess.Popen(
                self._command(image, common, rails, memory_mb), stdin=subprocess.DEVNULL, stdout=log,
                stderr=log, preexec_fn=die_with_parent)

    def _socket(self, what):
        return os.path.join(self.directory, self.name + "." + what)

    def _command(self, image, common, rails, memory_mb):
        words = "%s agent=%s" % (KERNEL_WORDS, os.path.join(HERE, "guest", "agent.py"))
        command = [
            QEMU, "-nodefaults", "-no-user-config", "-display", "none",
            "-no-reboot", "-machine", "q35,usb=off,sata=off,smbus=off,vmport=off",
            "-accel", "tcg,thread=multi", "-cpu", "Westmere,+rdrand", "-smp", "1", "-m", str(memory_mb),
            "-kernel", image[0], "-initrd", image[1], "-append", words, "-serial", "stdio",
            "-qmp", "unix:%s,server=on,wait=off" % self._socket("monitor"),
            "-chardev", "socket,id=agent,path=%s,server=on,wait=off" % self._socket("agent"),
            "-device", "virtio-serial-pci", "-device", "virtserialport,chardev=agent,name=agent",
            "-fsdev", "local,id=host,path=/,security_model=none,readonly=on,multidevs=remap",
            "-device", "virtio-9p-pci,fsdev=host,mount_tag=host",
            "-fsdev", "local,id=shared,path=%s,security_model=none" % self.shared,
            "-device", "virtio-9p-pci,fsdev=shared,mount_tag=shared",
            "-fsdev", "local,id=common,path=%s,security_model=none" % common,
            "-device", "virtio-9p-pci,fsdev=common,mount_tag=common"]
        for index, (own, other) in enumerate(rails):
            command += [
                "-netdev", "dgram,id=net%d,local.type=unix,local.path=%s,"
                "remote.type=unix,remote.path=%s" % (index, own, other),
                "-device", "virtio-net-pci,netdev=net%d,id=nic%d,bus=pcie.0,addr=%#x,romfile=,"
                "mac=52:54:00:00:%02x:%02x" % (index, index, 8 + index, index, self.number)]
        return command

    def wait_up(self):
        deadline = time.monotonic() + BOOT_MAX
        while True:
            try:
                self.monitor = Monitor(self._socket("monitor"))
                self.agent = socket.socket(socket.AF_UNIX)
                self.agent.connect(self._socket("agent"))
                break
            except (FileNotFoundError, ConnectionRefusedError):
                if self.process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError("%s does not start: %s" % (self.name, self.said())) from None
                time.sleep(0.02)
        threading.Thread(target=self._listen, daemon=True).start()
        with self.changed:
            self.changed.wait_for(lambda: self.up or self.gone,
                                  max(0, deadline - time.monotonic()))
        if not self.up:
            raise RuntimeError("%s did not come up: %s" % (self.name, self.said()))

    def _listen(self):
        for line in self.agent.makefile("r"):
            message = json.loads(line)
            with self.changed:
                if "exit" in message:
                    program = self.programs[message["id"]]
                    program.code, program.ended = message["exit"], time.monotonic()
                self.up = True
                self.changed.notify_all()
        with self.changed:
            self.gone = True
            self.changed.notify_all()

    def said(self):
        """The last lines of the console."""
        with open(self.console, errors="replace") as file:
            return file.read()[-2000:]

    def ask(self, request):
        self.agent.sendall(json.dumps(request).encode() + b"\n")

    def start(self, name, argv, env=None):
        """Starts a program; its output goes to `name`.log."""
        with self.changed:
            number = len(self.programs)
            program = Program(self, number, os.path.join(self.shared, name + ".log"))
            self.programs[number] = program
        with open(program.log_path, "w") as file:
            file.write("$ %s\n" % " ".join(argv))
        self.ask({"id": number, "argv": argv, "env": env or {},
                  "log": "/run/shared/%s.log" % name})
        return program

    def run(self, argv, timeout=30, check=True):
        """Runs a short command to its end. Returns what it printed."""
        program = self.start("command-%d" % len(self.programs), argv)
        code = program.finish(timeout)
        printed = program.text().partition("\n")[2]
        if check and code != 0:
            raise RuntimeError("%s: %s: exit %s: %s" % (self.name, " ".join(argv), code, printed))
        os.unlink(program.log_path)
        return printed

    def note_threads(self, log_path):
        """Adds to a log what the threads of all programs wait for in the kernel."""
        self.run(["bash", "-c", "for t in /proc/[0-9]*/task/*; do [ -s $t/cmdline ] &&"
                  " echo ${t#/proc/} $(<$t/comm): $(<$t/wchan) $(<$t/syscall) && cat $t/stack;"
                  " done 2>/dev/null >> /run/shared/%s; true" % os.path.basename(log_path)])

    def stop(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
