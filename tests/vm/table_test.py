#!/usr/bin/python3
"""Tests that nothing of the table is lost or invented when a later run goes on from it."""

import os
import tempfile
import unittest

import harness  # noqa: F401 finds the package vm

from vm.cases import Cell
from vm.table import Book
from vm.vm import Case


def case(name, row="", *columns):
    return Case(name, None, row, columns)


class Table(unittest.TestCase):
    def setUp(self):
        self.book = Book("tests/vm/vm.py --all")
        self.book.kernel = "6.1.0-1-amd64"
        down, acks, unbind = ("link-down", "a"), ("drop-acks", "b"), ("unbind", "a")
        self.right = case("one", "prog -x", down)
        self.as_stock = case("two", "prog -x", acks)
        self.wrong = case("three", "prog -x", unbind)
        self.book.add(self.right, "", [Cell("prog -x", *down, 0.5, 2.0)])
        self.book.add(self.as_stock, "", [Cell("prog -x", *acks, None, None)])
        self.book.add(self.wrong, "it hung", [])
        self.once = case("four", "prog -y", down)
        self.book.add(self.once, "", [Cell("prog -y", *down, 1.5, None)])
        self.lasting = case("seven", "prog -y", unbind)
        self.book.add(self.lasting, "", [Cell("prog -y", *unbind, 1.5, None)])
        self.other_right, self.other_wrong = case("healthy: as stock"), case("to the end")
        self.book.add(self.other_right, "", [])
        self.book.add(self.other_wrong, "no", [])
        self.book.run_again(self.right)

    def reread(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "table.md")
            self.book.write(path)
            book = Book("another command")
            book.read(path)
        return book

    def test_is_written_again_as_it_was(self):
        self.assertEqual(self.reread().text(), self.book.text())

    def test_tells_what_is_left_to_run(self):
        book = self.reread()
        for known in (self.right, self.as_stock, self.lasting, self.other_right):
            self.assertIs(book.verdict(known), True, known.name)
        for failed in (self.wrong, self.other_wrong):
            self.assertIs(book.verdict(failed), False, failed.name)
        for missing in (self.once, case("five", "prog -y", ("drop-acks", "a")), case("six")):
            self.assertIsNone(book.verdict(missing), missing.name)

    def test_a_case_of_several_cells_is_run_for_any_that_is_missing(self):
        both = case("trip", "prog -y", ("link-down", "a"), ("link-down", "b"))
        self.assertIsNone(self.reread().verdict(both))


if __name__ == "__main__":
    unittest.main()
