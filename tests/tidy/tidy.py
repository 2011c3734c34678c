#!/usr/bin/python3
"""Reads every source and document of a tree and complains about what review should not have to find: unclear
words in comments, unfinished work, long lines, files and functions, and paths of one machine.

Call it with the root of the tree, or with --selftest. It walks the folders instead of asking git, because a
release archive has no history.
"""

import ast
import io
import os
import re
import sys
import tempfile
import tokenize

CXX = (".cc", ".h", ".c", ".cpp", ".hpp", ".S")
COLUMNS, FILE_LINES, FUNCTION_LINES = 115, 800, 70
# Files ("PATH") and functions ("PATH:NAME") that may be longer, each with its reason.
LONG = {
    "emulator/host/cli/main.cc:main": "one option of the command line after the other",
    "libibverbs/test/emulated_objects_test.cc:Objects.xrc_shares_a_domain_and_a_queue_with_rc":
        "one scenario, in its order",
    "providers/shift/fsm/test/path_test.cc:run": "one case for each action",
    "providers/shift/group/test/replay_test.cc:check_once": "one random run, in its order",
    "tests/sim/faults.cc:Simulation::fault_start": "one case for each fault",
}

# Words that leave the reader guessing, each with its remedy. The list has only words that are nearly always wrong.
WORDS = [
    (re.compile(r"\b(of ours|of theirs)\b", re.I), 'say whose: "our function", "the program\'s list"'),
    (re.compile(r"\bbehind (this|that)(?=\s*([.,;:)]|$)| the\b| nobody\b)", re.I), 'say "after"'),
    (re.compile(r"(?:^|[.:] )Who [a-z]+s\b[^?]*?(?:\.|$)"), 'say which thread, process or caller'),
    (re.compile(r"\bthe same of\b", re.I), "repeat the noun"),
]
UNFINISHED = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X)\b")
MACHINE_PATH = re.compile(r"(?<![\w.$}*-])/(work|tmp/w" r"t)(?=/|\b)(?!\w)")


def kind_of(path):
    name = os.path.basename(path)
    if name.endswith(CXX):
        return "c++"
    if name == "CMakeLists.txt" or name.endswith(".cmake"):
        return "cmake"
    return {".py": "python", ".sh": "shell", ".md": "markdown"}.get(os.path.splitext(name)[1])


def sources(tree):
    for folder, folders, files in os.walk(tree):
        folders[:] = sorted(f for f in folders if not f.startswith((".", "build", "__")) and f != "out")
        for name in sorted(files):
            path = os.path.relpath(os.path.join(folder, name), tree)
            if kind_of(path) and os.path.isfile(os.path.join(tree, path)):
                yield path


# Strings come first in the pattern, so that the sign of a comment in a string is no comment.
CXX_TOKEN = re.compile(r'R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|(?<!\w)\'(?:\\.|[^\'\\\n])+\''
                       r"|//(?P<line>[^\n]*)|/\*(?P<block>.*?)\*/", re.S)


def cxx_comments(text):
    for match in CXX_TOKEN.finditer(text):
        comment = match["line"] if match["line"] is not None else match["block"]
        if comment is None:
            continue
        first = text.count("\n", 0, match.start()) + 1
        for number, line in enumerate(comment.split("\n"), first):
            yield number, line.lstrip("/* ")


def python_comments(text):
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string.lstrip("# ")
    for node in ast.walk(ast.parse(text)):
        body = getattr(node, "body", None)
        first = body[0] if isinstance(body, list) and body else None
        if isinstance(first, ast.Expr) and isinstance(getattr(first.value, "value", None), str):
            lines = text.split("\n")[first.lineno - 1:first.end_lineno]
            for number, line in enumerate(lines, first.lineno):
                yield number, line.strip().strip('"')


def hash_comments(text):
    for number, line in enumerate(text.split("\n"), 1):
        match = re.search(r"(?:^|\s)#+ (.*)", line)
        if match:
            yield number, match[1]


def prose(text):
    for number, line in enumerate(text.split("\n"), 1):
        if not line.startswith("    "):
            yield number, line.strip()


