"""Anchors: where in a file of the tree something of the series goes. Each kind of anchor finds regions of the
file; a place says where at the region the text is put."""

import collections
import re

import c_text
from errors import Refused, WrongContent

# Offsets of whole lines: the region, and what is between its first and its last line.
Region = collections.namedtuple("Region", "start inside inside_end end")

DEFINITIONS = ("function", "struct", "enum", "union", "table")
KINDS = DEFINITIONS + ("call", "node", "edge", "pattern")
AROUND = ("before", "begin", "end", "after")
PLACES = {
    "function": AROUND + ("statements",),
    "struct": AROUND, "enum": AROUND, "union": AROUND, "table": AROUND,
    "call": AROUND + ("sorted",), "node": AROUND + ("sorted",),
    "edge": ("begin", "end"),  # the anchor's own value
    "pattern": ("before", "after", "after-statement", "wrap", "replace"),
}
# What a line begins with that is no declaration. A macro in capitals may declare something.
STATEMENT = re.compile(r"(?:if|for|while|switch|do|return|goto|break)\b|[{(*]"
                       r"|(?![A-Z0-9_]+\()[\w.>\[\]-]+(?:\(| *[-+*/|&^<>]*= |;|\+\+|--)")
ALL_OF_IT = "{{it}}"
DEEPER = "{{it, deeper}}"


def definition_regions(text, kind, name):
    for one in c_text.definitions(text):
        if (one.kind, one.name) == (kind, name):
            yield Region(one.start, c_text.line_end(text, one.body), c_text.line_start(text, one.body_end),
                         one.end)


def cmake_masked(text):
    """The text without its comments, and with nothing in quotes that could be taken for a bracket or a comment."""
    def plain(match):
        return c_text.blank(match) if match[0].startswith("#") else re.sub(r"[^\n]", "x", match[0])
    return re.sub(r'"(?:\\.|[^"\\])*"|#[^\n]*', plain, text)


def call_regions(text, name, argument):
    """Calls in files of CMake, by the function's name and the first argument."""
    plain = cmake_masked(text)
    for match in re.finditer(r"^[ \t]*%s[ \t]*\(\s*([^\s()]+)" % re.escape(name), plain, re.M):
        if text[match.start(1):match.end(1)] != argument:
            continue
        close = c_text.call_end(plain, plain.index("(", match.start()))
        if close >= 0:
            yield Region(match.start(), c_text.line_end(text, match.start(1)), c_text.line_start(text, close),
                         c_text.line_end(text, close))


def node_regions(text, name):
    """The version nodes of a symbol map whose names begin with `name`."""
    for match in re.finditer(r"^%s[^\s{]*\s*\{[^\n]*\n" % re.escape(name), text, re.M):
        close = text.find("\n}", match.start())
        if close >= 0:
            yield Region(match.start(), match.end(), close + 1, c_text.line_end(text, close + 1))


def pattern_regions(text, pattern, scope):
    at = scope.start
    while at < scope.end:
        end = c_text.line_end(text, at)
        if re.search(pattern, text[at:end].removesuffix("\n")):
            yield Region(at, end, end, end)
        at = end


