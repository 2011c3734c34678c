#!/usr/bin/python3
"""Installs the packages into fresh roots of Debian, runs programs there, and lives their life to its end.

It needs root, debootstrap and the network, and takes minutes. `tools/package deb` makes the packages.
"""

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import traceback

from daemons import DAEMONS
from exercises import EXERCISES
from root import ENVIRONMENT, Failure, Root, differences, mirror, require

LIBRARIES = ("libibverbs.so.1", "librdmacm.so.1", "libmlx5.so.1")
STOCK = ("libibverbs1", "ibverbs-providers", "librdmacm1")
NOBODY = "65534"
FAILOVER = pathlib.Path(__file__).resolve().parents[2] / "debian/tests/failover"


class Packages:
    """The .debs of one build, and later versions that differ in nothing else."""

    def __init__(self, folder, scratch):
        self.scratch = pathlib.Path(scratch)
        self.files = {}
        for file in sorted(pathlib.Path(folder).glob("*.deb"), key=os.path.getmtime):
            self.files[file.name.split("_")[0]] = file
        for name in ("shift-rdma", "shift-rdma-system", "cxemu"):
            require(name in self.files, "there is no package %s in %s" % (name, folder))
        self.now = [self.files["shift-rdma"], self.files["shift-rdma-system"]]

    def later(self, number):
        """shift-rdma and shift-rdma-system with a higher version."""
        made = []
        version = self.files["shift-rdma"].name.split("_")[1]
        for file in self.now:
            folder = self.scratch / ("%s+%d" % (file.stem, number))
            subprocess.run(["dpkg-deb", "-R", file, folder], check=True)
            control = folder / "DEBIAN/control"
            control.write_text(control.read_text().replace(version, "%s+%d" % (version, number)))
            made.append(self.scratch / file.name.replace(version, "%s+%d" % (version, number)))
            subprocess.run(["dpkg-deb", "--root-owner-group", "-Znone", "-b", folder, made[-1]], check=True,
                           stdout=subprocess.DEVNULL)
            shutil.rmtree(folder)
        return made


def found(root, shift):
    """Programs must find each library, and get SHIFT's before the stock one, or the stock one alone."""
    for name in LIBRARIES:
        paths = root.library(name)
        fronts = [path for path in paths if "/shift/" in path]
        require(len(set(paths)) == (2 if shift else 1) and len(set(fronts)) == (1 if shift else 0),
                "programs get %s" % sorted(set(paths)))
    status = root.attempt("shift-system", "status")
    if "shift-system: not found" not in status.stdout and status.returncode != 127:
        require(status.returncode == (0 if shift else 3), "the status is %s" % status.stdout)


def same(before, root, when):
    changes = list(differences(before, root.tree()))
    require(not changes, "%s, this is left:\n  %s" % (when, "\n  ".join(changes)))


# The source package of each notice whose name is another.
SOURCES = {"nlohmann-json": "nlohmann-json3", "libstdc++": "gcc-"}


def contents(_, packages):
    """Each package says whose code is in it, which is that of its notices, and has what its commands need."""
    for name, file in packages.files.items():
        if name.endswith("-dbgsym"):
            continue
        listed = subprocess.run(["dpkg-deb", "-c", file], check=True, capture_output=True, text=True).stdout
        files = [line.split(maxsplit=5)[5] for line in listed.splitlines()]
        names = [re.search("/third-party/([^/]+?)([.]gz)?$", path) for path in files]
        notices = {match[1] for match in names if match}
        said = field(file, "Static-Built-Using")
        sources = re.findall(r"(\S+) \(= \S+\)", said)
        for notice in notices:
            begin = SOURCES.get(notice, notice)
            require(any(source.startswith(begin) for source in sources), "%s has code of %s, and says it is built "
                    "with %s" % (name, notice, said))
        require(len(sources) == len(notices), "%s says it is built with %s, and has notices for %s" % (
            name, said, sorted(notices)))
    require("libssl3" in field(packages.files["shift-rdma"], "Depends"), "shift-rdma does without OpenSSL")


