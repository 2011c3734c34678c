#!/usr/bin/python3
"""Tries the anchors of tools/patch_series on sources of every shape that was met: what is found, what is not, and
where the text goes."""

import os
import unittest

from common import HERE
import anchors
import c_text
import content
from errors import Refused, WrongContent


def shapes(name):
    with open(os.path.join(HERE, "shapes", name), encoding="utf-8") as file:
        return file.read()


SHAPES, BUILD, MAP = (shapes(name) for name in ("definitions.c.txt", "build.cmake.txt", "symbols.map.txt"))


def put(text, where, addition="+\n"):
    return anchors.changed(text, anchors.Anchor(where, "test"), "file", addition)


def lines_around(text, where, addition="+\n"):
    """The lines before and after the addition."""
    new = put(text, where, addition)
    assert new.replace(addition, "", 1) == text
    at = new.index("\n" + addition) + 1
    return new[:at].split("\n")[-2], new[at + len(addition):].split("\n")[0]


class Definitions(unittest.TestCase):
    def test_all_are_found_and_nothing_else(self):
        found = [(one.kind, one.name) for one in c_text.definitions(SHAPES)]
        self.assertEqual(found, [
            ("function", "plain"), ("function", "wrapped"), ("struct", "shape"), ("function", "pointer"),
            ("function", "other_either"), ("enum", "colour"), ("table", "the_ops"), ("function", "late")])

    def test_places(self):
        rows = [
            ({"function": "plain", "place": "before"}, ("", "/*")),
            ({"function": "plain", "place": "begin"}, ("{", '\tconst char *text = "} plain(";')),
            ({"function": "plain", "place": "statements"}, ("", "\tif (a) { // } a brace that does not count")),
            ({"function": "plain", "place": "end"}, ("\treturn plain(a - 1) + other(sign);", "}")),
            ({"function": "plain", "place": "after"}, ("}", "")),
            ({"function": "wrapped", "place": "before"}, ("", "// One line above.")),
            ({"function": "wrapped", "place": "begin"}, ("{", "\treturn a;")),
            ({"struct": "shape", "place": "before"}, ("}", "struct shape {")),
            ({"struct": "shape", "place": "end"},
             ("\tstruct inner { int b; } c;", "} __attribute__((aligned(8)));")),
            ({"struct": "shape", "place": "after"}, ("} __attribute__((aligned(8)));", "")),
            ({"enum": "colour", "place": "begin"}, ("enum colour {", "\tRED,")),
            ({"table": "the_ops", "place": "end"}, ("\t{ .first = plain },", "};")),
            ({"table": "the_ops", "place": "after"}, ("};", "")),
            ({"function": "late", "place": "before"}, ("", "int")),
        ]
        for where, wanted in rows:
            with self.subTest(where):
                self.assertEqual(lines_around(SHAPES, where), wanted)

    def test_refusals(self):
        rows = [
            ({"function": "declared", "place": "after"}, "file: function declared is not there"),
            ({"function": "inner", "place": "after"}, "file: function inner is not there"),
            ({"struct": "inner", "place": "after"}, "file: struct inner is not there"),
            ({"function": "pointer", "place": "begin"}, "file: function pointer has no place 'begin'"),
            ({"function": "pointer", "place": "end"}, "file: function pointer has no place 'end'"),
            ({"function": "late", "place": "statements"}, "file: function late has no place 'statements'"),
        ]
        for where, wanted in rows:
            with self.subTest(where), self.assertRaises(Refused) as caught:
                put(SHAPES, where)
            self.assertEqual(str(caught.exception), wanted)

    def test_statements(self):
        """After declarations of each kind, and never after anything else."""
        good = ["int a;", "struct x *a = f(b,\n\t\t\tc);", "static const int t[] = {\n\t\t1,\n\t};",
                "a_t *b, c = { 1 };", "MAKE_BUFFER(a, b,\n\t\tc);\n\tint a;",
                "int a; // why\n\t/* and\n\t   more */\n\tint b;", "const char *s = \"if (\";",
                "x_t x = (y_t)f(z);"]
        bad = ["f(a);", "a = 1;", "a->b |= 1;", "if (a)\n\t\treturn;", "for (;;)\n\t\tf();", "return;", "a++;",
               "*a = b;", "(void)a;", "int a;\n\ta = 1;", "x[1] = 2;", "{", "int a = f(\n", "\n\tint a;"]
        for lines in good + bad:
            text = "int f(void)\n{\n\t%s\n\n\tlast();\n}\n" % lines
            if lines == "{":
                text = text.replace("last();", "last(); }")
            with self.subTest(lines):
                where = {"function": "f", "place": "statements"}
                if lines in good:
                    self.assertEqual(lines_around(text, where), ("", "\tlast();"))
                else:
                    self.assertRaises(Refused, put, text, where)

    def test_twice_is_refused_with_the_lines(self):
        with self.assertRaises(Refused) as caught:
            put(SHAPES + SHAPES, {"function": "wrapped", "place": "after"})
        self.assertEqual(str(caught.exception), "file: function wrapped is there 2 times (lines %d, %d)" % (
            SHAPES[:SHAPES.index("// One line")].count("\n") + 1,
            (SHAPES + SHAPES[:SHAPES.index("// One line")]).count("\n") + 1))


