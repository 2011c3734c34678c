"""Finds the places of C++ sources where an operator can be changed, with clang's syntax tree."""

import collections
import json
import os
import re
import shlex

from clang import cindex

# A change of bytes [begin, end) of the file. `texts`: the changed and the healthy expression. `name` says what it
# is, and `line` and `code` where it is.
Site = collections.namedtuple("Site", "file begin end texts line code name")

OPPOSITE = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "&&": "||", "||": "&&",
            "+": "-", "-": "+"}
FUNCTIONS = {cindex.CursorKind.FUNCTION_DECL, cindex.CursorKind.CXX_METHOD, cindex.CursorKind.CONSTRUCTOR,
             cindex.CursorKind.DESTRUCTOR, cindex.CursorKind.FUNCTION_TEMPLATE,
             cindex.CursorKind.CONVERSION_FUNCTION, cindex.CursorKind.LAMBDA_EXPR}
# What the compiler must know cannot depend on a switch; what is written to a log changes nothing.
NO_PLACE = re.compile(r"\s*(static_assert|case |SHIFT_[A-Z]|(static |inline )*constexpr|if constexpr)")


def compile_arguments(entry):
    """The part of a compile command that matters to the parser."""
    arguments, words = [], iter(shlex.split(entry["command"])[1:])
    for word in words:
        if word in ("-isystem", "-I", "-D"):
            arguments += [word, next(words)]
        elif word.startswith(("-I", "-D", "-std=")):
            arguments.append(word)
    return arguments


class Finder:
    """Walks the translation units; each place is found once, although headers are read many times."""

    def __init__(self, wanted):
        self.wanted = wanted  # whether places in that file count
        self.sites = {}
        self.bytes = {}
        self.index = cindex.Index.create()

    def read(self, path):
        if path not in self.bytes:
            with open(path, "rb") as file:
                self.bytes[path] = file.read()
        return self.bytes[path]

    def add_source(self, path, arguments):
        unit = self.index.parse(path, args=arguments)
        for cursor in unit.cursor.get_children():
            file = cursor.location.file
            if file is not None and self.wanted(os.path.normpath(file.name)):
                self.walk(cursor, None, False)

    def walk(self, cursor, parent, in_function):
        if self.is_no_place(cursor) and cursor.kind not in FUNCTIONS:
            return
        if in_function:
            self.look(cursor, parent)
        for child in cursor.get_children():
            inside = in_function or (cursor.kind in FUNCTIONS and child.kind == cindex.CursorKind.COMPOUND_STMT)
            self.walk(child, cursor, inside)

    def is_no_place(self, cursor):
        return NO_PLACE.match(self.text_of(cursor)[:60]) is not None

    def text_of(self, cursor):
        file = cursor.extent.start.file
        if file is None:
            return ""
        path = os.path.normpath(file.name)
        if not self.wanted(path):
            return ""
        return self.read(path)[cursor.extent.start.offset:cursor.extent.end.offset].decode()

    def look(self, cursor, parent):
        kinds = cindex.CursorKind
        if cursor.kind in (kinds.BINARY_OPERATOR, kinds.CALL_EXPR):
            self.look_binary(cursor)
        elif cursor.kind == kinds.UNARY_OPERATOR:
            self.look_unary(cursor, parent)
        elif cursor.kind == kinds.COMPOUND_ASSIGNMENT_OPERATOR:
            self.look_step(cursor, parent)
        elif cursor.kind == kinds.INTEGER_LITERAL:
            self.look_literal(cursor, parent)
        elif cursor.kind == kinds.RETURN_STMT:
            value = next(cursor.get_children(), None)
            if value is not None and value.type.get_canonical().spelling == "bool":
                self.add(value, "!(%s)" % self.text_of(value), "result negated")

    def look_binary(self, cursor):
        if cursor.kind == cindex.CursorKind.CALL_EXPR:
            if not re.fullmatch(r"operator(<|<=|>|>=|==|!=)", cursor.spelling):
                return
            sides = list(cursor.get_arguments())
        else:
            sides = list(cursor.get_children())
        if len(sides) != 2 or any(side is None for side in sides):
            return
        whole, begin = self.text_of(cursor).encode(), cursor.extent.start.offset
        left_end = sides[0].extent.end.offset - begin
        right_begin = sides[1].extent.start.offset - begin
        if not 0 < left_end < right_begin < len(whole):
            return
        left, sign, right = (part.decode() for part in
                             (whole[:left_end], whole[left_end:right_begin].strip(), whole[right_begin:]))
        # Where a macro is involved, the texts are not those of the sides.
        if sign in OPPOSITE and self.text_of(sides[0]) == left and self.text_of(sides[1]) == right:
            other = OPPOSITE[sign]
            self.add(cursor, "(%s) %s (%s)" % (left, other, right), "%s becomes %s" % (sign, other))

    def look_unary(self, cursor, parent):
        text = self.text_of(cursor)
        if text.startswith("!"):
            self.add(cursor, "bool(%s)" % text[1:], "! left out")
        elif text.startswith(("++", "--")) or text.endswith(("++", "--")):
            self.look_step(cursor, parent)

    def look_step(self, cursor, parent):
        # Not in the head of a loop, which would never end.
        if parent.kind == cindex.CursorKind.COMPOUND_STMT:
            self.add(cursor, "(void)0", "left out", "(void)(%s)")

    def look_literal(self, cursor, parent):
        text = self.text_of(cursor)
        kinds = cindex.CursorKind
        arithmetic = (kinds.BINARY_OPERATOR, kinds.UNEXPOSED_EXPR, kinds.COMPOUND_ASSIGNMENT_OPERATOR)
        if re.fullmatch(r"\d+u?", text) and parent.kind in arithmetic:
            self.add(cursor, "%s + 1" % text, "one more")

    def add(self, cursor, changed, name, healthy="(%s)"):
        text = self.text_of(cursor)
        if not text or "//" in text or "SHIFT_" in text:
            return
        path = os.path.normpath(cursor.extent.start.file.name)
        begin, end, line = cursor.extent.start.offset, cursor.extent.end.offset, cursor.extent.start.line
        code = self.read(path).split(b"\n")[line - 1].decode().strip()
        site = Site(path, begin, end, (changed, healthy % text), line, code, name)
        self.sites.setdefault((path, begin, end, name), site)


def find(build, wanted):
    """All places in the sources that `wanted` admits, in a fixed order."""
    finder = Finder(wanted)
    with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as file:
        entries = json.load(file)
    seen = set()
    for entry in sorted(entries, key=lambda entry: entry["file"]):
        path = os.path.normpath(os.path.join(entry["directory"], entry["file"]))
        if path in seen or not wanted(path):
            continue
        seen.add(path)
        finder.add_source(path, compile_arguments(entry))
    return [finder.sites[key] for key in sorted(finder.sites)]
