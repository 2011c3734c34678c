#!/usr/bin/env python3
"""Generates the symbol map of a front library from the stock library it stands in front of.

Writes into OUT:
  front.map         version script: every public symbol at its stock version
  trampolines.S     tail jumps for the functions that are not written by hand
  trampolines.inc   {name, version, lead} of each trampoline, in slot order; some have no lead
  leads.inc         declarations of the leads: functions that name what a slot leads to
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

# The dynamic linker checks a program's version needs only against the first object with the wanted
# SONAME, which is the front. So the front must have every node that a program or plug-in of any
# release may ask for.
Family = collections.namedtuple("Family", "nodes private_prefix private_nodes known_symbol")
FAMILIES = {
    # 1.2 to 1.4 never existed.
    "ibverbs": Family(["IBVERBS_1.0", "IBVERBS_1.1"] + [f"IBVERBS_1.{i}" for i in range(5, 41)],
                      "IBVERBS_PRIVATE_", [f"IBVERBS_PRIVATE_{i}" for i in range(14, 131)],
                      "ibv_open_device"),
    "mlx5": Family(sorted([f"MLX5_1.{i}" for i in range(0, 51)] + ["MLX5_1.25.1"],
                          key=lambda node: [int(n) for n in node[5:].split(".")]),
                   "MLX5_PRIVATE_", [], "mlx5dv_init_obj"),
}

Symbol = collections.namedtuple("Symbol", "name version is_default is_data size")


def read_stock(nm, stock, family):
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
            sys.exit(f"{stock}: symbol {versioned} has no version; is this the stock library?")
        size = int(fields[1], 16) if len(fields) == 4 else 0
        symbols.append(Symbol(match[1], match[3], match[2] == "@@", kind in "BDR", size))
    if not any(s.name == family.known_symbol for s in symbols):
        sys.exit(f"{stock}: no {family.known_symbol}; is this the stock library?")
    return sorted(symbols)


def read_lists(path):
    """Reads symbols.txt: functions written by hand (wrap), functions whose trampoline leads to a
    function of the front (lead), functions knowingly passed through (pass), and the versions of
    functions written by hand that the stock library may lack (newer)."""
    lists = {"wrap": set(), "lead": set(), "pass": set(), "newer": {}}
    for number, line in enumerate(path.read_text().splitlines(), 1):
        fields = line.split("#")[0].split()
        if not fields:
            continue
        if len(fields) == 3 and fields[0] == "newer":
            lists["newer"][fields[1]] = fields[2]
        elif len(fields) == 2 and fields[0] in ("wrap", "lead", "pass"):
            lists[fields[0]].add(fields[1])
        else:
            sys.exit(f"{path}:{number}: expected 'wrap NAME', 'lead NAME', 'pass NAME' or "
                     "'newer NAME VERSION'")
    return lists


def classify(symbols, lists, family):
    """Splits the stock symbols into hand-written ones, trampolines and variables."""
    written, trampolines, data = [], [], []
    for s in symbols:
        private = is_private(s, family)
        if not private and s.version not in family.nodes:
            sys.exit(f"{s.name}: version {s.version} is beyond the nodes known to gen_symbols.py")
        if s.is_data:
            data.append(s)
        elif s.name in lists["newer"]:
            if s.version != lists["newer"][s.name]:
                sys.exit(f"{s.name}: the stock library has it at {s.version}")
        elif s.name in lists["wrap"] and s.is_default:
            written.append(s)
        else:
            trampolines.append(s)
            if s.is_default and not private and s.name not in lists["pass"] | lists["lead"]:
                print(f"gen_symbols: warning: {s.name}@{s.version} is unknown to the front; "
                      "passed through", file=sys.stderr)
    return written, trampolines, data


def is_private(symbol, family):
    return symbol.version.startswith(family.private_prefix)


def alias(symbol):
    """The assembler's own name of a versioned trampoline."""
    return f"shift_tramp_{symbol.name}_{symbol.version.replace('.', '_')}"


def version_script(written, lists, family):
    # Trampolines carry their version themselves (.symver); a name listed in two nodes would bind the
    # hand-written function to the older one.
    names = collections.defaultdict(set)
    for s in written:
        names[s.version].add(s.name)
    for name, version in lists["newer"].items():
        names[version].add(name)
    # The front must not export a function that the stock library lacks: programs probe for it. C++
    # templates instantiated in our objects are in namespace std and so have default visibility.
    absent = sorted(lists["wrap"] - {s.name for s in written})
    out, previous = [], ""
    for node in family.nodes:
        out.append(f"{node} {{")
        if names[node]:
            out.append("  global:")
            out += [f"    {name};" for name in sorted(names[node])]
        if not previous:
            out.append("  local:")
            out += [f"    {name};" for name in ["shift_tramp_*", "_Z*"] + absent]
        out.append(f"}}{' ' if previous else ''}{previous};")
        previous = node
    # Private symbols get no version at all. That satisfies a need for any IBVERBS_PRIVATE_<n>, so
    # plug-ins and librdmacm of every release can bind to them.
    out += [f"{node} {{ }};" for node in family.private_nodes]
    return "\n".join(out) + "\n"


def assembly(trampolines, family):
    out = ['#include "trampoline.h"']
    for index, s in enumerate(trampolines):
        if is_private(s, family):
            out.append(f"SHIFT_TRAMPOLINE {s.name}, {index}")
        else:
            out.append(f"SHIFT_TRAMPOLINE {alias(s)}, {index}")
            out.append(f".symver {alias(s)}, {s.name}{'@@' if s.is_default else '@'}{s.version}")
    out.append(f"SHIFT_TRAMPOLINE_SLOTS {len(trampolines)}")
    out.append('.section .note.GNU-stack,"",%progbits')
    return "\n".join(out) + "\n"


def lead_name(symbol):
    """The name of the lead to a function of the front; an old version has its own lead."""
    return f"lead_{symbol.name}" if symbol.is_default else "lead_" + alias(symbol)[len("shift_tramp_"):]


def table(trampolines, lead, family):
    lines = []
    for s in trampolines:
        version = "nullptr" if is_private(s, family) else f'"{s.version}"'
        ours = f", &{lead_name(s)}" if s.name in lead else ""
        lines.append(f'{{"{s.name}", {version}{ours}}},')
    return "\n".join(lines) + "\n"


def lead_declarations(trampolines, lead):
    return "".join(f"Lead {lead_name(s)}() noexcept;\n" for s in trampolines if s.name in lead)


def data_table(data):
    lines = []
    for s in data:
        lines.append(f"SHIFT_FRONT_DATA({s.name}, {s.size})")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nm", default="nm")
    parser.add_argument("--family", choices=sorted(FAMILIES), required=True)
    parser.add_argument("--stock", required=True, help="the stock library")
    parser.add_argument("--symbols", type=pathlib.Path, required=True, help="symbols.txt")
    parser.add_argument("--out", type=pathlib.Path, required=True, help="output folder")
    args = parser.parse_args()

    family = FAMILIES[args.family]
    lists = read_lists(args.symbols)
    written, trampolines, data = classify(read_stock(args.nm, args.stock, family), lists, family)
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "front.map").write_text(version_script(written, lists, family))
    (args.out / "trampolines.S").write_text(assembly(trampolines, family))
    (args.out / "trampolines.inc").write_text(table(trampolines, lists["lead"], family))
    (args.out / "leads.inc").write_text(lead_declarations(trampolines, lists["lead"]))
    (args.out / "data.inc").write_text(data_table(data))


if __name__ == "__main__":
    main()
