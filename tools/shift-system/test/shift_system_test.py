#!/usr/bin/env python3
"""shift-system in a root folder that has a stock library, the fronts and the linker's configuration, no more."""
import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

FRONTS = ("libibverbs.so.1", "librdmacm.so.1", "libmlx5.so.1")
NOBODY = 65534


class System:
    """A root folder."""

    def __init__(self, args, folder):
        self.program, self.root = args.shift_system, pathlib.Path(folder)
        self.front_dir, self.stock = self.at(args.front_dir), self.at(args.stock)
        self.conf = self.at("/etc/ld.so.conf.d/00-shift.conf")
        self.wanted = str(args.front_dir) + "/libibverbs.so.1"
        for place in (self.front_dir, self.stock.parent, self.conf.parent):
            place.mkdir(parents=True, exist_ok=True)
        shutil.copy(args.stock, self.stock)
        for name in FRONTS:
            if (args.front.parent / name).exists():
                shutil.copy(args.front.parent / name, self.front_dir)
        self.at("/etc/ld.so.conf").write_text("include /etc/ld.so.conf.d/*.conf\n")
        self.at("/etc/ld.so.conf.d/stock.conf").write_text(str(args.stock.parent) + "\n")
        self.renew()

    def at(self, path):
        return self.root / str(path).lstrip("/")

    def renew(self):
        subprocess.run(["/sbin/ldconfig", "-X", "-r", self.root], check=True)

    def found(self):
        said = subprocess.run(["/sbin/ldconfig", "-r", self.root, "-p"], check=True, capture_output=True,
                              text=True)
        return [line.split(" => ")[1] for line in said.stdout.splitlines() if "libibverbs.so.1 " in line]

    def files(self):
        """Everything in the folder but the processes, with contents."""
        return {str(path.relative_to(self.root)): path.read_bytes() if path.is_file() else path.is_dir()
                for path in self.root.rglob("*") if path.relative_to(self.root).parts[0] != "proc"}

    def start(self, command):
        return subprocess.Popen([self.program, command, "--root", self.root], stdout=subprocess.DEVNULL)

    def run(self, command, status, *texts):
        said = subprocess.run([self.program, command, "--root", self.root], capture_output=True, text=True,
                              timeout=30, check=False)
        assert said.returncode == status, (command, said)
        for text in texts:
            assert text in said.stdout + said.stderr, (command, text, said)
        assert bool(said.stderr) == (status == 1 and command != "status"), said
        return said.stdout

    def refuses(self, *texts):
        """To enable it fails for the reasons named, and changes nothing."""
        before = self.files()
        self.run("enable", 1, "SHIFT is not enabled", *texts)
        assert self.files() == before, "it changed something"


def programs_find_the_front_only_between_the_two(system):
    before = system.files()
    system.run("status", 3, "is disabled")
    system.run("enable", 0, "SHIFT is enabled:")
    assert system.found()[0] == system.wanted, system.found()
    assert len(system.found()) == 2, "the stock library is gone"
    on = system.files()
    system.run("enable", 0, "enabled already")
    assert system.files() == on, "the second time it changed something"
    system.run("status", 0, "is enabled", "libibverbs.so.1 is " + system.wanted)
    system.run("disable", 0, "SHIFT is disabled:")
    system.run("disable", 0, "disabled already")
    assert system.files() == before, "it left something"


def a_run_that_was_killed_is_mended(system):
    system.run("enable", 0)
    on = system.files()
    for mend in ("enable", "disable"):
        system.run("disable", 0)
        off = system.files()
        # The file is there, and the cache was not made anew.
        system.conf.write_bytes(on["etc/ld.so.conf.d/00-shift.conf"])
        system.conf.with_name("00-shift.conf.new").write_text("/some")
        system.run("status", 1, "neither", "programs find")
        system.run(mend, 0)
        assert system.files() == (on if mend == "enable" else off)
    # The file is gone, and the cache still leads to the fronts.
    system.run("enable", 0)
    system.conf.unlink()
    system.run("status", 1, "neither", "although there is no")
    system.run("disable", 0)
    assert system.found() == [str(pathlib.Path("/") / system.stock.relative_to(system.root))], system.found()
    system.conf.write_text("/somewhere/else\n")
    system.renew()
    system.run("status", 1, "neither", "is not as shift-system writes it")
    system.run("enable", 0)
    assert system.files() == on


def what_is_not_as_it_should_be_is_refused(system):
    front = system.front_dir / "libibverbs.so.1"
    kept = front.read_bytes()
    front.write_bytes(system.stock.read_bytes())
    system.refuses("has no libibverbs.so.1 of SHIFT")
    front.unlink()
    system.refuses("has no libibverbs.so.1 of SHIFT")
    front.symlink_to(os.path.relpath(system.stock, front.parent))
    system.refuses("is the stock library itself")
    front.unlink()
    front.write_bytes(kept)
    stock = system.stock.read_bytes()
    system.stock.write_bytes(kept)
    system.refuses("is not the stock library, but SHIFT's")
    system.stock.unlink()
    system.refuses("there is no stock library")
    system.stock.write_bytes(stock)
    for path, mode in ((front, 0o664), (front, 0o646), (system.front_dir, 0o777)):
        before = path.stat().st_mode
        path.chmod(mode)
        system.refuses(path.name + ": others than root may write to it")
        path.chmod(before)
    os.chown(front, NOBODY, NOBODY)
    system.refuses("others than root may write to it")
    os.chown(front, 0, 0)
    system.run("enable", 0)


