#!/usr/bin/python3
"""Tests how the records of a running program are read: half a line is left for the next look, and none is told
twice."""

import os
import tempfile
import unittest

import harness  # noqa: F401 finds the package e2e

from harness.events import EventTail


class Tail(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = os.path.join(folder.name, "events")
        self.tail = EventTail(self.path, "switched")

    def write(self, text):
        with open(self.path, "a") as file:
            file.write(text)

    def qps(self):
        return [record["qp"] for record in self.tail.look()]

    def test_no_file_yet(self):
        self.assertEqual(self.qps(), [])

    def test_other_kinds_are_passed_over(self):
        self.write('{"event":"state","qp":1}\n{"event":"switched","qp":2}\n')
        self.assertEqual(self.qps(), [2])

    def test_half_a_line_waits_for_its_end(self):
        self.write('{"event":"switched","qp":1}\n{"event":"switched",')
        self.assertEqual(self.qps(), [1])
        self.assertEqual(self.qps(), [1])
        self.write('"qp":2}\n{"event":"switched","qp":3}\n')
        self.assertEqual(self.qps(), [1, 2, 3])
        self.assertEqual(self.qps(), [1, 2, 3])


if __name__ == "__main__":
    unittest.main()
