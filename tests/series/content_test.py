#!/usr/bin/python3
"""Tries what is in series/, in memory: its form, and that each kind of release fits, and that each anchor that is
missing or there twice is refused by its name."""

import os
import re
import tempfile
import unittest

from common import COMMITS, PROJECT, Memory, refusals
import apply
import content
import git
import real_tree
import stubs
from errors import WrongContent


class Anchors(unittest.TestCase):
    """Runs in memory, since there are many trees."""

    def test_examples(self):
        self.assertEqual(list(stubs.wrong_examples(COMMITS)), [])

    def test_all_releases_fit(self):
        for version in stubs.versions(COMMITS):
            with self.subTest(version):
                self.assertEqual(refusals(stubs.tree(COMMITS, PROJECT, version)), [])
            for special in stubs.specials(COMMITS, version):
                with self.subTest((version, special[0].file, special[1])):
                    self.assertEqual(refusals(stubs.tree(COMMITS, PROJECT, version, special)), [])

    def test_each_anchor_is_missed_and_found_twice(self):
        tried = set()
        for version in stubs.versions(COMMITS):
            for special in [None, *stubs.specials(COMMITS, version)]:
                tree = stubs.tree(COMMITS, PROJECT, version, special)
                for edit in (edit for commit in COMMITS for edit in commit.edits):
                    place = stubs.chosen(edit, version, special)
                    key = place and (edit.file, str(place.anchor), place.anchor.place)
                    if place and key not in tried:
                        tried.add(key)
                        self.try_anchor(tree, edit.file, place.anchor)
        print("%d anchors" % len(tried))

    def try_anchor(self, tree, file, anchor):
        text = tree.get(file)
        if anchor.kind == "edge":
            without = {path: other for path, other in tree.items() if path != file}
            if file != stubs.ROOT:
                self.assertIn("%s: there is no such file" % file, refusals(without))
            return
        regions = anchor.regions(text) if text else []
        if len(regions) != 1:
            print("%s: %s is of the series itself, and not tried" % (file, anchor))
            return
        start, end = regions[0].start, regions[0].end
        with self.subTest("%s: %s is missing" % (file, anchor)):
            said = refusals({**tree, file: text[:start] + text[end:]})
            self.assertIn("%s: %s is not there" % (file, anchor), said)
        with self.subTest("%s: %s is there twice" % (file, anchor)):
            said = refusals({**tree, file: text[:end] + text[start:end] + text[end:]})
            wanted = "%s: %s is there 2 times (lines " % (file, anchor)
            self.assertTrue(any(one.startswith(wanted) for one in said), said)


class Writing(unittest.TestCase):
    """What is written wrongly in series/ is said by name, not shown as a crash."""

    EDIT = '[[edit]]\nfile = "f"\ntext = "t"\nat = { function = "a", place = "after" }\n'

    def loaded(self, files, ask=lambda commits, _: commits):
        with tempfile.TemporaryDirectory() as root:
            for path, text in {"CMakeLists.txt": "project(shift VERSION 1.2.3 )\n", **files}.items():
                os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
                with open(os.path.join(root, path), "w", encoding="utf-8") as file:
                    file.write(text)
            project = git.Project(root)
            return ask(content.load(project), project)

    def test_right(self):
        files = {"series/02-b/message": "b", "series/02-b/edits.toml": self.EDIT, "series/common/x": "",
                 "series/01-a/message": "a: B\n\nc\n", "series/01-a/edits.toml": self.EDIT,
                 "series/03-c/message": "c", "series/03-c/files.toml":
                     'optional = true\n[[files]]\nfrom = "none"\nto = "there"\n'}
        self.assertEqual([commit.subject for commit in self.loaded(files)], ["a: B", "b"])
        third = {path: text for path, text in files.items() if "/03-" in path}
        (commit,) = self.loaded({**third, "none/some": ""})
        self.assertEqual(commit.name, "03-c")

    def test_files(self):
        text = ('[[files]]\nfrom = "a"\nto = "b"\nonly = ["**/*.c", "one"]\nexcept = ["test/**"]\n'
                '[[files]]\nfrom = "a/test/x.h"\nto = "x.h"\n[[files]]\nfrom = "c"\nto = "."\n')
        files = {"series/01-a/message": "a", "series/01-a/files.toml": text, "ab/4.c": "", "c/5": "",
                 **{"a/" + name: "" for name in ("1.c", "i/2.c", "1.h", "one", "i/one", "test/3.c", "test/x.h")}}
        self.assertEqual(self.loaded(files, lambda commits, project: [
            pair for files in commits[0].files for pair in files.list(project)]), [
                ("a/1.c", "b/1.c"), ("a/i/2.c", "b/i/2.c"), ("a/one", "b/one"), ("a/test/x.h", "x.h"),
                ("c/5", "5")])

    def test_file_that_is_there(self):
        """It stays as it is: neither the tree's own files nor those of a commit before are written over."""
        text = '[[files]]\nfrom = "a"\nto = "a"\n'
        files = {"series/01-a/message": "a", "series/01-a/files.toml": text, "a": "new"}
        root = {stubs.ROOT: stubs.MAKER % ("project(" + "rdma-core C)", "64.0", 64)}

        def made(commits, project, tree):
            return apply.make_commit(commits[0], tree, project, apply.Facts(tree, project))
        tree, said = self.loaded(files, lambda *both: made(*both, Memory(root)))
        self.assertEqual((said, tree.text("a")), ([], "new"))
        tree, said = self.loaded(files, lambda *both: made(*both, Memory({**root, "a": "old"})))
        self.assertEqual((said, tree.text("a")), (["a: the tree has this file already"], "old"))

    def test_wrong(self):
        head = '[[edit]]\nfile = "f"\n'
        rows = [
            ("no message", None, "has no message$"), ("no change", "", "changes nothing$"),
            ("no TOML", "[[edit]", "edits.toml: "), ("a key", "[[edits]]\n", "'edits' is no key here$"),
            ("one table", "[edit]\n", r"write \[\[edit\]\]"),
            ("no file", '[[edit]]\ntext = "t"\n', "edit 1: an edit has a file"),
            ("no place", head + 'text = "t"\n', "edit 1: an edit has a file, and says at what$"),
            ("a text of a place", self.EDIT + 'at = "end"\n', "edits.toml: "),
            ("no table", head + 'text = "t"\nat = "end"\n', "edit 1: 'end' is no table$"),
            ("no text", head + 'at = { function = "a", place = "after" }\n', "has either a text or a snippet$"),
            ("no snippet", head + 'snippet = "x"\nat = { function = "a", place = "after" }\n',
             "there is no snippet x$"),
            ("a key of the place", self.EDIT.replace("place", "plaice"), "'plaice' is no key here$"),
            ("a key within", self.EDIT.replace("function", 'within = { funktion = "b" }, pattern'),
             "'funktion' is no key here$"),
            ("a version", self.EDIT + 'since = "v44"\n', "'v44' is no version$"),
        ]
        for name, edits, wanted in rows:
            with self.subTest(name):
                files = {"series/01-a/message": "a"} if edits is not None else {"series/01-a/x": "a"}
                self.assertRaisesRegex(WrongContent, wanted, self.loaded,
                                       {**files, "series/01-a/edits.toml": edits or ""})
        for text, wanted in (('[[files]]\nfrom = "a"\n', "files have a from and a to$"),
                             ('[[template]]\nto = "a"\n', "a template has a from and a to$")):
            with self.subTest(text):
                self.assertRaisesRegex(WrongContent, wanted, self.loaded,
                                       {"series/01-a/message": "a", "series/01-a/files.toml": text})
        self.assertRaisesRegex(WrongContent, "has no commits$", self.loaded, {"series/README.md": ""})


