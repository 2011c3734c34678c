#!/usr/bin/env python3
"""Checks what a command finds in its environment under shift-run, and what shift-run refuses to run."""
import argparse
import json
import os
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import tempfile

SHOW = [sys.executable, "-c", "import json, os, sys; print(json.dumps([dict(os.environ), sys.argv]))"]

FRONTS = ("libibverbs.so.1", "librdmacm.so.1", "libmlx5.so.1")


class Runner:
    def __init__(self, program):
        self.program = str(program)

    def run(self, *words, cwd=None, user=None, umask=-1, **variables):
        env = {k: v for k, v in os.environ.items()
               if not k.startswith(("SHIFT_", "LD_"))} | variables
        return subprocess.run([self.program, *words], env=env, cwd=cwd, user=user, umask=umask,
                              capture_output=True, text=True, timeout=30)

    def environment(self, *words, **kwargs):
        result = self.run(*words, **kwargs)
        assert result.returncode == 0, result
        assert result.stderr == "", result
        return json.loads(result.stdout)


def copied_tree(folder, args, program):
    """shift-run and its fronts, copied to another folder."""
    for place, files in (("bin", [program]),
                         ("lib", [args.front.parent / front for front in FRONTS])):
        pathlib.Path(folder, place).mkdir(parents=True)
        for file in files:
            shutil.copy(file, pathlib.Path(folder, place))
    return Runner(pathlib.Path(folder, "bin", "shift-run"))


def command_gets_the_front_first(runner, args):
    env, _ = runner.environment("--", *SHOW)
    front_dir = str(args.front.parent.resolve())
    assert pathlib.Path(env["LD_LIBRARY_PATH"]).resolve() == pathlib.Path(front_dir), env
    env, _ = runner.environment("--", *SHOW, LD_LIBRARY_PATH="/a:/b", LD_PRELOAD="")
    assert env["LD_LIBRARY_PATH"].endswith(":/a:/b"), env
    assert env.get("LD_PRELOAD", "") == args.sanitizer, env
    assert not [key for key in env if key.startswith("SHIFT_")], env


def options_become_variables(runner, args):
    with tempfile.TemporaryDirectory() as folder:
        env, _ = runner.environment("--log", "debug", "--events", "e.log", "--pairs",
                                    "mlx5_0=mlx5_1,a=b=c=d", "--disable", "--", *SHOW, cwd=folder,
                                    SHIFT_LOG="error")
        assert env["SHIFT_EVENTS"] == os.path.join(os.path.realpath(folder), "e.log"), env
    assert (env["SHIFT_LOG"], env["SHIFT_PAIRS"], env["SHIFT_DISABLE"]) == (
        "debug", "mlx5_0=mlx5_1,a=b=c=d", "1"), env


def command_keeps_its_words(runner, args):
    words = ["--log", "info", "", "two words", "--", "-x", "--help"]
    for separator in (["--"], []):
        _, argv = runner.environment(*separator, *SHOW, *words)
        assert argv[1:] == words, argv


def status_is_the_commands(runner, args):
    assert runner.run("--", "sh", "-c", "exit 7").returncode == 7
    killed = runner.run("--", "sh", "-c", "kill -9 $$")
    assert killed.returncode == -9, killed


def mistakes_are_named(runner, args):
    for words, status, text in [
            ((), 125, "no command"),
            (("--",), 125, "no command"),
            (("--bogus", "true"), 125, "--bogus"),
            (("--log", "loud", "true"), 125, "loud"),
            (("--pairs", "mlx5_0", "true"), 125, "DEVICE=DEVICE"),
            (("--pairs", "a=b,c", "true"), 125, "DEVICE=DEVICE"),
            (("--pairs", "a=b=c=d=e=f=g=h=i", "true"), 125, "two to eight"),
            (("--key", "", "true"), 125, "its name is empty"),
            (("--key-id", ""), 125, "its name is empty"),
            (("--make-key", ""), 125, "No such file"),
            (("--make-key", "a", "--key-id", "b"), 125, "exclude each other"),
            (("--key-id", "/a", "true"), 125, "run no command"),
            (("--make-key", "/nonexistent/a", "--", "true"), 125, "run no command"),
            (("--", "no-such-command-here"), 127, "no-such-command-here: command not found"),
            (("--", "/"), 126, "/: Permission denied")]:
        result = runner.run(*words)
        assert result.returncode == status and text in result.stderr, (words, result)


