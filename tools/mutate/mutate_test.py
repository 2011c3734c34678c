#!/usr/bin/python3
"""Tries tools/mutate on a source of its own: what is found, that every change compiles and takes effect, and that
none does without its number."""

import json
import os
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
try:
    import mutate
    import sites
except ImportError:
    print("skipped: clang's Python bindings are missing (Debian: python3-clang)")
    sys.exit(77)

SOURCE = """
#include <cstdio>
#define TWICE(x) ((x) + (x))
static_assert(1 + 1 == 2);
constexpr int kFive = 4 + 1;
int steps = 0;
bool is_small(int a, int b) { return a < 3 && !(b == 7); }
int count(int a) {
  steps++;
  steps += 2;
  for (int i = 0; i < a; i++) steps = TWICE(steps);
  return a + 1;
}
int main() {
  const int last = count(2);
  std::printf("%d %d %d %d %d\\n", is_small(1, 2), is_small(3, 2), is_small(1, 7), last, steps);
}
"""


class Mutate(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.source = os.path.join(cls.folder.name, "source.cc")
        with open(cls.source, "w", encoding="utf-8") as file:
            file.write(SOURCE)
        entry = {"directory": cls.folder.name, "file": cls.source, "command": "c++ -std=gnu++20 -c " + cls.source}
        with open(os.path.join(cls.folder.name, "compile_commands.json"), "w", encoding="utf-8") as file:
            json.dump([entry], file)
        cls.found = sites.find(cls.folder.name, lambda path: path == cls.source)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def program(self, chosen):
        """Compiles the source with these changes, numbered from 1."""
        mutate.write([mutate.Mutant(number, site) for number, site in enumerate(chosen, 1)])
        out = os.path.join(self.folder.name, "program")
        subprocess.run(["c++", "-std=gnu++20", "-include", os.path.join(HERE, "mutant.h"), "-o", out, self.source],
                       check=True)
        mutate.restore(self.source)
        return out

    @staticmethod
    def output(program, number, hits=None):
        env = dict(os.environ, SHIFT_MUTANT=str(number))
        if hits is not None:
            env["SHIFT_MUTANT_HITS"] = hits
        return subprocess.run([program], env=env, check=True, capture_output=True, text=True).stdout

    def test_every_kind_is_found_once(self):
        names = sorted((site.line, site.name) for site in self.found)
        self.assertEqual(names, sorted([
            (7, "< becomes <="), (7, "one more"), (7, "&& becomes ||"), (7, "! left out"), (7, "== becomes !="),
            (7, "one more"), (7, "result negated"), (9, "left out"), (10, "left out"), (10, "one more"),
            (11, "< becomes <="), (12, "+ becomes -"), (12, "one more")]))

    def test_each_change_takes_effect_by_its_number_only(self):
        healthy = "1 0 0 3 12\n"
        for site in self.found:
            program = self.program([site])
            self.assertEqual(self.output(program, 0), healthy, site)
            self.assertNotEqual(self.output(program, 1), healthy, site)

    def test_changes_that_do_not_overlap_share_a_program(self):
        drawn, spare = mutate.draw(self.found, 100, 1)
        self.assertLess(len(drawn), len(self.found))
        self.assertEqual(spare, [])
        program = self.program(drawn)
        self.assertEqual(self.output(program, 0), "1 0 0 3 12\n")
        for number in range(1, len(drawn) + 1):
            self.assertNotEqual(self.output(program, number), "1 0 0 3 12\n", drawn[number - 1])

    def test_a_seed_draws_the_same_again(self):
        self.assertEqual(mutate.draw(self.found, 5, 7), mutate.draw(self.found, 5, 7))
        self.assertNotEqual(mutate.draw(self.found, 5, 7), mutate.draw(self.found, 5, 8))

    def test_what_is_reached_is_told(self):
        program = self.program([site for site in self.found if site.name == "left out"])
        hits = os.path.join(self.folder.name, "hits")
        self.output(program, 0, hits)
        with open(hits, encoding="utf-8") as file:
            self.assertEqual(file.read().split(), ["1", "2"])

    def test_reasons_name_places_that_there_are(self):
        layer = os.path.join(mutate.ROOT, mutate.LAYER)
        for file, line, _ in mutate.equivalents():
            with open(os.path.join(layer, file), encoding="utf-8") as source:
                self.assertIn(line, [text.strip() for text in source], file)


if __name__ == "__main__":
    unittest.main()
