#!/usr/bin/env python3
"""Runs gen_symbols.py on small stock libraries made here: what it accepts, refuses and warns about."""
import argparse
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent


def build(cc, folder, symbols):
    """A shared library with `symbols`: {version: [names]}."""
    library = folder / "libstock.so"
    names = [name for listed in symbols.values() for name in listed]
    (folder / "stock.c").write_text("".join(f"void {name}(void) {{}}\n" for name in names))
    (folder / "stock.map").write_text("".join(
        f"{version} {{ global: {' '.join(name + ';' for name in listed)} }};\n"
        for version, listed in symbols.items()))
    subprocess.run([cc, "-shared", "-fPIC", "-o", library, folder / "stock.c",
                    f"-Wl,--version-script={folder / 'stock.map'}"], check=True)
    return library


def generate(args, folder, library, lists):
    (folder / "symbols.txt").write_text(lists)
    return subprocess.run(
        [sys.executable, HERE / "gen_symbols.py", "--family", "ibverbs", "--nm", args.nm, "--stock", library,
         "--symbols", folder / "symbols.txt", "--out", folder / "out"],
        capture_output=True, text=True)


def accepts(args, folder):
    library = build(args.cc, folder, {"IBVERBS_1.1": ["ibv_open_device", "ibv_new_verb", "ibv_str"],
                                      "IBVERBS_PRIVATE_34": ["verbs_set_ops"]})
    result = generate(args, folder, library,
                      "wrap ibv_open_device\nwrap ibv_later # comment\npass ibv_str\n"
                      "newer ibv_speed IBVERBS_1.16\n")
    assert result.returncode == 0, result.stderr
    assert "ibv_new_verb@IBVERBS_1.1 is unknown" in result.stderr, result.stderr
    assert "ibv_str" not in result.stderr and "verbs_set_ops" not in result.stderr, result.stderr
    table = (folder / "out/trampolines.inc").read_text()
    assert '{"ibv_new_verb", "IBVERBS_1.1"},' in table and "ibv_open_device" not in table, table
    assert '{"verbs_set_ops", nullptr},' in table, table
    script = (folder / "out/front.map").read_text()
    exported, local = script.split("IBVERBS_1.1 {")[1], script.split("local:")[1].split("}")[0]
    assert "ibv_open_device;" in exported, script
    assert "ibv_speed;" in script.split("IBVERBS_1.16 {")[1].split("}")[0], script
    assert "ibv_later;" in local, "a function the stock library lacks would be exported"


def refuses(args, folder):
    later = build(args.cc, folder, {"IBVERBS_1.1": ["ibv_open_device"], "IBVERBS_1.41": ["ibv_x"]})
    result = generate(args, folder, later, "wrap ibv_open_device\n")
    assert result.returncode != 0 and "IBVERBS_1.41" in result.stderr, result
    result = generate(args, folder, later, "keep ibv_open_device\n")
    assert result.returncode != 0 and "symbols.txt:1" in result.stderr, result
    moved = build(args.cc, folder, {"IBVERBS_1.1": ["ibv_open_device"], "IBVERBS_1.15": ["ibv_x"]})
    result = generate(args, folder, moved, "wrap ibv_open_device\nnewer ibv_x IBVERBS_1.16\n")
    assert result.returncode != 0 and "at IBVERBS_1.15" in result.stderr, result
    foreign = build(args.cc, folder, {"IBVERBS_1.1": ["ibv_other"]})
    result = generate(args, folder, foreign, "")
    assert result.returncode != 0 and "the stock library" in result.stderr, result


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--cc", required=True)
    parser.add_argument("--nm", required=True)
    args = parser.parse_args()
    for case in (accepts, refuses):
        with tempfile.TemporaryDirectory() as folder:
            case(args, pathlib.Path(folder))
            print("ok:", case.__name__)


if __name__ == "__main__":
    main()
