#!/usr/bin/python3
"""Checks the manual pages as they are installed: formatters take them without a complaint, no sign of Markdown is
left in them, they refer to pages that exist, and they have all options of their programs.

Of groff, mandoc and man-db's lexgrog those are used that are here. --prebuilt compares the prebuilt pages with
those that pandoc makes. --selftest shows that each complaint arises.
"""

import argparse
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

SKIPPED = 77
SOURCE = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(SOURCE / "man"))
import prebuilt  # pylint: disable=wrong-import-position

# Each formatter, and which of its messages count.
FORMATTERS = {
    "groff": (["groff", "-ww", "-man", "-Tutf8", "-Kutf8", "-z"], re.compile(r".")),
    # A page without a date is the same whenever it is built.
    "mandoc": (["mandoc", "-Tlint", "-Wwarning"], re.compile(r"^(?!.*missing date)")),
    "lexgrog": (["lexgrog"], re.compile(r"parse failed")),
}
SECTIONS = ("NAME", "SYNOPSIS", "DESCRIPTION", "SEE ALSO")
REFERENCE = re.compile(r"\b([a-z][\w.-]*)\(([1-9])\)")


def output(*command, check=True):
    result = subprocess.run(command, check=check, capture_output=True, text=True)
    return result.stdout + result.stderr


def plain(page):
    """The text of a page without requests and fonts, one line for each line of the source."""
    text = re.sub(r'^\.\\".*\n', "", page, flags=re.M)
    text = re.sub(r"\\f[BIR]|\\f\[\w*\]", "", text)
    text = re.sub(r"^\.(SH|TP|PP|IP|RS|RE|nf|fi|TH)\b ?", "", text, flags=re.M)
    return text.replace("\\-", "-").replace("\\(aq", "'")


def page_names():
    return sorted(source.name[:-len(".md")] for source in (SOURCE / "man").glob("*.[1-9].md"))


def judge_formats(file):
    for name, (command, counts) in FORMATTERS.items():
        if not shutil.which(name):
            continue
        for line in output(*command, str(file), check=False).splitlines():
            if counts.search(line):
                yield "%s: %s: %s" % (file.name, name, line.replace(str(file), "line"))


def judge_text(name, page, names):
    """`names` are the pages that there are, as NAME.SECTION."""
    headings = re.findall(r'^\.SH "?([^"\n]+)"?$', page, re.M)
    wanted = [one for one in SECTIONS if one != "SYNOPSIS" or not name.endswith(".7")]
    for heading in wanted:
        if heading not in headings:
            yield "%s: has no %s" % (name, heading)
    if headings != sorted(headings, key=lambda h: (h != "NAME", h == "SEE ALSO")):
        yield "%s: NAME is not first, or SEE ALSO is not last" % name
    if not re.search(r"^\.SH NAME\n%s \\- \S" % re.escape(name.rsplit(".", 1)[0].replace("-", "\\-")), page, re.M):
        yield "%s: its NAME is another" % name
    for line in plain(page).splitlines():
        for sign in sorted(set(re.findall(r"\*|`|(?<!\w)_\w|\\[^\w&(\[]|\\e|\[dq\]\[dq\]", line))):
            yield "%s: a sign of Markdown, %s, in: %s" % (name, sign, line)
    for other, section in REFERENCE.findall(plain(page).replace("\n", " ")):
        if re.match("shift|cxemu", other) and "%s.%s" % (other, section) not in names:
            yield "%s: there is no page %s(%s)" % (name, other, section)


def judge_options(name, page, helps):
    """Each option that a program's help has must be in its page."""
    for option in sorted(set(re.findall(r"(?<![\w-])--?[a-z][\w-]*", helps)) - {"-h", "--help"}):
        if not re.search(r"(?<![\w-])%s(?![\w-])" % re.escape(option), plain(page)):
            yield "%s: the option %s of the program is not in the page" % (name, option)


def help_of(program):
    """The program's help, and that of each of its commands."""
    first = output(program, "--help")
    commands = re.findall(r"^  ([a-z]+) ", first.partition("Subcommands:")[2], re.M)
    return first + "".join(output(program, command, "--help") for command in commands)


