#!/usr/bin/python3
"""Whether redhat/ agrees with the rest of the tree, and with what the build installs.

It needs no RPM: it reads the spec, installs each component of a build, and runs the scriptlets before a
shift-system that only notes its arguments.
"""

import argparse
import fnmatch
import os
import re
import shutil
import subprocess
import sys
import tempfile

SPEC, LINT, NOTICES = "redhat/shift-rdma.spec", "redhat/shift-rdma.rpmlintrc", "redhat/notices"
SECTION = re.compile(r"^%(package|description|prep|build|install|check|post|preun|files|changelog)\b *(.*)$")
# Where each macro's folder is below the prefix of `cmake --install`.
FOLDERS = {"_bindir": "bin", "_sbindir": "sbin", "_datadir": "share", "_mandir": "share/man",
           "_sysconfdir": "etc", "_prefix": "."}
# What Debian's needs of the build are called by RPM's distributions.
COUNTERPARTS = {
    "cmake": ["cmake"], "debhelper-compat": [], "ibverbs-providers": ["libibverbs"],
    "libcli11-dev": ["cmake(CLI11)"],
    # They have no static hiredis, so no redis rendezvous either, which is all that OpenSSL is for.
    "libhiredis-dev": [], "libssl-dev": [],
    "libibverbs-dev": ["rdma-core-devel"], "libnl-3-dev": ["libnl3-devel"],
    "librdmacm-dev": ["librdmacm", "rdma-core-devel"], "libsodium-dev": ["libsodium-devel", "libsodium-static"],
    "ninja-build": ["ninja-build"], "nlohmann-json3-dev": ["cmake(nlohmann_json)"], "python3": ["python3"],
    "zlib1g-dev": ["zlib-static"],
}
# Debian does not name what every build of a package has.
ESSENTIAL = {"gcc-c++", "libstdc++-static"}


def read(tree, path):
    with open(os.path.join(tree, path), encoding="utf-8") as file:
        return file.read()


def sections(tree):
    """The text of each section, by its name and arguments; the tags before the first have no name."""
    found, name = {"": ""}, ""
    for line in read(tree, SPEC).splitlines():
        match = SECTION.match(line)
        if match:
            name = " ".join(match.groups()).strip()
            found[name] = ""
        else:
            found[name] += line + "\n"
    return found


def full_name(arguments):
    """The name of the package of "", "system" or "-n cxemu"."""
    if arguments.startswith("-n "):
        return arguments[3:]
    return "shift-rdma" + (arguments and "-" + arguments)


def of_packages(spec, kind):
    return {full_name(name[len(kind):].strip()): text for name, text in spec.items() if name.split()[:1] == [kind]}


def judge_version(tree, _):
    project = re.search(r"^project\(shift VERSION ([\d.]+) ", read(tree, "CMakeLists.txt"), re.M)[1]
    spec = sections(tree)
    if not re.search(r"^Version: +%s$" % re.escape(project), spec[""], re.M):
        yield "the spec's version is not %s" % project
    if not re.match(r"\* \w{3} \w{3} \d\d \d{4} .+ <.+> - %s-\d+\n- " % re.escape(project), spec["changelog"]):
        yield "the spec's changelog does not begin with %s" % project


def judge_packages(tree, _):
    wanted = re.search(r"set\(SHIFT_COMPONENTS ([^)]*)\)", read(tree, "cmake/ThirdParty.cmake"))[1].split()
    spec = sections(tree)
    loop = re.search(r"^for package in (.*); do$", spec["install"], re.M)
    for what, found in (("%package", ["shift-rdma", *of_packages(spec, "package")]),
                        ("%install", loop and loop[1].split()), ("%files", list(of_packages(spec, "files")))):
        if found != wanted:
            yield "%s of the spec has %s, and the build installs %s" % (what, found, wanted)


def judge_descriptions(tree, _):
    """What a package says of itself is one text in both kinds."""
    control, spec = read(tree, "debian/control"), sections(tree)
    summaries = of_packages(spec, "package") | {"shift-rdma": spec[""]}
    for name, text in of_packages(spec, "description").items():
        summary = re.search(r"^Summary: +(.*)$", summaries.get(name, ""), re.M)
        there = re.search(r"^Package: %s\n(?:.*\n)*?Description: (.*)\n((?: .*\n)+)" % name, control, re.M)
        body = re.sub(r"^ \.$", "", there[2], flags=re.M).split() if there else ""
        if not summary or not there or summary[1].lower() != there[1].lower() or text.split() != body:
            yield "the description of %s is another in debian/control" % name


