#!/usr/bin/python3
"""Whether an installation has the licence, and the notices of all others' code in its programs and libraries.

Installs the build into a folder, as a whole and each component by itself, as packages take them. Then it asks
ninja which headers and archives the installed objects were built from, and Debian's package manager which packages
these belong to. With --plain it configures a build without tests instead, as packages do.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile

# The name of the notice for the code of each package, by the beginning of the package's name.
NOTICES = {
    "libcli11-dev": "cli11",
    "libhiredis-dev": "hiredis",
    "libsodium-dev": "libsodium",
    "nlohmann-json3-dev": "nlohmann-json",
    "libibverbs-dev": "rdma-core",
    "librdmacm-dev": "rdma-core",
    "zlib1g-dev": "zlib",
    "libstdc++-": "libstdc++",
    "libgcc-": "libstdc++",  # both are of GCC, and have one notice
}
# These leave no code in the objects that asks for a notice.
WITHOUT = {
    "libc6-dev": "its licence lets programs take what the headers hold",
    "linux-libc-dev": "numbers and structures",
    "libnl-3-dev": "declarations; the library is opened at run time",
    "libibverbs1": "a shared library, which is not copied",
    "ibverbs-providers": "a shared library, which is not copied",
    "libssl-dev": "declarations; the library is shared",
    "libssl3": "a shared library, which is not copied",
}


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def outside_files(options, objects):
    """All files outside the project from which the objects were built."""
    build = os.path.realpath(options.build)
    ninja = [options.ninja, "-C", build, "-t"]
    inputs = output(*ninja, "inputs", *[os.path.relpath(o, build) for o in map(os.path.realpath, objects)])
    files = set(inputs.splitlines())
    compiled = [file for file in files if file.endswith((".o", ".gch"))]
    files |= {line.strip() for line in output(*ninja, "deps", *compiled).splitlines() if line.startswith("    ")}
    ours = (build + "/", os.path.realpath(options.source) + "/")
    real = {os.path.realpath(file) for file in files if os.path.isabs(file)}
    return {file for file in real if not file.startswith(ours)}


def packages(files):
    """The packages of the files, and the files that are of none."""
    said = subprocess.run(["dpkg-query", "-S", *sorted(files)], capture_output=True, text=True, check=False)
    owned = [line.split(": ", 1) for line in said.stdout.splitlines()]
    return {owner.split(",")[0].split(":")[0] for owner, _ in owned}, files - {file for _, file in owned}


def notice_of(package):
    return next((name for begin, name in NOTICES.items() if package.startswith(begin)), None)


def judge_notices(used, notices):
    """`used` are packages; `notices` are the installed notices, by name."""
    wanted = {package: notice_of(package) for package in used if package not in WITHOUT}
    for package, name in sorted(wanted.items()):
        if name is None:
            yield "%s gets into what is installed: name its notice here and in cmake/ThirdParty.cmake" % package
        elif name not in notices:
            yield "there is no notice %s, for the code of %s" % (name, package)
    for name, text in sorted(notices.items()):
        if name not in wanted.values():
            yield "nothing that is installed needs the notice %s" % name
        if not re.search(r"copyright.*(\d{4}|\bby\b)", text, re.I | re.S) or len(text) < 500:
            yield "the notice %s is none" % name


def read(path):
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


def installed(folder):
    """All files and links below the folder, by their paths in it."""
    return {os.path.relpath(os.path.join(where, name), folder)
            for where, _, names in os.walk(folder) for name in names}


def judge_shares(shares, everything):
    """`shares` has what each component installs, by its name; `everything` is what all of them install."""
    for name, files in sorted(shares.items()):
        for other in sorted(shares):
            for file in sorted(files & shares[other]) if other > name else ():
                yield "%s is in both %s and %s" % (file, name, other)
    for file in sorted(everything - set().union(*shares.values())):
        yield "%s belongs to no component, so it gets into no package" % file


def judge_component(options, name, prefix):
    folder = os.path.join(prefix, dict(options.documents)[name])
    if read(os.path.join(folder, "LICENSE")) != read(os.path.join(options.source, "LICENSE")):
        yield "%s: the licence is another" % name
    objects = [file for component, file in options.objects if component == name]
    files = {os.path.basename(file) for file in installed(prefix)}
    for file in map(os.path.basename, objects):
        if file not in files:
            yield "%s: %s is not installed" % (name, file)
    notices = {file: read(os.path.join(folder, "third-party", file))
               for file in os.listdir(os.path.join(folder, "third-party"))}
    if not shutil.which("dpkg-query"):
        print("left out: there is no dpkg-query to say which packages the code is of")
        return
    used, of_none = packages(outside_files(options, objects))
    print("%s has code of: %s" % (name, " ".join(sorted(used))))
    for file in sorted(of_none):
        yield "%s is of no package, so its notice is unknown" % file
    for complaint in judge_notices(used, notices):
        yield "%s: %s" % (name, complaint)


def judge_installation(options, top):
    everything = os.path.join(top, "all")
    output(options.cmake, "--install", options.build, "--prefix", everything)
    shares = {}
    for name, _ in options.documents:
        prefix = os.path.join(top, name)
        output(options.cmake, "--install", options.build, "--component", name, "--prefix", prefix)
        shares[name] = installed(prefix)
        yield from judge_component(options, name, prefix)
    yield from judge_shares(shares, installed(everything))
    for program in ("bin/shift-run", "bin/shift-verify", "bin/shiftctl", "sbin/shift-system", "bin/cxemu"):
        said = output(os.path.join(everything, program), "--version")
        if said != "%s %s\n" % (os.path.basename(program), options.version):
            yield "%s calls itself %s, and the project's version is %s" % (program, said.strip(), options.version)


def judge_plain_configuration(options, folder):
    """Packages are configured so, where there is no GoogleTest and where a newer compiler may warn."""
    output(options.cmake, "-S", options.source, "-B", folder, "-G", "Ninja",
           "-DCMAKE_MAKE_PROGRAM=" + options.ninja, "-DCMAKE_BUILD_TYPE=None", "-DBUILD_TESTING=OFF",
           "-DCMAKE_DISABLE_FIND_PACKAGE_GTest=ON")
    targets = output(options.ninja, "-C", folder, "-t", "targets", "all")
    yield from judge_commands(output(options.ninja, "-C", folder, "-t", "commands"), targets)


def judge_commands(commands, targets):
    for word, why in (("-Werror", "a newer compiler's warnings would end the build"),
                      ("-O0", "the distribution's compiler flags do not hold")):
        if re.search(r"\s%s\s" % word, commands):
            yield "a plain build has %s: %s" % (word, why)
    for line in commands.splitlines():
        if re.search(r"\s-c \S+\.cc\b", line) and " -DNDEBUG " not in line:
            yield "a source is built without NDEBUG, unlike in the release build: %s" % line
            break
    for target in re.findall(r"^(\S*(?:gtest|_test|shift-traffic)\S*):", targets, re.M):
        yield "a build without tests has the target %s" % target


def selftest():
    text = "Copyright 2020 somebody\n" * 50
    good = {"cli11": text, "zlib": text}
    used = {"libcli11-dev", "zlib1g-dev", "libc6-dev"}
    cases = [
        ("nothing", used, good, None),
        ("a new package", used | {"libfmt-dev"}, good, "libfmt-dev gets into"),
        ("a lost notice", used, {"cli11": text}, "no notice zlib"),
        ("a notice too many", used - {"zlib1g-dev"}, good, "nothing that is installed needs the notice zlib"),
        ("an empty notice", used, {**good, "zlib": ""}, "the notice zlib is none"),
    ]
    wrong = 0
    for name, packages_used, notices, wanted in cases:
        found = list(judge_notices(packages_used, notices))
        print("%s: %s" % (name, found))
        wrong += len(found) != (wanted is not None) or any(wanted not in one for one in found)
    return wrong + selftest_more()


def selftest_more():
    compiled = "c++ -DNDEBUG %s-o a.o -c a.cc"
    cases = [
        (judge_shares, ({"a": {"x"}, "b": {"y"}}, {"x", "y"}), None),
        (judge_shares, ({"a": {"x"}, "b": {"x", "y"}}, {"x", "y"}), "x is in both a and b"),
        (judge_shares, ({"a": {"x"}, "b": {"y"}}, {"x", "y", "z"}), "z belongs to no component"),
        (judge_commands, (compiled % "", "bin/shift-run: CXX_EXECUTABLE_LINKER"), None),
        (judge_commands, (compiled % "-Werror ", ""), "-Werror"),
        (judge_commands, (compiled % "-O0 ", ""), "-O0"),
        (judge_commands, ("c++ -o a.o -c a.cc", ""), "without NDEBUG"),
        (judge_commands, (compiled % "", "test/shift_net_test: LINK"), "shift_net_test"),
    ]
    wrong = 0
    for judge, facts, wanted in cases:
        found = list(judge(*facts))
        print("%s: %s" % (judge.__name__, found))
        wrong += len(found) != (wanted is not None) or any(wanted not in one for one in found)
    return wrong


def pair(text):
    name, _, value = text.partition("=")
    return name, value


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("cmake", "ninja", "build", "source", "version"):
        parser.add_argument("--" + name)
    parser.add_argument("--documents", action="append", type=pair, metavar="COMPONENT=FOLDER")
    parser.add_argument("--plain", action="store_true", help="only judge how a build without tests is configured")
    parser.add_argument("--selftest", action="store_true")
    parser.add_argument("objects", nargs="*", type=pair, metavar="COMPONENT=OBJECT")
    options = parser.parse_args()
    if options.selftest:
        return 1 if selftest() else 0
    judge = judge_plain_configuration if options.plain else judge_installation
    with tempfile.TemporaryDirectory() as folder:
        complaints = list(judge(options, folder))
    for complaint in complaints:
        print(complaint)
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
