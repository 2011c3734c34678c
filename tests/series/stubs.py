"""Makes a tree like rdma-core's out of the series' own anchors: every file that the series changes is there, with
a definition, a call or a line for each anchor to be found in. All text is our own. Whether the anchors fit
rdma-core itself is asked by real_tree.py, for which somebody has to bring a tree."""

import collections
import re

ROOT = "CMakeLists.txt"
MAKER = "# A tree for tests.\n%s\nset( PACKAGE_VERSION  \"%s\" )\nset( IBVERBS_PABI_VERSION  \"%s\" )\n"
# A function comes in the shapes that functions have there; what the text of a body says must not matter.
SHAPES = (
    "/*\n * Stub {0} {{\n */\nint {0}(struct stub *a,\n\tint b)\n",
    "STUB_MACRO_FUNC({0}, 1_9, \"STUB_1.9\",\n\tint,\n\tstruct stub *a)\n",
    "// The stub {0}.\n#ifdef STUB\n#endif\nstatic struct stub *{0}(void)\n",
)
BODY = ("{{\n\tconst char *brace = \"}} {{\";\n\tchar sign = '{{';\n\n"
        "\tstub_first(brace); // }}\n{0}\tstub_last(sign);\n}}\n\n")


class Scope:
    """A part of a file: a definition, a call, a node or the file itself, and the lines inside of it."""

    def __init__(self):
        self.lines = []
        self.is_short = False  # a call on one line

    def add(self, example):
        if example not in self.lines:
            self.lines.append(example)

    def inside(self):
        return "".join(self.lines)


def key_of(anchor):
    return (anchor.kind, anchor.value, anchor.argument)


def rendered(key, scope, number):
    kind, value, argument = key
    inside = scope.inside()
    if kind == "function":
        return SHAPES[number % len(SHAPES)].format(value) + BODY.format(inside)
    if kind in ("struct", "enum", "union"):
        return "%s %s {\n\tstub_a;\n%s\tstub_z;\n};\n\n" % (kind, value, inside)
    if kind == "table":
        return "static const struct stub %s = {\n\t.stub = 1,\n%s};\n\n" % (value, inside)
    if kind == "node":
        return "%s_@STUB@ {\n\tglobal:\n\t\tstub_a;\n%s\t\tzz_stub;\n};\n\n" % (value.rstrip("_"), inside)
    if kind == "call" and scope.is_short:
        return "%s( %s )\n" % (value, argument)
    if kind == "call":
        return "%s(%s\n  alpha_stub\n%s  zulu_stub\n  )\n" % (value, argument, inside)
    return inside


def ending(text):
    return text if text.endswith("\n") else text + "\n"


def stub_file(places, words):
    """`places` are those whose anchors the file must have, `words` what its conditions ask for."""
    scopes = collections.OrderedDict()
    for place in places:
        anchor = place.anchor
        if anchor.kind == "edge" or (anchor.kind == "pattern" and not place.example):
            continue
        if anchor.kind == "pattern":
            outer = key_of(anchor.within) if anchor.within else ("file", None, None)
            scopes.setdefault(outer, Scope()).add(ending(place.example))
        else:
            scope = scopes.setdefault(key_of(anchor), Scope())
            scope.is_short = anchor.kind == "call" and anchor.place in ("before", "after")
    # A call with anything in it has more than one line, whoever named it first.
    for scope in scopes.values():
        scope.is_short = scope.is_short and not scope.lines
    parts = [rendered(key, scope, number) for number, (key, scope) in enumerate(scopes.items())]
    return "".join("# %s\n" % word for word in words) + "".join(parts) or "A file of stubs.\n"


def chosen(edit, version, special):
    """The place of the edit that this tree is for, or None. `special` is an edit that takes another place than its
    first, with the place's number."""
    if not in_range(edit.condition, version):
        return None
    fitting = [place for place in edit.places if in_range(place.condition, version)]
    if special and special[0] is edit:
        return fitting[special[1]]
    return fitting[0] if fitting else None


def in_range(condition, version):
    is_over = condition.until and version[:len(condition.until)] > condition.until
    return version >= condition.since and not is_over


def tree(commits, project, version, special=None):
    """The tree of one release: paths with their text. Files that the series itself brings along are left out."""
    own = {template["to"] for commit in commits for template in commit.templates}
    own |= {target for commit in commits for files in commit.files for _, target in files.list(project)}
    by_file, words = collections.OrderedDict(), collections.defaultdict(list)
    for edit in (edit for commit in commits for edit in commit.edits):
        place = chosen(edit, version, special)
        by_file.setdefault(edit.file, [])
        if place is None:
            continue
        by_file[edit.file].append(place)
        words[edit.file] += [c.has for c in (edit.condition, place.condition) if c.has]
    files = {path: stub_file(places, words[path]) for path, places in by_file.items() if path not in own}
    said = ".".join(map(str, version))
    head = MAKER % ("project(" + "rdma-core C)", said, version[0])
    files[ROOT] = head + files.get(ROOT, "")
    files["README"] = "A tree that no edit is for.\n"
    return files


def versions(commits):
    """Releases of all kinds: the oldest, the newest, and both sides of each border that a condition names."""
    found = {(44, 0), (65, 0)}
    for edit in (edit for commit in commits for edit in commit.edits):
        for condition in [edit.condition] + [place.condition for place in edit.places]:
            if condition.since:
                found |= {with_minor(condition.since), before(condition.since)}
            if condition.until:
                found |= {with_minor(condition.until), after(condition.until)}
    return sorted(version for version in found if version >= (44, 0))


def with_minor(version):
    return (tuple(version) + (0,))[:2]


def before(version):
    return (version[0], version[1] - 1) if len(version) > 1 and version[1] else (version[0] - 1, 9)


def after(version):
    return (version[0], version[1] + 1) if len(version) > 1 else (version[0] + 1, 0)


def specials(commits, version):
    """Each place of an edit that is not its first for this release: only what the file has or lacks decides."""
    for edit in (edit for commit in commits for edit in commit.edits):
        fitting = [place for place in edit.places if in_range(place.condition, version)]
        for number in range(1, len(fitting)):
            yield edit, number


def wrong_examples(commits):
    for commit in commits:
        for edit in commit.edits:
            for place in edit.places:
                if place.example and not (place.anchor.kind == "pattern" and any(
                        re.search(place.anchor.value, line) for line in place.example.split("\n"))):
                    yield "%s: %s: the example does not fit %s" % (commit.name, edit.file, place.anchor)
