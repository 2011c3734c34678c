#!/usr/bin/python3
"""Tests the judge of pauses with made-up figures: what it passes, what it refuses, and what it does not judge."""

import dataclasses
import os
import tempfile
import unittest

import harness  # noqa: F401 finds the package e2e

from harness import pauses
from harness.build import Build
from harness.pauses import Pause, judge, judge_twice, kind_of, longest_ms, switch_ms
from harness.standstill import Standstill

from clients.rows import ROWS
from e2e import cells

MS = 1_000_000


def runs(excesses, kind="polls", switch=3.0, stock=4.0):
    return [Pause(kind, "run", switch + stock + excess, switch, stock) for excess in excesses]


class StandingStill(unittest.TestCase):
    def test_only_long_sleeps_count_and_only_within_the_span(self):
        still = Standstill()
        for due, woken in ((1.0, 1.1), (2.0, 7.0), (9.0, 10.0)):
            still.note(due, woken)
        self.assertEqual(still.seconds(0, 20), 6)
        self.assertEqual(still.seconds(3, 9.5), 4.5)
        self.assertEqual(still.seconds(7, 9), 0)


class Longest(unittest.TestCase):
    PAUSES = [(0, 90 * MS), (100 * MS, 130 * MS), (200 * MS, 210 * MS), (300 * MS, 400 * MS)]

    def test_only_pauses_of_the_span_count(self):
        self.assertEqual(longest_ms(self.PAUSES, 95 * MS, 250 * MS), 30)
        self.assertEqual(longest_ms(self.PAUSES, 140 * MS, 250 * MS), 10)
        self.assertEqual(longest_ms(self.PAUSES, 220 * MS, 290 * MS), 0)

    def test_a_pause_that_began_before_counts_whole(self):
        self.assertEqual(longest_ms(self.PAUSES, 120 * MS, 250 * MS), 30)
        self.assertEqual(longest_ms(self.PAUSES, 220 * MS, 310 * MS), 100)


class Switch(unittest.TestCase):
    def record(self, pid, qp, evidence, end):
        return {"pid": pid, "qp": qp, "evidence_ns": evidence * MS, "end_ns": end * MS}

    def test_the_last_queue_pair_of_both_ends_counts(self):
        records = [self.record(1, 7, 101, 103), self.record(1, 8, 101, 104), self.record(2, 7, 102, 109)]
        self.assertEqual(switch_ms(records, 100 * MS), 9)

    def test_other_changes_of_the_path_do_not_count(self):
        records = [self.record(1, 7, 50, 60), self.record(1, 7, 101, 103), self.record(1, 7, 500, 600)]
        self.assertEqual(switch_ms(records, 100 * MS), 3)
        self.assertIsNone(switch_ms(records, 700 * MS))


class Judge(unittest.TestCase):
    def only(self, measured, unjudged=""):
        (verdict,) = judge(measured, unjudged)
        return verdict

    def test_a_pause_is_judged_without_the_switch_and_without_stock(self):
        self.assertAlmostEqual(Pause("polls", "run", 80.0, 65.0, 9.0).excess_ms, 6.0)

    def test_pass(self):
        verdict = self.only(runs([-3, 0, 2, 19, 400]))
        self.assertFalse(verdict.failed)
        self.assertIn("5 runs: 2.0 ms beyond", verdict.text())
        self.assertTrue(verdict.text().endswith(": right"))

    def test_fail(self):
        verdict = self.only(runs([-3, 0, 21, 240, 250]))
        self.assertTrue(verdict.failed)
        self.assertTrue(verdict.text().endswith(": FAILED"))

    def test_the_bound_itself_passes(self):
        self.assertFalse(self.only(runs([pauses.BOUND_MS] * 5)).failed)
        self.assertTrue(self.only(runs([pauses.BOUND_MS + 0.1] * 5)).failed)

    def test_too_few_runs(self):
        verdict = self.only(runs([250] * 4))
        self.assertFalse(verdict.failed)
        self.assertIn("4 runs: 250.0 ms beyond", verdict.text())
        self.assertIn("not judged: fewer than 5 runs", verdict.text())

    def test_a_late_machine_has_a_larger_bound(self):
        self.assertFalse(self.only(runs([55] * 5, stock=30.0)).failed)
        self.assertTrue(self.only(runs([65] * 5, stock=30.0)).failed)
        # The bug that a layer keeps what has come for 250 ms is found as long as anything is judged.
        self.assertTrue(self.only(runs([250 - pauses.BUSY_MS] * 5, stock=pauses.BUSY_MS)).failed)

    def test_a_busy_machine(self):
        verdict = self.only(runs([250] * 5, stock=60.0))
        self.assertFalse(verdict.failed)
        self.assertIn("not judged: the machine is too busy", verdict.text())

    def test_one_stock_run_that_did_not_end_does_not_decide(self):
        measured = runs([250] * 4) + runs([0], stock=float("inf"))
        self.assertTrue(self.only(measured).failed)
        self.assertIn("not judged", self.only(runs([250] * 5, stock=float("inf"))).text())

    def test_a_sanitizer(self):
        verdict = self.only(runs([250] * 9), "built with thread")
        self.assertFalse(verdict.failed)
        self.assertIn("not judged: built with thread", verdict.text())

    def test_each_class_by_itself(self):
        verdicts = judge(runs([0] * 5, "polls") + runs([250] * 5, "sleeps") + runs([9], "other"))
        self.assertEqual([(v.kind, v.failed) for v in verdicts],
                         [("other", False), ("polls", False), ("sleeps", True)])
        self.assertEqual(judge([]), [])

    def test_classes(self):
        self.assertEqual({kind_of(sleeps, fault) for sleeps in (True, False) for fault in ("kill", "drop-acks")},
                         {"polls, told fault", "polls, silent fault", "sleeps, told fault",
                          "sleeps, silent fault"})