class Patterns(unittest.TestCase):
    def test_places(self):
        late = {"function": "late"}
        rows = [
            ({"pattern": "^include", "place": "after"}, BUILD, ("include(first)", 'library(one "${A}(b.map"')),
            ({"pattern": "^include", "place": "before"}, BUILD,
             ("# library(one comment.c) is a comment", "include(first)")),
            ({"pattern": "five", "place": "before", "within": late}, SHAPES, ("\t\t}", "\t\tfive();")),
            ({"pattern": r"if \(one", "place": "after-statement", "within": late}, SHAPES,
             ("\t\t}", "\t\tfive();")),
            ({"pattern": r"for \(", "place": "after-statement", "within": late}, SHAPES, ("\t}", "}")),
            # The else is of the statement around this one, and nothing can stand before it.
            ({"pattern": r"two\(", "place": "after-statement", "within": late}, SHAPES, ("\t\t}", "\t\tfive();")),
        ]
        for where, text, wanted in rows:
            with self.subTest(where):
                self.assertEqual(lines_around(text, where), wanted)

    def test_scope(self):
        both = "int f(void)\n{\n\tx();\n}\nint g(void)\n{\n\tx();\n}\n"
        with self.assertRaises(Refused) as caught:
            put(both, {"pattern": "x", "place": "after"})
        self.assertEqual(str(caught.exception), "file: pattern 'x' is there 2 times (lines 3, 7)")
        new = put(both, {"pattern": "x", "place": "after", "within": {"function": "g"}})
        self.assertEqual(new, both.replace("x();\n}\n", "x();\n+\n}\n").replace("+\n", "", 1))
        with self.assertRaises(Refused) as caught:
            put(both, {"pattern": "y", "place": "after", "within": {"function": "g"}})
        self.assertEqual(str(caught.exception), "file: pattern 'y' within function g is not there")
        with self.assertRaises(Refused) as caught:
            put(both, {"pattern": "x", "place": "after", "within": {"function": "h"}})
        self.assertEqual(str(caught.exception), "file: function h is not there")
        with self.assertRaises(Refused) as caught:
            put(both + both, {"pattern": "x", "place": "after", "within": {"function": "g"}})
        self.assertEqual(str(caught.exception), "file: function g is there 2 times (lines 5, 13)")

    def test_replace(self):
        where = {"pattern": r"(three)\)", "place": "replace"}
        self.assertEqual(put(SHAPES, where, "\\1, 3)\n"), SHAPES.replace("three)", "three, 3)"))
        with self.assertRaises(Refused) as caught:
            put(SHAPES, where, "\\1)\n")
        self.assertEqual(str(caught.exception), "file: pattern '(three)\\)': nothing changes")

    def test_wrap(self):
        where = {"pattern": r"if \(one", "place": "wrap"}
        old = SHAPES[SHAPES.index("\t\tif (one)"):SHAPES.index("\t\tfive")]
        new = put(SHAPES, where, "\t\tif (zero) {\n{{it, deeper}}\n\t\t}\n")
        inner = old.replace("\t\t", "\t\t\t", 1).replace("\n\t\t", "\n\t\t\t")
        self.assertEqual(new, SHAPES.replace(old, "\t\tif (zero) {\n" + inner + "\t\t}\n"))
        self.assertEqual(put(SHAPES, where, "{{it}}\n"), SHAPES)