def field(file, name):
    return subprocess.run(["dpkg-deb", "-f", file, name], check=True, capture_output=True, text=True).stdout


def life(root, packages):
    """Install, disable, upgrade while disabled, enable, upgrade, remove, install again, purge."""
    root.install(*STOCK, "perftest")
    root.run("ldconfig")
    before = root.tree()
    root.install(packages.files["shift-rdma"])
    found(root, False)
    require("/shift/libibverbs" in root.run("shift-run", "--", "ldd", "/usr/bin/ib_write_bw"),
            "shift-run does not find the fronts")
    root.install(*packages.now)
    found(root, True)
    root.run("shift-system", "disable")
    found(root, False)
    root.install(*packages.later(1))
    found(root, False)
    root.run("shift-system", "enable")
    found(root, True)
    root.install(*packages.later(2))
    found(root, True)
    root.remove("shift-rdma-system")
    found(root, False)
    root.install(packages.later(2)[1])
    found(root, True)
    root.purge("shift-rdma")
    same(before, root, "after the packages are purged")
    found(root, False)


def removed_beneath(root, packages):
    """The stock library goes first: by apt, which takes SHIFT along, and by force."""
    root.install(*STOCK)
    root.purge(*STOCK)
    root.run("ldconfig")
    before = root.tree()
    root.install(*packages.now)
    found(root, True)
    root.remove("libibverbs1")
    require(not list(root.path.glob("etc/ld.so.conf.d/*shift*")), "SHIFT is enabled without the stock library")
    root.run("dpkg", "--purge", *[file.name.split("_")[0] for file in packages.now])  # its settings are left
    root.purge(*STOCK)
    same(before, root, "after the stock library has taken SHIFT along")
    root.install(*packages.now)
    root.run("dpkg", "--force-depends", "--purge", "libibverbs1")
    said = root.attempt("perl", "-e", "use DynaLoader; DynaLoader::dl_load_file('libibverbs.so.1', 1) or die "
                        "DynaLoader::dl_error()").stdout
    require("libibverbs.so.1: cannot open shared object" in said, "a program that needs verbs says: " + said)
    root.run("ls")
    root.run("apt-get", "-qq", "-f", "install", "-y", "--no-install-recommends", "libibverbs1")
    found(root, True)


def folder_gone(root, packages):
    """The fronts' folder vanishes while SHIFT is enabled, as when files are deleted by hand."""
    root.install(*packages.now)
    shutil.rmtree(next(root.path.glob("usr/lib/*/shift")))
    require(not [path for path in root.library() if "/shift/" in path], "a front is left")
    root.run("shift-system", "disable")
    root.run("apt-get", "-qq", "install", "--reinstall", "-y", "/debs/" + packages.now[0].name)
    root.run("shift-system", "enable")
    found(root, True)


def traffic(root, packages):
    """Unmodified programs survive a dead NIC without shift-run; and with it, once SHIFT is disabled."""
    shutil.copy(FAILOVER, root.path / "debs/failover")
    root.install(*packages.now, packages.files["cxemu"], "perftest")
    print(root.run("/debs/failover", alone=True), end="")
    root.run("shift-system", "disable")
    print(root.run("/debs/failover", "shift-run", "--", alone=True), end="")
    does_not_pass(root)


def does_not_pass(root):
    """Without SHIFT, or with a program that does not start, the package's own test fails and says so, in time."""
    broken = root.path / "debs/broken"
    broken.mkdir()
    program = broken / "ib_write_bw"
    program.symlink_to("/usr/bin/ib_write_bw")
    for command, words in ((None, "have found no second path"), ("exit 3", "the server does not start"),
                           ("exec sleep 1000", "the server does not start")):
        if command:
            program.unlink(missing_ok=True)
            program.write_text("#!/bin/sh\n%s\n" % command)
            program.chmod(0o755)
        begin = time.monotonic()
        done = root.attempt("/debs/failover", alone=True, PATH="/debs/broken:" + ENVIRONMENT["PATH"])
        took = time.monotonic() - begin
        require(done.returncode == 1 and done.stdout.count("FAILED") == 1 and words in done.stdout and took < 60,
                "with %s, the test ends after %.0f s with %d: %s" % (
                    command or "no SHIFT", took, done.returncode, done.stdout))


