"""What the tests of the series share: the series as it is here, and trees in memory."""

import os
import shutil
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.normpath(os.path.join(HERE, "..", ".."))
SERIES = os.path.join(ROOT, "tools", "series")
sys.path.insert(0, os.path.join(ROOT, "tools", "patch_series"))
if not shutil.which("git"):
    print("skipped: git is not installed")
    sys.exit(77)
if sys.version_info < (3, 11):
    print("skipped: tools/series needs Python 3.11")
    sys.exit(77)
import apply  # pylint: disable=wrong-import-position
import content  # pylint: disable=wrong-import-position
import git  # pylint: disable=wrong-import-position

PROJECT = git.Project(ROOT)
COMMITS = content.load(PROJECT)


class Memory:
    """A tree of texts."""

    def __init__(self, texts):
        self.texts = {path: text.encode() for path, text in texts.items()}
        self.files = {path: "100644" for path in texts}

    def data(self, path):
        return self.texts[path]

    def text(self, path):
        return self.texts[path].decode()


def refusals(texts):
    """All that does not fit, of all commits."""
    tree, said = Memory(texts), []
    facts = apply.Facts(tree, PROJECT)
    for commit in COMMITS:
        tree, more = apply.make_commit(commit, tree, PROJECT, facts)
        said += more
    return said
