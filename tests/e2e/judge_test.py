#!/usr/bin/python3
"""Tests what the judge of a campaign excuses: the silence of a dead NIC on the stock library, and nothing else."""

import unittest

import harness  # noqa: F401 finds the package e2e

from harness.checker import DEATH, is_only_silence

MISSING = "completion-missing"


def report(*violations, events=()):
    return {"violations": [{"name": name, "detail": ""} for name in violations], "async_events": list(events)}


class Silence(unittest.TestCase):
    def test_a_dead_nic_owes_no_completion(self):
        self.assertTrue(is_only_silence([report(MISSING, events=[DEATH]), report()]))

    def test_a_nic_that_lives_does(self):
        self.assertFalse(is_only_silence([report(MISSING), report()]))
        self.assertFalse(is_only_silence([report(MISSING), report(events=[DEATH])]))

    def test_nothing_else_is_excused(self):
        self.assertFalse(is_only_silence([report(MISSING, "payload-mismatch", events=[DEATH]), report()]))
        self.assertFalse(is_only_silence([report(MISSING, events=[DEATH]), report("ghost-write")]))

    def test_an_end_that_wrote_no_result_is_not(self):
        self.assertFalse(is_only_silence([{}, {}]))


if __name__ == "__main__":
    unittest.main()