def judge_build_needs(tree, _):
    field = re.search(r"^Build-Depends: (.*?)^\S", read(tree, "debian/control"), re.M | re.S)[1]
    debian = [re.split(r"[ (:]", item.strip())[0] for item in field.split(",")]
    needed = dict(re.findall(r"^BuildRequires: +(\S+)(?: >= (\S+))?$", sections(tree)[""], re.M))
    wanted = {name for one in debian for name in COUNTERPARTS.get(one, ["a counterpart of " + one])} | ESSENTIAL
    for name in sorted(wanted - needed.keys()):
        yield "the spec does not need %s to build" % name
    for name in sorted(needed.keys() - wanted):
        yield "the spec needs %s to build, and debian/control no counterpart" % name
    for name, other in (("cmake", "cmake"), ("rdma-core-devel", "libibverbs-dev")):
        if "%s (>= %s)" % (other, needed.get(name)) not in field:
            yield "the spec needs another release of %s than debian/control" % name


def judge_filters(tree, _):
    """What the packages must not be thought to provide and need, and what they may."""
    tags = sections(tree)[""]
    for macro, excluded, kept in (
            ("__provides_exclude_from",
             ("/usr/lib64/shift/libibverbs.so.1", "/usr/lib64/shift/libmlx5.so",
              "/usr/lib64/cxemu/libcxemu.so"),
             ("/usr/lib64/libibverbs.so.1", "/usr/bin/shift-run")),
            ("__requires_exclude",
             ("/usr/lib64/libibverbs.so.1()(64bit)", "/usr/lib64/librdmacm.so.1()(64bit)",
              "libibverbs.so.1(IBVERBS_1.1)(64bit)", "libmlx5.so.1()(64bit)"),
             ("libc.so.6(GLIBC_2.34)(64bit)", "/bin/sh"))):
        pattern = re.search(r"^%%global %s (\S+)$" % macro, tags, re.M)
        pattern = pattern[1].replace("%{_libdir}", "/usr/lib64") if pattern else "$."
        for name in excluded:
            if not re.search(pattern, name):
                yield "%s lets %s through" % (macro, name)
        for name in kept:
            if re.search(pattern, name):
                yield "%s takes %s" % (macro, name)
    for name in ("libibverbs", "librdmacm"):
        if not re.search(r"^Requires: +%s%%\{\?_isa\} >= %%\{stock_release\}$" % name, tags, re.M):
            yield "shift-rdma does not ask for %s of the build or newer" % name


def judge_shell(tree, _):
    spec = sections(tree)
    texts = {name: spec[name] for name in ("prep", "build", "install", "check")}
    texts |= {name: text for name, text in spec.items() if name.startswith("post") or name.startswith("preun")}
    texts["notices"] = read(tree, NOTICES)
    for name, text in texts.items():
        plain = re.sub(r"%\{[^}]*\}|^%autosetup$", "x", text, flags=re.M)
        if subprocess.run(["sh", "-n"], input=plain, text=True, stderr=subprocess.DEVNULL, check=False).returncode:
            yield "%s is no shell script" % name


def scriptlet(text, folder, argument, result):
    """What a scriptlet calls, and its result, where shift-system ends with `result`."""
    program, called = os.path.join(folder, "shift-system"), os.path.join(folder, "called")
    with open(program, "w", encoding="utf-8") as file:
        file.write('#!/bin/sh\necho "$@" >>%s\nexit %d\n' % (called, result))
    os.chmod(program, 0o755)
    open(called, "w", encoding="utf-8").close()
    text = text.replace("%{_sbindir}", folder)
    done = subprocess.run(["sh", "-c", text, "scriptlet", str(argument)], stderr=subprocess.DEVNULL, check=False)
    with open(called, encoding="utf-8") as file:
        return file.read().split(), done.returncode


