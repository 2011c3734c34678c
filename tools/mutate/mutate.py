#!/usr/bin/python3
"""How good are the tests? Changes single operators of providers/shift, drawn from a seed, and tells which of the
changes no unit test and no short simulation notices.

All changes are compiled into one copy of the sources, each behind a switch (mutant.h); so one build serves all of
them. Needs python3-clang. A change that alters nothing one could see stands in equivalent.json with its reason.
"""

import argparse
import collections
import concurrent.futures
import json
import os
import random
import re
import shutil
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.normpath(os.path.join(HERE, "..", ".."))
LAYER = os.path.join("providers", "shift")
SKIPPED = 77

# A test program of the copy, and how long it takes when nothing is changed.
Program = collections.namedtuple("Program", "name command seconds reached")
Mutant = collections.namedtuple("Mutant", "number site")


def say(text):
    print(text, flush=True)


def folder_of(site, tree):
    return os.path.relpath(site.file, os.path.join(tree, LAYER)).split(os.sep)[0]


def key_of(site, tree):
    """What a change is known by in equivalent.json: lines move, so it has no line number."""
    return (os.path.relpath(site.file, os.path.join(tree, LAYER)), site.code, site.name)


def draw(found, count, seed):
    """`count` places that do not overlap, and those that take the place of one that cannot be compiled."""
    shuffled = list(found)
    random.Random(seed).shuffle(shuffled)
    taken, spans = [], collections.defaultdict(list)
    for site in shuffled:
        if any(site.begin < end and begin < site.end for begin, end in spans[site.file]):
            continue
        spans[site.file].append((site.begin, site.end))
        taken.append(site)
    return taken[:count], taken[count:]


def write(mutants):
    """Puts the changes into the files of the copy, whose originals lie beside them. A file that stays as
    it is keeps its time, so that it is not compiled again."""
    by_file = collections.defaultdict(list)
    for mutant in mutants:
        by_file[mutant.site.file].append(mutant)
    for path, there in by_file.items():
        with open(healthy(path), "rb") as file:
            text = file.read()
        for mutant in sorted(there, key=lambda m: -m.site.begin):
            site = mutant.site
            # On one line, so that an error message shows the number.
            switch = "(shift_mutant(%d) ? (%s) : %s)" % (mutant.number, *site.texts)
            text = text[:site.begin] + switch.encode() + text[site.end:]
        with open(path, "rb") as file:
            is_there = file.read() == text
        if not is_there:
            with open(path, "wb") as file:
                file.write(text)


def healthy(path):
    kept = path + ".healthy"
    if not os.path.exists(kept):
        shutil.copy(path, kept)
    return kept


def restore(path):
    shutil.copy(healthy(path), path)


def compile_all(build, targets, mutants, spare):
    """Builds; places whose change the compiler refuses are replaced. Returns the mutants that are in."""
    while True:
        write(mutants)
        result = subprocess.run(["ninja", "-C", build, "-k", "0"] + targets, capture_output=True, text=True)
        if result.returncode == 0:
            return mutants
        numbers = set()
        for block in re.split(r"\n(?=FAILED)", result.stdout):
            numbers |= {int(n) for n in re.findall(r"shift_mutant\((\d+)\)", "\n".join(
                line for line in block.split("\n") if not line.startswith("FAILED")))}
        bad = [m for m in mutants if m.number in numbers]
        if not bad:
            sys.exit(result.stdout[-8000:])
        mutants = [m for m in mutants if m.number not in numbers]
        for mutant in bad:
            site = mutant.site
            say("cannot be compiled: %s:%d: %s" % (os.path.basename(site.file), site.line, site.name))
            if not any(m.site.file == site.file for m in mutants):
                restore(site.file)
            if spare:
                mutants.append(Mutant(max(m.number for m in mutants + bad) + 1, spare.pop(0)))


