#!/usr/bin/python3
"""Installs the RPM packages into a root, runs programs there, and lives their life to its end.

The root is Debian's, and RPM's database in it begins empty. So packages are made that stand for those of Fedora
and RHEL: the run-time of C and C++, libibverbs with its providers, and librdmacm, with Debian's files in the
folders of RPM's distributions. It needs root, debootstrap, rpm and the network, and takes minutes. `tools/package
rpm` makes the packages.
"""

import argparse
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
import traceback

from root import Failure, Root, copy_tree, require
from roots import FAILOVER, STOCK, found, same

LIBDIR = "/usr/lib64"
NAMES = ("shift-rdma", "shift-rdma-system", "cxemu")
CONF = "etc/ld.so.conf.d/00-shift.conf"
# What one package of the root stands for; the C++ run-time is among it, and OpenSSL, which packages that are built
# on Debian need for TLS to a redis server.
RUNTIME = ("libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1", "libstdc++.so.6",
           "libgcc_s.so.1", "libssl.so.3", "libcrypto.so.3")
# What the packages may provide: their own names.
PROVIDED = re.compile(r"(config\()?(%s)\)?(\((x86-64|aarch-64)\))? = \S+$" % "|".join(NAMES))


def output(*command):
    return subprocess.run(list(map(str, command)), check=True, capture_output=True, text=True).stdout


def query(file, form):
    return output("rpm", "-qp", "--queryformat", form, file)