def judge_scriptlets(tree, _):
    """RPM gives a scriptlet the number of the package's versions that there are after it."""
    spec = sections(tree)
    for name in spec:
        if name.startswith(("post", "preun")) and name not in ("post system", "preun system"):
            yield "the spec has a scriptlet %%%s" % name
    for name, argument, result, wanted in (
            ("post system", 1, 0, (["enable"], 0)), ("post system", 2, 0, ([], 0)),
            ("post system", 1, 1, (["enable"], 0)), ("preun system", 0, 0, (["disable"], 0)),
            ("preun system", 1, 0, ([], 0)), ("preun system", 0, 1, (["disable"], 1))):
        with tempfile.TemporaryDirectory() as folder:
            found = scriptlet(spec.get(name, ""), folder, argument, result)
        if found != wanted:
            yield "%%%s, given %d before a shift-system that ends with %d, has called %s and ends with %d" % (
                name, argument, result, *found)


def judge_lint(tree, _):
    """Each complaint that is left has its reason, in the lines before it."""
    lines = read(tree, LINT).splitlines()
    for before, line in zip(lines, lines[1:]):
        if line.startswith("addFilter") and not before.startswith("# "):
            yield "there is no reason for %s" % line


def expanded(text, libdir):
    folders = FOLDERS | {"_libdir": libdir}
    return os.path.normpath(re.sub(r"%\{(\w+)\}", lambda match: folders[match[1]], text))


def files_of(text, libdir):
    """(directive, pattern) of each line of a file list."""
    for line in text.splitlines():
        match = re.match(r"(?:%(license|doc|config\(noreplace\)|ghost|dir) )?(%\{\S+?)(/?)$", line)
        if match:
            yield match[1] or "", expanded(match[2], libdir) + ("/*" if match[3] else "")
        elif line and not line.startswith("#"):
            yield "unknown", line


def moved(files, package, removed):
    """What %install makes of what the build installs."""
    for file in files:
        if not any(file.startswith(folder + "/") for folder in removed):
            licence = r"^share/doc/%s/(LICENSE$|third-party/)" % package
            yield re.sub(licence, r"share/licenses/%s/\1" % package, file)


def judge_files(tree, build):
    """Every file that a component installs is in its package and nowhere else, with the directive it wants."""
    spec = sections(tree)
    removed = [expanded(path, build.libdir)
               for path in re.findall(r"^rm -r %\{buildroot\}(\S+)$", spec["install"], re.M)]
    for folder in removed:
        if not any(file.startswith(folder + "/") for files in build.files.values() for file in files):
            yield "%%install removes %s, which nothing installs" % folder
    for package, text in of_packages(spec, "files").items():
        patterns = [one for one in files_of(text, build.libdir) if one[0] not in ("dir", "ghost")]
        files = set(moved(build.files.get(package, ()), package, removed))
        for file in sorted(files):
            found = [directive for directive, pattern in patterns if fnmatch.fnmatchcase(file, pattern)]
            wanted = "config(noreplace)" if file.startswith("etc/") else (
                "license" if file.startswith("share/licenses/") else (
                    "doc" if file.startswith("share/doc/") else ""))
            if found != [wanted]:
                yield "%s: %s has %s in %%files, and wants %s" % (package, file, found, [wanted])
        for _, pattern in patterns:
            if not fnmatch.filter(files, pattern):
                yield "%s: %%files has %s, and nothing is there" % (package, pattern)


JUDGES = (judge_version, judge_packages, judge_descriptions, judge_build_needs, judge_filters, judge_shell,
          judge_scriptlets, judge_lint, judge_files)


def check(tree, build):
    return [complaint for judge in JUDGES for complaint in judge(tree, build)]


class Build:
    """What each component of a build installs."""

    def __init__(self, options):
        self.libdir, self.files = options.libdir, {}
        components = re.search(r"set\(SHIFT_COMPONENTS ([^)]*)\)", read(options.tree, "cmake/ThirdParty.cmake"))[1]
        for name in components.split():
            with tempfile.TemporaryDirectory() as folder:
                command = [options.cmake, "--install", options.build, "--component", name, "--prefix", folder]
                subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
                self.files[name] = {os.path.relpath(os.path.join(where, file), folder)
                                    for where, _, files in os.walk(folder) for file in files}


