#!/usr/bin/python3
"""Puts manual pages that pandoc has made into prebuilt/, for builds without pandoc.

The first line of a prebuilt page names the version of pandoc and the hash of what it was made from, so that a
test can tell without pandoc when a page is out of date.
"""

import argparse
import hashlib
import pathlib
import re
import subprocess

FOLDER = pathlib.Path(__file__).resolve().parent
STYLE = ("page.lua", "page.template")
HEAD = '.\\" Made by pandoc %s from sources with the SHA-256 %s\n'
HEAD_PATTERN = re.compile(r'\.\\" Made by pandoc (\S+) from sources with the SHA-256 ([0-9a-f]{64})\n')


def sources_hash(folder, page):
    """The hash of all that decides what the page looks like."""
    digest = hashlib.sha256()
    for name in (page + ".md", *STYLE):
        content = (folder / name).read_bytes()
        digest.update(b"%s %d\n" % (name.encode(), len(content)))
        digest.update(content)
    return digest.hexdigest()


def pandoc_version(pandoc):
    said = subprocess.run([pandoc, "--version"], check=True, capture_output=True, text=True).stdout
    return said.split()[1]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pandoc", default="pandoc", help="the pandoc that made the pages")
    parser.add_argument("pages", nargs="+", type=pathlib.Path)
    options = parser.parse_args()
    version = pandoc_version(options.pandoc)
    (FOLDER / "prebuilt").mkdir(exist_ok=True)
    for page in options.pages:
        head = HEAD % (version, sources_hash(FOLDER, page.name))
        (FOLDER / "prebuilt" / page.name).write_text(head + page.read_text(encoding="utf-8"), encoding="utf-8")


if __name__ == "__main__":
    main()
