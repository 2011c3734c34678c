#!/usr/bin/python3
"""Checks that everything exists to which the documents refer:

    relative links of all *.md lead to a file, and to a heading where they name one;
    ARCHITECTURE.md names files that exist and, after a colon, something that the file defines
    (`providers/shift/fsm/fsm.cc: step`);
    docs/decisions/README.md lists all decisions, and README.md is short.

Call it without an argument or with the root of a tree. --selftest shows that each complaint arises.
"""

import os
import re
import sys
import tempfile

README_LINES = 90
SKIPPED_FOLDERS = ("build", "out", "__pycache__")
LINK = re.compile(r"\[[^][]*\]\(([^()\s]+)\)")
REFERENCE = re.compile(r"`([\w.+-]+(?:/[\w.+-]+)+\.(?:cc|h|c|S|py|sh|md|txt|cmake|pml|json|sed|map|svg|1))"
                       r"(?::\s+([^`]+))?`")
# What comes before a name that a file defines, or after it. A call looks like a definition of the function.
BEFORE = r"\b(?:struct|class|enum|union|namespace|using|concept|define|def)\s+(?:class\s+)?(?:\[\[.*?\]\]\s*)?%s\b"
AFTER = r"\b%s\s*(?:\(|=|\{|\[)"


def read(tree, path):
    with open(os.path.join(tree, path), encoding="utf-8", errors="replace") as file:
        return file.read()


def documents(tree):
    for folder, folders, files in os.walk(tree):
        folders[:] = sorted(f for f in folders if not f.startswith(".") and f not in SKIPPED_FOLDERS)
        for name in sorted(files):
            if name.endswith(".md"):
                yield os.path.relpath(os.path.join(folder, name), tree)


def without_code(text):
    """The text without its blocks of code and without backticks."""
    text = re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)
    text = re.sub(r"^(?: {4}|\t)(?![-*\d]).*$", "", text, flags=re.M)
    return text


def anchors(text):
    """The names of headings as targets of links, as hosting sites make them."""
    found = set()
    for heading in re.findall(r"^#{1,6} +(.*?) *#*$", re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S), re.M):
        plain = re.sub(r"\[([^][]*)\]\([^()]*\)", r"\1", heading).lower()
        name = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        count = sum(1 for other in found if re.fullmatch(re.escape(name) + r"(-\d+)?", other))
        found.add(name if count == 0 else "%s-%d" % (name, count))
    return found


def check_links(tree):
    for document in documents(tree):
        text = without_code(read(tree, document))
        for target in LINK.findall(re.sub(r"`[^`]*`", "", text)):
            if re.match(r"[a-z]+:", target):
                continue
            path, _, anchor = target.partition("#")
            file = os.path.normpath(os.path.join(os.path.dirname(document), path)) if path else document
            if not os.path.exists(os.path.join(tree, file)):
                yield "%s: the link to %s leads nowhere" % (document, target)
            elif anchor and anchor not in anchors(read(tree, file)):
                yield "%s: %s has no heading for #%s" % (document, file, anchor)


def is_defined(text, name):
    name = re.escape(name.strip().split("::")[-1].split(".")[-1].removesuffix("()"))
    return re.search(BEFORE % name, text) or re.search(AFTER % name, text)


def check_references(tree, document="ARCHITECTURE.md"):
    if not os.path.exists(os.path.join(tree, document)):
        return
    for path, names in REFERENCE.findall(read(tree, document)):
        if not os.path.isfile(os.path.join(tree, path)):
            yield "%s: there is no file %s" % (document, path)
            continue
        for name in names.split(",") if names else []:
            if not is_defined(read(tree, path), name):
                yield "%s: %s does not define %s" % (document, path, name.strip())


def check_decisions(tree, folder="docs/decisions"):
    index = read(tree, folder + "/README.md")
    for name in sorted(os.listdir(os.path.join(tree, folder))):
        if name == "README.md":
            continue
        if not re.fullmatch(r"\d{4}-[\w-]+\.md", name):
            yield "%s/%s: its name has no number" % (folder, name)
        if "(%s)" % name not in index:
            yield "%s/README.md: %s is not listed" % (folder, name)


def check_readme(tree):
    lines = read(tree, "README.md").count("\n")
    if lines > README_LINES:
        yield "README.md has %d lines, %d at most" % (lines, README_LINES)


def check(tree):
    return [complaint for part in (check_links, check_references, check_decisions, check_readme)
            for complaint in part(tree)]


# This small tree must cause no complaint.
GOOD = {
    "README.md": "# It\n\n[a](docs/a.md#two-words) [b](#it) ![p](docs/p.svg) [far](https://example.org/x)\n\n"
                 "    [code](nowhere.md)\n",
    "docs/a.md": "# A\n\n## Two words\n\n`[code](nowhere.md)`\n\n```\n# no heading\n```\n",
    "docs/p.svg": "<svg/>",
    "docs/decisions/README.md": "[one](0001-one.md)\n",
    "docs/decisions/0001-one.md": "# 1\n",
    "ARCHITECTURE.md": "`src/a.cc`, `src/a.cc: Thing`, `src/a.cc: Thing::act, kMax`, `/etc/no.conf`\n",
    "src/a.cc": "struct Thing {\n  void act();\n};\nconstexpr int kMax = 1;\n",
}
# Each row is added to one file, or replaces it, and must cause this complaint.
FAULTS = [
    ("README.md", "[x](docs/gone.md)\n", "README.md: the link to docs/gone.md leads nowhere"),
    ("README.md", "[x](docs/a.md#no-heading)\n", "README.md: docs/a.md has no heading for #no-heading"),
    ("README.md", "[x over\nlines](docs/gone.md)\n", "README.md: the link to docs/gone.md leads nowhere"),
    ("docs/a.md", "[x](README.md)\n", "docs/a.md: the link to README.md leads nowhere"),
    ("ARCHITECTURE.md", "`src/gone.cc`\n", "ARCHITECTURE.md: there is no file src/gone.cc"),
    ("ARCHITECTURE.md", "`src/a.cc: kMin`\n", "ARCHITECTURE.md: src/a.cc does not define kMin"),
    ("docs/decisions/0002-two.md", "# 2\n", "docs/decisions/README.md: 0002-two.md is not listed"),
    ("docs/decisions/three.md", "# 3\n", "docs/decisions/three.md: its name has no number"),
    ("README.md", "\n" * README_LINES, "README.md has %d lines, %d at most" % (README_LINES + 5, README_LINES)),
]


def check_files(files):
    with tempfile.TemporaryDirectory() as tree:
        for path, text in files.items():
            os.makedirs(os.path.join(tree, os.path.dirname(path)), exist_ok=True)
            with open(os.path.join(tree, path), "w", encoding="utf-8") as file:
                file.write(text)
        return check(tree)


def selftest():
    wrong = check_files(GOOD)
    print("without a fault: %s" % wrong)
    failed = bool(wrong)
    for path, text, wanted in FAULTS:
        complaints = check_files({**GOOD, path: GOOD.get(path, "") + text})
        print("%s: %s" % (path, complaints))
        failed = failed or wanted not in complaints
    return 1 if failed else 0


def main():
    if sys.argv[1:] == ["--selftest"]:
        return selftest()
    tree = sys.argv[1] if len(sys.argv) > 1 else "."
    complaints = check(tree)
    for complaint in complaints:
        print(complaint)
    count = len(list(documents(tree)))
    print("%d documents, %d complaints" % (count, len(complaints)))
    return 1 if complaints or count == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
