"""Git: the tree that the user names, our own repository, and the repository in which the commits are made. The
user's repository is only read until all is made; then it gets the objects and one new branch."""

import os
import re
import subprocess
import tempfile

from errors import Refused

# Reading commands must not even refresh the user's index, and see each commit as it is.
QUIET = {"GIT_OPTIONAL_LOCKS": "0", "GIT_NO_REPLACE_OBJECTS": "1", "LC_ALL": "C.UTF-8", "TZ": "UTC"}
# Where the series comes from, in this repository.
SOURCES = ("series", "tools/patch_series", "providers/shift", "man", "tests/rdma-core")
# Where git finds settings, among them which other users' repositories may be read.
SETTINGS = ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM")
# Commits and patches must not depend on whose machine makes them.
ALONE = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull}


def environment(more):
    """Without git's own variables, which hooks and scripts leave, and which would lead to another repository."""
    clean = {name: value for name, value in os.environ.items()
             if name in SETTINGS or not name.startswith("GIT_")}
    return {**clean, **QUIET, **more}


def git(folder, *arguments, more=None, data=b"", check=True):
    """Runs git; returns what it writes, as bytes, or None where it fails and `check` is false."""
    done = subprocess.run(["git", "-C", folder, *arguments], input=data, capture_output=True, check=False,
                          env=environment(more or {}))
    if done.returncode == 0:
        return done.stdout
    if check:
        said = done.stderr.decode(errors="replace").strip().split("\n")
        raise Refused("git says of %s: %s" % (folder, said[0].removeprefix("fatal: ")))
    return None


def line(folder, *arguments, check=True):
    out = git(folder, *arguments, check=check)
    return None if out is None else out.decode(errors="surrogateescape").strip()


class UserTree:
    """The commit of the user's repository that the series is for."""

    def __init__(self, folder, base):
        self.folder = os.path.abspath(folder)
        if not os.path.isdir(folder):
            raise Refused("%s is no folder" % folder)
        self.is_bare = line(self.folder, "rev-parse", "--is-bare-repository") == "true"
        if not self.is_bare:
            top = line(self.folder, "rev-parse", "--show-toplevel")
            if not os.path.samefile(top, self.folder):
                raise Refused("%s is no git tree, but lies in one, %s" % (folder, top))
        self.base = line(self.folder, "rev-parse", "--verify", "--quiet", base + "^{commit}", check=False)
        if self.base is None:
            raise Refused("%s has no commit %s" % (folder, base))
        self.is_head = self.base == line(self.folder, "rev-parse", "--verify", "--quiet", "HEAD", check=False)
        self.files = {}
        for entry in git(self.folder, "ls-tree", "-r", "-z", "--full-tree", self.base).split(b"\0")[:-1]:
            head, path = entry.split(b"\t", 1)
            self.files[path.decode(errors="surrogateescape")] = head.split()[0].decode()
        self.read = {}

    def data(self, path):
        if path not in self.read:
            self.read[path] = git(self.folder, "cat-file", "blob", "%s:%s" % (self.base, path))
        return self.read[path]

    def text(self, path):
        return self.data(path).decode("utf-8", "surrogateescape")

    def refuse_changes(self, paths):
        """Refuses changes that are not committed, in files that the series is about: they would not be in it."""
        if self.is_bare or not self.is_head:
            return
        said = git(self.folder, "-c", "core.fsmonitor=false", "status", "--porcelain", "-z",
                   "--untracked-files=all", "--no-renames", "--ignored=no", "--ignore-submodules=all")
        for entry in said.split(b"\0")[:-1]:
            path = entry[3:].decode(errors="surrogateescape")
            if path in paths:
                raise Refused("%s has changes that are not committed" % path)

    def refuse_branch(self, branch):
        if line(self.folder, "check-ref-format", "--branch", branch, check=False) != branch:
            raise Refused("%s is no name for a branch" % branch)
        if line(self.folder, "rev-parse", "--verify", "--quiet", "refs/heads/" + branch, check=False):
            raise Refused("there is a branch %s already: delete it, or name another with --branch" % branch)

    def take(self, workshop, branch, commit):
        """Takes the objects of the commits over, and makes the branch, which must not exist."""
        pack = git(workshop.folder, "pack-objects", "--revs", "--stdout", "-q",
                   data=("%s\n^%s\n" % (commit, self.base)).encode(), more=ALONE)
        git(self.folder, "unpack-objects", "-q", data=pack)
        git(self.folder, "update-ref", "-m", "patch series", "refs/heads/" + branch, commit, "0" * len(commit))


