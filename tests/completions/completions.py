#!/usr/bin/python3
"""Checks the completion of command lines for bash: it proposes the options that the programs' own help has, and
what fits where a value, a file, a NIC or a command has to follow.

Most cases call the completion as bash would. The last ones press the key in a bash of their own.
"""

import argparse
import os
import pathlib
import pty
import re
import select
import subprocess
import tempfile
import time

SOURCE = pathlib.Path(__file__).resolve().parents[2]
COMPLETIONS = SOURCE / "completions"
ASK = pathlib.Path(__file__).resolve().parent / "ask.sh"
PATIENCE_S = 30


def words_of(line):
    """The words as bash gives them to a completion: = is a word of its own, and the last one may be empty."""
    words = [part for word in line.split(" ") for part in (re.findall("=+|[^=]+", word) or [""])]
    return [word for word in words[:-1] if word] + words[-1:]


class Completions:
    def __init__(self, args, folder):
        self.args, self.folder = args, folder
        self.fabric = "completions-%d" % os.getpid()
        self.before = []  # what runs bash
        for name in ("commands", "a folder"):
            (folder / name).mkdir()
        (folder / "a file").touch()
        for name in ("ib_one", "ib_two"):
            command = folder / "commands" / name
            command.touch()
            command.chmod(0o755)
        self.environment = {**os.environ, "PATH": "%s:%s" % (folder / "commands", os.environ["PATH"])}

    def ask(self, line, program=None):
        """The proposals for the end of the line, and the options of the completion."""
        words = words_of(line)
        name, words[0] = words[0], str(program or words[0])
        command = [*self.before, "bash", "--norc", ASK, COMPLETIONS / name, str(len(words) - 1), *words]
        result = subprocess.run(command, cwd=self.folder, env=self.environment, check=True, capture_output=True,
                                text=True, timeout=PATIENCE_S)
        assert result.stderr == "", (line, result.stderr)
        lines = result.stdout.splitlines()
        options = {one.removeprefix("compopt ") for one in lines if one.startswith("compopt ")}
        return sorted(one for one in lines if not one.startswith("compopt ")), options

    def expect(self, line, *wanted, options=None, **more):
        found, set_options = self.ask(line, **more)
        assert found == sorted(wanted), "%s: %s, wanted %s" % (line, found, sorted(wanted))
        assert options is None or set_options == set(options), (line, set_options)


def help_of(*command):
    return subprocess.run([*command, "--help"], check=True, capture_output=True, text=True).stdout


def options_of(text):
    return re.findall(r"^ +(?:-\w,)?(--[a-z-]+)", text, re.M)


def commands_of(text):
    return re.findall(r"^  ([a-z]+) ", text[text.index("Subcommands:"):], re.M)


def shift_run_options(t):
    t.expect("shift-run -", *options_of(help_of(t.args.shift_run)))
    t.expect("shift-run --lo", "--log")
    t.expect("shift-run --disable --key-", "--key-id")
    t.expect("shift-run --log ", "error", "warn", "info", "debug")
    t.expect("shift-run --log=", "error", "warn", "info", "debug")
    t.expect("shift-run --log=in", "info")
    levels = re.search(r"--log LEVEL:\{(.*)\}", help_of(t.args.shift_run))[1]
    t.expect("shift-run --log ", *levels.split(","))
    for option in ("--key", "--events", "--make-key", "--key-id"):
        t.expect("shift-run %s a" % option, "a file", "a folder", options=["filenames"])
        t.expect("shift-run %s=a" % option, "a file", "a folder", options=["filenames"])


def shift_run_commands(t):
    for before in ("", "-- ", "--log info ", "--log=info --disable -- "):
        t.expect("shift-run %sib_" % before, *t.ask("shift-run ib_")[0])
    assert {"ib_one", "ib_two"} <= set(t.ask("shift-run ib_")[0])
    # The words of the command are its own, whatever they look like.
    for line in ("shift-run ib_one --lo", "shift-run -- ib_one a", "shift-run --log info ib_one --log "):
        t.expect(line, options=["bashdefault default"])
    for line in ("shift-run --make-key x ", "shift-run --key-id=x -- ib_"):
        t.expect(line)