# What is changed in a copy of the tree's files, and what must be said of it.
PLANTED = [
    (SPEC, r"Version:( +)\d", r"Version:\g<1>9", "the spec's version"),
    ("CMakeLists.txt", r"shift VERSION \d+\.", "shift VERSION 99.", "changelog does not begin"),
    (SPEC, r"> - \d", "> - 9", "changelog does not begin"),
    (SPEC, r"for package in shift-rdma ", "for package in ", "%install of the spec"),
    (SPEC, r"%package -n cxemu", "%package cxemu", "%package of the spec"),
    (SPEC, r"nothing has to be restarted", "little has to be restarted", "description of shift-rdma is"),
    (SPEC, r"BuildRequires:  libsodium-static\n", "", "does not need libsodium-static"),
    (SPEC, r"(BuildRequires:  )python3\n", r"\g<0>\1fmt-devel\n", "needs fmt-devel"),
    ("debian/control", r"zlib1g-dev", "zlib1g-dev, libfmt-dev", "a counterpart of libfmt-dev"),
    (SPEC, r"rdma-core-devel >= 44", "rdma-core-devel >= 43", "another release of rdma-core-devel"),
    (SPEC, r"%global __provides_exclude_from .*\n", "", "lets /usr/lib64/shift/libibverbs.so.1 through"),
    (SPEC, r"\^\(/\.\*/\)\?lib", "^lib", "lets /usr/lib64/libibverbs.so.1()(64bit) through"),
    (SPEC, r"lib\(ibverbs\|rdmacm\|mlx5\)", "lib.*", "takes libc.so.6"),
    (SPEC, r"Requires:       librdmacm.*\n", "", "does not ask for librdmacm"),
    (SPEC, r"Requires:       libibverbs(.*) >= .*\n", r"Requires:       libibverbs\1\n", "ask for libibverbs of"),
    (SPEC, r"if \[ \$1 -eq 1 \]; then\n", "", "post system is no shell script"),
    (NOTICES, r"\n  done \|", "\n  |", "notices is no shell script"),
    (SPEC, r"\$1 -eq 1", "$1 -ge 1", "post system, given 2"),
    (SPEC, r"enable \|\| :", "enable", "post system, given 1 before a shift-system that ends with 1"),
    (SPEC, r"\$1 -eq 0", "$1 -le 1", "preun system, given 1"),
    (SPEC, r"system disable\n", "system disable || :\n", "preun system, given 0"),
    (SPEC, r"%preun system", "%preun", "a scriptlet %preun"),
    (LINT, r"# [^#]*\n(addFilter)", r"\1", "there is no reason"),
    (SPEC, r"%\{_mandir\}/man7/shift.7\*\n", "", "shift.7 has []"),
    (SPEC, r"%config\(noreplace\) ", "", "etc/shift.conf has ['']"),
    (SPEC, r"%license (.*/cxemu/)", r"\1", "cxemu: share/licenses/cxemu/LICENSE has ['']"),
    (SPEC, r"%\{_sbindir\}/shift-system\n%\{_mandir\}", "%{_mandir}", "sbin/shift-system has []"),
    (SPEC, r"(%\{_bindir\}/cxemu)\n", r"\1\n%{_bindir}/cxemu-more\n", "bin/cxemu-more, and nothing is there"),
    (SPEC, r"rm -r .*/ufw\n", "", "etc/ufw/applications.d/shift has []"),
    (SPEC, r"(rm -r .*)/ufw\n", r"\1/ufo\n", "removes etc/ufo"),
]


def selftest(tree, build):
    wrong = 0
    for path, pattern, other, said in PLANTED:
        with tempfile.TemporaryDirectory() as copy:
            for name in ("CMakeLists.txt", "cmake/ThirdParty.cmake", "debian/control", SPEC, LINT, NOTICES):
                os.makedirs(os.path.dirname(os.path.join(copy, name)), exist_ok=True)
                shutil.copy(os.path.join(tree, name), os.path.join(copy, name))
            text, changes = re.subn(pattern, other, read(copy, path), count=1)
            with open(os.path.join(copy, path), "w", encoding="utf-8") as file:
                file.write(text)
            found = check(copy, build)
        is_found = changes and any(said in complaint for complaint in found)
        print("%s: %s: %s" % ("ok" if is_found else "MISSED", said, found))
        wrong += not is_found
    return 1 if wrong else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tree")
    parser.add_argument("--cmake", required=True)
    parser.add_argument("--build", required=True)
    parser.add_argument("--libdir", required=True, help="where the build installs libraries, below its prefix")
    parser.add_argument("--selftest", action="store_true")
    options = parser.parse_args()
    build = Build(options)
    if options.selftest:
        return selftest(options.tree, build)
    complaints = check(options.tree, build)
    for complaint in complaints:
        print(complaint)
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