def judge_prebuilt(folder, page):
    """Whether the prebuilt page was made from the sources as they are now."""
    file = folder / "prebuilt" / page
    head = prebuilt.HEAD_PATTERN.match(file.read_text(encoding="utf-8")) if file.exists() else None
    if head is None:
        yield "%s: there is no prebuilt page: ninja -C build manual-prebuilt" % page
    elif head[2] != prebuilt.sources_hash(folder, page):
        yield "%s: the prebuilt page is out of date: ninja -C build manual-prebuilt" % page


def compare_prebuilt(pandoc, made):
    """The pages that differ from what this pandoc has made in `made`, or None if it is another version."""
    differing = []
    for file in sorted((SOURCE / "man" / "prebuilt").iterdir()):
        text = file.read_text(encoding="utf-8")
        head = prebuilt.HEAD_PATTERN.match(text)
        if head[1] != prebuilt.pandoc_version(pandoc):
            print("skipped: %s is by pandoc %s, and here is another" % (file.name, head[1]))
            return None
        if text[head.end():] != (made / file.name).read_text(encoding="utf-8"):
            differing.append("%s: pandoc makes another page" % file.name)
    return differing


def literals(text):
    """The string literals of a C++ source; adjacent ones are one."""
    return re.sub(r'"\s*"', "", "\n".join(re.findall(r'"(?:[^"\\\n]|\\.)*"(?:\s*"(?:[^"\\\n]|\\.)*")*', text)))


def judge_log_lines(source, texts, page="shift.7"):
    """Each log line that a page gives as an example must be one that the layer writes."""
    lines = re.findall(r"^\*\*shift\[4711\]: (?:error|warn|info|debug): (.*)\*\*$", source, re.M)
    for line in lines:
        for part in re.split(r"0x[0-9a-f]+|mlx5_\d|\b\d+\b|\(.*?\)|\.\.\.", line):
            if len(part.strip()) > 3 and part.strip() not in texts:
                yield "%s: the layer writes no log line with: %s" % (page, part.strip())
    if not lines:
        yield "%s: it has no log lines" % page


PROJECT = """cmake_minimum_required(VERSION 3.25)
project(shift-manual NONE)
add_subdirectory(%s/man man)
"""


def judge_without_pandoc(cmake, names):
    """Whether a build without pandoc installs all prebuilt pages."""
    with tempfile.TemporaryDirectory() as top:
        pathlib.Path(top, "CMakeLists.txt").write_text(PROJECT % SOURCE, encoding="utf-8")
        output(cmake, "-S", top, "-B", top + "/build", "-DSHIFT_PANDOC=OFF", "-DCMAKE_INSTALL_LIBDIR=lib")
        output(cmake, "--install", top + "/build", "--prefix", top + "/installed")
        pages = {file.name: file for file in pathlib.Path(top, "installed").rglob("*.[1-9]")}
        if sorted(pages) != names:
            yield "without pandoc the installed pages are %s" % sorted(pages)
        for name, file in pages.items():
            if file.read_bytes() != (SOURCE / "man" / "prebuilt" / name).read_bytes():
                yield "%s: without pandoc another page than the prebuilt one is installed" % name
            if file.parent.name != "man" + name[-1]:
                yield "%s: it is installed into %s" % (name, file.parent.name)


def judge(folder, programs):
    """`folder` has the pages, made or prebuilt. `programs` are those of the pages, by their names."""
    for name in page_names():
        page = (folder / name).read_text(encoding="utf-8")
        yield from judge_formats(folder / name)
        yield from judge_text(name, page, page_names())
        yield from judge_prebuilt(SOURCE / "man", name)
        program = programs.get(name.rsplit(".", 1)[0])
        if program:
            yield from judge_options(name, page, help_of(program))


GOOD = """.TH "A" "1" "" "SHIFT" "User Commands"
.SH NAME
a \\- it
.SH SYNOPSIS
\\f[B]a\\f[R] [\\f[B]\\-\\-do\\f[R]]
.SH DESCRIPTION
It has
.SH SEE ALSO
\\f[B]shift\\f[R](7)
"""
# What is replaced in the page, by what, and a part of the complaint that follows.
FAULTS = [
    ("", "", None),
    (".TH", prebuilt.HEAD % ("2.0", "0" * 64) + ".TH", None),
    ("It has", "It **has**", "a sign of Markdown"),
    ("It has", "It has `code`", "a sign of Markdown"),
    ("shift\\f[R](7)", "shiftctl\\f[R](1)", "there is no page shiftctl(1)"),
    ("a \\- it", "b \\- it", "its NAME is another"),
    ("a \\- it", "a - it", "its NAME is another"),
    (".SH DESCRIPTION", ".SH OTHERS", "has no DESCRIPTION"),
    (".SH SEE ALSO", ".SH AFTER", "has no SEE ALSO"),
    ("\\-\\-do", "\\-\\-do\\-it", "the option --do of the program"),
]
# A fault that each formatter has to see.
BAD_FORMATS = {
    "groff": GOOD + ".nonsense\n",
    "mandoc": GOOD + ".nonsense\n",
    "lexgrog": GOOD.replace("a \\- it", "it"),
}