COMMENTS = {"c++": cxx_comments, "python": python_comments, "cmake": hash_comments, "shell": hash_comments,
            "markdown": prose}


def paragraphs(comments):
    """Joins adjacent lines, since sentences run over their ends. Yields (first line numbers, text)."""
    numbers, parts = [], []
    for number, line in sorted(comments):
        if numbers and (number != numbers[-1] + 1 or not line):
            yield numbers, parts
            numbers, parts = [], []
        if line:
            numbers.append(number)
            parts.append(line)
    if numbers:
        yield numbers, parts


def judge_words(kind, text):
    for numbers, parts in paragraphs(COMMENTS[kind](text)):
        joined = " ".join(parts)
        for pattern, remedy in WORDS:
            for match in pattern.finditer(joined):
                # Find the line in which the words begin.
                begin, at = match.start() + (match[0].startswith((". ", ": ")) and 2), 0
                while begin > len(parts[at]):
                    begin -= len(parts[at]) + 1
                    at += 1
                words = match[0].strip(".: ")
                yield numbers[at], '"%s": %s' % (words if len(words) < 40 else words[:40] + "...", remedy)


def judge_columns(kind, lines):
    if kind not in ("markdown", "python", "cmake"):
        return
    for number, line in enumerate(lines, 1):
        is_table = kind == "markdown" and line.lstrip().startswith("|")
        if len(line) > COLUMNS and not is_table and "://" not in line:
            yield number, "%d columns, more than %d" % (len(line), COLUMNS)


def judge_blanks(path, kind, lines):
    if kind not in ("c++", "python"):
        return
    is_kernel_style = path.startswith("series" + os.sep)
    for number, line in enumerate(lines, 1):
        if "\t" in line and not is_kernel_style:
            yield number, "a tab"
        if line != line.rstrip():
            yield number, "blanks at the end"


def python_functions(text):
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.name, node.lineno, node.end_lineno


def cxx_functions(lines):
    """Yields the functions of a namespace by clang-format's layout: a head in the first column and a lone brace
    at the end. It does not find functions inside a class body."""
    head = 0
    for number, line in enumerate(lines, 1):
        if line == "}" and head:
            test = re.match(r"TEST\w*\((\w+), (\w+)\)", lines[head - 1])
            name = ".".join(test.groups()) if test else lines[head - 1].split("(")[0].split(" ")[-1]
            yield name, head, number
            head = 0
        elif re.match(r"[A-Za-z_\[:~]", line):
            head = number


def judge_lengths(path, kind, text, lines):
    if kind not in ("c++", "python"):
        return
    if len(lines) > FILE_LINES and path not in LONG:
        yield 1, "%d lines, more than %d" % (len(lines), FILE_LINES)
    for name, first, last in (python_functions(text) if kind == "python" else cxx_functions(lines)):
        if last - first + 1 > FUNCTION_LINES and "%s:%s" % (path, name) not in LONG:
            yield first, "%s has %d lines, more than %d" % (name, last - first + 1, FUNCTION_LINES)


def judge_everywhere(lines):
    for number, line in enumerate(lines, 1):
        if UNFINISHED.search(line):
            yield number, "unfinished work belongs into an issue"
        if MACHINE_PATH.search(line):
            yield number, "a path of one machine"


def judge(path, text):
    kind, lines = kind_of(path), text.split("\n")[:-1] if text.endswith("\n") else text.split("\n")
    yield from judge_everywhere(lines)
    yield from judge_blanks(path, kind, lines)
    yield from judge_lengths(path, kind, text, lines)
    yield from judge_words(kind, text)
    yield from judge_columns(kind, lines)


def check(tree):
    complaints, seen = [], 0
    for path in sources(tree):
        seen += 1
        with open(os.path.join(tree, path), encoding="utf-8") as file:
            text = file.read()
        complaints += ["%s:%d: %s" % (path, number, what) for number, what in sorted(judge(path, text))]
    return complaints, seen


