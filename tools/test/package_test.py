#!/usr/bin/env python3
"""tools/package in a small repository, with programs that only look at what they are given to build."""
import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

CHANGELOG = """shift-rdma (1.2.3-1) unstable; urgency=medium

  * Some.

 -- Some Body <some@example.org>  Wed, 25 Nov 2026 12:00:00 +0000
"""
BUILD = """
[ "$*" = "-us -uc" ] || exit 9
{
  echo "epoch $SOURCE_DATE_EPOCH, umask $(umask), folder $(basename "$PWD")"
  ls
  tar -tzf ../*.orig.tar.gz
} >"$SEEN/facts"
cp debian/changelog "$SEEN"
name="../shift-rdma_${PWD##*/shift-rdma-}-1_all"
touch "$name.deb" "$name.changes"
[ -z "$FAIL" ] || { echo "some error"; exit 1; }
"""
SPEC = """Name: shift-rdma
Version:        0
Release: 1

%changelog
* Wed Nov 25 2026 Some Body <some@example.org> - 1.2.3-1
- Some.
"""
RPM_BUILD = """
for word; do
  case "$word" in
    "_topdir "*) top="${word#* }" ;;
    *.spec) spec="$word" ;;
  esac
done
cp "$spec" "$SEEN"
{
  echo "epoch $SOURCE_DATE_EPOCH, umask $(umask)"
  [ "${CXXFLAGS#*-ffile-prefix-map=$top/BUILD=.}" != "$CXXFLAGS" ] && echo "no folder"
  printf '%s\n' "$@"
  stat -c '%n %Y' "$top"/S*/*
  tar -tzf "$top"/SOURCES/*.tar.gz
} >"$SEEN/facts"
mkdir -p "$top/SRPMS" "$top/RPMS/x"
touch "$top/SRPMS/some.src.rpm" "$top/RPMS/x/some.x.rpm"
[ -z "$FAIL" ] || { echo "some error"; exit 1; }
"""
PROGRAMS = {"dpkg-buildpackage": BUILD, "dpkg-query": "echo installed", "lintian": "exit 0", "rpmbuild": RPM_BUILD,
            "rpmlint": 'echo "rpmlint $*"', "g++": "echo some-triplet"}
DATE = "2024-11-25T23:30:00-0300"  # the next day in UTC


class Tree:
    def __init__(self, package, folder):
        self.folder = pathlib.Path(folder)
        self.root, self.seen = self.folder / "tree", self.folder / "seen"
        for place in (self.root / "tools", self.root / "debian", self.root / "redhat", self.seen,
                      self.folder / "bin"):
            place.mkdir(parents=True)
        for name in ("package", "packages.sh"):
            shutil.copy(package.parent / name, self.root / "tools")
        (self.root / "CMakeLists.txt").write_text("project(shift VERSION 1.2.3 LANGUAGES C)\n")
        (self.root / "debian/changelog").write_text(CHANGELOG)
        (self.root / "redhat/shift-rdma.spec").write_text(SPEC)
        for name, text in PROGRAMS.items():
            (self.folder / "bin" / name).write_text("#!/bin/sh\n" + text)
            (self.folder / "bin" / name).chmod(0o755)
        self.git("init", "-q")
        self.git("add", ".")
        self.git("commit", "-qm", "some")
        self.commit = self.git("rev-parse", "HEAD")
        (self.root / "uncommitted").touch()

    def git(self, *words):
        env = os.environ | {"GIT_AUTHOR_DATE": DATE, "GIT_COMMITTER_DATE": DATE}
        said = subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@example.org", *words], env=env,
                              cwd=self.root, check=True, capture_output=True, text=True)
        return said.stdout.strip()

    def run(self, *words, **variables):
        env = os.environ | {"PATH": "%s:%s" % (self.folder / "bin", os.environ["PATH"]), "SEEN": str(self.seen),
                            "TMPDIR": str(self.folder), "FAIL": "", "TZ": "Asia/Tokyo", **variables}
        return subprocess.run([self.root / "tools/package", *words], env=env, umask=0o077, capture_output=True,
                              text=True, timeout=50, check=False)