class Project:
    """This repository: its files as they lie here, of those that git tracks where git is there."""

    def __init__(self, root):
        self.root = root
        self.read = {}
        has_git = os.path.exists(os.path.join(root, ".git"))
        tracked = git(root, "ls-files", "-z", check=False) if has_git else None
        paths = tracked.decode().split("\0")[:-1] if tracked else self.walk()
        self.files = {path: "100755" if os.access(os.path.join(root, path), os.X_OK) else "100644"
                      for path in paths if os.path.isfile(os.path.join(root, path))}
        self.seconds = int(line(root, "log", "-1", "--format=%ct") if tracked else
                           os.environ.get("SOURCE_DATE_EPOCH", "1790000000"))
        self.is_dirty = bool(tracked) and bool(line(root, "status", "--porcelain", "--", *SOURCES))
        with open(os.path.join(root, "CMakeLists.txt"), encoding="utf-8") as file:
            self.version = re.search(r"^project\(shift VERSION ([\d.]+)", file.read(), re.M)[1]

    def walk(self):
        for folder, folders, names in os.walk(self.root):
            folders[:] = sorted(f for f in folders if f not in ("build", "out", "__pycache__") and f[0] != ".")
            for name in sorted(names):
                yield os.path.relpath(os.path.join(folder, name), self.root)

    def below(self, folder):
        return sorted(path for path in self.files if path.startswith(folder + "/"))

    def data(self, path):
        if path not in self.read:
            with open(os.path.join(self.root, path), "rb") as file:
                self.read[path] = file.read()
        return self.read[path]


class Workshop:
    """A repository in a temporary folder. It sees the objects of the user's, but none of the settings."""

    def __init__(self, tree):
        self.scratch = tempfile.TemporaryDirectory(prefix="shift-series-")
        self.folder = os.path.join(self.scratch.name, "git")
        self.tree = tree
        form = line(tree.folder, "rev-parse", "--show-object-format")
        git(self.scratch.name, "init", "--quiet", "--bare", "--template=", "--object-format=" + form, self.folder,
            more=ALONE)
        objects = line(tree.folder, "rev-parse", "--path-format=absolute", "--git-path", "objects")
        os.makedirs(os.path.join(self.folder, "objects", "info"), exist_ok=True)
        with open(os.path.join(self.folder, "objects", "info", "alternates"), "w", encoding="utf-8",
                  errors="surrogateescape") as file:
            file.write(objects + "\n")
        shallow = line(tree.folder, "rev-parse", "--path-format=absolute", "--git-path", "shallow")
        if os.path.exists(shallow):
            with open(shallow, "rb") as source, open(os.path.join(self.folder, "shallow"), "wb") as copy:
                copy.write(source.read())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.scratch.cleanup()

    def commit_all(self, commits, person, seconds):
        """`commits` are pairs of a message and the changes. Returns the last commit."""
        stream, parent = [], self.tree.base
        for number, (message, changes) in enumerate(commits, 1):
            text = message.encode()
            stream.append(b"commit refs/heads/series\nmark :%d\n" % number)
            for role in ("author", "committer"):
                stream.append(("%s %s %d +0000\n" % (role, person, seconds)).encode())
            stream.append(b"data %d\n%s\nfrom %s\n" % (len(text), text, parent.encode()))
            for change in sorted(changes, key=lambda c: c.path):
                stream.append(b"M %s inline %s\n" % (change.mode.encode(), quoted(change.path)))
                stream.append(b"data %d\n%s\n" % (len(change.data), change.data))
            parent = ":%d" % number
        git(self.folder, "fast-import", "--quiet", "--done", more=ALONE, data=b"".join(stream) + b"done\n")
        return line(self.folder, "rev-parse", "refs/heads/series")

    def patches(self, out, person, seconds, prefix):
        """Writes the patches and an empty cover letter into the folder."""
        name, mail = re.fullmatch(r"(.*) <(.*)>", person).groups()
        who = {"GIT_%s_%s" % (role, what): value for role in ("AUTHOR", "COMMITTER")
               for what, value in (("NAME", name), ("EMAIL", mail), ("DATE", "%d +0000" % seconds))}
        # How long git makes short names of objects depends on how many objects there are; hence the full ones.
        git(self.folder, "format-patch", "--quiet", "--cover-letter", "--no-signature", "--full-index",
            "--no-renames", "--subject-prefix=" + prefix, "--base=" + self.tree.base, "-o", os.path.abspath(out),
            self.tree.base + "..refs/heads/series", more={**ALONE, **who})


def quoted(path):
    return b'"%s"' % path.encode(errors="surrogateescape").replace(b"\\", b"\\\\").replace(b'"', b'\\"')