def missing_front_is_an_error(runner, args):
    with tempfile.TemporaryDirectory() as folder:
        binary = pathlib.Path(folder, "bin", "shift-run")
        binary.parent.mkdir()
        shutil.copy(runner.program, binary)
        copied = Runner(binary)
        library = pathlib.Path(folder, "lib", "libibverbs.so.1")
        library.parent.mkdir()
        library.write_bytes(b"\x7fELF some other libibverbs")
        result = copied.run("--", "true")
        if result.returncode == 0:
            print("left out: a front is installed on this machine")
            return
        assert result.returncode == 125 and "libibverbs.so.1" in result.stderr, result
        for name in FRONTS:
            shutil.copy(args.front.parent / name, library.parent)
        env, _ = copied.environment("--", *SHOW)
        assert pathlib.Path(env["LD_LIBRARY_PATH"]) == library.parent.resolve(), env
        for name, loss in (("librdmacm.so.1", "rdma_cm"), ("libmlx5.so.1", "direct verbs")):
            kept = library.parent / name
            kept.rename(folder + "/kept")
            result = copied.run("--", "true")
            assert result.returncode == 0 and result.stderr.count("\n") == 1, result
            assert name in result.stderr and loss in result.stderr, result
            assert copied.run("--disable", "--", "true").stderr == ""
            pathlib.Path(folder, "kept").rename(kept)


def a_folder_that_the_linker_cannot_search_is_refused(runner, args):
    for name, good in (("a b", True), ("a:b", False), ("a;b", False)):
        with tempfile.TemporaryDirectory() as top:
            result = copied_tree(pathlib.Path(top, name), args, runner.program).run("--", "true")
            assert result.returncode == (0 if good else 125), result
            assert result.stderr.count("\n") == (0 if good else 1), result
            assert good or name in result.stderr, result


def commands_out_of_reach_are_named(runner, args):
    if os.geteuid() != 0:
        print("left out: only root can make files that give privileges")
        return
    nobody = 65534
    with tempfile.TemporaryDirectory() as top:
        copied = copied_tree(top, args, runner.program)
        for folder in (top, *pathlib.Path(top).iterdir()):
            os.chmod(folder, 0o755)
        program = pathlib.Path(top, "bin", "some-program")
        shutil.copy(shutil.which("true"), program)
        path = str(program.parent) + ":" + os.environ["PATH"]

        def said(command, **more):
            result = copied.run("--", command, PATH=path, **more)
            assert result.returncode == 0, result
            return result.stderr

        assert said("some-program") == ""
        os.chown(program, nobody, nobody)
        program.chmod(0o4755)
        for command in ("some-program", str(program)):
            assert re.fullmatch(r"shift-run: warning: \S+/some-program is set-user-ID .*\n",
                                said(command)), said(command)
        program.chmod(0o755)
        try:  # CAP_NET_RAW, permitted and effective
            os.setxattr(program, "security.capability",
                        struct.pack("<5I", 0x02000001, 1 << 13, 0, 0, 0))
        except OSError as error:
            print("left out: no file capabilities here:", error.strerror)
            return
        assert "file capabilities" in said("some-program", user=nobody)
        assert said("some-program") == "", "they give root nothing"


def help_and_manual_agree(runner, args):
    result = runner.run("--help")
    assert result.returncode == 0, result
    manual = args.man.read_text()
    options = set(re.findall(r"--[a-z-]+", result.stdout))
    assert {"--log", "--events", "--pairs", "--key", "--make-key", "--key-id", "--disable",
            "--version"} <= options, result.stdout
    for option in options:
        assert re.search(option + r"(?![a-z-])", manual), f"{option} is not in the manual page"
    assert re.fullmatch(r"shift-run \d+\.\d+\.\d+\n", runner.run("--version").stdout)


