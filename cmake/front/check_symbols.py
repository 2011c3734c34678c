#!/usr/bin/env python3
"""Compares a front's dynamic symbol table with the stock library's.

Allowed differences: further, empty version nodes (a program's needs are checked against the front
alone), and private symbols without a version (which satisfies a need for any IBVERBS_PRIVATE_<n>).
"""
import argparse
import re
import subprocess
import sys


# For each family: the version nodes it may have, and what it exports beyond the stock library.
FAMILIES = {
    "ibverbs": (r"IBVERBS_(1\.\d+|PRIVATE_\d+)",
                {"shift_qp_is_protected", "shift_qp_has_left", "shift_device_is_masked",
                 "shift_on_peer_gone", "shift_virtual_objects",
                 "ibv_reg_mr_ex@@IBVERBS_1.15", "ibv_query_port_speed@@IBVERBS_1.16",
                 "ibv_reg_buf_mr@@IBVERBS_1.17"}),
    "mlx5": (r"MLX5_1(\.\d+)+", {"shift_work_rings"}),
}


def run(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def exported(nm, library):
    """Every symbol as name@version (@@version for the default version), and the version nodes."""
    symbols, nodes = set(), set()
    for line in run(nm, "-D", "--defined-only", "--with-symbol-versions", library).splitlines():
        _, kind, name = line.split()
        (nodes if kind == "A" else symbols).add(name)
    return symbols, nodes


def check_table(front, stock, family, fail):
    node, own = FAMILIES[family]
    symbols, nodes = front
    stock_symbols, stock_nodes = stock
    wanted = {re.sub(r"@@IBVERBS_PRIVATE_\d+$", "", s) for s in stock_symbols}
    for name in sorted(wanted - symbols):
        fail(f"not exported: {name}")
    for name in sorted(symbols - wanted - own):
        fail(f"exported beyond the stock library: {name}")
    for name in sorted(stock_nodes - nodes):
        fail(f"version node missing: {name}")
    for name in sorted(nodes - stock_nodes):
        if not re.fullmatch(node, name):
            fail(f"foreign version node: {name}")


def check_dynamic(text, needed, soname, fail):
    if f"[{soname}]" not in re.search(r"\(SONAME\).*", text)[0]:
        fail(f"SONAME is not {soname}")
    libraries = re.findall(r"\(NEEDED\).*\[(.*)\]", text)
    if needed not in libraries:
        fail(f"does not need {needed}")
    for library in libraries:
        hidden = r"lib(stdc\+\+|gcc_s|mlx5|fmt|spdlog|sodium|hiredis|ssl|crypto)"
        if library == soname or re.match(hidden, library):
            fail(f"needs {library}, which a guest must bring along hidden")
    flags = " ".join(re.findall(r"\(FLAGS(?:_1)?\)(.*)", text))
    for flag in ("NOW", "NODELETE"):
        if flag not in flags:
            fail(f"flag {flag} missing")
    if re.search(r"\((RPATH|RUNPATH)\)", text):
        fail("has a run path")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--family", choices=sorted(FAMILIES), required=True)
    for name in ("nm", "readelf", "front", "stock", "needed"):
        parser.add_argument("--" + name, required=True)
    args = parser.parse_args()
    failures = []
    check_table(exported(args.nm, args.front), exported(args.nm, args.stock), args.family,
                failures.append)
    check_dynamic(run(args.readelf, "-dW", args.front), args.needed,
                  f"lib{args.family}.so.1", failures.append)
    for failure in failures:
        print(failure)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
