"""The documents and the model show the state machine as it is; fsm-gen would notice if not."""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

FSM_GEN, DOCS, MODEL_TABLE = sys.argv[1:4]


def fsm_gen(*args):
    return subprocess.run([FSM_GEN, *args], capture_output=True, text=True)


class FsmGen(unittest.TestCase):
    def test_documents_are_up_to_date(self):
        result = fsm_gen("--check", DOCS)
        self.assertEqual(result.returncode, 0, result.stderr)

    def test_change_is_noticed_and_mended(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(fsm_gen("--check", folder).returncode, 1)
            self.assertEqual(fsm_gen("--docs", folder).returncode, 0)
            for name, text in (("state-machine.md", "| path-fault | fencing |"),
                               ("state-machine.svg", ">path-fault</text>")):
                file = pathlib.Path(folder, name)
                original = file.read_text()
                self.assertIn(text, original)
                file.write_text(original.replace(text, text.replace("path-fault", "deadline"), 1))
                result = fsm_gen("--check", folder)
                self.assertEqual(result.returncode, 1)
                self.assertIn(name, result.stderr)
                self.assertEqual(fsm_gen("--docs", folder).returncode, 0)
                self.assertEqual(file.read_text(), original)

    def test_model_is_up_to_date(self):
        with tempfile.TemporaryDirectory() as folder:
            fresh = pathlib.Path(folder, "table.pml")
            self.assertEqual(fsm_gen("--promela", str(fresh)).returncode, 0)
            self.assertEqual(pathlib.Path(MODEL_TABLE).read_text(), fresh.read_text(),
                             "run: fsm-gen --promela model/table.pml")
            self.assertEqual(fsm_gen("--promela", str(fresh / "no")).returncode, 1)

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
        self.assertIn("<svg ", fsm_gen("svg").stdout)
        self.assertEqual(fsm_gen("poem").returncode, 2)
        self.assertEqual(fsm_gen().returncode, 2)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