def key_files_are_made_once(runner, args):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "job.key")
        for mask in (0o022, 0o777):
            made = runner.run("--make-key", "job.key", cwd=folder, umask=mask)
            assert made.returncode == 0 and made.stderr == "", made
            assert re.fullmatch(r"[0-9a-f]{16}\n", made.stdout), made
            assert path.stat().st_mode == 0o100600, oct(path.stat().st_mode)
            comment, key = path.read_text().splitlines()
            assert comment.startswith("# ") and re.fullmatch("[0-9a-f]{64}", key), comment
            assert made.stdout.strip() not in key, "the id is a part of the secret"
            shown = runner.run("--key-id", path)
            assert (shown.returncode, shown.stdout) == (0, made.stdout), shown
            again = runner.run("--make-key", path)
            assert again.returncode == 125 and "exists already" in again.stderr, again
            assert path.read_text() == comment + "\n" + key + "\n", "it was written to"
            path.rename(path.with_name(f"{mask}.key"))
        first, second = (pathlib.Path(folder, f"{mask}.key") for mask in (0o022, 0o777))
        assert first.read_text() != second.read_text()
        target = pathlib.Path(folder, "target")
        path.symlink_to(target)
        assert runner.run("--make-key", path).returncode == 125
        assert not target.exists(), "a link was followed"
        path.unlink()
        shutil.copy(first, path)
        with path.open("a") as file:
            file.write(second.read_text())
        ids = [runner.run("--key-id", one).stdout for one in (first, second, path)]
        assert ids[2] == ids[0] + ids[1], ids
        assert runner.run("--make-key", pathlib.Path(folder, "no", "folder")).returncode == 125


def a_command_gets_only_keys_that_are_of_use(runner, args):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "job.key")
        assert runner.run("--make-key", path).returncode == 0
        env, _ = runner.environment("--key", "job.key", "--", *SHOW, cwd=folder, SHIFT_KEY_FILE="/x")
        assert env["SHIFT_KEY_FILE"] == os.path.join(os.path.realpath(folder), "job.key"), env
        secret = path.read_text().splitlines()[1]
        for mode, text in ((0o640, None), (0o600, secret[1:]), (0o600, "")):
            if text is not None:
                path.write_text(text)
            path.chmod(mode)
            for words in (("--key", path, "--", *SHOW), ("--key-id", path)):
                result = runner.run(*words)
                assert result.returncode == 125 and result.stdout == "", result
                assert result.stderr.count("\n") == 1 and str(path) in result.stderr, result
                assert secret[1:] not in result.stderr, result


def programs_run_through_the_front(runner, args):
    for program in ("ibv_devices", "ibv_devinfo"):
        if shutil.which(program) is None:
            print("not installed, left out:", program)
            continue
        path = shutil.which(program)
        out = runner.run("--", "ldd", path).stdout
        assert str(args.front.parent) in out, out


def main():
    parser = argparse.ArgumentParser()
    for name in ("shift-run", "front", "man"):
        parser.add_argument("--" + name, type=pathlib.Path, required=True)
    parser.add_argument("--sanitizer", default="")
    args = parser.parse_args()
    runner = Runner(args.shift_run)
    for case in (command_gets_the_front_first, options_become_variables, command_keeps_its_words,
                 status_is_the_commands, mistakes_are_named, missing_front_is_an_error,
                 a_folder_that_the_linker_cannot_search_is_refused,
                 commands_out_of_reach_are_named, help_and_manual_agree, key_files_are_made_once,
                 a_command_gets_only_keys_that_are_of_use, programs_run_through_the_front):
        case(runner, args)
        print("ok:", case.__name__)


if __name__ == "__main__":
    main()
