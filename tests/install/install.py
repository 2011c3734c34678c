#!/usr/bin/python3
"""Whether an installation has the licence, and the notices of all others' code in its programs and libraries.

Installs the build into a folder, asks ninja which headers and archives the installed objects were built from, and
asks Debian's package manager which packages these belong to.
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
}


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def outside_files(options):
    """All files outside the project from which the objects were built."""
    build = os.path.realpath(options.build)
    ninja = [options.ninja, "-C", build, "-t"]
    inputs = output(*ninja, "inputs", *[os.path.relpath(o, build) for o in map(os.path.realpath, options.objects)])
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


def judge_installation(options, prefix):
    output(options.cmake, "--install", options.build, "--prefix", prefix)
    folder = os.path.join(prefix, options.documents)
    if read(os.path.join(folder, "LICENSE")) != read(os.path.join(options.source, "LICENSE")):
        yield "the licence is another"
    files = {os.path.basename(file) for _, _, names in os.walk(prefix) for file in names}
    for name in map(os.path.basename, options.objects):
        if name not in files:
            yield "%s is not installed" % name
    notices = {name: read(os.path.join(folder, "third-party", name))
               for name in os.listdir(os.path.join(folder, "third-party"))}
    if not shutil.which("dpkg-query"):
        print("left out: there is no dpkg-query to say which packages the code is of")
        return
    used, of_none = packages(outside_files(options))
    print("code of: %s" % " ".join(sorted(used)))
    for file in sorted(of_none):
        yield "%s is of no package, so its notice is unknown" % file
    yield from judge_notices(used, notices)


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
    return 1 if wrong else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("cmake", "ninja", "build", "source", "documents"):
        parser.add_argument("--" + name)
    parser.add_argument("--selftest", action="store_true")
    parser.add_argument("objects", nargs="*", metavar="OBJECT")
    options = parser.parse_args()
    if options.selftest:
        return selftest()
    with tempfile.TemporaryDirectory() as prefix:
        complaints = list(judge_installation(options, prefix))
    for complaint in complaints:
        print(complaint)
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
