#!/usr/bin/python3
"""Tests the judge of the bed: it must see each of these wrongs. The test `gpu_judge` calls this program."""

import os
import tempfile
import types
import unittest

import harness  # noqa: F401  pylint: disable=unused-import

from gpu.cases import Case, Fault
from gpu.job import judge

THING = {"op": "all_reduce", "dtype": "float32", "bytes": 8}


TIMES = [(1.0, 9.0)] * 10 + [(10.2, 0.5), (12.0, 0.7)]


def told(digest="x", losses=()):
    return {"results": [{"thing": THING, "digest": digest, "losses": list(losses), "times": TIMES}]}


class FakeJob:
    """What a job looks like after its run."""

    def __init__(self, case, results, switched=("1", "2"), log=""):
        self.case, self.fault_s, self._results, self._switched = case, 10.0, results, switched
        self._directory = tempfile.TemporaryDirectory()
        lines = ["10.5 shift[1]: error", log]
        self.ranks = {host: types.SimpleNamespace(lines=lines, started=0.0, ended=50.0) for host in "ab"}
        for host in "ab":
            with open(self.path(host + ".log"), "w") as file:
                file.write("\n".join(lines))

    def path(self, name):
        return os.path.join(self._directory.name, name)

    def results(self):
        return self._results

    def records(self, kind):
        return [{"pid": pid, "us": 5, "detector": "peer"} for pid in self._switched] if kind == "switched" else []


CASE = Case("x", (THING,), (Fault("a/mlx5_0", "kill", 0),))
GOOD = {"a": told(), "b": told()}
ENDED = {"a": 0, "b": 0}


class Judge(unittest.TestCase):
    def problem(self, results=None, codes=None, reference=None, case=CASE, **more):
        job = FakeJob(case, GOOD if results is None else results, **more)
        return judge(job, codes or ENDED, GOOD if reference is None else reference)

    def test_all_is_good(self):
        problem, measured = self.problem()
        self.assertEqual(problem, "")
        self.assertEqual((measured["median_ms"], measured["longest_ms"]), (600, 500))

    def test_another_result(self):
        self.assertIn("another result", self.problem({"a": told(), "b": told("y")})[0])

    def test_another_loss(self):
        self.assertIn("another result", self.problem({"a": told(), "b": told(losses=["0x1p+0"])})[0])

    def test_a_result_too_few(self):
        with self.assertRaises(ValueError):
            self.problem({"a": {"results": []}, "b": told()})
        self.assertEqual(self.problem({"a": told()})[0], "a rank told no result")

    def test_nothing_to_compare_with(self):
        self.assertIn("nothing to compare with", self.problem(reference={})[0])

    def test_a_fault_that_hit_nothing(self):
        self.assertIn("hit nothing", self.problem(switched=("1",))[0])

    def test_a_second_fault_that_hit_nothing(self):
        case = Case("x", (THING,), CASE.faults, detectors=("peer", "completion"))
        self.assertIn("noticed by completion", self.problem(case=case)[0])

    def test_a_rank_that_ended_or_hung(self):
        self.assertIn("ended with -11", self.problem(codes={"a": 0, "b": -11})[0])
        self.assertIn("had to be killed", self.problem(codes={"a": None, "b": 0})[0])

    def test_stock_that_outlived_the_fault(self):
        dies = Case("x", (THING,), CASE.faults, layer=False, dies=True)
        self.assertIn("outlived", self.problem(case=dies)[0])
        log = "44.25 vm:1:1 [0] x.cc:1 NCCL WARN NET/IB: Got completion from peer 1<2> with status=ERR(12) opcode"
        problem, measured = self.problem(case=dies, codes={"a": -6, "b": -6}, log=log)
        self.assertEqual(problem, "")
        self.assertEqual((measured["notice_s"], measured["notice"], measured["gone_s"]), (34.25, "ERR(12)", 40.0))

    def test_a_hang_is_never_allowed(self):
        may = Case("x", (THING,), CASE.faults, may_die=True)
        self.assertEqual(self.problem(case=may, codes={"a": 1, "b": 1})[0], "")
        self.assertIn("killed", self.problem(case=may, codes={"a": 1, "b": None})[0])


if __name__ == "__main__":
    unittest.main()
