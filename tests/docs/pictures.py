#!/usr/bin/python3
"""Checks that the drawings in docs/ can be read: no text lies over a line, over other text, or over a box's edge.

The program knows the parts of these drawings: rect, line, polyline and text, with plain coordinates. The width
of a text is its textLength if it has one, else the width in a wide font. Of what matplotlib draws it knows the
texts, whose size and anchor are in their style. --selftest shows that each complaint
arises.
"""

import glob
import itertools
import os
import re
import sys
import tempfile
import xml.etree.ElementTree

WIDE = 0.58  # the average width of a glyph in DejaVu Sans or Verdana, divided by the font's size
ASCENT, DESCENT = 0.74, 0.2
BOX_MARGIN = 2
FONT = re.compile(r"\bfont: ([0-9.]+)px")  # in a style
ANCHOR = re.compile(r"\btext-anchor: (\w+)")


def number(element, name, otherwise=0.0):
    return float(element.get(name, otherwise))


def styled(element, name, pattern, otherwise):
    """An attribute, or what the style says instead."""
    found = pattern.search(element.get("style", ""))
    return element.get(name, found[1] if found else otherwise)


def plain(root):
    """Each element without its namespace, with the text attributes that it inherits."""
    def walk(element, size, anchor):
        size = float(styled(element, "font-size", FONT, size))
        anchor = styled(element, "text-anchor", ANCHOR, anchor)
        yield element.tag.split("}")[-1], element, size, anchor
        for child in element:
            if not child.tag.endswith("defs"):
                yield from walk(child, size, anchor)
    return walk(root, 12.0, "start")


def text_area(element, size, anchor):
    length = number(element, "textLength", WIDE * size * len(element.text))
    left = number(element, "x") - {"start": 0, "middle": length / 2, "end": length}[anchor]
    y = number(element, "y")
    return (left, y - ASCENT * size, left + length, y + DESCENT * size)


def segments(kind, element):
    if kind == "line":
        points = [(number(element, "x1"), number(element, "y1")), (number(element, "x2"), number(element, "y2"))]
    else:
        points = [tuple(map(float, point.split(","))) for point in element.get("points").split()]
    return list(zip(points, points[1:]))


def rect_area(element):
    x, y = number(element, "x"), number(element, "y")
    return (x, y, x + number(element, "width"), y + number(element, "height"))


def overlap(a, b):
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def inside(inner, outer, margin):
    return (inner[0] >= outer[0] + margin and inner[2] <= outer[2] - margin and
            inner[1] >= outer[1] and inner[3] <= outer[3])


def crosses(segment, area):
    """Whether a part of the segment lies in the area (Liang-Barsky clipping)."""
    (x, y), (x2, y2) = segment
    low, high = 0.0, 1.0
    for delta, near, far in ((x2 - x, area[0] - x, area[2] - x), (y2 - y, area[1] - y, area[3] - y)):
        if delta == 0:
            if near > 0 or far < 0:
                return False
            continue
        first, last = sorted((near / delta, far / delta))
        low, high = max(low, first), min(high, last)
    return low <= high


def check(path):
    texts, rects, lines = [], [], []
    for kind, element, size, anchor in plain(xml.etree.ElementTree.parse(path).getroot()):
        if kind == "text":
            texts.append((element.text, text_area(element, size, anchor)))
        elif kind == "rect":
            rects.append(rect_area(element))
        elif kind in ("line", "polyline"):
            lines += segments(kind, element)
    name = os.path.basename(path)
    for i, (text, area) in enumerate(texts):
        for other, other_area in texts[i + 1:]:
            if overlap(area, other_area):
                yield "%s: '%s' lies over '%s'" % (name, text, other)
        if any(crosses(segment, area) for segment in lines):
            yield "%s: a line runs through '%s'" % (name, text)
        if any(overlap(area, rect) and not inside(area, rect, BOX_MARGIN) for rect in rects):
            yield "%s: '%s' lies over the edge of a box" % (name, text)
    if not texts:
        yield "%s: has no text" % name


SELFTEST = """<svg xmlns="http://www.w3.org/2000/svg" font-size="10"><rect width="300" height="100"/>
<rect x="10" y="10" width="100" height="30"/><text x="20" y="30">%s</text>
<line x1="120" y1="20" x2="200" y2="20"/><polyline points="120,60 200,60 200,90"/>
<text x="%d" y="%d" text-anchor="middle">word</text></svg>"""
# The same drawing in the manner of matplotlib.
STYLED = SELFTEST.replace(' font-size="10"', "").replace(
    '<text x="20"', '<text style="font: 10px Sans" x="20"').replace(
    'text-anchor="middle"', 'style="font: 10px Sans; text-anchor: middle"')
CASES = [
    (("short", 150, 45), None),
    (("a text that is too long", 150, 45), "'a text that is too long' lies over the edge of a box"),
    (("short", 150, 22), "a line runs through 'word'"),
    (("short", 201, 80), "a line runs through 'word'"),
    (("short", 110, 80), None),
    (("short", 110, 32), "'word' lies over the edge of a box"),
    (("short", 40, 32), "'short' lies over 'word'"),
]


def selftest():
    failed = False
    for (values, wanted), drawing in itertools.product(CASES, (SELFTEST, STYLED)):
        with tempfile.NamedTemporaryFile("w", suffix=".svg") as file:
            file.write(drawing % values)
            file.flush()
            complaints = [c.split(": ", 1)[1] for c in check(file.name)]
        print("%s: %s" % (values, complaints))
        failed = failed or (wanted not in complaints if wanted else bool(complaints))
    return 1 if failed else 0


def main():
    if sys.argv[1:] == ["--selftest"]:
        return selftest()
    tree = sys.argv[1] if len(sys.argv) > 1 else "."
    drawings = sorted(glob.glob(os.path.join(tree, "docs", "**", "*.svg"), recursive=True))
    complaints = [complaint for path in drawings for complaint in check(path)]
    for complaint in complaints:
        print(complaint)
    print("%d drawings, %d complaints" % (len(drawings), len(complaints)))
    return 1 if complaints or not drawings else 0


if __name__ == "__main__":
    sys.exit(main())