class Texts(unittest.TestCase):
    def test_words_and_lists(self):
        root = stubs.MAKER % ("project(" + "rdma-core C)", "64.1", 59)
        tree = Memory({stubs.ROOT: root, "a/z.cc": "", "a/b/c.cc": "", "a/m.h": "", "b.cc": ""})
        facts = apply.Facts(tree, PROJECT)
        text = "{{version}} {{major}} {{pabi}}\n  {{list **/*.cc}}\n{{it}}\n{{ x }}\n"
        filled = apply.filled(text, "a/new", tree, facts)
        self.assertEqual(filled, "64.1 64 59\n  b/c.cc\n  z.cc\n{{it}}\n{{ x }}\n")
        self.assertRaises(WrongContent, apply.filled, "{{words}}", "a/new", tree, facts)
        self.assertEqual(facts.words["project_version"], PROJECT.version)


class Messages(unittest.TestCase):
    def test_form(self):
        for commit in COMMITS:
            with self.subTest(commit.name):
                lines = commit.message.split("\n")
                self.assertRegex(lines[0], r"^[\w/+.-]+(, [\w/+.-]+)*: [A-Z].*[^.]$")
                self.assertEqual(lines[1], "")
                self.assertTrue(lines[2])
                self.assertLessEqual(max(map(len, lines)), 75)
                self.assertFalse([line for line in lines if line != line.rstrip()])
                # git am takes such a line for the end of the message.
                self.assertFalse([line for line in lines if re.match(r"---|diff -|Index: ", line)])


class Lines(unittest.TestCase):
    def test_lines_of_theirs_are_found(self):
        """A line of the tree must be found among ours, wherever it stands and however it is indented."""
        line = "if (somebody_elses(a)) return a;"
        theirs = real_tree.lines_of("\t%s\nshort_one();\n" % line)
        files = {"a": "x\n  %s  \n" % line, "b": "short_one();\n", "c": "so %s\n" % line}
        self.assertEqual(list(real_tree.equal_lines(theirs, files)), ["a:2: " + line])

    def test_what_may_be_the_same(self):
        """Lines that only name things, and none that does something."""
        rows = [("#include <infiniband/verbs.h>", True), ("// SPDX-License-Identifier: GPL-2.0", True),
                ("case STUB_EVENT_OF_SOME_KIND:", True), ("switch (event->event_type) {", True),
                (".match_stub_version = STUB,", True), ("struct stub_context *context;", True),
                ("struct stub_of_a_device {", True),
                ("struct stub *(*make)(struct stub *a, const void *b,", True),
                ("size_t length, int access);", True),
                ("void *stub, unsigned int access)", True), ("int stub = stub_call(a, b);", False),
                ("return stub_call(context);", False), ("stub_call(context, length, flags);", False),
                ("if (stub->first && stub->second)", False), ("stub->context = context->stub;", False)]
        for line, may in rows:
            with self.subTest(line):
                self.assertEqual(list(real_tree.equal_lines({line}, {"a": line})), [] if may else ["a:1: " + line])


if __name__ == "__main__":
    unittest.main()
