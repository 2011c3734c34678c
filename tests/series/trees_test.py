#!/usr/bin/python3
"""Tries the command tools/series on git trees of stubs (stubs.py): what it makes, that git am makes the branch of
the patches, that it makes the same bytes again, and that whatever is refused leaves no trace."""

import email
import email.policy
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import unittest

from common import COMMITS, PROJECT, ROOT, SERIES
import apply
import git
import stubs
from errors import Refused

SIGNER = "Zoë T. Ester <tester@example.org>"
# The tester's own settings must not change what comes out.
ENVIRONMENT = {**{k: v for k, v in os.environ.items() if not k.startswith("GIT_")}, "GIT_CONFIG_NOSYSTEM": "1",
               "GIT_CONFIG_GLOBAL": os.devnull, "GIT_AUTHOR_NAME": "t", "GIT_AUTHOR_EMAIL": "t@example.org",
               "GIT_COMMITTER_NAME": "t", "GIT_COMMITTER_EMAIL": "t@example.org"}


def run(*arguments, cwd=None, check=True, more=None):
    done = subprocess.run(arguments, cwd=cwd, env={**ENVIRONMENT, **(more or {})}, capture_output=True, text=True,
                          check=False)
    if check and done.returncode:
        raise AssertionError("%s: %s" % (" ".join(arguments), done.stderr))
    return done


def series(*arguments, more=None):
    return run(SERIES, *arguments, check=False, more=more)


def snapshot(folder):
    """All files below the folder with their bytes; of git's, too."""
    found = {}
    for where, folders, names in os.walk(folder):
        for name in names + [f for f in folders if os.path.islink(os.path.join(where, f))]:
            path = os.path.join(where, name)
            what = os.lstat(path)
            if os.path.islink(path):
                data = os.readlink(path).encode()
            else:
                with open(path, "rb") as file:
                    data = file.read()
            found[os.path.relpath(path, folder)] = (hashlib.sha256(data).digest(), what.st_mode, what.st_mtime_ns)
    return found


def patches(folder):
    found = {}
    for name in sorted(os.listdir(folder)):
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            found[name] = file.read()
    return found