def a_snapshot_comes_before_its_release(tree):
    version = "1.2.3~git20241126.%s" % tree.commit[:8]
    assert tree.run("version").stdout == version + "\n", tree.run("version")
    done = tree.run("deb", "--out", "out")
    assert done.returncode == 0 and "not committed" in done.stdout, done
    facts = (tree.seen / "facts").read_text()
    assert "epoch 1732588200, umask 0022, folder shift-rdma-" + version in facts, facts
    assert "uncommitted" not in facts and "debian\n" in facts and "debian/" not in facts, facts
    text = (tree.seen / "changelog").read_text()
    head = "shift-rdma (%s-1) UNRELEASED; urgency=medium\n\n  * Snapshot of commit %s.\n\n -- Some Body " \
           "<some@example.org>  Tue, 26 Nov 2024 02:30:00 +0000\n\n" % (version, tree.commit)
    assert text == head + CHANGELOG, text
    made = "shift-rdma_%s-1_all" % version
    assert {"build-deb.log", made + ".deb", made + ".changes"} <= set(os.listdir(tree.root / "out"))
    left = [name for name in os.listdir(tree.folder) if name.startswith("tmp")]
    assert not left, left


def a_release_has_the_changelog_of_its_commit(tree):
    tree.git("tag", "v1.2.2")
    assert "~git" in tree.run("version").stdout
    tree.git("tag", "v1.2.3")
    assert tree.run("version").stdout == "1.2.3\n"
    assert tree.run("deb").returncode == 0
    assert (tree.seen / "changelog").read_text() == CHANGELOG
    assert tree.run("rpm").returncode == 0
    spec = (tree.seen / "shift-rdma.spec").read_text()
    assert spec == SPEC.replace("        0", "        1.2.3"), spec


def an_rpm_snapshot_is_the_commit(tree):
    version = "1.2.3~git20241126.%s" % tree.commit[:8]
    done = tree.run("rpm", "--out", "out")
    assert done.returncode == 0 and "not committed" in done.stdout, done
    facts = (tree.seen / "facts").read_text()
    assert "epoch 1732588200, umask 0022\nno folder\n" in facts and "_buildhost localhost" in facts, facts
    assert "clamp_mtime_to_source_date_epoch 1" in facts and "stock_folder /usr/lib/some-triplet" in facts, facts
    assert facts.count(" 1732588200\n") == 2 and "uncommitted" not in facts, facts
    assert "shift-rdma-%s/redhat/shift-rdma.spec" % version in facts, facts
    spec = (tree.seen / "shift-rdma.spec").read_text()
    entry = "%%changelog\n* Tue Nov 26 2024 Some Body <some@example.org> - %s-1\n- Snapshot of commit %s.\n\n" % (
        version, tree.commit)
    assert spec == SPEC.replace("        0", "        " + version).replace("%changelog\n", entry), spec
    assert set(os.listdir(tree.root / "out")) == {"build-rpm.log", "some.src.rpm", "some.x.rpm"}, done
    assert "redhat/shift-rdma.rpmlintrc some.x.rpm some.src.rpm" in done.stdout, done
    left = [name for name in os.listdir(tree.folder) if name.startswith(("tmp", "shift-rdma"))]
    assert not left, left


def an_rpm_is_built_in_the_same_folder_each_time(tree):
    folder = tree.folder / "shift-rdma-rpm"
    done = tree.run("rpm", "--out", "out")
    facts = (tree.seen / "facts").read_text()
    assert done.returncode == 0 and "note: /" not in done.stdout, done
    assert "_topdir %s\n" % folder in facts, facts
    folder.mkdir()  # another build is under way
    done = tree.run("rpm", "--out", "out")
    facts = (tree.seen / "facts").read_text()
    assert done.returncode == 0 and "note: /" in done.stdout, done
    assert "_topdir %s/tmp" % tree.folder in facts, facts
    assert folder.exists() and not list(tree.folder.glob("tmp*"))


def a_failure_shows_the_end_of_the_log(tree):
    for kind in ("deb", "rpm"):
        done = tree.run(kind, FAIL="1")
        assert done.returncode == 1 and "some error" in done.stderr, done


def mistakes_end_with_the_usage(tree):
    for words in ((), ("bogus",), ("deb", "--bogus")):
        done = tree.run(*words)
        assert done.returncode == 4 and "usage: " in done.stderr, done


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--package", type=pathlib.Path, required=True)
    args = parser.parse_args()
    if shutil.which("git") is None:
        print("skipped: git is not installed")
        return 77
    for case in (a_snapshot_comes_before_its_release, a_release_has_the_changelog_of_its_commit,
                 an_rpm_snapshot_is_the_commit, an_rpm_is_built_in_the_same_folder_each_time,
                 a_failure_shows_the_end_of_the_log, mistakes_end_with_the_usage):
        with tempfile.TemporaryDirectory() as folder:
            case(Tree(args.package.resolve(), folder))
        print("ok:", case.__name__)
    return 0


if __name__ == "__main__":
    sys.exit(main())
