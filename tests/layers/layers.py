#!/usr/bin/python3
"""Dependencies between folders point one way: reads every #include and compares it with the map.

    fsm, wire -> group -> control, ops -> libibverbs; the emulator and the judge know none of them;
    nothing depends on tests, bench and tools; mlx5dv.h is for providers/mlx5 alone.
"""

import os
import re
import sys
import tempfile

PROVIDER = "providers/shift/"
BELOW_OPS = [PROVIDER + p for p in ("util", "fsm", "wire", "group", "control")]

# Folder: the folders it may include from, beside itself. None: all.
ALLOWED = {
    PROVIDER + "util": [],
    PROVIDER + "fsm": [],
    PROVIDER + "wire": [PROVIDER + "util"],
    PROVIDER + "group": BELOW_OPS[:3],
    PROVIDER + "control": BELOW_OPS[:4],
    PROVIDER + "ops": BELOW_OPS,
    "providers/mlx5": [PROVIDER + "util", PROVIDER + "group"],
    "libibverbs": BELOW_OPS + [PROVIDER + "ops"],
    "librdmacm": BELOW_OPS + [PROVIDER + "ops"],
    "kernel-headers": [],
    "emulator/fabric": [],
    "emulator/nic": ["emulator/fabric"],
    "emulator/uverbs": ["emulator/fabric", "emulator/nic"],
    "emulator/host": ["emulator/fabric", "emulator/nic", "emulator/uverbs"],
    "emulator/fuzz": ["emulator/fabric", "emulator/nic", "emulator/uverbs"],
    "tests/traffic": [],
    "tests": None,
    "bench": None,
    "tools": None,
    "model": None,
    "sim": None,
}
# Where a quoted include may start from, beside the file's own folder.
ROOTS = ["", PROVIDER, "emulator/", "libibverbs/", "providers/", "providers/mlx5/"]
SOURCES = (".h", ".hpp", ".c", ".cc", ".cpp", ".S")
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def layer_of(path):
    found = [layer for layer in ALLOWED if path.startswith(layer + "/")]
    return max(found, key=len) if found else None


def resolve(tree, path, name):
    own = os.path.normpath(os.path.join(os.path.dirname(path), name))
    # Tests beside the code include their folder's headers by the folder's own roots too.
    for candidate in [own] + [os.path.normpath(root + name) for root in ROOTS]:
        if os.path.isfile(os.path.join(tree, candidate)):
            return candidate
    layer = layer_of(path)
    inside = os.path.normpath(os.path.join(layer, name)) if layer else ""
    return inside if inside and os.path.isfile(os.path.join(tree, inside)) else None


def judge_include(tree, path, mark, name):
    """A complaint, or None."""
    layer = layer_of(path)
    if name.endswith("mlx5dv.h") and not path.startswith("providers/mlx5/"):
        return "mlx5dv.h is included in providers/mlx5 only"
    target = resolve(tree, path, name)
    if target is None:
        # Headers of ours are never included with angle brackets; those are the system's.
        # Files that the build makes end in .inc.
        is_made = name.endswith(".inc") or layer == "tests"
        return "no such header of ours" if mark == '"' and not is_made else None
    other = layer_of(target)
    if other is None or other == layer or ALLOWED[layer] is None:
        return None
    if other not in ALLOWED[layer]:
        return "%s must not depend on %s" % (layer, other)
    return None


def sources(tree):
    for top in sorted({layer.split("/")[0] for layer in ALLOWED}):
        for folder, folders, files in os.walk(os.path.join(tree, top)):
            folders[:] = [f for f in folders if not f.startswith((".", "build"))]
            for name in sorted(files):
                if name.endswith(SOURCES):
                    yield os.path.relpath(os.path.join(folder, name), tree)


def check(tree):
    complaints, seen = [], 0
    for path in sources(tree):
        if layer_of(path) is None:
            complaints.append("%s: belongs to no layer" % path)
            continue
        with open(os.path.join(tree, path), errors="replace") as file:
            for number, line in enumerate(file, 1):
                match = INCLUDE.match(line)
                if not match:
                    continue
                seen += 1
                complaint = judge_include(tree, path, *match.groups())
                if complaint:
                    complaints.append("%s:%d: %s: %s" % (path, number, line.strip(), complaint))
    return complaints, seen


def selftest():
    """Each forbidden direction must be reported, the allowed one not."""
    files = {
        PROVIDER + "fsm/fsm.h": "",
        PROVIDER + "group/journal.h": '#include "fsm/fsm.h"\n',
        PROVIDER + "fsm/bad.cc": '#include "group/journal.h"\n',
        "emulator/nic/bad.cc": '#include "group/journal.h"\n',
        "tests/traffic/bad.cc": '#include "../../providers/shift/group/journal.h"\n',
        PROVIDER + "ops/bad.cc": "#include <infiniband/mlx5dv.h>\n",
        "tests/e2e/helper.h": "",
        PROVIDER + "ops/worse.cc": '#include "tests/e2e/helper.h"\n',
    }
    with tempfile.TemporaryDirectory() as tree:
        for path, text in files.items():
            os.makedirs(os.path.join(tree, os.path.dirname(path)), exist_ok=True)
            with open(os.path.join(tree, path), "w") as file:
                file.write(text)
        complaints, _ = check(tree)
    blamed = {c.split(":")[0] for c in complaints}
    wanted = {path for path in files if "bad" in path or "worse" in path}
    print("reported: %s" % ", ".join(sorted(blamed)))
    return 0 if blamed == wanted else 1


def main():
    if sys.argv[1:] == ["--selftest"]:
        return selftest()
    complaints, seen = check(sys.argv[1] if len(sys.argv) > 1 else ".")
    for complaint in complaints:
        print(complaint)
    print("%d includes, %d wrong" % (seen, len(complaints)))
    return 1 if complaints or not seen else 0


if __name__ == "__main__":
    sys.exit(main())