class Slowed(unittest.TestCase):
    """In which builds times mean nothing."""

    def slowed_by(self, cache):
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "CMakeCache.txt"), "w") as file:
                file.write("A:STRING=1\n" + cache + "\nB:STRING=2\n")
            return Build(folder).slowed_by()

    def test_sanitizers_and_coverage(self):
        self.assertEqual(self.slowed_by("SHIFT_SANITIZE:STRING=address,undefined"), "built with address,undefined")
        self.assertEqual(self.slowed_by("CMAKE_CXX_FLAGS_DEBUG:STRING=-O0 --coverage -g"), "built with coverage")

    def test_others(self):
        self.assertEqual(self.slowed_by("SHIFT_SANITIZE:STRING=\nCMAKE_CXX_FLAGS_DEBUG:STRING=-g"), "")


class Twice(unittest.TestCase):
    def verdicts(self, first, again):
        """The verdicts on one class, whose runs give `first` and, if they are repeated, `again`."""
        self.repeated = []

        def run(number):
            self.repeated.append(number)
            return runs([again[number]])[0] if again[number] is not None else None
        return [verdict for verdict, _ in judge_twice(list(enumerate(runs(first))), run)]

    def test_a_class_that_passes_is_not_repeated(self):
        self.assertFalse(self.verdicts([0] * 5, [250] * 5)[0].failed)
        self.assertEqual(self.repeated, [])

    def test_a_class_that_fails_once_was_a_late_machine(self):
        self.assertFalse(self.verdicts([30] * 5, [0] * 5)[0].failed)
        self.assertEqual(self.repeated, [0, 1, 2, 3, 4])

    def test_a_class_that_fails_twice_is_wrong(self):
        self.assertTrue(self.verdicts([250] * 5, [250] * 5)[0].failed)

    def test_runs_that_break_are_not_judged_again(self):
        self.assertIn("not judged", self.verdicts([250] * 5, [None] * 5)[0].text())


class Told(unittest.TestCase):
    """What a program tells of itself, one number and time for each exchange."""
    ROW = dataclasses.replace(ROWS[0], told=r"^(\d+), ([0-9.]+|inf)$", told_us=2)
    TEXT = "1, 9000.0\n2, 30.0\n3, 500.0\n#, usec\n4, 40.0\n"

    def test_the_longest_after_the_fault(self):
        self.assertEqual(self.ROW.seen_ms([self.TEXT], 0.5), 1.0)
        self.assertEqual(self.ROW.seen_ms([self.TEXT], 0), 18.0)
        self.assertEqual(self.ROW.seen_ms(["", self.TEXT, "5, 700.0\n"], 0.5), 1.4)

    def test_not_seen(self):
        self.assertIsNone(self.ROW.seen_ms(["nothing"], 0))
        self.assertIsNone(self.ROW.seen_ms(["1, inf\n2, inf\n"], 0))
        self.assertIsNone(ROWS[0].seen_ms([self.TEXT], 0))


class Plan(unittest.TestCase):
    def test_a_campaign_measures_enough_runs_of_each_class_and_all_operations(self):
        for seed in range(20):
            measured = [cell for cell in cells.plan(seed, 160) if cell.waits]
            counts = {}
            for cell in measured:
                kind = kind_of(cell.waits == "sleeps", cell.fault)
                counts.setdefault(kind, []).append(cell.op)
                self.assertEqual((cell.kind, "--events" in cell.options), ("masked", cell.waits == "sleeps"))
            self.assertEqual([sorted(ops) for ops in counts.values()], [sorted(cells.OPS)] * 4)

    def test_a_short_campaign_measures_none(self):
        self.assertEqual([cell for cell in cells.plan(1, 60) if cell.waits], [])


if __name__ == "__main__":
    unittest.main()