def isolated(command):
    """In a network namespace of its own: programs listen on fixed ports. Root stays who it is, since tests may run
    as another user, too."""
    how = "-n" if os.geteuid() == 0 else "-rn"
    return ["unshare", how, "sh", "-c", 'ip link set lo up && exec "$@"', "sh"] + command


def run(program, number, limit):
    """Whether the program passes with the mutant."""
    env = dict(os.environ, SHIFT_MUTANT=str(number))
    try:
        return subprocess.run(isolated(program.command), env=env, stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL, timeout=limit).returncode == 0
    except subprocess.TimeoutExpired:
        return False


def measure(name, command, out):
    """Runs a program without any mutant: it must pass, and tells which it reaches."""
    hits = os.path.join(out, name + ".hits")
    if os.path.exists(hits):
        os.remove(hits)
    env = dict(os.environ, SHIFT_MUTANT="0", SHIFT_MUTANT_HITS=hits)
    begin = time.monotonic()
    result = subprocess.run(isolated(command), env=env, capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit("%s fails without any change:\n%s" % (name, (result.stdout + result.stderr)[-4000:]))
    reached = set()
    if os.path.exists(hits):
        with open(hits, encoding="utf-8") as file:
            reached = {int(line) for line in file}
    return Program(name, command, time.monotonic() - begin, reached)


def judge(mutant, programs):
    """The program that notices the mutant; None, none does."""
    for program in programs:
        if mutant.number in program.reached and not run(program, mutant.number, 10 + 10 * program.seconds):
            return program.name
    return None


def save(mutants, path):
    with open(path, "w", encoding="utf-8") as file:
        json.dump([[mutant.number, *mutant.site] for mutant in mutants], file)


def load(path):
    import sites  # pylint: disable=import-outside-toplevel
    with open(path, encoding="utf-8") as file:
        return [Mutant(number, sites.Site(*site)) for number, *site in json.load(file)]


def copy_tests(tree):
    """Today's tests into the copy."""
    for folder, _, names in os.walk(os.path.join(ROOT, LAYER)):
        there = os.path.join(tree, os.path.relpath(folder, ROOT))
        for name in names:
            if os.path.basename(folder) == "test" or name == "CMakeLists.txt":
                os.makedirs(there, exist_ok=True)
                path = os.path.join(there, name)
                with open(os.path.join(folder, name), "rb") as file:
                    text = file.read()
                if not os.path.exists(path) or open(path, "rb").read() != text:
                    with open(path, "wb") as file:
                        file.write(text)


def copy_tree(tree):
    """The sources as they are in the work tree, without what was built."""
    shutil.rmtree(tree, ignore_errors=True)
    shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns("build", ".git", "__pycache__"), symlinks=True)


def configure(tree, build):
    flags = "-std=gnu++20 -O1 -w -Wno-error -include " + os.path.join(HERE, "mutant.h")
    subprocess.run(["cmake", "-G", "Ninja", "-S", tree, "-B", build, "-DCMAKE_BUILD_TYPE=",
                    "-DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON", "-DCMAKE_UNITY_BUILD=OFF",
                    "-DCMAKE_CXX_FLAGS=" + flags], check=True, stdout=subprocess.DEVNULL)


def test_programs(build):
    """The unit tests of the layer, as ctest knows them, and the simulation."""
    shown = subprocess.run(["ctest", "--test-dir", build, "-L", "unit", "--show-only=json-v1"],
                           check=True, capture_output=True, text=True).stdout
    commands = {}
    for test in json.loads(shown)["tests"]:
        if re.fullmatch(r"shift_\w+_test", test["name"]) and "planted" not in test["name"]:
            commands[test["name"]] = [os.path.join(build, "test", test["name"])]
    commands["shift-sim"] = [os.path.join(build, "bin", "shift-sim"), "--count", "300", "--jobs", "1"]
    return commands


