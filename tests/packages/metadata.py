#!/usr/bin/python3
"""Whether debian/ agrees with the rest of the tree: the version, the packages, the licence, the scripts."""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile


def read(tree, path):
    with open(os.path.join(tree, path), encoding="utf-8") as file:
        return file.read()


def judge_version(tree):
    project = re.search(r"^project\(shift VERSION ([\d.]+) ", read(tree, "CMakeLists.txt"), re.M)[1]
    top = re.match(r"(\S+) \(([^)]+)-[^-)]+\) ", read(tree, "debian/changelog"))
    if not top or top.groups() != ("shift-rdma", project):
        yield "debian/changelog does not begin with shift-rdma %s" % project


def judge_packages(tree):
    components = re.search(r"set\(SHIFT_COMPONENTS ([^)]*)\)", read(tree, "cmake/ThirdParty.cmake"))[1].split()
    packages = re.findall(r"^Package: (\S+)$", read(tree, "debian/control"), re.M)
    rules = re.search(r"^packages := (.*)$", read(tree, "debian/rules"), re.M)[1].split()
    for name, found in (("debian/control", packages), ("debian/rules", rules)):
        if found != components:
            yield "%s has the packages %s, and the build installs %s" % (name, found, components)


def judge_build_needs(tree):
    """Whoever builds by tools/packages.sh has what debian/control asks for."""
    field = re.search(r"^Build-Depends: (.*?)^\S", read(tree, "debian/control"), re.M | re.S)[1]
    needed = {re.split(r"[ (:]", item.strip())[0] for item in field.split(",")}
    lists = read(tree, "tools/packages.sh")
    there = set(" ".join(re.findall(r'^packages_(?:build|deb)="([^"]*)"', lists, re.M)).split())
    for name in sorted(needed - there - {"debhelper-compat"}):
        yield "debian/control needs %s to build, and tools/packages.sh does not install it" % name


def judge_pages(tree):
    """Packages are the same whether the machine that builds them has pandoc or not."""
    for path in ("debian/rules", "redhat/shift-rdma.spec"):
        if not re.search(r"\s-DSHIFT_PANDOC=OFF\s", read(tree, path)):
            yield "%s lets pandoc make the manual pages" % path


def words(text):
    return " ".join(re.sub(r"^ \.$", "", text, flags=re.M).split())


def judge_licence(tree):
    licence, copyright_file = read(tree, "LICENSE"), read(tree, "debian/copyright")
    notice = re.match(r"Copyright (\d{4}.*)\n", licence)
    if not notice or "\nCopyright: %s\n" % notice[1] not in copyright_file:
        yield "debian/copyright names other holders than LICENSE"
    begin = "Redistribution and use"
    if words(licence[licence.index(begin):]) not in words(copyright_file):
        yield "debian/copyright has another text than LICENSE"


def judge_scripts(tree):
    for folder, _, names in os.walk(os.path.join(tree, "debian")):
        for name in names:
            path = os.path.join(folder, name)
            with open(path, encoding="utf-8") as file:
                first = file.readline()
            is_shell = first.startswith("#!/bin/sh")
            if is_shell and subprocess.run(["sh", "-n", path], check=False).returncode != 0:
                yield "%s is no shell script" % name
            wants_mode = first.startswith("#!") and not name.endswith(("inst", "rm"))
            if wants_mode and not os.access(path, os.X_OK):
                yield "%s cannot be executed" % name


JUDGES = (judge_version, judge_packages, judge_build_needs, judge_pages, judge_licence, judge_scripts)


def check(tree):
    return [complaint for judge in JUDGES for complaint in judge(tree)]


# What is changed in a copy of the tree's files, and what must be said of it.
PLANTED = [
    ("debian/changelog", r"\((\d)", r"(9\1", "does not begin with"),
    ("CMakeLists.txt", r"VERSION \d+\.", "VERSION 99.", "does not begin with"),
    ("debian/control", r"Package: cxemu", "Package: cxemo", "debian/control has the packages"),
    ("debian/rules", r"(packages := .*) cxemu", r"\1", "debian/rules has the packages"),
    ("tools/packages.sh", r"libsodium-dev", "", "needs libsodium-dev to build"),
    ("debian/rules", r"-DSHIFT_PANDOC=OFF", "", "debian/rules lets pandoc"),
    ("redhat/shift-rdma.spec", r"-DSHIFT_PANDOC=OFF", "", "shift-rdma.spec lets pandoc"),
    ("debian/copyright", r"Copyright: \d", "Copyright: 1", "other holders"),
    ("LICENSE", r"WITHOUT WARRANTY", "WITH WARRANTY", "another text"),
    ("debian/shift-rdma-system.postinst", r"\nesac", "", "is no shell script"),
]


def selftest(tree):
    wrong = 0
    for path, pattern, other, said in PLANTED:
        with tempfile.TemporaryDirectory() as copy:
            for name in ("CMakeLists.txt", "LICENSE", "tools/packages.sh", "cmake/ThirdParty.cmake",
                         "redhat/shift-rdma.spec"):
                os.makedirs(os.path.dirname(os.path.join(copy, name)), exist_ok=True)
                shutil.copy(os.path.join(tree, name), os.path.join(copy, name))
            shutil.copytree(os.path.join(tree, "debian"), os.path.join(copy, "debian"))
            text, changes = re.subn(pattern, other, read(copy, path))
            with open(os.path.join(copy, path), "w", encoding="utf-8") as file:
                file.write(text)
            found = check(copy)
        print("%s: %s" % (path, found))
        wrong += not changes or not any(said in complaint for complaint in found)
    return 1 if wrong else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tree")
    parser.add_argument("--selftest", action="store_true")
    options = parser.parse_args()
    if options.selftest:
        return selftest(options.tree)
    complaints = check(options.tree)
    for complaint in complaints:
        print(complaint)
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
