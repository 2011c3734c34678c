#!/usr/bin/python3
"""Checks that dependencies between folders point one way: reads every #include and compares it with a map.

    ops -> control -> {net, group} -> {wire, util, fsm}, with the fronts (libibverbs, librdmacm) above;
    the emulator and the judge know none of them; nothing depends on tests, bench and tools;
    only providers/mlx5 may include mlx5dv.h.
"""

import os
import re
import sys
import tempfile

PROVIDER = "providers/shift/"
PARTS = {name: PROVIDER + name
         for name in ("util", "state", "fsm", "wire", "tls", "net", "group", "control", "ops")}


def parts(*names):
    return [PARTS[name] for name in names]


# For each folder, the folders that it may include from beside itself. None means all.
ALLOWED = {
    PROVIDER + "util": [],
    PROVIDER + "state": parts("util"),
    PROVIDER + "fsm": [],
    PROVIDER + "wire": [],
    PROVIDER + "tls": parts("net"),  # the header of its interface
    PROVIDER + "net": parts("util", "wire"),
    PROVIDER + "group": parts("util", "wire", "fsm"),
    PROVIDER + "control": parts("util", "state", "wire", "fsm", "net", "group"),
    PROVIDER + "ops": parts("util", "group", "control"),
    # These tests are scenarios of the whole layer.
    PROVIDER + "control/test": parts("util", "net", "group", "control", "ops"),
    "providers/mlx5": parts("util"),
    "libibverbs": parts("util", "ops"),
    "librdmacm": parts("util"),
    # Its tests compare the header with the code.
    "kernel-headers": parts("util", "wire", "fsm", "net", "group"),
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
}
# A quoted include may start from these roots, beside the file's own folder.
ROOTS = ["", PROVIDER, "emulator/", "libibverbs/", "providers/", "providers/mlx5/"]
SOURCES = (".h", ".hpp", ".c", ".cc", ".cpp", ".S")
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def layer_of(path):
    found = [layer for layer in ALLOWED if path.startswith(layer + "/")]
    return max(found, key=len) if found else None


def resolve(tree, path, name):
    own = os.path.normpath(os.path.join(os.path.dirname(path), name))
    # Tests beside the code may include headers by the roots of their own folder, too.
    for candidate in [own] + [os.path.normpath(root + name) for root in ROOTS]:
        if os.path.isfile(os.path.join(tree, candidate)):
            return candidate
    layer = layer_of(path)
    inside = os.path.normpath(os.path.join(layer, name)) if layer else ""
    return inside if inside and os.path.isfile(os.path.join(tree, inside)) else None


def judge_include(tree, path, mark, name):
    """Returns a complaint, or None."""
    layer = layer_of(path)
    if name.endswith("mlx5dv.h") and not path.startswith("providers/mlx5/"):
        return "mlx5dv.h is included in providers/mlx5 only"
    target = resolve(tree, path, name)
    if target is None:
        # Angle brackets are for the system's headers only. Files that the build makes end in .inc.
        is_made = name.endswith(".inc") or layer == "tests"
        return "no such header in the tree" if mark == '"' and not is_made else None
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


def dead_rows(tree, used):
    """Complains of rows of ALLOWED that nothing in the tree needs."""
    complaints = []
    for layer, others in ALLOWED.items():
        if not os.path.isdir(os.path.join(tree, layer)):
            complaints.append("ALLOWED: there is no folder %s" % layer)
        for other in sorted(set(others or ()) - used.get(layer, set())):
            complaints.append("ALLOWED: nothing in %s includes from %s" % (layer, other))
    return complaints


def check(tree):
    complaints, seen, used = [], 0, {}
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
                target = resolve(tree, path, match[2])
                if target:
                    used.setdefault(layer_of(path), set()).add(layer_of(target))
    return complaints, seen, used


def selftest():
    """Each forbidden direction must be reported, and the allowed one must not."""
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
        complaints, _, used = check(tree)
        dead = dead_rows(tree, used)
    blamed = {c.split(":")[0] for c in complaints}
    wanted = {path for path in files if "bad" in path or "worse" in path}
    print("reported: %s" % ", ".join(sorted(blamed)))
    # The tree has no emulator/host, and its group includes nothing from wire, but something from fsm.
    said = [any(text in row for row in dead)
            for text in ("folder emulator/host", "group includes from %swire" % PROVIDER,
                         "group includes from %sfsm" % PROVIDER)]
    return 0 if blamed == wanted and said == [True, True, False] else 1


def main():
    if sys.argv[1:] == ["--selftest"]:
        return selftest()
    tree = sys.argv[1] if len(sys.argv) > 1 else "."
    complaints, seen, used = check(tree)
    complaints += dead_rows(tree, used)
    for complaint in complaints:
        print(complaint)
    print("%d includes, %d wrong" % (seen, len(complaints)))
    return 1 if complaints or not seen else 0


if __name__ == "__main__":
    sys.exit(main())