def equivalents():
    with open(os.path.join(HERE, "equivalent.json"), encoding="utf-8") as file:
        return {(one["file"], one["line"], one["change"]): one["reason"] for one in json.load(file)}


def report(rows, tree):
    """A table of folders; then what nobody noticed."""
    say("%-10s %6s %9s %11s %9s %8s" % ("folder", "drawn", "noticed", "equivalent", "survive", "reached"))
    folders = sorted({row["folder"] for row in rows})
    for folder in folders + ["all"]:
        mine = [row for row in rows if folder in (row["folder"], "all")]
        count = collections.Counter(row["verdict"] for row in mine)
        say("%-10s %6d %9d %11d %9d %8d" % (folder, len(mine), count["noticed"], count["equivalent"],
                                            count["survives"], sum(row["reached"] for row in mine)))
    for row in rows:
        if row["verdict"] == "survives":
            say("%s:%d: %s%s\n    %s" % (row["file"], row["line"], row["change"],
                                         "" if row["reached"] else " (no test comes here)", row["code"]))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1, help="of the draw (default: 1)")
    parser.add_argument("--count", type=int, default=200, help="how many changes (default: 200)")
    parser.add_argument("--folder", help="only of this folder of providers/shift, such as group")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="mutants side by side")
    parser.add_argument("--out", default=os.path.join(ROOT, "build", "mutate"), help="where the copy is built")
    parser.add_argument("--again", action="store_true",
                        help="the changes of the last build, with the tests of now")
    parser.add_argument("--list", action="store_true", help="show the draw, and build nothing")
    parser.add_argument("--json", help="write the verdicts here")
    options = parser.parse_args()
    try:
        import sites  # pylint: disable=import-outside-toplevel
    except ImportError:
        say("skipped: clang's Python bindings are missing (Debian: python3-clang)")
        return SKIPPED

    out = os.path.abspath(options.out)
    tree, build = os.path.join(out, "tree"), os.path.join(out, "build")
    drawn_file = os.path.join(out, "drawn.json")
    if options.again:
        copy_tests(tree)
        mutants, spare = load(drawn_file), []
    else:
        copy_tree(tree)
        configure(tree, build)
        layer = os.path.join(tree, LAYER, options.folder or "")
        say("looking for places")
        found = sites.find(build, lambda path: path.startswith(layer) and "/test/" not in path)
        drawn, spare = draw(found, options.count, options.seed)
        mutants = [Mutant(number, site) for number, site in enumerate(drawn, 1)]
        say("%d of %d places, seed %d" % (len(mutants), len(found), options.seed))
    if options.list:
        for mutant in mutants:
            say("%s:%d: %s: %s" % (os.path.relpath(mutant.site.file, tree), mutant.site.line, mutant.site.name,
                                   mutant.site.code))
        return 0

    commands = test_programs(build)
    say("building")
    mutants = compile_all(build, sorted(commands), mutants, spare)
    save(mutants, drawn_file)
    programs = sorted((measure(name, command, out) for name, command in sorted(commands.items())),
                      key=lambda program: program.seconds)
    say("tests take " + ", ".join("%s %.1f s" % (p.name, p.seconds) for p in programs))
    same, rows = equivalents(), []
    begin = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        verdicts = pool.map(lambda m: (m, judge(m, programs)), mutants)
        for done, (mutant, by) in enumerate(verdicts, 1):
            site, key = mutant.site, key_of(mutant.site, tree)
            verdict = "noticed" if by else "equivalent" if key in same else "survives"
            rows.append({"folder": folder_of(site, tree), "file": key[0], "line": site.line, "change": site.name,
                         "code": site.code, "verdict": verdict, "by": by,
                         "reached": any(mutant.number in p.reached for p in programs)})
            if done % 20 == 0:
                say("%d of %d, %d s" % (done, len(mutants), time.monotonic() - begin))
    rows.sort(key=lambda row: (row["file"], row["line"]))
    report(rows, tree)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
