#!/usr/bin/env python3
"""Are the benchmarks' outputs complete? Tiny runs; no figure is judged, only that it is there."""

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

import performance_page
import performance_picture
import perftest_cost
from harness.devices import namespace_words

HERE = pathlib.Path(__file__).resolve().parent
BUILD = None

RINGS = {"post_send", "ibv_wr_*", "post_recv", "poll_cq", "start_poll"}
CONTROL = {"create_cq", "create_qp", "destroy_cq", "destroy_qp", "modify_qp INIT", "modify_qp RTR",
           "modify_qp RTS", "reg_mr 4 KiB", "reg_mr 1 MiB", "dereg_mr 4 KiB", "dereg_mr 1 MiB"}
PROTECTED = RINGS - {"start_poll"}


# What perftest prints of a latency, of a rate, and where it could not measure.
PERFTEST = {"8       5000          3.79           24.10        4.62     \t  4.99  2.09   \t  14.00   24.10 ": 4.62,
            "64         200000           0.00               97.53  \t\t   1.597873": 1.597873,
            "64         200000           0.00               inf  \t\t   inf": None}


def cells(line):
    return [cell.strip() for cell in line.strip("|").split("|")]


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
            for manner, figure in ring["figures"].items():
                self.assertGreater(figure["middle"] if isinstance(figure, dict) else figure, 0,
                                   f"{ring['name']}, {manner}")
            self.assertEqual({*ring["beyond"], "stock"}, set(ring["figures"]))
            self.assertIn("notes", ring["beyond"])
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
        text, result = output("instructions.py", "--rounds", "1", "--wrs", "16", "--ceilings")
        self.check_rings(result["rings"], text)

    def check_page(self, page, rows):
        """Each of these rows is in a table, and each table is filled."""
        header, seen = [], set()
        for line in page.split("\n"):
            if not line.startswith("|"):
                header = []
                continue
            header = header or cells(line)
            self.assertEqual(len(cells(line)), len(header), line)
            self.assertTrue(all(cells(line)[:2]), line)
            seen.add(cells(line)[0])
        self.assertEqual(rows - seen, set())
        for heading in ("Ring calls", "Instructions", "Where a budget is missed", "Control verbs", "Memory",
                        "perftest", "What bounds it"):
            self.assertRegex(page, rf"(?m)^##+ {heading}$\n\n[^#\n]")

    def test_performance(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "docs"
            _, result = output("performance.py", "--quick", "--markdown", str(path / "page.md"),
                               "--picture", str(path / "page.svg"))
            page = (path / "page.md").read_text()
            rows = {entry["name"] for kind in ("rings", "control") for entry in result["verbs"][kind]}
            self.check_page(page, rows | {"128 places, idle", "1024 places, used"})
            self.check_rings(result["verbs"]["rings"], page)
            if result["instructions"]:
                self.check_rings(result["instructions"], page)
            entry = {"figures": dict.fromkeys(("stock", "copies", "notes"), {"middle": 2, "spread": 0.5}),
                     "beyond": dict.fromkeys(("copies", "notes"), {"middle": 0, "spread": 1})}
            result["perftest"] = {"version": "6", "repeat": 1, "rows": [
                {"name": row.name, "unit": row.unit, **entry} for row in perftest_cost.ROWS]}
            page = performance_page.page(result, "page.svg")
            self.check_page(page, rows | {f"`{row.name}`" for row in perftest_cost.ROWS})
            self.check_picture(result, path)

    def check_picture(self, result, folder):
        """It has a name for each row, and the same figures give the same picture."""
        if not performance_picture.draw(result, folder / "first.svg"):
            return  # python3-matplotlib is missing
        performance_picture.draw(result, folder / "second.svg")
        text = (folder / "first.svg").read_text()
        self.assertEqual(text, (folder / "second.svg").read_text())
        for ring in result["verbs"]["rings"]:
            self.assertIn(f">{ring['name']}<", text)
        self.assertNotIn("<dc:date>", text)

    def test_perftest_figures(self):
        for line, figure in PERFTEST.items():
            tool = "ib_write_lat" if line.startswith("8 ") else "ib_write_bw"
            row = perftest_cost.Row(tool, int(line.split()[0]), 5000)
            self.assertEqual(row.figure(f" #bytes\n {line} \n-----\n"), figure)

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
        with tempfile.TemporaryDirectory() as folder:
            picture = os.path.join(folder, "switch.svg")
            text, result = output("switch_time.py", "--qps", "2", "--faults", "link-down", "--repeat",
                                  "1", "--key", "--picture", picture)
            if "matplotlib is missing" not in text:
                with open(picture, encoding="utf-8") as file:
                    self.assertIn("emulated NICs, link-down", file.read())
        self.assertEqual(result["problems"], [])
        self.assertEqual([row["key"] for row in result["rows"]], [False, True])
        for row in result["rows"]:
            for figure in ("detection", "fence", "switch_qp", "switch_all"):
                self.assertGreater(row[figure], 0, figure)
            self.assertGreater(row["spent_control"], 0)
        self.assertIn("link-down", text)
        (own,) = result["own"]
        self.assertEqual(own["qps"], 2)
        for us in (own["all_us"], own["commands_us"], *own["control_us"]):
            self.assertGreater(us, 0)
        self.assertGreaterEqual(own["messages"], 2 * 3, "each QP says Switch, and both ends Progress")

    def test_spread(self):
        text, result = output("spread.py", "--nics", "3", "--qps", "2", "--rate", "8", "--seconds", "2",
                              "--ceiling", "1e9")
        self.assertEqual(result["problems"], [])
        self.assertEqual([row["manner"] for row in result["results"]], ["capacity", "one"])
        for row, nics in zip(result["results"], (2, 1)):
            self.assertEqual(sum(row["queue_pairs"].values()), 2, "all moved away from the NIC that failed")
            self.assertLessEqual(len(row["queue_pairs"]), nics)
            self.assertEqual(len(row["slowdowns"]), 3, "one for each process")
            self.assertGreater(row["slowdown"], 0)
        self.assertIn("capacity", text)

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