def privileged(root, packages):
    """A set-user-ID program has the fronts, too, and its user's environment does not count there."""
    root.install(*packages.now, "ibverbs-utils")
    (root.path / "etc/shift.conf").write_text("SHIFT_COLOUR = red\n")
    program = root.path / "usr/bin/privileged"
    shutil.copy(root.path / "usr/bin/ibv_devices", program)
    os.chown(program, 1, 1)
    # The layer says at its start that the key is unknown.
    for mode, variables, is_said in ((0o755, {}, True), (0o755, {"SHIFT_DISABLE": "1"}, False),
                                     (0o4755, {"SHIFT_DISABLE": "1"}, True)):
        program.chmod(mode)
        said = root.attempt("setpriv", "--reuid=" + NOBODY, "--clear-groups", "privileged", **variables).stdout
        require(("unknown key SHIFT_COLOUR" in said) == is_said, "with the mode %o and %s it says: %s" % (
            mode, variables, said))
    require("unknown key" in root.attempt("shift-system", "status").stdout, "the status does not name the mistake")


def built_there(root, packages):
    """A package that is built where SHIFT is enabled depends on the stock libraries, and not on SHIFT."""
    root.install(*packages.now, "perftest", "dpkg-dev")
    (root.path / "build/debian").mkdir(parents=True)
    (root.path / "build/debian/control").write_text(
        "Source: some\nMaintainer: a <a@example.org>\n\nPackage: some\nArchitecture: any\nDescription: some\n")
    said = root.run("sh", "-c", "cd /build && dpkg-shlibdeps -O -e/usr/bin/ib_write_bw")
    require("libibverbs1" in said and "librdmacm1" in said and "shift" not in said, "it depends on " + said)


def release_upgrade(root, packages):
    """Debian 12 becomes Debian 13, with a newer stock library beneath, while SHIFT is enabled."""
    if root.suite != "bookworm":
        print("left out: it begins with bookworm")
        return
    root.install(*packages.now, packages.files["cxemu"], "perftest")
    before = root.run("dpkg-query", "-W", "-f", "${Version}", "libibverbs1")
    (root.path / "etc/apt/sources.list").write_text("deb %s trixie main\n" % mirror("trixie"))
    root.run("apt-get", "-qq", "update")
    root.run("apt-get", "-qq", "full-upgrade", "-y", "-o", "Dpkg::Options::=--force-confold")
    require(root.run("dpkg-query", "-W", "-f", "${Version}", "libibverbs1") != before, "the library is not newer")
    found(root, True)
    shutil.copy(FAILOVER, root.path / "debs/failover")
    print(root.run("/debs/failover", alone=True), end="")
    root.purge("shift-rdma")
    found(root, False)


CASES = {case.__name__: case for case in (
    contents, traffic, life, removed_beneath, folder_gone, privileged, built_there, *EXERCISES, *DAEMONS,
    release_upgrade)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--debs", default="build/packages", help="the folder of the packages")
    parser.add_argument("--suite", action="append", help="bookworm, trixie; repeatable")
    parser.add_argument("--only", action="append", choices=CASES, help="one case; repeatable")
    parser.add_argument("--cache", default="build/roots", help="where fresh roots are kept for the next time")
    options = parser.parse_args()
    if os.geteuid() != 0 or not shutil.which("debootstrap"):
        print("skipped: this needs root and debootstrap")
        return 77
    problems = 0
    with tempfile.TemporaryDirectory() as scratch:
        for suite in options.suite or ["bookworm"]:
            for name in options.only or CASES:
                begin = time.monotonic()
                try:
                    CASES[name](Root(suite, options.cache, scratch), Packages(options.debs, scratch))
                    result = "ok"
                except (Failure, OSError, subprocess.SubprocessError) as failure:
                    traceback.print_exc(limit=3)
                    print(failure)
                    problems, result = problems + 1, "FAILED"
                print("%s: %s on %s, %.0f s" % (result, name, suite, time.monotonic() - begin), flush=True)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