class Trees(unittest.TestCase):
    """Runs the command on trees of git's."""

    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.count = 0
        cls.texts = stubs.tree(COMMITS, PROJECT, (65, 0))
        cls.model = cls.write(cls.texts, "model")

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    @classmethod
    def write(cls, texts, name):
        folder = os.path.join(cls.scratch.name, name)
        for path, text in texts.items():
            os.makedirs(os.path.join(folder, os.path.dirname(path)), exist_ok=True)
            with open(os.path.join(folder, path), "w", encoding="utf-8") as file:
                file.write(text)
        os.chmod(os.path.join(folder, sorted(texts)[-1]), 0o755)
        run("git", "init", "-q", "-b", "main", folder)
        run("git", "add", "-A", cwd=folder)
        when = "2026-01-01T00:00:00Z"
        run("git", "commit", "-q", "-m", "stubs", cwd=folder,
            more={"GIT_AUTHOR_DATE": when, "GIT_COMMITTER_DATE": when})
        return folder

    def fresh(self, name):
        Trees.count += 1
        return os.path.join(self.scratch.name, "%s-%d" % (name, Trees.count))

    def tree(self):
        """A copy, whose index does not know the copied files: whoever lets git refresh it is found out."""
        folder = self.fresh("tree")
        shutil.copytree(self.model, folder, symlinks=True)
        return folder

    def refused(self, folder, wanted, *arguments, watched=None, more=None):
        """The command must end with 1 and one line, and change nothing."""
        watched = watched or folder
        before, out = snapshot(watched), self.fresh("out")
        arguments = arguments if "--out" in arguments else (*arguments, "--out", out)
        done = series(folder, *arguments, more=more)
        said = [line for line in done.stderr.split("\n")[:-1] if not line.startswith("note: ")]
        self.assertEqual((done.returncode, done.stdout, len(said)), (1, "", 1), done.stderr)
        self.assertRegex(said[0], "^series: .*" + wanted)
        self.assertEqual(snapshot(watched), before)
        self.assertFalse(os.path.exists(out))

    def test_branch_and_patches(self):
        tree, out = self.tree(), self.fresh("out")
        before = snapshot(tree)
        done = series(tree, "--signoff", SIGNER, "--out", out)
        self.assertEqual(done.returncode, 0, done.stderr)
        new = {path for path, what in snapshot(tree).items() if before.get(path) != what}
        self.assertIn(".git/refs/heads/shift", new)
        self.assertEqual({re.sub(r"^.git/objects/[0-9a-f]{2}/[0-9a-f]{38}$", "an object", path) for path in new},
                         {"an object", ".git/refs/heads/shift", ".git/logs/refs/heads/shift"})
        self.assertLessEqual(before.keys(), snapshot(tree).keys())
        names = sorted(os.listdir(out))
        self.assertEqual(len(names), len(COMMITS) + 1)
        said = run("git", "log", "--reverse", "--format=%an <%ae>%n%cn <%ce>%n%s%n%(trailers:key=Signed-off-by)",
                   "HEAD..shift", cwd=tree).stdout.split("\n\n")[:-1]
        self.assertEqual(said, ["%s\n%s\n%s\nSigned-off-by: %s" % (SIGNER, SIGNER, commit.subject, SIGNER)
                                for commit in COMMITS])
        self.check_bytes(tree)
        self.check_modes(tree)
        self.check_am(tree, out, names)
        self.check_cover(out, names)

    def check_bytes(self, tree):
        """Files that come along are the same here and there, except those that the series itself edits."""
        count, edited = 0, {edit.file for commit in COMMITS for edit in commit.edits}
        for path, target in ((path, target) for commit in COMMITS for files in commit.files
                             for path, target in files.list(PROJECT)):
            if target in edited:
                continue
            done = subprocess.run(["git", "cat-file", "blob", "shift:" + target], cwd=tree, capture_output=True,
                                  check=True)
            there, here = (hashlib.sha256(data).hexdigest() for data in (done.stdout, PROJECT.data(path)))
            self.assertEqual(there, here, path)
            count += 1
        self.assertGreater(count, 100)
        layer = {path for path in PROJECT.below("providers/shift")
                 if re.fullmatch(r"providers/shift/\w+/[^/]+\.(cc|h)", path)}
        layer -= {"providers/shift/tls/plugin.cc"}  # a library beside the front; in the tree there is no TLS
        listed = run("git", "ls-tree", "-r", "--name-only", "shift", "providers/shift/", cwd=tree)
        there = listed.stdout.split("\n")
        self.assertEqual(layer - set(there), set(), "sources of the layer that no commit has")
        self.assertFalse([path for path in there if "/test/" in path])

    def check_modes(self, tree):
        """What was there keeps its mode, and what comes along has that of here."""
        modes = [dict(reversed(re.fullmatch(r"(\d+) blob \w+\t(.*)", line).groups()) for line in
                      run("git", "ls-tree", "-r", commit, cwd=tree).stdout.split("\n")[:-1])
                 for commit in ("main", "shift")]
        self.assertEqual(modes[0], {path: modes[1][path] for path in modes[0]})
        self.assertIn("100755", modes[0].values())
        for commit in COMMITS:
            for path, target in (pair for files in commit.files for pair in files.list(PROJECT)):
                self.assertEqual(modes[1][target], PROJECT.files[path], target)

    def check_am(self, tree, out, names):
        copy = self.fresh("copy")
        run("git", "clone", "-q", tree, copy)
        for name in names[1:]:
            run("git", "apply", "--check", os.path.join(out, name), cwd=copy)
            run("git", "am", "-q", os.path.join(out, name), cwd=copy)
        trees = [run("git", "rev-parse", name + "^{tree}", cwd=copy).stdout for name in ("HEAD", "origin/shift")]
        self.assertEqual(trees[0], trees[1])
        blanks = run("git", "diff", "--check", "origin/main", "HEAD", cwd=copy, check=False)
        self.assertEqual(blanks.stdout, "")

    def check_cover(self, out, names):
        with open(os.path.join(out, names[0]), encoding="utf-8") as file:
            letter = file.read()
        self.assertNotIn("***", letter)
        self.assertNotIn("{{", letter)
        mail = email.message_from_string(letter, policy=email.policy.default)
        self.assertEqual(mail["From"].addresses[0].display_name, SIGNER.split(" <")[0])
        self.assertRegex(letter, r"\nSubject: \[PATCH rdma-core 0+/%d\] " % len(COMMITS))

    def test_same_bytes_again(self):
        """Also with other settings, from a bare, a shallow and a linked tree, and in another time zone."""
        first = self.fresh("out")
        self.assertEqual(series(self.tree(), "--out", first).returncode, 0)
        wanted = patches(first)
        self.assertFalse([name for name, text in wanted.items() if "Signed-off-by" in text])
        odd = self.tree()
        for name, value in (("diff.noprefix", "true"), ("format.signature", "me"), ("commit.gpgsign", "true"),
                            ("core.abbrev", "5"), ("format.numbered", "false"), ("core.autocrlf", "true"),
                            ("format.signOff", "true"), ("user.name", "Else"), ("i18n.commitEncoding", "latin1")):
            run("git", "config", name, value, cwd=odd)
        bare, shallow, linked, away = (self.fresh(name) for name in ("bare", "shallow", "linked", "away"))
        run("git", "clone", "-q", "--bare", self.model, bare)
        run("git", "commit", "-q", "--no-gpg-sign", "--allow-empty", "-m", "later", cwd=odd)
        run("git", "clone", "-q", "--depth=1", "file://" + self.model, shallow)
        run("git", "worktree", "add", "-q", "--detach", linked, "main", cwd=odd)
        detached = self.tree()
        run("git", "checkout", "-q", "--detach", cwd=detached)
        settings = self.fresh("settings")
        with open(settings, "w", encoding="utf-8") as file:
            file.write("[diff]\n\tnoprefix = true\n\tcontext = 1\n[format]\n\tsignOff = true\n\tthread = true\n")
        rows = [(odd, "--base", "main~1"), (bare,), (shallow,), (linked, "--base", "main~1", "--branch", "other"),
                (detached, "--branch", "a/b")]
        for number, row in enumerate(rows):
            with self.subTest(row):
                out = away + str(number)
                done = series(*row, "--out", out,
                              more={"TZ": "Asia/Tokyo", "LC_ALL": "C", "GIT_CONFIG_GLOBAL": settings,
                                    "GIT_AUTHOR_DATE": "2020-01-01T00:00:00Z", "GIT_DIFF_OPTS": "-u1"})
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertEqual(patches(out), wanted)

    def test_without_git_here(self):
        """A release archive of this repository makes the same, when it is told the time of the commit."""
        here, odd, outs = self.fresh("archive"), self.fresh("copy"), [self.fresh("out"), self.fresh("out")]
        for path in PROJECT.files:
            if path.startswith(("series/", "tools/", "providers/", "librdmacm/", "man/", "tests/rdma-core/",
                                "CMakeLists.txt")):
                os.makedirs(os.path.dirname(os.path.join(here, path)), exist_ok=True)
                shutil.copy(os.path.join(ROOT, path), os.path.join(here, path))
        self.assertEqual(series(self.tree(), "--out", outs[0]).returncode, 0)
        done = run(os.path.join(here, "tools", "series"), self.tree(), "--out", outs[1],
                   more={"SOURCE_DATE_EPOCH": str(PROJECT.seconds)})
        self.assertEqual(done.stderr, "")
        self.assertEqual(patches(outs[1]), patches(outs[0]))
        # What lies there beside is no part of the series, whoever put it there.
        shutil.copytree(here, odd)
        os.remove(os.path.join(odd, "series", "cover"))
        done = run(os.path.join(odd, "tools", "series"), self.tree(), "--out", self.fresh("out"), check=False)
        self.assertEqual((done.returncode, done.stderr.count("\n")), (1, 1), done.stderr)

    def test_check_makes_nothing(self):
        tree = self.tree()
        before = snapshot(tree)
        done = series(tree, "--check")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(snapshot(tree), before)
        for commit in COMMITS:
            self.assertIn("fits    %s: %s\n" % (commit.name, commit.subject), done.stdout)
        edit = next(edit for commit in COMMITS for edit in commit.edits if edit.file == stubs.ROOT)
        with open(os.path.join(tree, stubs.ROOT), "w", encoding="utf-8") as file:
            file.write(stubs.MAKER % ("project(" + "rdma-core C)", "65.0", 65))
        run("git", "commit", "-qam", "less", cwd=tree)
        done = series(tree, "--check")
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("refused %s: " % COMMITS[0].name, done.stdout)
        self.assertIn("fits    %s: " % COMMITS[-1].name, done.stdout)
        self.assertIn("        %s: %s is not there\n" % (edit.file, edit.places[0].anchor), done.stdout)

    def test_trees_that_are_none(self):
        plain = self.fresh("plain")
        os.mkdir(plain)
        self.refused(plain, ": not a git repository")
        self.refused(plain + "/gone", "is no folder$", watched=plain)
        inner = self.tree()
        os.mkdir(inner + "/inner")
        self.refused(inner + "/inner", "is no git tree, but lies in one, ", watched=inner)
        unborn = self.fresh("unborn")
        run("git", "init", "-q", unborn)
        self.refused(unborn, "has no commit HEAD$")
        self.refused(self.tree(), "has no commit v1000$", "--base", "v1000")
        self.refused(self.write({"a": "b"}, "other"), "no tree of rdma-core: it has no CMakeLists.txt$")
        self.refused(self.write({"CMakeLists.txt": "project(other)\n"}, "cmake"), "no tree of rdma-core: ")
        old = stubs.tree(COMMITS, PROJECT, (44, 0))
        old[stubs.ROOT] = old[stubs.ROOT].replace("44.0", "43.9")
        self.refused(self.write(old, "old"), "is rdma-core 43.9, which is older than 44.0$")

    def test_applied_already(self):
        tree = self.tree()
        self.assertEqual(series(tree, "--out", self.fresh("out")).returncode, 0)
        self.refused(tree, "there is a branch shift already: ")
        run("git", "checkout", "-q", "shift", cwd=tree)
        self.refused(tree, "the series is applied already: the tree has ", "--branch", "again")

    def test_changes_that_are_not_committed(self):
        edited = stubs.ROOT
        brought = next(target for commit in COMMITS for files in commit.files for _, target in files.list(PROJECT))
        for path, is_staged in ((edited, False), (edited, True), (brought, False), (brought, True)):
            with self.subTest((path, is_staged)):
                tree = self.tree()
                os.makedirs(os.path.dirname(os.path.join(tree, path)), exist_ok=True)
                with open(os.path.join(tree, path), "a", encoding="utf-8") as file:
                    file.write("more\n")
                if is_staged:
                    run("git", "add", path, cwd=tree)
                self.refused(tree, re.escape(path) + " has changes that are not committed$")
        harmless = self.tree()
        for name in ("README", "new"):
            with open(os.path.join(harmless, name), "a", encoding="utf-8") as file:
                file.write("more\n")
        self.assertEqual(series(harmless, "--out", self.fresh("out")).returncode, 0)
        os.remove(os.path.join(harmless, edited))
        self.refused(harmless, re.escape(edited) + " has changes", "--branch", "again")

    def test_anchor(self):
        """One of each kind by the command itself; test_each_anchor_is_missed_and_found_twice has them all."""
        edit = next(edit for commit in COMMITS for edit in commit.edits if edit.places[0].anchor.kind == "call")
        anchor, text = edit.places[0].anchor, self.texts[edit.file]
        (region,) = anchor.regions(text)
        one = text[region.start:region.end]
        for new, wanted in ((text.replace(one, ""), "is not there"),
                            (text.replace(one, one * 2), "is there 2 times ")):
            with self.subTest(wanted):
                tree = self.write({**self.texts, edit.file: new}, self.fresh("tree"))
                self.refused(tree, re.escape("%s: %s " % (edit.file, anchor)) + wanted)

    def test_link_instead_of_a_file(self):
        tree = self.tree()
        edit = next(edit for commit in COMMITS for edit in commit.edits if edit.file != stubs.ROOT)
        os.remove(os.path.join(tree, edit.file))
        os.symlink("README", os.path.join(tree, edit.file))
        run("git", "commit", "-qam", "link", cwd=tree)
        self.refused(tree, re.escape(edit.file) + " is not a plain file$")

    def test_where_the_patches_go(self):
        tree, full, file = self.tree(), self.fresh("full"), self.fresh("file")
        os.mkdir(full)
        with open(os.path.join(full, "a"), "w", encoding="utf-8"), open(file, "w", encoding="utf-8"):
            pass
        self.refused(tree, "is not an empty folder: ", "--out", full)
        self.assertEqual(os.listdir(full), ["a"])
        self.refused(tree, "is not an empty folder: ", "--out", file)
        self.refused(tree, "cannot be written", "--out", file + "/below")
        self.refused(tree, "lies in the tree, which stays as it is: ", "--out", tree + "/out")
        self.refused(tree, "cannot be written", "--out", "/proc/series")
        empty = self.fresh("empty")
        os.mkdir(empty)
        self.assertEqual(series(tree, "--out", empty).returncode, 0)
        self.assertEqual(len(os.listdir(empty)), len(COMMITS) + 1)
        self.assertEqual([name for name in os.listdir(self.scratch.name) if name.startswith(".series")], [])

    def test_branch_that_cannot_be_made(self):
        """Git refuses at the very end, when the patches are there."""
        tree = self.tree()
        with open(os.path.join(tree, ".git", "refs", "heads", "shift.lock"), "w", encoding="utf-8"):
            pass
        out, empty = self.fresh("out"), self.fresh("empty")
        os.mkdir(empty)
        for place in (empty, os.path.join(empty, "a", "b")):
            self.assertEqual(series(tree, "--out", place).returncode, 1)
            self.assertEqual(os.listdir(empty), [])
        done = series(tree, "--out", out)
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, "series: git says of .*: .*shift.lock")
        self.assertFalse(os.path.exists(out))
        self.assertEqual(run("git", "branch", "--format=%(refname)", cwd=tree).stdout, "refs/heads/main\n")
        self.refused(self.tree(), "a..b is no name for a branch$", "--branch", "a..b")

    def test_branch_that_comes_meanwhile(self):
        tree = self.tree()
        user = git.UserTree(tree, "HEAD")
        with git.Workshop(user) as workshop:
            made = workshop.commit_all([("a\n", [apply.Change("new", "100644", b"text")])], SIGNER, 1)
            run("git", "branch", "shift", cwd=tree)
            self.assertRaises(Refused, user.take, workshop, "shift", made)
            self.assertEqual(run("git", "rev-parse", "shift", cwd=tree).stdout.strip(), user.base)
            user.take(workshop, "other", made)
        self.assertEqual(run("git", "show", "other:new", cwd=tree).stdout, "text")

    def test_usage(self):
        for row in ([], ["--none", "x"], ["x", "--signoff", "Me"], ["x", "--signoff", "Me <me>"], ["x", "y"]):
            with self.subTest(row):
                self.assertEqual(series(*row).returncode, 4)
        done = series("--help")
        self.assertEqual(done.returncode, 0)
        self.assertIn("exit status: ", done.stdout)


if __name__ == "__main__":
    unittest.main()
