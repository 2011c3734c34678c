#!/usr/bin/env python3
"""packages.sh before an apt, a dpkg and a cmake that do as told; nothing is installed or built."""
import argparse
import os
import pathlib
import shlex
import subprocess
import tempfile

APT_GET = """
echo "$@" >>"$DIR/apt"
case "$*" in
  *update) ;;
  *) exit 0 ;;
esac
[ "$(grep -c update "$DIR/apt")" -gt "$LOCKED" ] || {
  echo "E: Could not get lock /var/lib/apt/lists/lock. It is held by process 1 (apt-get)" >&2
  exit 100
}
[ -z "$NO_NETWORK" ] || { echo "E: no network" >&2; exit 100; }
"""
PROGRAMS = {
    "apt-get": APT_GET,
    "dpkg-query": 'case " $INSTALLED " in *" $4 "*) echo installed ;; *) exit 1 ;; esac',
    "id": "echo 0",
    "sleep": 'echo >>"$DIR/slept"',
    # Begins with a minute's silence.
    "cmake": """
[ "$1" = --build ] || exit 0
until [ "$(wc -l <"$DIR/slept")" -ge 65 ]; do /bin/sleep 0.01; done
echo '[1/1] Building'
""",
}


class Shell:
    def __init__(self, script, folder):
        self.script = script
        self.folder = pathlib.Path(folder)
        for name, text in PROGRAMS.items():
            program = self.folder / "bin" / name
            program.parent.mkdir(exist_ok=True)
            program.write_text("#!/bin/sh\n" + text)
            program.chmod(0o755)

    def run(self, command, **variables):
        for left in ("apt", "slept"):
            (self.folder / left).write_text("")
        env = {**os.environ, "PATH": "%s:%s" % (self.folder / "bin", os.environ["PATH"]),
               "DIR": str(self.folder), "TMPDIR": str(self.folder), "INSTALLED": "", "LOCKED": "0",
               "NO_NETWORK": "", **variables}
        source = ". " + shlex.quote(str(self.script))
        done = subprocess.run(
            ["bash", "-c", "set -eu -o pipefail; %s; %s; echo 'went on'" % (source, command)],
            env=env, cwd=self.folder, capture_output=True, text=True, timeout=50)
        self.calls = (self.folder / "apt").read_text().splitlines()
        self.slept = (self.folder / "slept").read_text().count("\n")
        return done


def what_is_there_is_left_alone(shell):
    done = shell.run("packages_install one two", INSTALLED="one two")
    assert done.returncode == 0 and not shell.calls and done.stdout == "went on\n", done


def a_lock_is_waited_for(shell):
    done = shell.run("packages_install one two", INSTALLED="two", LOCKED="3")
    assert done.returncode == 0 and "Installing one\n" in done.stdout, done
    assert shell.slept == 3 and len(shell.calls) == 5, shell.calls
    assert "DPkg::Lock::Timeout=" in shell.calls[-1] and shell.calls[-1].endswith(" one"), shell.calls


def other_errors_are_not(shell):
    for more in ({"NO_NETWORK": "1"}, {"LOCKED": "1000"}):
        done = shell.run("packages_install one", **more)
        assert done.returncode == 1 and "went on" not in done.stdout, done
        assert "apt-get failed" in done.stderr and "E: " in done.stderr, done
        assert not any("install" in call for call in shell.calls), shell.calls
        assert shell.slept == (0 if "NO_NETWORK" in more else 30), shell.slept


def what_is_replaced_is_named(shell):
    for there, named in (("busybox", True), ("", False)):
        done = shell.run("packages_install busybox-static", INSTALLED=there)
        assert ("the place of busybox" in done.stdout) == named, done


def a_build_may_be_silent_at_first(shell):
    done = shell.run("build_preset release build some-target")
    assert done.returncode == 0 and "[1/1]" in done.stdout and "went on" in done.stdout, done


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--script", type=pathlib.Path, required=True)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        shell = Shell(args.script.resolve(), folder)
        for case in (what_is_there_is_left_alone, a_lock_is_waited_for, other_errors_are_not,
                     what_is_replaced_is_named, a_build_may_be_silent_at_first):
            case(shell)
            print("ok:", case.__name__)


if __name__ == "__main__":
    main()