def selftest():
    wrong = 0
    for old, new, wanted in FAULTS:
        page = GOOD.replace(old, new) if old else GOOD
        found = list(judge_text("a.1", page, ["a.1", "shift.7"]))
        found += judge_options("a.1", page, "  -h,--help  --do TEXT")
        print("%s: %s" % (new, found))
        wrong += len(found) != (wanted is not None) or any(wanted not in one for one in found)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        file = folder / "a.1"
        file.write_text(GOOD, encoding="utf-8")
        wrong += bool(list(judge_formats(file)))
        for formatter, page in BAD_FORMATS.items():
            file.write_text(page, encoding="utf-8")
            found = any(": %s: " % formatter in one for one in judge_formats(file))
            print("%s: %s" % (formatter, "sees it" if found else "is silent or not here"))
            wrong += found != bool(shutil.which(formatter))
        wrong += selftest_prebuilt(folder)
    return 1 if wrong + selftest_log_lines() else 0


def selftest_log_lines():
    texts = literals('f("%s is backed by %s");\ng("qp 0x%x: no "\n  "path");')
    wrong = 0
    for line, good in (("mlx5_0 is backed by mlx5_1", True), ("qp 0x1a: no path", True),
                       ("mlx5_0 is backed with mlx5_1", False), ("qp 0x1a: none", False)):
        found = list(judge_log_lines("**shift[4711]: warn: %s**\n" % line, texts))
        print("%s: %s" % (line, found))
        wrong += bool(found) == good
    return wrong + (list(judge_log_lines("", texts)) == [])


def selftest_prebuilt(folder):
    for name in ("a.1.md", *prebuilt.STYLE):
        (folder / name).write_text(name, encoding="utf-8")
    (folder / "prebuilt").mkdir()
    states = [list(judge_prebuilt(folder, "a.1"))]
    head = prebuilt.HEAD % ("2.0", prebuilt.sources_hash(folder, "a.1"))
    (folder / "prebuilt" / "a.1").write_text(head + GOOD, encoding="utf-8")
    states.append(list(judge_prebuilt(folder, "a.1")))
    for name in ("a.1.md", *prebuilt.STYLE):
        (folder / name).write_text("another", encoding="utf-8")
        states.append(list(judge_prebuilt(folder, "a.1")))
        (folder / name).write_text(name, encoding="utf-8")
    print("prebuilt: %s" % states)
    return [len(state) for state in states] != [1, 0, 1, 1, 1]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pages", type=pathlib.Path, help="the folder of the pages")
    parser.add_argument("--programs", nargs="*", default=[], help="the options of these programs are compared")
    parser.add_argument("--cmake", default="cmake")
    parser.add_argument("--prebuilt", action="store_true", help="compare the prebuilt pages with --pages")
    parser.add_argument("--pandoc", help="the pandoc that made --pages")
    parser.add_argument("--selftest", action="store_true")
    options = parser.parse_args()
    if options.selftest:
        return selftest()
    if options.prebuilt:
        if not options.pandoc:
            print("skipped: there was no pandoc when this was configured")
            return SKIPPED
        complaints = compare_prebuilt(options.pandoc, options.pages)
        if complaints is None:
            return SKIPPED
    else:
        print("not here, left out: %s" % ([one for one in FORMATTERS if not shutil.which(one)] or "nothing"))
        complaints = list(judge(options.pages, {pathlib.Path(one).name: one for one in options.programs}))
        texts = "\n".join(literals(file.read_text(encoding="utf-8"))
                          for file in (SOURCE / "providers" / "shift").rglob("*.cc") if "test" not in file.parts)
        complaints += judge_log_lines((SOURCE / "man" / "shift.7.md").read_text(encoding="utf-8"), texts)
        complaints += judge_without_pandoc(options.cmake, page_names())
    for complaint in complaints:
        print(complaint)
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