class Anchor:
    """One anchor. `where` is its table in edits.toml, without what is said of the text."""

    def __init__(self, where, source):
        kinds = [kind for kind in KINDS if kind in where]
        if len(kinds) != 1:
            raise WrongContent("%s: an anchor is one of %s" % (source, ", ".join(KINDS)))
        self.kind = kinds[0]
        self.value = where[self.kind]
        self.argument = where.get("argument")
        self.place = where.get("place", self.value if self.kind == "edge" else None)
        self.within = Anchor({"place": "begin", **where["within"]}, source) if "within" in where else None
        if self.place not in PLACES[self.kind]:
            raise WrongContent("%s: a place at a %s is one of %s" % (
                source, self.kind, ", ".join(PLACES[self.kind])))
        if (self.kind == "call") != (self.argument is not None):
            raise WrongContent("%s: a call has an argument, and nothing else has" % source)
        if self.within and self.kind != "pattern":
            raise WrongContent("%s: only a pattern is within something" % source)
        if self.kind == "pattern":
            try:
                re.compile(self.value)
            except re.error as error:
                raise WrongContent("%s: %s: %s" % (source, self.value, error)) from None

    def __str__(self):
        said = {"call": "call %s(%s ...)" % (self.value, self.argument), "node": "version node %s..." % self.value,
                "edge": "%s of the file" % self.value, "pattern": "pattern '%s'" % self.value}
        own = said.get(self.kind, "%s %s" % (self.kind, self.value))
        return own + (" within %s" % self.within if self.within else "")

    def regions(self, text):
        whole = Region(0, 0, len(text), len(text))
        if self.kind == "edge":
            return [whole]
        if self.kind == "call":
            return list(call_regions(text, self.value, self.argument))
        if self.kind == "node":
            return list(node_regions(text, self.value))
        if self.kind == "pattern":
            scopes = self.within.regions(text) if self.within else [whole]
            return [region for scope in scopes for region in pattern_regions(text, self.value, scope)]
        return list(definition_regions(text, self.kind, self.value))

    def region(self, text, file):
        """The one region; what it is in must be there once, too."""
        if self.within:
            self.within.region(text, file)
        found = self.regions(text)
        if len(found) != 1:
            lines = ", ".join(str(text.count("\n", 0, one.start) + 1) for one in found)
            raise Refused("%s: %s is %s" % (file, self, "not there" if not found else
                                            "there %d times (lines %s)" % (len(found), lines)))
        return found[0]


def sorted_place(text, region, addition):
    """Before the first line of the region that comes after the addition in the alphabet; only lines count that are
    indented as the addition is."""
    indent, key = re.match(r"([ \t]*)(.*)", addition).groups()
    at, last = region.inside, None
    while at < region.inside_end:
        end = c_text.line_end(text, at)
        line = text[at:end].rstrip("\n")
        if re.match(r"[ \t]*", line)[0] == indent and line.strip():
            if line.strip() > key:
                return at
            last = end
        at = end
    return last


def statements_place(text, region):
    """After the declarations that a function's body begins with, which a blank line ends. None: something else
    comes before the first blank line."""
    plain, at, is_first = c_text.masked(text), region.inside, True
    while at < region.inside_end:
        end = c_text.line_end(text, at)
        line = plain[at:end].strip()
        if not text[at:end].strip():
            return end if is_first and at > region.inside else None
        if line and is_first and STATEMENT.match(line):
            return None
        is_first = line.endswith(";") if line else is_first
        at = end
    return None


def deeper(lines):
    return re.sub(r"^(?=[^\n])", "\t", lines, flags=re.M)


def changed(text, anchor, file, addition):
    """The text of the file with the addition at the anchor's place."""
    region, place = anchor.region(text, file), anchor.place
    if place == "replace":
        old = text[region.start:region.end]
        new = re.sub(anchor.value, addition.removesuffix("\n"), old, count=1)
        if new == old:
            raise Refused("%s: %s: nothing changes" % (file, anchor))
        return text[:region.start] + new + text[region.end:]
    if place == "wrap":
        end = c_text.statement_end(text, region.start)
        if end < 0:
            raise Refused("%s: %s: the statement has no end" % (file, anchor))
        old = text[region.start:end]
        new = addition.replace(DEEPER + "\n", deeper(old)).replace(ALL_OF_IT + "\n", old)
        return text[:region.start] + new + text[end:]
    # The brackets have lines of their own, so that whole lines fit between them.
    inside = text[region.inside_end:].lstrip()[:1]
    whole_lines = anchor.kind == "edge" or (region.inside <= region.inside_end and inside in ("}", ")"))
    at = {"before": lambda: region.start, "after": lambda: region.end,
          "begin": lambda: region.inside if whole_lines else None,
          "end": lambda: region.inside_end if whole_lines else None,
          "sorted": lambda: sorted_place(text, region, addition),
          "statements": lambda: statements_place(text, region),
          "after-statement": lambda: max(c_text.statement_end(text, region.start), 0) or None}[place]()
    if at is None:
        raise Refused("%s: %s has no place '%s'" % (file, anchor, place))
    glue = "\n" if at == len(text) and text and not text.endswith("\n") else ""
    return text[:at] + glue + addition + text[at:]
