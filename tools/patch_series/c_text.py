"""Finds the definitions at file scope in C sources, without a compiler: sources of any release must do, whether or
not their headers are here."""

import collections
import re

# A definition: `start` is where its comment begins, or else its first line; `end` is after its last line;
# `body` and `body_end` are the offsets of its braces.
Definition = collections.namedtuple("Definition", "kind name start body body_end end")

# Strings come first, so that the sign of a comment in a string begins no comment.
LITERAL = re.compile(r'"(?:\\.|[^"\\\n])*"|(?<!\w)\'(?:\\.|[^\'\\\n])+\'|//[^\n]*|/\*.*?\*/', re.S)
DIRECTIVE = re.compile(r"^[ \t]*#[ \t]*(\w*)(?:[^\n]*\\\n)*[^\n]*", re.M)
# Only C++ sees these blocks, and the braces of their `extern "C"` would hide the whole file.
ONLY_CXX = re.compile(r"^[ \t]*#[ \t]*ifdef[ \t]+__cplusplus\b.*?^[ \t]*#[ \t]*endif[^\n]*", re.M | re.S)
SHAPE = re.compile(r"\b(struct|enum|union)\s+(\w+)(?:\s+\w+|\s*__attribute__\s*\(\(.*\)\))*\s*$", re.S)
TABLE = re.compile(r"(\w+)\s*(?:\[[^]]*\]\s*)*=\s*$")


def blank(match):
    return re.sub(r"[^\n]", " ", match[0])


def masked(text):
    """The text with blanks in place of comments and of what is in quotes. Offsets stay as they are."""
    return ONLY_CXX.sub(blank, LITERAL.sub(blank, text))


def blocks(text):
    """Yields the offsets of the braces of each block at file scope, in masked text. The branches of one #if begin
    at the same depth, whichever of them has the braces."""
    depth, start, saved = 0, 0, []
    for match in re.finditer(r"^[ \t]*#[ \t]*(\w*)(?:[^\n]*\\\n)*[^\n]*|[{}]", text, re.M):
        word = match[1]
        if word in ("if", "ifdef", "ifndef"):
            saved.append((depth, start))
        elif word in ("else", "elif") and saved:
            depth, start = saved[-1]
        elif word == "endif" and saved:
            saved.pop()
        elif match[0] == "{":
            if depth == 0:
                start = match.start()
            depth += 1
        elif match[0] == "}" and depth:
            depth -= 1
            if depth == 0:
                yield start, match.start()


def call_end(text, at):
    """The offset of the bracket that closes the one at `at`, in masked text; -1: there is none."""
    depth = 0
    for match in re.compile(r"[()]").finditer(text, at):
        depth += 1 if match[0] == "(" else -1
        if depth == 0:
            return match.start()
    return -1


def function_name(head):
    """The name of the function that this head defines; None: it is none. A macro in capitals may stand around the
    head, with the name as its first argument."""
    name, at = None, head.find("(")
    while at >= 0:
        word = re.search(r"(\w+)\s*$", head[:at])
        end = call_end(head, at)
        if end < 0:
            return None
        if word and word[1] != "__attribute__":
            name = word[1]
            if re.fullmatch(r"[A-Z][A-Z0-9_]*", name):
                first = re.match(r"\s*(\w+)\s*(?:,|$)", head[at + 1:end])
                name = first[1] if first else name
        at = head.find("(", end)
    return name


def kind_and_name(head):
    table = TABLE.search(head)
    if table:
        return "table", table[1]
    shape = SHAPE.search(head)
    if shape:
        return shape[1], shape[2]
    name = function_name(head) if "=" not in head else None
    return ("function", name) if name else (None, None)


def line_start(text, at):
    return text.rfind("\n", 0, at) + 1


def line_end(text, at):
    end = text.find("\n", at)
    return len(text) if end < 0 else end + 1


def with_comment(text, at):
    """Where the comment begins that stands right above the line at `at`, or `at` itself."""
    comments = [m for m in LITERAL.finditer(text, 0, at) if m[0].startswith(("/*", "//"))]
    for comment in reversed(comments):
        begin = line_start(text, comment.start())
        is_above = text[comment.end():at] == "\n" and not text[begin:comment.start()].strip()
        if not is_above:
            break
        at = begin
    return at


def definitions(text):
    """All definitions of the file with a body, in their order."""
    plain = masked(text)
    bare = DIRECTIVE.sub(blank, plain)
    found, last = [], 0
    for body, body_end in blocks(plain):
        semicolon = bare.rfind(";", last, body) + 1
        head_at = max(last, semicolon)
        head = bare[head_at:body]
        kind, name = kind_and_name(head)
        last = body_end + 1
        if not kind:
            continue
        begin = line_start(text, head_at + len(head) - len(head.lstrip()))
        close = body_end if kind == "function" else bare.find(";", body_end)
        end = line_end(text, max(close, body_end))
        found.append(Definition(kind, name, with_comment(text, begin), body, body_end, end))
    return found


def statement_end(text, at):
    """After the line in which the statement ends that begins at `at`: at its semicolon, or at the end of its
    block."""
    plain, depth = masked(text), 0
    for match in re.compile(r"[(){};]").finditer(plain, at):
        sign = match[0]
        depth += {"(": 1, "{": 1, ")": -1, "}": -1}.get(sign, 0)
        is_over = depth == 0 and sign in ";}"
        if is_over and not re.match(r"\s*else\b", plain[match.end():]):
            return line_end(text, match.start())
        if depth < 0:
            break
    return -1
