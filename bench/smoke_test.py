#!/usr/bin/env python3
"""Are the benchmarks' outputs complete? Tiny runs; no figure is judged, only that it is there."""

import argparse
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

from harness.devices import namespace_words

HERE = pathlib.Path(__file__).resolve().parent
BUILD = None

RINGS = {"post_send", "ibv_wr_*", "post_recv", "poll_cq", "start_poll"}
CONTROL = {"create_cq", "create_qp", "destroy_cq", "destroy_qp", "modify_qp INIT", "modify_qp RTR",
           "modify_qp RTS", "reg_mr 4 KiB", "reg_mr 1 MiB", "dereg_mr 4 KiB", "dereg_mr 1 MiB"}
PROTECTED = RINGS - {"start_poll"}


def output(script, *words):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "result.json"
        done = subprocess.run([sys.executable, str(HERE / script), "--build", str(BUILD),
                               "--json", str(path), *words], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, check=False)
        if done.returncode != 0:
            raise AssertionError(f"{script}: status {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout, json.loads(path.read_text())


class Smoke(unittest.TestCase):
    def check_rings(self, rings, text):
        self.assertEqual({ring["name"].split()[0].rstrip(",") for ring in rings}, RINGS)
        for ring in rings:
            self.assertGreater(ring["stock"], 0, ring["name"])
            self.assertGreater(ring["shift"], 0, ring["name"])
            self.assertIn(ring["name"], text)
            if ring["name"].split()[0].rstrip(",") in PROTECTED:
                self.assertTrue(ring["protected"], ring["name"] + " ran past our layer")

    def test_verbs_cost(self):
        text, result = output("verbs_cost.py", "--repeat", "1", "--rounds", "2", "--control", "4")
        self.assertTrue(result["engine_paused"])
        self.check_rings(result["rings"], text)
        self.assertEqual({entry["name"] for entry in result["control"]}, CONTROL)

    @unittest.skipUnless(shutil.which("valgrind"), "valgrind is not installed")
    def test_instructions(self):
        text, result = output("instructions.py", "--rounds", "1", "--wrs", "16")
        self.check_rings(result["rings"], text)

    def test_control_cost(self):
        text, result = output("control_cost.py", "--repeat", "1", "--handshakes", "2", "--frames", "3",
                              "--rounds", "2", "--messages", "5")
        (run,) = result["runs"]
        for key in ("handshake", "message"):
            self.assertIn(key, text)
            for side in ("plain", "keyed"):
                self.assertGreater(run[key][side]["median"], 0, key)
        self.assertEqual([frame["bytes"] for frame in run["frames"]], [73, 4096, 239616])
        for frame in run["frames"]:
            for part in ("seal", "open"):
                self.assertGreater(frame[part]["median"], 0, part)

    def test_switch_time(self):
        text, result = output("switch_time.py", "--qps", "2", "--faults", "link-down", "--repeat",
                              "1", "--key")
        self.assertEqual(result["problems"], [])
        self.assertEqual([row["key"] for row in result["rows"]], [False, True])
        for row in result["rows"]:
            for figure in ("detection", "fence", "switch_qp", "switch_all"):
                self.assertGreater(row[figure], 0, figure)
        self.assertIn("link-down", text)

    def test_detection_time(self):
        text, result = output("detection_time.py", "--only", "port-event", "link-state", "--repeat",
                              "1")
        rows = {row["detector"]: row for row in result["rows"]}
        wanted = {"port-event", "link-state"} if namespace_words() else {"port-event"}
        self.assertEqual(set(rows), wanted)
        for detector, row in rows.items():
            self.assertIn(detector, text)
            # Which end noticed first is chance where both do; that none did would be a failure.
            self.assertIsNotNone(row["first_sign"], detector)
            self.assertGreater(row["first_sign"], 0)


if __name__ == "__main__":
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--build", type=pathlib.Path, required=True)
    known, rest = arguments.parse_known_args()
    BUILD = known.build
    unittest.main(argv=[sys.argv[0], *rest])