def cxemu_options(t):
    text = help_of(t.args.cxemu)
    t.expect("cxemu ", *commands_of(text))
    t.expect("cxemu -", "--help", "--version")
    for command in commands_of(text):
        t.expect("cxemu %s -" % command, *options_of(help_of(t.args.cxemu, command)))
    t.expect("cxemu exec --wire ", "unix", "udp")
    t.expect("cxemu exec --nics ", *"12345678")
    t.expect("cxemu capture --out a", "a file", "a folder", options=["filenames"])
    t.expect("cxemu script --json a", "a file", "a folder", options=["filenames"])
    t.expect("cxemu exec --topology a", "a file", "a folder", options=["filenames"])
    t.expect("cxemu list --fabric %s" % t.fabric[:-1], t.fabric)
    t.expect("cxemu list ")


def cxemu_faults(t):
    refused = subprocess.run([t.args.cxemu, "fault", "--fabric", t.fabric, "a/mlx5_0", "nonsense"], check=False,
                             capture_output=True, text=True).stderr
    known = re.search(r"known are (.*) and (.*)\n", refused)
    faults = [re.sub(r"(\[?)=.*", lambda m: "" if m[1] else "=", one) for one in [*known[1].split(", "), known[2]]]
    narrow = ["peer=", "dir=in", "dir=out", "op=", "qpn=", "after=", "count="]
    line = "cxemu fault --fabric %s a/mlx5_0 " % t.fabric
    t.expect(line, *faults, *narrow, options=[])
    t.expect(line + "link-d", "link-down", options=[])
    t.expect(line + "los", "loss=", options=["nospace"])
    t.expect(line + "loss=1 dir=", "in", "out", options=[])
    t.expect(line + "loss=1 di", "dir=in", "dir=out", options=[])
    of_host = re.search(r"host can have (.*) and (.*?);", refused)
    t.expect("cxemu fault --fabric %s a " % t.fabric, *of_host[1].split(", "), of_host[2])


def cxemu_words(t):
    refused = subprocess.run([t.args.cxemu, "nic", "--fabric", t.fabric, "a/mlx5_0", "nonsense"], check=False,
                             capture_output=True, text=True).stderr
    known = re.search(r"known are (.*) and (.*)\n", refused)
    words = [one.split("=")[0] + "=" for one in [*known[1].split(", "), known[2]]]
    t.expect("cxemu nic --fabric %s a/mlx5_0 " % t.fabric, *words)
    t.expect("cxemu nic --fabric %s a/mlx5_0 rate=1Mbit nu" % t.fabric, "numa=", options=["nospace"])


def cxemu_targets(t):
    ask = {"program": t.args.cxemu}
    nics = ["a/mlx5_0", "a/mlx5_1", "b/mlx5_0", "b/mlx5_1"]
    t.expect("cxemu fault --fabric %s " % t.fabric, "a", "b", *nics, **ask)
    t.expect("cxemu nic --fabric %s " % t.fabric, *nics, **ask)
    t.expect("cxemu fault --fabric=%s b" % t.fabric, "b", "b/mlx5_0", "b/mlx5_1", **ask)
    t.expect("cxemu capture --fabric %s --nic a" % t.fabric, "a/mlx5_0", "a/mlx5_1", **ask)
    t.expect("cxemu exec --fabric %s --host " % t.fabric, "a", "b", **ask)
    t.expect("cxemu exec --fabric no-such --host ", **ask)


def cxemu_commands(t):
    wanted = t.ask("shift-run ib_")[0]
    for line in ("exec --host a -- ib_", "exec --host a ib_", "capture --out x -- ib_", "doctor ib_"):
        t.expect("cxemu " + line, *wanted)
    t.expect("cxemu exec --host a -- ib_one --ni", options=["bashdefault default"])


def pairs_are_devices(t):
    t.before = [t.args.cxemu, "exec", "--fabric", t.fabric, "--host", "a", "--"]
    for line, wanted in (("mlx5_", ["mlx5_0", "mlx5_1"]), ("mlx5_0=", ["mlx5_0", "mlx5_1"]),
                         ("a=mlx5_0,mlx5_", ["mlx5_0,mlx5_0", "mlx5_0,mlx5_1"])):
        for option in ("--pairs ", "--pairs="):
            t.expect("shift-run %s%s" % (option, line), *wanted, options=["nospace"])
    t.before = []


def shift_system_options(t):
    t.expect("shift-system ", "enable", "disable", "status", "--help", "--version")
    t.expect("shift-system en", "enable")
    t.expect("shift-system enable -", "--help", "--root")
    for option in ("--root ", "--root="):
        t.expect("shift-system status %sa" % option, "a folder", options=["filenames"])
    if t.args.shift_system:
        text = help_of(t.args.shift_system)
        t.expect("shift-system ", *commands_of(text), *options_of(text.split("Subcommands:")[0]))
        for command in commands_of(text):
            t.expect("shift-system %s " % command, *options_of(help_of(t.args.shift_system, command)))


