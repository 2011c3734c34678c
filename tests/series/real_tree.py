#!/usr/bin/python3
"""Tries the series on rdma-core itself: RDMA_CORE_TREE names a git repository of it, which is only read. Without
that the test is skipped, and nothing here fetches one.

For each of RDMA_CORE_RELEASES (commits or tags with blanks between them; the tree's HEAD by default) the series
is made and applied by git am, patch by patch. That must give the same tree as the branch has. And no line here may
be a line of rdma-core: patches have such lines, and so does copied code.
"""

import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.normpath(os.path.join(HERE, "..", ".."))
SERIES = os.path.join(ROOT, "tools", "series")
OURS = ("series/", "tools/series", "tools/patch_series/", "tests/series/")
SHORT = 20  # lines with fewer characters say nothing of who wrote them
TYPE = r"(?:const |struct |enum |unsigned )*\w+ \**"
# Lines that may be the same there, each with its reason. None of them does anything.
SAME = [
    (r"(#|//|/\*) SPDX-License-Identifier: .*", "the words of the standard"),
    (r"#(include [<\"].*[>\"]|undef \w+)", "there is one way to name a header or a macro"),
    (r"def __\w+__\(self\):", "Python names these methods"),
    (r"switch \([\w>.-]+\) \{|case \w+:", "the constants of an interface"),
    (r"\.\w+ = \w+,|(?:struct|enum|union) \w+ \{", "structures of the interface, and the members of its tables"),
    (rf"(?:{TYPE}(?:\(\*\w+\)|rdma_\w+)\()?(?:{TYPE}\w+(?:, |[,;)]|\);)?)+",
     "declarations: types and names of the interface"),
]


def git(folder, *arguments, check=True):
    done = subprocess.run(["git", "-C", folder, *arguments], capture_output=True, check=False)
    if check and done.returncode:
        raise RuntimeError("git %s: %s" % (" ".join(arguments), done.stderr.decode(errors="replace")))
    return done.stdout.decode(errors="replace")


def lines_of(text):
    return {line.strip() for line in text.split("\n") if len(line.strip()) >= SHORT}


def their_lines(tree, commit):
    """The lines of all files of the commit. One grep finds them, without a process for each file."""
    said = git(tree, "grep", "-I", "-h", "-e", "", commit, "--")
    return lines_of(said)


def equal_lines(theirs, files):
    """Lines of the files, which are paths with their text, that are among `theirs` as well."""
    for path, text in sorted(files.items()):
        for number, line in enumerate(text.split("\n"), 1):
            line = line.strip()
            if line in theirs and not any(re.fullmatch(pattern, line) for pattern, _ in SAME):
                yield "%s:%d: %s" % (path, number, line)


def our_files():
    found = {}
    for path in git(ROOT, "ls-files").split("\n")[:-1]:
        if path.startswith(OURS):
            with open(os.path.join(ROOT, path), encoding="utf-8") as file:
                found[path] = file.read()
    return found


def try_release(copy, name, release, scratch):
    """Returns what is wrong."""
    out, branch = os.path.join(scratch, "patches-" + release), "series-" + release
    done = subprocess.run([SERIES, copy, "--base", release, "--branch", branch, "--out", out], capture_output=True,
                          text=True, check=False)
    if done.returncode:
        return [line for line in done.stderr.split("\n")[:-1] if not line.startswith("note: ")]
    git(copy, "checkout", "-q", "--detach", release)
    for patch in sorted(os.listdir(out))[1:]:
        path = os.path.join(out, patch)
        try:
            git(copy, "apply", "--check", path)
            git(copy, "-c", "user.name=t", "-c", "user.email=t@example.org", "am", "-q", path)
        except RuntimeError as error:
            return ["%s: %s" % (patch, error)]
    if git(copy, "rev-parse", "HEAD^{tree}") != git(copy, "rev-parse", branch + "^{tree}"):
        return ["git am makes another tree than the branch has"]
    print("%s: %d patches" % (name, len(os.listdir(out)) - 1))
    return []


def main():
    tree = os.environ.get("RDMA_CORE_TREE")
    if not tree:
        print("skipped: RDMA_CORE_TREE names no tree of rdma-core")
        return 77
    wrong, theirs = [], set()
    with tempfile.TemporaryDirectory() as scratch:
        copy = os.path.join(scratch, "copy")
        git(scratch, "clone", "-q", "--shared", tree, copy)
        for name in os.environ.get("RDMA_CORE_RELEASES", "HEAD").split():
            release = git(copy, "rev-parse", "--verify", name + "^{commit}").strip()  # HEAD moves in the copy
            wrong += ["%s: %s" % (name, what) for what in try_release(copy, name, release, scratch)]
            theirs |= their_lines(copy, release)
    wrong += ["a line of rdma-core: " + line for line in equal_lines(theirs, our_files())]
    for line in wrong:
        print(line)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