class Others(unittest.TestCase):
    def test_calls(self):
        one = {"call": "library", "argument": "one"}
        rows = [
            ({**one, "place": "before"}, ("include(first)", 'library(one "${A}(b.map"'), "+\n"),
            ({**one, "place": "begin"}, ('library(one "${A}(b.map"', "  # a comment )"), "+\n"),
            ({**one, "place": "end"}, ("  zulu.c", "  )"), "+\n"),
            ({**one, "place": "after"}, ("  )", "library(two x.c)"), "+\n"),
            ({**one, "place": "sorted"}, ("  alpha.c", "  zulu.c"), "  mike.c\n"),
            ({**one, "place": "sorted"}, ("  zulu.c", "  )"), "  zz.c\n"),
            ({"call": "library", "argument": "two", "place": "after"}, ("library(two x.c)", "library(three"),
             "+\n"),
        ]
        for where, wanted, addition in rows:
            with self.subTest(where):
                self.assertEqual(lines_around(BUILD, where, addition), wanted)
        for argument, place in (("two", "begin"), ("three", "end"), ("two", "sorted"), ("comment.c", "before")):
            with self.subTest(argument), self.assertRaises(Refused):
                put(BUILD, {"call": "library", "argument": argument, "place": place})
        self.assertRaises(Refused, put, BUILD, {**one, "place": "sorted"}, "    indented_more.c\n")

    def test_nodes(self):
        self.assertEqual(lines_around(MAP, {"node": "PRIVATE_", "place": "sorted"}, "\t\tp_b;\n"),
                         ("\t\tp_a;", "\t\tp_c;"))
        self.assertEqual(lines_around(MAP, {"node": "PUBLIC_1", "place": "end"}), ("\t\tf_b;", "} PUBLIC_0;"))
        with self.assertRaises(Refused) as caught:
            put(MAP + MAP, {"node": "PRIVATE_", "place": "sorted"})
        self.assertIn("version node PRIVATE_... is there 2 times", str(caught.exception))

    def test_edges(self):
        self.assertEqual(put("a", {"edge": "end"}), "a\n+\n")
        self.assertEqual(put("a\n", {"edge": "end"}), "a\n+\n")
        self.assertEqual(put("a\n", {"edge": "begin"}), "+\na\n")
        self.assertEqual(put("", {"edge": "end"}), "+\n")

    def test_wrong_anchors(self):
        rows = [{}, {"function": "a", "struct": "b", "place": "after"}, {"function": "a"},
                {"function": "a", "place": "sorted"}, {"function": "a", "argument": "b", "place": "after"},
                {"call": "a", "place": "after"}, {"pattern": "(", "place": "after"},
                {"function": "a", "place": "after", "within": {"struct": "b"}}, {"edge": "middle"}]
        for where in rows:
            with self.subTest(where):
                self.assertRaises(WrongContent, anchors.Anchor, where, "test")


class Small(unittest.TestCase):
    def test_globs(self):
        rows = [("**", "a/b.c", True), ("*", "a/b.c", False), ("*.c", "b.c", True), ("*.{cc,h}", "b.h", True),
                ("*.{cc,h}", "b.c", False), ("**/*.h", "b.h", True), ("**/*.h", "a/c/b.h", True),
                ("test/**", "test/a/b", True), ("test/**", "tests/a", False), ("a?c", "abc", True),
                ("a.c", "abc", False)]
        for glob, path, wanted in rows:
            with self.subTest(glob + " " + path):
                self.assertEqual(content.fits(path, glob), wanted)

    def test_conditions(self):
        rows = [({"since": "46"}, (45, 9), False), ({"since": "46"}, (46, 0), True),
                ({"until": "57"}, (57, 3), True), ({"until": "57"}, (58, 0), False),
                ({"until": "57.1"}, (57, 2), False), ({"since": 44}, (44, 0), True),
                ({"since": "46.1"}, (46, 1), True), ({"since": "46.1"}, (46, 0), False),
                ({"has": "word"}, (44, 0), True), ({"has": "no"}, (44, 0), False),
                ({"lacks": "word"}, (44, 0), False), ({"lacks": "no"}, (44, 0), True), ({}, (44, 0), True)]
        for table, version, wanted in rows:
            with self.subTest(table):
                self.assertEqual(content.Condition(table).holds(version, "a word"), wanted)


if __name__ == "__main__":
    unittest.main()