def shiftctl_options(t):
    text = help_of(t.args.shiftctl)
    t.expect("shiftctl ", *commands_of(text))
    t.expect("shiftctl -", *options_of(text.split("Subcommands:")[0]))
    for command in commands_of(text):
        t.expect("shiftctl %s -" % command, *options_of(help_of(t.args.shiftctl, command)))
    for option in ("--state-dir ", "--state-dir=", "drain --state-dir "):
        t.expect("shiftctl %sa" % option, "a folder", options=["filenames"])
    t.expect("shiftctl metrics --output a", "a file", "a folder", options=["filenames"])
    t.expect("shiftctl drain --timeout ")


def shiftctl_names(t):
    """NICs and processes are those that it tells of; here an order is all that there is."""
    place = t.folder / "state"
    place.mkdir()
    subprocess.run([t.args.shiftctl, "--state-dir", place, "drain", "mlx5_77"], check=True, capture_output=True)
    for option in ("--state-dir %s", "--state-dir=%s"):
        line = "shiftctl %s undrain mlx5_7" % (option % place)
        t.expect(line, "mlx5_77", program=t.args.shiftctl)
    t.expect("shiftctl --state-dir %s config " % place, program=t.args.shiftctl)


def shift_verify_options(t):
    t.expect("shift-verify -", *options_of(help_of(t.args.shift_verify)))
    listed = subprocess.run([t.args.shift_verify, "--list"], check=True, capture_output=True, text=True).stdout
    rows = [line.split() for line in listed.split("\n") if line and not line.startswith(" ")]
    names = {row[0] for row in rows} | {row[1].rstrip(":") for row in rows}
    for option in ("--only ", "--without ", "--only=", "--json --only "):
        t.expect("shift-verify %s" % option, *sorted(names), program=t.args.shift_verify)
    t.expect("shift-verify --only mem", "membarrier", "memory", program=t.args.shift_verify)
    t.expect("shift-verify --timeout ")


class Terminal:
    """An interactive bash that has read a completion."""

    def __init__(self, environment):
        self.said = ""
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            environment = {**environment, "PS1": "ready> ", "TERM": "dumb", "INPUTRC": "/dev/null",
                           "HISTFILE": "/dev/null"}
            os.execvpe("bash", ["bash", "--norc", "--noprofile", "-i"], environment)

    def send(self, text, wanted):
        """Types the text, and waits until the terminal has shown what is wanted after it."""
        self.said = ""
        os.write(self.fd, text.encode())
        end = time.monotonic() + PATIENCE_S
        while wanted not in self.said:
            ready, _, _ = select.select([self.fd], [], [], max(0, end - time.monotonic()))
            assert ready, "wanted: %r; the terminal shows: %r" % (wanted, self.said)
            self.said += os.read(self.fd, 4096).decode(errors="replace").replace("\a", "")

    def close(self):
        os.close(self.fd)
        os.waitpid(self.pid, 0)


def a_key_is_pressed(t):
    terminal = Terminal(t.environment)
    try:
        terminal.send("", "ready> ")
        for name in ("shift-run", "cxemu"):
            terminal.send(". %s\n" % (COMPLETIONS / name), "ready> ")
        terminal.send("shift-run --log=inf\t-- ib_o\t", "--log=info -- ib_one ")
        terminal.send("\x15cxemu fault a/mlx5_0 los\t5 link-u\t", "loss=5 link-up ")
    finally:
        terminal.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shift-run", required=True)
    parser.add_argument("--cxemu", required=True)
    parser.add_argument("--shiftctl", required=True)
    parser.add_argument("--shift-verify", required=True)
    parser.add_argument("--shift-system", help="the program; without it, only what is documented is compared")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        t = Completions(args, pathlib.Path(folder))
        for host in "ab":
            subprocess.run([args.cxemu, "exec", "--fabric", t.fabric, "--host", host, "--", "true"], check=True)
        try:
            for case in (shift_run_options, shift_run_commands, cxemu_options, cxemu_faults, cxemu_words,
                         cxemu_targets, cxemu_commands, pairs_are_devices, shift_system_options,
                         shiftctl_options, shiftctl_names, shift_verify_options, a_key_is_pressed):
                case(t)
                print("ok: %s" % case.__name__)
        finally:
            subprocess.run([args.cxemu, "clean", "--fabric", t.fabric], check=True)


if __name__ == "__main__":
    main()
