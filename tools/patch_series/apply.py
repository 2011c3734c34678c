"""Makes the commits of the series on a tree in memory."""

import collections
import re

import anchors
import content
from errors import Refused, WrongContent

VERSION = re.compile(r'^\s*set\s*\(\s*PACKAGE_VERSION\s+"(\d+(?:\.\d+)*)', re.M)
PRIVATE_VERSION = re.compile(r'^\s*set\s*\(\s*IBVERBS_PABI_VERSION\s+"(\d+)', re.M)
PROJECT = re.compile(r"^\s*project\s*\(\s*rdma-core\b", re.M)

# What a commit does to one file. The mode is git's.
Change = collections.namedtuple("Change", "path mode data")


class Facts:
    """What texts of the series may say of the tree and of the project: {{version}} and the others of `words`."""

    def __init__(self, tree, project):
        if "CMakeLists.txt" not in tree.files:
            raise Refused("this is no tree of rdma-core: it has no CMakeLists.txt")
        root = tree.text("CMakeLists.txt")
        version, private = VERSION.search(root), PRIVATE_VERSION.search(root)
        if not PROJECT.search(root) or not version or not private:
            raise Refused("this is no tree of rdma-core: its CMakeLists.txt does not say so")
        self.version = content.version_of(version[1])
        if self.version < content.OLDEST:
            raise Refused("the tree is rdma-core %s, which is older than %s" % (
                version[1], ".".join(map(str, content.OLDEST))))
        self.words = {"version": version[1], "major": str(self.version[0]), "pabi": private[1],
                      "project_version": project.version}

    def filled(self, text, source):
        def word(match):
            if match[1] not in self.words:
                raise WrongContent("%s: there is no word {{%s}}" % (source, match[1]))
            return self.words[match[1]]
        return re.sub(r"\{\{([a-z_]+)\}\}", lambda m: m[0] if m[0] == anchors.ALL_OF_IT else word(m), text)


class Layered:
    """A tree with changes on top. `below` has `files`, each path with its mode, and `data(path)`."""

    def __init__(self, below):
        self.below = below
        self.changed = {}
        self.files = dict(below.files)

    def data(self, path):
        return self.changed[path].data if path in self.changed else self.below.data(path)

    def text(self, path):
        return self.data(path).decode("utf-8", "surrogateescape")

    def put(self, path, mode, data):
        self.changed[path] = Change(path, mode, data)
        self.files[path] = mode


def filled(text, file, tree, facts):
    """Fills in the text that is for the file. {{list GLOB}}, on a line of its own, becomes a line for each file of
    the tree that fits, in the order of the alphabet and relative to the folder of the file."""
    folder = file.rpartition("/")[0] + "/"

    def line(match):
        inner = sorted(path.removeprefix(folder) for path in tree.files if path.startswith(folder))
        return "".join(match[1] + path + "\n" for path in inner if content.fits(path, match[2]))
    return facts.filled(re.sub(r"^([ \t]*)\{\{list (\S+)\}\}\n", line, text, flags=re.M), file)


def bring_files(commit, tree, project):
    for files in commit.files:
        found = list(files.list(project))
        if not found:
            raise WrongContent("%s: nothing of %s is brought along" % (commit.name, files.source))
        for path, target in found:
            if target in tree.files:
                raise Refused("%s: the tree has this file already" % target)
            tree.put(target, project.files[path], project.data(path))


def fill_templates(commit, tree, project, facts):
    for template in commit.templates:
        if template["from"] not in project.files:
            raise WrongContent("%s: there is no template %s" % (commit.name, template["from"]))
        text = filled(project.data(template["from"]).decode(), template["to"], tree, facts)
        tree.put(template["to"], "100644", text.encode())


def make_edit(edit, tree, facts):
    mode = tree.files.get(edit.file)
    if mode is None:
        raise Refused("%s: there is no such file" % edit.file)
    if not mode.startswith("100"):
        raise Refused("%s is not a plain file" % edit.file)
    text = tree.text(edit.file)
    if not edit.condition.holds(facts.version, text):
        return
    place = edit.place(facts.version, text)
    new = anchors.changed(text, place.anchor, edit.file, filled(place.text, edit.file, tree, facts))
    tree.put(edit.file, mode, new.encode("utf-8", "surrogateescape"))


def make_commit(commit, below, project, facts):
    """Returns (the tree after the commit, all that does not fit). What does not fit is left out."""
    tree, refusals = Layered(below), []
    steps = [lambda: bring_files(commit, tree, project), lambda: fill_templates(commit, tree, project, facts)]
    steps += [lambda edit=edit: make_edit(edit, tree, facts) for edit in commit.edits]
    for step in steps:
        try:
            step()
        except Refused as refusal:
            refusals.append(str(refusal))
    if not tree.changed and not refusals:
        raise WrongContent("%s changes nothing in this tree" % commit.name)
    return tree, refusals


def paths_touched(commits, project):
    """All paths of the tree that the series looks at or writes."""
    touched = set()
    for commit in commits:
        touched |= {edit.file for edit in commit.edits} | {template["to"] for template in commit.templates}
        touched |= {target for files in commit.files for _, target in files.list(project)}
    return touched
