"""Reads the folder series/: what each commit says, edits and brings along. series/README.md is its manual."""

import os
import re
import tomllib

from anchors import KINDS, Anchor
from errors import Refused, WrongContent

ANCHOR_KEYS = set(KINDS) | {"argument", "place", "within", "example"}
CONDITION_KEYS = {"since", "until", "has", "lacks"}
TEXT_KEYS = {"text", "snippet"}
EDIT_KEYS = {"file", "at"} | TEXT_KEYS | CONDITION_KEYS
FILES_KEYS = {"from", "to", "only", "except"}
TEMPLATE_KEYS = {"from", "to"}
OLDEST = (44, 0)


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def toml(path):
    try:
        return tomllib.loads(read(path)) if os.path.exists(path) else {}
    except tomllib.TOMLDecodeError as error:
        raise WrongContent("%s: %s" % (path, error)) from None


def known_keys(table, keys, source):
    if not isinstance(table, dict):
        raise WrongContent("%s: '%s' is no table" % (source, table))
    for key in table:
        if key not in keys:
            raise WrongContent("%s: '%s' is no key here" % (source, key))


def version_of(said):
    if not re.fullmatch(r"\d+(\.\d+)*", str(said)):
        raise WrongContent("'%s' is no version" % said)
    return tuple(int(part) for part in str(said).split("."))


class Condition:
    """When something holds: for a range of releases, and for what a file has or lacks."""

    def __init__(self, table):
        self.since = version_of(table["since"]) if "since" in table else ()
        self.until = version_of(table["until"]) if "until" in table else None
        self.has, self.lacks = table.get("has"), table.get("lacks")

    def holds(self, version, text):
        if version < self.since or (self.until and version[:len(self.until)] > self.until):
            return False
        return (not self.has or self.has in text) and not (self.lacks and self.lacks in text)


class Place:
    """An anchor, when it holds, and the text for it."""

    def __init__(self, table, edit, source, folder):
        known_keys(table, ANCHOR_KEYS | CONDITION_KEYS | TEXT_KEYS, source)
        known_keys(table.get("within", {}), set(KINDS) | {"argument"}, source)
        self.anchor = Anchor({key: table[key] for key in ANCHOR_KEYS & table.keys()}, source)
        self.example = table.get("example")
        self.condition = Condition(table)
        said = table if TEXT_KEYS & table.keys() else edit
        if len(TEXT_KEYS & said.keys()) != 1:
            raise WrongContent("%s: an edit has either a text or a snippet" % source)
        if "snippet" in said:
            path = os.path.join(folder, said["snippet"])
            if not os.path.isfile(path):
                raise WrongContent("%s: there is no snippet %s" % (source, said["snippet"]))
            self.text = read(path)
        else:
            self.text = said["text"]
        if not self.text.endswith("\n"):
            self.text += "\n"


class Edit:
    """A change of one file of the tree: the first of its places whose condition holds."""

    def __init__(self, table, source, folder):
        known_keys(table, EDIT_KEYS, source)
        if "file" not in table or not table.get("at"):
            raise WrongContent("%s: an edit has a file, and says at what" % source)
        self.file = table["file"]
        self.condition = Condition(table)
        places = table["at"] if isinstance(table["at"], list) else [table["at"]]
        self.places = [Place(place, table, source, folder) for place in places]

    def place(self, version, text):
        for place in self.places:
            if place.condition.holds(version, text):
                return place
        raise Refused("%s: no anchor of the series is for release %s (%s)" % (
            self.file, ".".join(map(str, version)), "; ".join(str(place.anchor) for place in self.places)))


class Files:
    """Files of this repository that go into the tree as they are."""

    def __init__(self, table, source):
        known_keys(table, FILES_KEYS, source)
        if "from" not in table or "to" not in table:
            raise WrongContent("%s: files have a from and a to" % source)
        self.source, self.target = table["from"].rstrip("/"), table["to"].rstrip("/")
        self.only, self.without = table.get("only", ["**"]), table.get("except", [])

    def list(self, project):
        """Yields (path in the project, path in the tree)."""
        if self.source in project.files:
            yield self.source, self.target
            return
        for path in project.below(self.source):
            inner = path[len(self.source) + 1:]
            if any(fits(inner, glob) for glob in self.only) and not any(fits(inner, g) for g in self.without):
                yield path, "%s/%s" % (self.target, inner) if self.target != "." else inner


def fits(path, glob):
    """Whether a path is what the glob means: * is within a folder, ** is any folders, and {a,b} is either."""
    def part(match):
        token = match[0]
        if token.startswith("{"):
            return "(%s)" % "|".join(re.escape(one) for one in token[1:-1].split(","))
        return {"**/": "(.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}.get(token) or re.escape(token)
    return re.fullmatch(re.sub(r"\*\*/|\*\*|\*|\?|\{[^{}]*\}|[^*?{}]", part, glob), path) is not None


def tables(table, key, source):
    found = table.get(key, [])
    if not isinstance(found, list):
        raise WrongContent("%s: write [[%s]], since there may be several" % (source, key))
    return found


class Commit:
    """One folder of series/."""

    def __init__(self, folder, project):
        self.name = os.path.basename(folder)
        message = os.path.join(folder, "message")
        if not os.path.isfile(message):
            raise WrongContent("%s has no message" % folder)
        self.message = read(message)
        edits, files = (toml(os.path.join(folder, name)) for name in ("edits.toml", "files.toml"))
        known_keys(edits, {"edit"}, self.name + "/edits.toml")
        known_keys(files, {"files", "template", "optional"}, self.name + "/files.toml")
        self.edits = [Edit(table, "%s/edits.toml, edit %d" % (self.name, number), folder)
                      for number, table in enumerate(tables(edits, "edit", self.name), 1)]
        self.files = [Files(table, self.name + "/files.toml") for table in tables(files, "files", self.name)]
        self.templates = tables(files, "template", self.name)
        for template in self.templates:
            known_keys(template, TEMPLATE_KEYS, self.name + "/files.toml")
            if template.keys() != TEMPLATE_KEYS:
                raise WrongContent("%s/files.toml: a template has a from and a to" % self.name)
        self.is_left_out = files.get("optional", False) and not any(
            list(one.list(project)) for one in self.files)
        if not (self.edits or self.files or self.templates):
            raise WrongContent("%s changes nothing" % self.name)

    @property
    def subject(self):
        return self.message.split("\n", 1)[0]


def load(project, folder="series"):
    """The commits in their order."""
    root = os.path.join(project.root, folder)
    names = sorted(name for name in os.listdir(root) if re.match(r"\d\d-", name))
    commits = [Commit(os.path.join(root, name), project) for name in names]
    if not commits:
        raise WrongContent("%s has no commits" % root)
    return [commit for commit in commits if not commit.is_left_out]