# Each file of the self-test, with the lines that must be complained about.
PLANTED = {
    "a/ours.cc": ("int a;\n// A list of ours is kept.\nint b;\n", [2]),
    "a/wrapped.cc": ("// This list is one of\n// ours.\nint a;\n", [1]),
    "a/trailing.h": ("int a;  // a value of theirs\n", [1]),
    "a/block.c": ("/* One.\n * It comes behind that. */\nint a;\n", [2]),
    "a/behind.cc": ("// Behind this, it is gone.\n// It stands behind this wall.\nint a;\n", [1]),
    "a/who.cc": ("// It is read. Who reads it waits.\nint a;\n// Who reads it?\nint b;\n", [1]),
    "a/string.cc": ('const char* a = "// a friend of ours";\nconst char* b = R"(// of ours)";\n', []),
    "a/clean.cc": ("// Our list is kept after this call, for the one behind the wall.\nint a;\n", []),
    "a/docstring.py": ('"""Text."""\nA = "of ours"\n\n\ndef a():\n    """A value of ours."""\n', [6]),
    "a/comment.py": ("A = 1  # a value of ours\n", [1]),
    "a/CMakeLists.txt": ("# A target of ours.\nset(a 1)\n", [1]),
    "a/run.sh": ("#!/bin/sh\n# A file of ours.\n", [2]),
    "a/text.md": ("A page\nof ours.\n\n    code of ours\n", [2]),
    "a/later.cc": ("int a;  // " + "TO" + "DO: more\n", [1]),
    "a/later.py": ("A = 1\n# FIX" + "ME\n", [2]),
    "a/tab.cc": ("int a;\n\tint b;\n", [2]),
    "series/01-a/kernel.c": ("int a()\n{\n\tint b; \n}\n", [3]),
    "a/blank.py": ("A = 1 \n", [1]),
    "a/long.md": ("a " * 58 + "\n| " + "a " * 60 + "|\nhttps://example.org/" + "a" * 120 + "\n", [1]),
    "a/long.cmake": ("set(a\n  " + "b" * 114 + ")\n", [2]),
    "a/path.sh": ("cd /wo" + "rk/a\ncd /upper/work\ncd $dir/work/a\n", [1]),
    "a/tree.md": ("In /tmp/w" + "t/a.\n", [1]),
    "a/file.cc": ("int a;\n" * 801, [1]),
    "a/fits.cc": ("int a;\n" * 800, []),
    "a/function.cc": ("int b;\nint a() {\n" + "  b++;\n" * 69 + "}\n", [2]),
    "a/test.cc": ("TEST_F(A, b) {\n" + "  b++;\n" * 69 + "}\n", [1]),
    "a/short.cc": ("int b;\nint a() {\n" + "  b++;\n" * 68 + "}\n", []),
    "a/function.py": ("def a():\n" + "    pass\n" * 70, [1]),
    "build/a.cc": ("// A list of ours.\n", []),
    "out/a.py": ("A = 1 \n", []),
    "out/a.cc": ("// A list of ours.\n", []),
}


def selftest():
    """There must be a complaint about each planted line, and about no other."""
    with tempfile.TemporaryDirectory() as tree:
        for path, (text, _) in PLANTED.items():
            os.makedirs(os.path.join(tree, os.path.dirname(path)), exist_ok=True)
            with open(os.path.join(tree, path), "w", encoding="utf-8") as file:
                file.write(text)
        complaints, _ = check(tree)
    blamed = sorted(tuple(complaint.split(":")[:2]) for complaint in complaints)
    wanted = sorted((path, str(line)) for path, (_, lines) in PLANTED.items() for line in lines)
    for place in wanted:
        if place not in blamed:
            print("missed: %s:%s" % place)
    for place in blamed:
        if place not in wanted:
            print("wrongly blamed: %s:%s" % place)
    print("%d planted, %d reported" % (len(wanted), len(blamed)))
    return 0 if blamed == wanted else 1


def main():
    if sys.argv[1:] == ["--selftest"]:
        return selftest()
    complaints, seen = check(sys.argv[1] if len(sys.argv) > 1 else ".")
    for complaint in complaints:
        print(complaint)
    print("%d files, %d complaints" % (seen, len(complaints)))
    return 1 if complaints or not seen else 0


if __name__ == "__main__":
    sys.exit(main())
