#!/usr/bin/python3
"""Checks that docs/operations.md tells of each log line of the layer, at the levels warn and error, what it means
and what to do, and that it tells of no line that the layer does not write.

A row is | LEVEL | `LINE` | MEANING | WHAT TO DO |, and its line is an example of what the layer writes. Rows at
the level info are checked as the examples of shift(7) are. Call it with the root of a tree, or with --selftest.
"""

import pathlib
import re
import sys

SOURCE = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(SOURCE / "tests" / "manual"))
import manual  # pylint: disable=wrong-import-position

DOCUMENT = "docs/operations.md"
FOLDERS = ("providers", "libibverbs", "librdmacm")
LEVELS = {"SHIFT_ERROR": "error", "SHIFT_ERROR_LIMITED": "error"}  # all others write warnings
CALL = re.compile(r"(?<![\w*~])(SHIFT_ERROR(?:_LIMITED)?|SHIFT_WARN(?:_LIMITED|_FEW)?|warn|warnings\.push_back"
                  r"|snprintf(?=\(\s*line, sizeof line,))\(\s*(?:line, sizeof line,\s*)?")
# Files that hand on a line whose text they do not have, and where the text is.
HANDED_ON = {
    "providers/shift/util/config.cc": "its own calls of push_back",
    "providers/shift/ops/stock_objects.cc": "the calls of ops::warn and of VirtualObjects::warn",
    "providers/mlx5/stock.cc": "its own calls of snprintf",
    "libibverbs/direct_verbs.cc": "the dynamic linker's",
}
LITERAL = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
CONVERSION = re.compile(r"%[-+ #0]*\d*(?:\.\d+)?(?:hh|ll|[hlzjt])?[a-z]")
ROW = re.compile(r"\| (error|warn) \| `([^`]+)` \| [^|]+ \| [^|]+ \|")


def argument_end(text, start):
    """Where the parenthesis ends whose inside starts there."""
    depth, at = 1, start
    while depth:
        token = re.compile(r'"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\]|\\.)\'|[()]|[^"\'()]+|.').match(text, at)
        depth += {"(": 1, ")": -1}.get(token[0], 0)
        at = token.end()
    return at - 1


def format_of(arguments, is_sum):
    """The format string at the begin of the arguments. A sum of strings is made into one. None: there is none."""
    if is_sum:
        parts = LITERAL.split(arguments)
        text = "".join(part if i % 2 else "%s" * (part.strip(" +\n") != "") for i, part in enumerate(parts))
    else:
        begin = re.match(r'(?:"(?:[^"\\\n]|\\.)*"\s*)+', arguments)
        if begin is None:
            return None
        text = "".join(LITERAL.findall(begin[0]))
    return text.replace('\\"', '"')


def lines_of(path, text):
    """The level and the format of each line that the file writes; the format is None where it is handed on."""
    for call in CALL.finditer(text):
        arguments = text[call.end():argument_end(text, call.end())]
        if not arguments or arguments.startswith("const char*"):
            continue  # the function itself, or its name in a comment
        line = format_of(arguments, call[1] == "warnings.push_back")
        is_text = line is not None and CONVERSION.sub("", line).strip()
        if not is_text and path in HANDED_ON:
            continue
        yield LEVELS.get(call[1], "warn"), line if is_text else None


def pattern(line):
    """What the format's lines look like; in an example, three points may stand for a part."""
    def part(conversion):
        return {"d": r"(\d+|\.\.\.)", "u": r"(\d+|\.\.\.)", "x": r"([0-9a-f]+|\.\.\.)"}.get(conversion[-1], ".*")
    texts = [re.escape(text) for text in CONVERSION.split(line)]
    parts = [part(conversion) for conversion in CONVERSION.findall(line)] + [""]
    return re.compile("".join(text + one for text, one in zip(texts, parts)))


def weight(line):
    return len(CONVERSION.sub("", line))


def judge(document, files):
    """`files` are the texts of the sources, by their paths."""
    lines = set()
    for path, text in files.items():
        for level, line in lines_of(path, text):
            if line is None:
                yield "%s: a log line whose text is elsewhere: name the file in HANDED_ON" % path
            else:
                lines.add((level, line))
    missing = set(lines)
    for row in re.findall(r"^\| (?:error|warn) \|.*$", document, re.M):
        parts = ROW.fullmatch(row)
        if parts is None:
            yield "%s: a row without a line, a meaning or what to do: %s" % (DOCUMENT, row)
            continue
        # A short format can fit another one's lines, too: the longest one that fits has written the line.
        fitting = [one for one in lines if one[0] == parts[1] and pattern(one[1]).fullmatch(parts[2])]
        if not fitting:
            yield "%s: the layer writes no %s: %s" % (DOCUMENT, parts[1], parts[2])
        else:
            missing.discard(max(fitting, key=lambda one: weight(one[1])))
    for level, line in sorted(missing):
        yield "%s has no row for the %s: %s" % (DOCUMENT, level, line)
    if not lines:
        yield "the layer writes no log lines"


