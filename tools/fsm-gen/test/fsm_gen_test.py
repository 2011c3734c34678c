"""The document and the model show the state machine as it is; fsm-gen would notice if not."""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

FSM_GEN, DOCUMENT, MODEL_TABLE = sys.argv[1:4]


def fsm_gen(*args):
    return subprocess.run([FSM_GEN, *args], capture_output=True, text=True)


class FsmGen(unittest.TestCase):
    def test_document_is_up_to_date(self):
        result = fsm_gen("--check", DOCUMENT)
        self.assertEqual(result.returncode, 0, result.stderr)

    def test_change_is_noticed_and_mended(self):
        original = pathlib.Path(DOCUMENT).read_text()
        self.assertIn("| path-fault | fencing |", original)
        with tempfile.TemporaryDirectory() as folder:
            copy = pathlib.Path(folder, "copy.md")
            copy.write_text(original.replace("| path-fault | fencing |", "| path-fault | active |"))
            self.assertEqual(fsm_gen("--check", str(copy)).returncode, 1)
            self.assertEqual(fsm_gen("--update", str(copy)).returncode, 0)
            self.assertEqual(copy.read_text(), original)

    def test_model_is_up_to_date(self):
        with tempfile.TemporaryDirectory() as folder:
            fresh = pathlib.Path(folder, "table.pml")
            self.assertEqual(fsm_gen("--promela", str(fresh)).returncode, 0)
            self.assertEqual(pathlib.Path(MODEL_TABLE).read_text(), fresh.read_text(),
                             "run: fsm-gen --promela model/table.pml")
            self.assertEqual(fsm_gen("--promela", str(fresh / "no")).returncode, 1)

    def test_document_without_markers_is_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            for text in ("nothing\n", "<!-- fsm-gen: markdown -->\nnot closed\n",
                         "<!-- fsm-gen: poem -->\n<!-- fsm-gen: end -->\n"):
                copy = pathlib.Path(folder, "copy.md")
                copy.write_text(text)
                self.assertEqual(fsm_gen("--check", str(copy)).returncode, 1, text)
                self.assertEqual(fsm_gen("--update", str(copy)).returncode, 1, text)
                self.assertEqual(copy.read_text(), text)

    def test_json_holds_every_cell_once(self):
        table = json.loads(fsm_gen("json").stdout)
        cells = {(c["state"], c["event"]) for c in table["cells"]}
        self.assertEqual(len(cells), len(table["cells"]))
        self.assertEqual(cells, {(s, e) for s in table["states"] for e in table["events"]})
        for cell in table["cells"]:
            self.assertIn(cell["next"], table["states"])
            self.assertIn(cell["kind"], ("transition", "ignore", "impossible"))

    def test_other_forms(self):
        self.assertIn('"active" -> "fencing"', fsm_gen("dot").stdout)
        self.assertIn("active --> fencing: path-fault", fsm_gen("mermaid").stdout)
        self.assertEqual(fsm_gen("poem").returncode, 2)
        self.assertEqual(fsm_gen().returncode, 2)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