def rpmbuild(text, top, *definitions):
    """Makes the packages of a spec whose files are there already."""
    shutil.rmtree(top, ignore_errors=True)
    top.mkdir(parents=True)
    (top / "some.spec").write_text(text)
    words = ["_topdir %s" % top, "_dbpath %s/db" % top, "_libdir " + LIBDIR, "debug_package %{nil}",
             "__os_install_post %{nil}", *definitions]
    done = subprocess.run(["rpmbuild", "-bb", "--nodeps", *(word for one in words for word in ("--define", one)),
                           top / "some.spec"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          check=False)
    require(done.returncode == 0, "rpmbuild: " + done.stdout[-3000:])
    return {query(file, "%{NAME}"): file for file in top.glob("RPMS/*/*.rpm")}


class Rpms:
    """The packages of one build. Others are made of the same files, by its spec with changes."""

    def __init__(self, folder, scratch):
        self.scratch, self.files, self.changes, self.made = pathlib.Path(scratch), {}, [], 0
        sources = pathlib.Path(folder).glob("shift-rdma-*.src.rpm")
        source = max(sources, key=os.path.getmtime, default=None)
        require(source, "there is no source package in %s" % folder)
        version = query(source, "%{VERSION}-%{RELEASE}")
        for name in NAMES:
            self.files[name] = next(pathlib.Path(folder).glob("%s-%s.*64.rpm" % (name, version)), None)
            require(self.files[name], "there is no package %s of %s" % (name, source))
        self.built = dict(self.files)
        self.place = self.scratch / "files"
        shutil.rmtree(self.place, ignore_errors=True)
        self.place.mkdir()
        unpack = ["rpm", "--force-debian", "--nodeps", "--noscripts", "--ignorearch"]
        output(*unpack, "--root", self.place, "--dbpath", "/db", "-i", *self.files.values())
        for left in ("db", "usr/lib/.build-id"):
            shutil.rmtree(self.place / left, ignore_errors=True)
        top = "_topdir %s" % (self.scratch / "source")
        output(*unpack, "--define", top, "--dbpath", self.scratch / "db", "-i", source)
        self.spec = (self.scratch / "source/SPECS/shift-rdma.spec").read_text()

    def change(self, changes):
        """From now on, all packages are made by a spec with these changes."""
        self.changes = changes
        self.files = self.later(0) if changes else dict(self.built)

    def later(self, number):
        """The packages with a higher release."""
        text = re.sub(r"^%prep\n(.*\n)*?(?=%install)|^%check\n(.*\n)*?(?=%post)", "", self.spec, flags=re.M)
        # After the above, so that nothing is changed which is left out here.
        for pattern, other in self.changes:
            text, count = re.subn(pattern, other, text, count=1)
            require(count, "the spec has no %s" % pattern)
        text = re.sub(r"^(Release: +)\d+", r"\g<1>%d" % (number + 1), text, flags=re.M)
        conf = "mkdir -p %%{buildroot}/etc/ld.so.conf.d\ntouch %%{buildroot}/%s\n\n" % CONF
        text = re.sub(r"^%install\n(.*\n)*?(?=%post|%preun|%files)",
                      "%%install\nmkdir -p %%{buildroot}\ncp -a %s/. %%{buildroot}\n%s" % (self.place, conf), text,
                      flags=re.M)
        self.made += 1
        return rpmbuild(text, self.scratch / ("rpm%d" % self.made), "stock_folder %s" % stock_folder())

    def pair(self, files=None):
        return [(files or self.files)[name] for name in NAMES[:2]]


def stock_folder():
    return "/usr/lib/" + output("g++", "-print-multiarch").strip()


STANDIN = """
Name: %(name)s
Version: %(version)s
Release: 1
Summary: Stands for a package of the distribution
License: none
AutoReq: no
%(provides)s
%%description
It has the files of Debian.
%%install
mkdir -p %%{buildroot}
cp -a %(place)s/. %%{buildroot}
%%files
%(files)s
"""


def stand_in(name, version, place, scratch, provides=()):
    place.mkdir(parents=True, exist_ok=True)
    files = "\n".join("/%s" % path.relative_to(place) for path in place.rglob("*")
                      if path.is_symlink() or not path.is_dir())
    text = STANDIN % {"name": name, "version": version, "place": place, "files": files,
                      "provides": "\n".join("Provides: " + one for one in provides)}
    return rpmbuild(text, scratch / ("build-" + name))[name]


class RpmRoot(Root):
    """A root whose stock libraries are RPM's. It is made once for all cases."""

    def __init__(self, suite, cache, scratch):
        super().__init__(suite, cache, scratch)
        self.scratch = pathlib.Path(scratch)
        self.install(*STOCK, "perftest", "libssl3")
        self.stock = self.make_stock(self.scratch / "stock")
        self.remove(*STOCK)
        (self.path / "etc/ld.so.conf.d/lib64.conf").write_text(LIBDIR + "\n")
        # These are of the distribution's package filesystem, and outlive others.
        for folder in ("licenses", "man/man1", "man/man5", "man/man7", "man/man8"):
            (self.path / "usr/share" / folder).mkdir(parents=True, exist_ok=True)
        self.rpm("-i", *self.stock.values())
        self.run("ldconfig")
        found(self, False)
        copy_tree(self.path, self.scratch / "fresh")

    def again(self):
        """As it was at the beginning."""
        shutil.rmtree(self.path)
        copy_tree(self.scratch / "fresh", self.path)

    def make_stock(self, place):
        folder = next(self.path.glob("usr/lib/*-linux-gnu"))
        for name, library in (("libibverbs", "libibverbs"), ("libibverbs", "libmlx5"), ("libibverbs", "libefa"),
                              ("librdmacm", "librdmacm")):
            there = place / name / LIBDIR[1:]
            there.mkdir(parents=True, exist_ok=True)
            for file in folder.glob(library + ".so.1*"):
                shutil.copy2(file, there, follow_symlinks=False)
        # The stock library has the path of its providers inside.
        providers = place / "libibverbs" / folder.relative_to(self.path) / "libibverbs"
        providers.mkdir(parents=True)
        for file in (folder / "libibverbs").glob("libmlx5-*.so"):
            (providers / file.name).symlink_to(LIBDIR + "/libmlx5.so.1")
        drivers = place / "libibverbs/etc/libibverbs.d"
        drivers.mkdir(parents=True)
        shutil.copy2(self.path / "etc/libibverbs.d/mlx5.driver", drivers)
        (place / "perftest/usr/bin").mkdir(parents=True)
        shutil.copy2(self.path / "usr/bin/ib_write_bw", place / "perftest/usr/bin")
        release = re.search(r"\.so\.\d+\.\d+\.(.*)", os.path.realpath(folder / "libibverbs.so.1"))[1]
        provided = ["/bin/sh", "rtld(GNU_HASH)"]
        for library in RUNTIME:
            if (folder / library).exists():
                provided += output("/usr/lib/rpm/elfdeps", "--provides", folder / library).splitlines()
        made = {name: stand_in(name, release, place / name, place)
                for name in ("libibverbs", "librdmacm", "perftest")}
        return made | {"glibc": stand_in("glibc", "2.36", place / "glibc", place, provided)}

    def attempt_rpm(self, *words):
        return self.attempt_beside("rpm", "--force-debian", "--root", self.path, "--dbpath", "/var/lib/rpm",
                                   *words)

    def rpm(self, *words):
        done = self.attempt_rpm(*words)
        if done.returncode != 0 or "scriptlet failed" in done.stdout:
            raise Failure("rpm %s ends with %d:\n%s" % (" ".join(map(str, words)), done.returncode, done.stdout))
        return done.stdout

    def has(self, name):
        return self.attempt_rpm("-q", name).returncode == 0


def contents(_, rpms):
    """Owners and modes of the files, what the packages provide and need, and which of them has scriptlets."""
    for name, file in rpms.files.items():
        form = "[%{FILEUSERNAME} %{FILEGROUPNAME} %{FILEMODES:perms} %{FILEFLAGS:fflags}|%{FILENAMES}\n]"
        for line in query(file, form).splitlines():
            about, path = line.split("|")
            owner, group, mode, *flags = about.split()
            require((owner, group) == ("root", "root") and (mode[0] == "l" or mode[5] == mode[8] == "-"),
                    "%s: others may change %s" % (name, line))
            require(not path.startswith("/usr/share/licenses/") or mode[0] == "d" or "l" in "".join(flags),
                    "%s: %s is not marked as a licence" % (name, path))
        for line in output("rpm", "-qp", "--provides", file).splitlines():
            require(PROVIDED.match(line.strip()), "%s provides %s" % (name, line))
        needed = output("rpm", "-qp", "--requires", file).splitlines()
        for line in needed:
            require(not re.match(r"(/usr/.*)?lib(ibverbs|rdmacm|mlx5)\.so|/usr/lib", line),
                    "%s needs %s, which is not by hand" % (name, line))
        if name == "shift-rdma":
            for library in ("libibverbs", "librdmacm"):
                require(any(re.match(r"%s\(\S+\) >= [1-9]\d*\.\d+$" % library, line) for line in needed),
                        "%s does not need %s: %s" % (name, library, needed))
        scripts = set(re.findall(r"^(\S+) scriptlet", output("rpm", "-qp", "--scripts", file), re.M))
        wanted = {"postinstall", "preuninstall"} if name == "shift-rdma-system" else set()
        require(scripts == wanted, "%s has the scriptlets %s" % (name, scripts))


def life(root, rpms):
    """Install, disable, upgrade while disabled, enable, upgrade, remove, install again, remove all."""
    before = root.tree()
    root.rpm("-i", rpms.files["shift-rdma"])
    found(root, False)
    require("/shift/libibverbs" in root.run("shift-run", "--", "ldd", "/usr/bin/ib_write_bw"),
            "shift-run does not find the fronts")
    root.rpm("-i", rpms.files["shift-rdma-system"])
    found(root, True)
    root.rpm("-V", *NAMES[:2])
    owner = root.attempt_rpm("-qf", "/" + CONF).stdout
    require(owner.startswith("shift-rdma-system-"), "the owner of the linker's file: " + owner)
    root.run("shift-system", "disable")
    found(root, False)
    root.rpm("-U", *rpms.pair(rpms.later(1)))
    found(root, False)
    root.rpm("-V", *NAMES[:2])
    root.run("shift-system", "enable")
    found(root, True)
    last = rpms.later(2)
    root.rpm("-U", *rpms.pair(last))
    found(root, True)
    root.rpm("-e", "shift-rdma-system")
    found(root, False)
    require(not (root.path / CONF).exists(), "the linker's file is left")
    root.rpm("-i", last["shift-rdma-system"])
    found(root, True)
    root.rpm("-e", *NAMES[:2])
    same(before, root, "after the packages are removed")
    found(root, False)


def removed_beneath(root, rpms):
    """The stock library goes first: RPM refuses, and by force."""
    root.rpm("-i", *rpms.pair())
    for name, needs in (("libibverbs", "shift-rdma"), ("librdmacm", "shift-rdma"),
                        ("shift-rdma", "shift-rdma-system")):
        done = root.attempt_rpm("-e", name)
        require(done.returncode != 0 and "needed by (installed) %s-" % needs in done.stdout and root.has(name),
                "%s is removed although %s needs it: %s" % (name, needs, done.stdout))
    root.rpm("-e", "--nodeps", "libibverbs")
    said = root.attempt("perl", "-e", "use DynaLoader; DynaLoader::dl_load_file('libibverbs.so.1', 1) or die "
                        "DynaLoader::dl_error()").stdout
    require("libibverbs.so.1: cannot open shared object" in said, "a program that needs verbs says: " + said)
    root.run("ls")
    root.rpm("-i", root.stock["libibverbs"])
    found(root, True)


def cannot_disable(root, rpms):
    """The package stays where SHIFT cannot be disabled, and is installed where it cannot be enabled."""
    root.rpm("-i", *rpms.pair())
    program = root.path / "usr/sbin/shift-system"
    real = program.read_bytes()
    program.write_text("#!/bin/sh\nexit 1\n")
    done = root.attempt_rpm("-e", "shift-rdma-system")
    require(done.returncode != 0 and root.has("shift-rdma-system") and (root.path / CONF).exists(),
            "it is gone: " + done.stdout)
    program.write_bytes(real)
    root.rpm("-e", *NAMES[:2])
    found(root, False)
    library = next((root.path / LIBDIR[1:]).glob("libibverbs.so.1.*"))
    library.rename(root.path / "hidden")
    said = root.rpm("-i", *rpms.pair())
    require("no stock library" in said and not (root.path / CONF).exists(), "without the stock library: " + said)
    (root.path / "hidden").rename(library)
    root.run("shift-system", "enable")
    found(root, True)


def settings(root, rpms):
    """What the administrator has written stays, through an upgrade with other settings and after the removal."""
    root.rpm("-i", *rpms.pair())
    conf = root.path / "etc/shift.conf"
    mine = conf.read_text() + "\nSHIFT_DISABLE = 1\n"
    conf.write_text(mine)
    there = rpms.place / "etc/shift.conf"
    before = there.read_text()
    there.write_text(before + "\n# New.\n")
    try:
        later = rpms.later(1)
    finally:
        there.write_text(before)
    root.rpm("-U", *rpms.pair(later))
    require(conf.read_text() == mine, "an upgrade has changed /etc/shift.conf")
    root.rpm("-e", *NAMES[:2])
    saved = root.path / "etc/shift.conf.rpmsave"
    require(saved.exists() and saved.read_text() == mine, "the removal has not kept the settings")


def traffic(root, rpms):
    """Unmodified programs survive a dead NIC without shift-run; and with it, once SHIFT is disabled."""
    root.rpm("-i", *rpms.files.values())
    shutil.copy(FAILOVER, root.path / "debs/failover")
    print(root.run("/debs/failover", alone=True), end="")
    root.run("shift-system", "disable")
    print(root.run("/debs/failover", "shift-run", "--", alone=True), end="")
    require(root.attempt("/debs/failover", alone=True).returncode != 0, "the test passes without SHIFT")


CASES = {case.__name__: case for case in (contents, life, removed_beneath, cannot_disable, settings, traffic)}
# What is changed in the spec, the case that must fail then, and what it must say.
PLANTED = [
    ([(r"%global __provides_exclude_from .*\n", "")], contents, "provides lib"),
    ([(r"%global __requires_exclude .*\n", "")], contents, "which is not by hand"),
    ([(r"Requires:       libibverbs.*\n", "")], contents, "does not need libibverbs"),
    ([(r"(?m)^%\{_bindir\}/shift-run$", "%attr(0775,root,root) %{_bindir}/shift-run")], contents,
     "others may change"),
    ([(r"(?m)^%\{_bindir\}/shift-run$", "%attr(0755,root,daemon) %{_bindir}/shift-run")], contents,
     "others may change"),
    ([(r"%license (.*/cxemu/)", r"\1")], contents, "not marked as a licence"),
    ([(r"%post system", "%post")], contents, "has the scriptlets"),
    ([(r"\$1 -eq 1", "$1 -ge 1")], life, "programs get"),
    ([(r"\$1 -eq 0", "$1 -le 1")], life, "programs get"),
    ([(r"system disable\n", "system status\n")], life, "programs get"),
    ([(r"%ghost .*\n", "%exclude /" + CONF + "\n")], life, "the owner of"),
    ([(r"Requires:       librdmacm.*\n", "")], removed_beneath, "librdmacm is removed"),
    ([(r"system disable\n", "system disable || :\n")], cannot_disable, "it is gone"),
    ([(r"%config\(noreplace\) ", "%config ")], settings, "has changed"),
]


def selftest(root, rpms):
    wrong = 0
    for changes, case, said in PLANTED:
        rpms.change(changes)
        root.again()
        try:
            case(root, rpms)
            result = "nothing"
        except Failure as failure:
            result = str(failure)
        is_found = said in result
        print("%s: %s: %s" % ("ok" if is_found else "MISSED", changes, result.split("\n")[0]), flush=True)
        wrong += not is_found
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rpms", default="build/packages", help="the folder of the packages")
    parser.add_argument("--only", action="append", choices=CASES, help="one case; repeatable")
    parser.add_argument("--cache", default="build/roots", help="where fresh roots are kept for the next time")
    parser.add_argument("--selftest", action="store_true", help="instead, let the cases find changes of the spec")
    options = parser.parse_args()
    if os.geteuid() != 0 or not shutil.which("debootstrap") or not shutil.which("rpmbuild"):
        print("skipped: this needs root, debootstrap and rpm")
        return 77
    problems = 0
    with tempfile.TemporaryDirectory() as scratch:
        os.environ["HOME"] = scratch  # where Debian's rpm makes a database, even to look at a file
        # The packages are built for this machine's C library.
        root = RpmRoot(platform.freedesktop_os_release()["VERSION_CODENAME"], options.cache, scratch)
        rpms = Rpms(options.rpms, scratch)
        if options.selftest:
            return 1 if selftest(root, rpms) else 0
        for name in options.only or CASES:
            begin = time.monotonic()
            root.again()
            try:
                CASES[name](root, rpms)
                result = "ok"
            except (Failure, OSError, subprocess.SubprocessError) as failure:
                traceback.print_exc(limit=3)
                print(failure)
                problems, result = problems + 1, "FAILED"
            print("%s: %s, %.0f s" % (result, name, time.monotonic() - begin), flush=True)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
