#!/usr/bin/env python3
"""Generates the symbol map of the front library from the stock library it stands in front of.

Writes into OUT:
  front.map         version script: every public symbol at its stock version
  trampolines.S     tail jumps for the functions that are not written by hand
  trampolines.inc   {name, version} of each trampoline, in slot order
  data.inc          definitions of the stock library's exported variables, and a table of them

Symbols that symbols.txt does not know (a newer stock library has some) are passed through with a
warning: they work on real objects, but would take a virtual object to the stock library.
"""
import argparse
import collections
import pathlib
import re
import subprocess
import sys

# A program's version needs are checked against the first object with the wanted SONAME, the front,
# alone. So it must have every node a program or plug-in of any release may ask for. 1.2 to 1.4
# never existed.
PUBLIC_NODES = ["IBVERBS_1.0", "IBVERBS_1.1"] + [f"IBVERBS_1.{i}" for i in range(5, 41)]
PRIVATE_NODES = [f"IBVERBS_PRIVATE_{i}" for i in range(14, 131)]

Symbol = collections.namedtuple("Symbol", "name version is_default is_data size")


def read_stock(nm, stock):
    """The stock library's exported symbols, version nodes left out."""
    out = subprocess.run(
        [nm, "-D", "-S", "--defined-only", "--with-symbol-versions", stock],
        capture_output=True, text=True, check=True).stdout
    symbols = []
    for line in out.splitlines():
        fields = line.split()
        kind, versioned = fields[-2:]
        if kind == "A":
            continue
        match = re.fullmatch(r"([^@]+)(@@?)(.+)", versioned)
        if not match:
            sys.exit(f"{stock}: symbol {versioned} has no version; is this a stock libibverbs?")
        size = int(fields[1], 16) if len(fields) == 4 else 0
        symbols.append(Symbol(match[1], match[3], match[2] == "@@", kind in "BDR", size))
    if not any(s.name == "ibv_open_device" for s in symbols):
        sys.exit(f"{stock}: no ibv_open_device; is this a stock libibverbs?")
    return sorted(symbols)


def read_lists(path):
    """symbols.txt: the functions written by hand, and those passed through knowingly."""
    lists = {"wrap": set(), "pass": set()}
    for number, line in enumerate(path.read_text().splitlines(), 1):
        fields = line.split("#")[0].split()
        if not fields:
            continue
        if len(fields) != 2 or fields[0] not in lists:
            sys.exit(f"{path}:{number}: expected 'wrap NAME' or 'pass NAME'")
        lists[fields[0]].add(fields[1])
    return lists["wrap"], lists["pass"]


def classify(symbols, wrapped, passed):
    """Splits the stock symbols into hand-written ones, trampolines and variables."""
    written, trampolines, data = [], [], []
    for s in symbols:
        private = s.version.startswith("IBVERBS_PRIVATE_")
        if not private and s.version not in PUBLIC_NODES:
            sys.exit(f"{s.name}: version {s.version} is beyond the nodes known to gen_symbols.py")
        if s.is_data:
            data.append(s)
        elif s.name in wrapped and s.is_default:
            written.append(s)
        else:
            trampolines.append(s)
            if s.is_default and not private and s.name not in passed:
                print(f"gen_symbols: warning: {s.name}@{s.version} is unknown to the front; "
                      "passed through", file=sys.stderr)
    return written, trampolines, data


def is_private(symbol):
    return symbol.version.startswith("IBVERBS_PRIVATE_")


def alias(symbol):
    """The assembler's own name of a versioned trampoline."""
    return f"shift_tramp_{symbol.name}_{symbol.version.replace('.', '_')}"


def version_script(written, wrapped):
    # Trampolines carry their version themselves (.symver); a name listed in two nodes would bind the
    # hand-written function to the older one.
    names = collections.defaultdict(set)
    for s in written:
        names[s.version].add(s.name)
    # A function the stock library does not have must not appear out of nothing: programs probe for
    # it. C++ templates instantiated in our objects have default visibility, being in namespace std.
    absent = sorted(wrapped - {s.name for s in written})
    out, previous = [], ""
    for node in PUBLIC_NODES:
        out.append(f"{node} {{")
        if names[node]:
            out.append("  global:")
            out += [f"    {name};" for name in sorted(names[node])]
        if not previous:
            out.append("  local:")
            out += [f"    {name};" for name in ["shift_tramp_*", "_Z*"] + absent]
        out.append(f"}}{' ' if previous else ''}{previous};")
        previous = node
    # Private symbols get no version at all: that satisfies a need for any IBVERBS_PRIVATE_<n>, so
    # plug-ins and librdmacm of every release bind.
    out += [f"{node} {{ }};" for node in PRIVATE_NODES]
    return "\n".join(out) + "\n"


def assembly(trampolines):
    out = ['#include "trampoline.h"']
    for index, s in enumerate(trampolines):
        if is_private(s):
            out.append(f"SHIFT_TRAMPOLINE {s.name}, {index}")
        else:
            out.append(f"SHIFT_TRAMPOLINE {alias(s)}, {index}")
            out.append(f".symver {alias(s)}, {s.name}{'@@' if s.is_default else '@'}{s.version}")
    out.append(f"SHIFT_TRAMPOLINE_SLOTS {len(trampolines)}")
    out.append('.section .note.GNU-stack,"",%progbits')
    return "\n".join(out) + "\n"


def table(trampolines):
    lines = []
    for s in trampolines:
        version = "nullptr" if is_private(s) else f'"{s.version}"'
        lines.append(f'{{"{s.name}", {version}}},')
    return "\n".join(lines) + "\n"


def data_table(data):
    lines = []
    for s in data:
        lines.append(f"SHIFT_FRONT_DATA({s.name}, {s.size})")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nm", default="nm")
    parser.add_argument("--stock", required=True, help="the stock libibverbs.so.1")
    parser.add_argument("--symbols", type=pathlib.Path, required=True, help="symbols.txt")
    parser.add_argument("--out", type=pathlib.Path, required=True, help="output folder")
    args = parser.parse_args()

    wrapped, passed = read_lists(args.symbols)
    written, trampolines, data = classify(read_stock(args.nm, args.stock), wrapped, passed)
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "front.map").write_text(version_script(written, wrapped))
    (args.out / "trampolines.S").write_text(assembly(trampolines))
    (args.out / "trampolines.inc").write_text(table(trampolines))
    (args.out / "data.inc").write_text(data_table(data))


if __name__ == "__main__":
    main()