def sources(tree):
    for folder in FOLDERS:
        for file in sorted((tree / folder).rglob("*")):
            path = file.relative_to(tree)
            is_test = {"test", "harness"} & set(path.parts)
            if file.suffix in (".cc", ".h") and not is_test and file.name != "log.h":
                yield str(path), file.read_text(encoding="utf-8")


def judge_infos(document, files):
    examples = re.findall(r"^\| info \| `([^`]+)` \|", document, re.M)
    page = "".join("**shift[4711]: info: %s**\n" % line for line in examples)
    texts = "\n".join(manual.literals(text) for text in files.values())
    return manual.judge_log_lines(page, texts, DOCUMENT)


GOOD_FILES = {
    "a.cc": 'SHIFT_WARN("%s: no QP (errno %d)",\n    name("x)"), errno);\nSHIFT_ERROR("qp 0x%x: "\n  "bad");\n'
            'void warn(const char* line);\nSHIFT_ERROR_LIMITED("%s: lost", n);\n'
            'SHIFT_WARN_FEW("%s: slow", n);\nwarnings.push_back(where + "unknown " + std::string(key(0)));\n'
            'SHIFT_WARN_LIMITED("%s: %s", a, b);\n',
    "providers/mlx5/stock.cc": 'snprintf(\n  line, sizeof line,\n  "%s is refused", f);\nwarn(line);\n',
}
GOOD_ROWS = """| warn | `mlx5_0: no QP (errno 12)` | a | b |
| error | `qp 0x1a: bad` | a | b |
| error | `mlx5_0: lost` | a | b |
| warn | `mlx5_0: slow` | a | b |
| warn | `/etc/shift.conf:3: unknown SHIFT_A` | a | b |
| warn | `mlx5_0: gone` | a | b |
| warn | `f is refused` | a | b |
"""
# What is replaced in the rows, by what, and what is complained of.
FAULTS = [
    ("", "", []),
    ("qp 0x1a: bad", "qp 0x...: bad", []),
    ("| error | `qp 0x1a: bad` | a | b |\n", "", ["no row for the error: qp 0x%x: bad"]),
    ("| warn | `mlx5_0: gone` | a | b |\n", "", ["no row for the warn: %s: %s"]),
    ("mlx5_0: gone", "mlx5_0: no QP (errno 5)", ["no row for the warn: %s: %s"]),
    ("(errno 12)", "(errno x)", ["no row for the warn: %s: no QP (errno %d)"]),
    ("error | `qp", "warn | `qp", ["no row for the error: qp 0x%x: bad"]),
    ("qp 0x1a: bad", "qp 0x1a: worse",
     ["writes no error: qp 0x1a: worse", "no row for the error: qp 0x%x: bad"]),
    ("`f is refused` | a | b |", "`f is refused` | a |  |",
     ["a row without", "no row for the warn: %s is refused"]),
]
OTHER_FILES = {"b.cc": "SHIFT_WARN(text);", "c.cc": 'SHIFT_WARN("%s", text);'}


def selftest():
    wrong = 0
    for old, new, wanted in FAULTS:
        found = list(judge(GOOD_ROWS.replace(old, new) if old else GOOD_ROWS, GOOD_FILES))
        print("%s: %s" % (new, found))
        wrong += len(found) != len(wanted) or any(one not in text for one, text in zip(wanted, found))
    for path, text in OTHER_FILES.items():
        found = list(judge(GOOD_ROWS, {**GOOD_FILES, path: text}))
        print("%s: %s" % (path, found))
        wrong += len(found) != 1 or "HANDED_ON" not in found[0]
    found = list(judge("", {}))
    print("nothing: %s" % found)
    return 1 if wrong or not found else 0


def main():
    if sys.argv[1:] == ["--selftest"]:
        return selftest()
    tree = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else SOURCE
    document = (tree / DOCUMENT).read_text(encoding="utf-8")
    files = dict(sources(tree))
    complaints = [*judge(document, files), *judge_infos(document, files)]
    for complaint in complaints:
        print(complaint)
    rows = re.findall(r"^\| (?:error|warn|info) \|", document, re.M)
    print("%d rows, %d complaints" % (len(rows), len(complaints)))
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