def it_takes_back_what_has_no_effect(system):
    # A library that is found first.
    first = system.at("/opt/first")
    first.mkdir(parents=True)
    shutil.copy(system.stock, first)
    conf = system.at("/etc/ld.so.conf.d/00-first.conf")
    conf.write_text("/opt/first\n")
    system.renew()
    system.refuses("programs find /opt/first/libibverbs.so.1")
    conf.unlink()
    # A linker that does not read the folder.
    system.at("/etc/ld.so.conf").write_text("")
    system.renew()
    system.refuses("programs find")
    shutil.rmtree(system.conf.parent)
    system.run("enable", 1, "ld.so.conf.d: No such file")
    system.run("disable", 1, "ld.so.conf.d: No such file")


def a_library_of_another_architecture_does_not_count(system):
    other = system.at("/opt/other")
    other.mkdir(parents=True)
    library = bytearray(system.stock.read_bytes())
    library[18:20] = b"\xf3\x00" if library[18:20] != b"\xf3\x00" else b"\x3e\x00"  # e_machine
    (other / "libibverbs.so.1").write_bytes(library)
    system.at("/etc/ld.so.conf.d/00-other.conf").write_text("/opt/other\n")
    system.run("enable", 0)


def at_the_same_time_one_waits_for_the_other(system):
    off = system.files()
    system.run("enable", 0)
    on = system.files()
    for _ in range(5):
        runs = [system.start(command) for command in ("enable", "disable") * 3]
        for run in runs:
            run.wait(timeout=30)
        assert system.files() in (on, off)


def mistakes_in_the_settings_are_named(system):
    system.run("status", 3, "there is no /etc/shift.conf")
    conf = system.at("/etc/shift.conf")
    conf.write_text("SHIFT_LOG = info\n# SHIFT_PORT = 0\n")
    system.run("status", 3, "/etc/shift.conf has no mistakes")
    for text, said in (("SHIFT_LOG = loud\n", "/etc/shift.conf:1: SHIFT_LOG=\"loud\" is ignored"),
                       ("\nSHIFT_COLOUR = red\n", ":2: unknown key SHIFT_COLOUR"),
                       ("SHIFT_KEY_FILE = /etc/no.key\n", "SHIFT_KEY_FILE: ")):
        conf.write_text(text)
        system.run("status", 1, "mistake: ", said)
    conf.write_text("")
    for mode, said in ((0o666, "others than root may change"), (0o600, "cannot read it")):
        conf.chmod(mode)
        system.run("status", 1, said)


def process(system, pid, name, *mapped):
    folder = system.at("/proc/%d" % pid)
    folder.mkdir(parents=True)
    (folder / "comm").write_text(name + "\n")
    (folder / "root").symlink_to(system.root)
    lines = ["55d0c0000000-55d0c0021000 rw-p 00000000 00:00 0          [heap]\n"]
    for number, path in enumerate(mapped):
        lines += ["7f0000000000-7f0000001000 %s 00000000 fe:00 %d    %s\n" % (mode, 1000 + hash(path) % 1000, path)
                  for mode in ("r--p", "r-xp")]
    (folder / "maps").write_text("".join(lines))


def processes_without_the_front_are_named(system):
    stock, front = "/" + str(system.stock.relative_to(system.root)), system.wanted
    other = system.at("/opt/build")
    other.mkdir(parents=True)
    shutil.copy(system.at(front), other)
    shutil.copy(system.stock, other / "libibverbs.so.1.99")
    process(system, 1, "init", "/usr/lib/libc.so.6")
    process(system, 20, "protected", front, stock)
    process(system, 21, "by-shift-run", "/opt/build/libibverbs.so.1", stock)
    process(system, 22, "early", stock)
    process(system, 23, "conda", "/opt/build/libibverbs.so.1.99")
    process(system, 24, "upgraded", front + " (deleted)", stock)
    process(system, 25, "no-verbs", "/usr/lib/libibverbs-like.so")
    said = system.run("status", 3, "processes with SHIFT: 3\n")
    without = said[said.index("processes without SHIFT"):].splitlines()[1:]
    assert without == ["  22 early " + stock, "  23 conda /opt/build/libibverbs.so.1.99"], said
    old = said[said.index("as it was before"):said.index("processes without")].splitlines()[1:]
    assert old == ["  24 upgraded " + front], said


def only_root_changes_the_system(args):
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        program = shutil.copy(args.shift_system, folder)
        for command in ("enable", "disable"):
            said = subprocess.run([program, command], capture_output=True, text=True, user=NOBODY, check=False)
            assert said.returncode == 1 and "only root can " + command in said.stderr, said
        for words in ([], ["bogus"], ["enable", "--bogus"]):
            said = subprocess.run([program, *words], capture_output=True, text=True, check=False)
            assert said.returncode == 2 and said.stderr, said


def main():
    parser = argparse.ArgumentParser()
    for name in ("shift-system", "front", "front-dir", "stock"):
        parser.add_argument("--" + name, type=pathlib.Path, required=True)
    args = parser.parse_args()
    if os.geteuid() != 0:
        print("skipped: only root can run ldconfig in another root folder")
        return 77
    only_root_changes_the_system(args)
    for case in (programs_find_the_front_only_between_the_two, a_run_that_was_killed_is_mended,
                 what_is_not_as_it_should_be_is_refused, it_takes_back_what_has_no_effect,
                 a_library_of_another_architecture_does_not_count, at_the_same_time_one_waits_for_the_other,
                 mistakes_in_the_settings_are_named, processes_without_the_front_are_named):
        with tempfile.TemporaryDirectory() as folder:
            case(System(args, folder))
        print("ok:", case.__name__)
    return 0


if __name__ == "__main__":
    sys.exit(main())
