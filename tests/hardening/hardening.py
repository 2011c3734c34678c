#!/usr/bin/python3
"""Whether built programs and libraries are hardened: what a bug of memory can do in other people's programs.

Reads the objects themselves, and not the build files: the options that the compiler has noted in the debug
information, the symbols of the checks, and how the linker has laid the object out.

The checks of libc's calls and of the standard library's indices leave a sign only where there is such a call or
index, so they are looked for in the objects that --checked names.

The distribution's static archives, which --archive names, are linked into the objects, and the distribution
chooses their options. They bring no debug information, so the options above are those of our sources; and a call
that is checked in an archive, too, is no sign that ours are. Of an archive itself it is only asked that it has
stack protectors.
"""

import argparse
import re
import subprocess
import sys
import tempfile

OPTIONS = ["-fstack-protector-strong", "-fstack-clash-protection"]
BRANCHES = {"Advanced Micro Devices X86-64": "-fcf-protection=full", "AArch64": "-mbranch-protection=standard"}


def readelf(*arguments):
    return subprocess.run(["readelf", "-W", *arguments], check=True, capture_output=True, text=True).stdout


def checked_calls(path):
    return set(re.findall(r"\b__\w+_chk\b", readelf("-s", path)))


def archive_complaints(path):
    return [] if "__stack_chk_fail" in readelf("-s", path) else ["no function has a stack protector"]


def complaints(path, is_checked, foreign=frozenset()):
    """What the object lacks, one line each. `foreign` are the checked calls of what is linked into it."""
    found = []
    machine = re.search(r"Machine:\s*(.*)", readelf("-h", path)).group(1)
    options = OPTIONS + [BRANCHES[machine]] if machine in BRANCHES else OPTIONS
    compiled = re.findall(r"DW_AT_producer.*?: (GNU C.*)", readelf("--debug-dump=info", "--dwarf-depth=1", path))
    if not compiled:
        found.append("it has no debug information, which names the compiler's options")
    for option in options:
        without = sum(option not in one for one in compiled)
        if without:
            found.append(f"{without} of {len(compiled)} sources are compiled without {option}")
    symbols = readelf("-s", path)
    if not re.search(r"\b__stack_chk_fail\b", symbols):
        found.append("no function has a stack protector")
    if is_checked and not checked_calls(path) - foreign:
        found.append("no call of libc is checked (_FORTIFY_SOURCE)")
    if is_checked and not re.search(r"__glibcxx_assert_fail", symbols):
        found.append("no index is checked (_GLIBCXX_ASSERTIONS)")
    segments = readelf("-l", path)
    if "GNU_RELRO" not in segments or not re.search(r"BIND_NOW|\bNOW\b", readelf("-d", path)):
        found.append("its tables of functions can be written to")
    stack = re.search(r"GNU_STACK.*", segments)
    if not stack or "E" in stack.group(0).split()[-2]:
        found.append("its stack can be executed")
    return found


SOURCE = """
#include <cstdio>
#include <cstring>
#include <vector>
int main(int argc, char** argv) {
  char text[64];
  std::strcpy(text, argv[0]);
  std::vector<int> list(static_cast<unsigned long>(argc));
  std::printf("%s %d\\n", text, list[static_cast<unsigned long>(argc - 1)]);
}
"""


def selftest(compiler):
    """Each flag is left out once, and must be missed; with all of them there is nothing to complain of."""
    branch = next(flag for machine, flag in BRANCHES.items() if machine in readelf("-h", "/bin/sh"))
    # The compiler may have some of these as its default, so the opposite takes the place of each.
    flags = {"-fstack-protector-strong": "-fno-stack-protector",
             "-fstack-clash-protection": "-fno-stack-clash-protection",
             branch: branch.split("=")[0] + "=none",
             "-D_FORTIFY_SOURCE=2": "-U_FORTIFY_SOURCE",
             "-D_GLIBCXX_ASSERTIONS": "-U_GLIBCXX_ASSERTIONS",
             "-Wl,-z,now": "-Wl,-z,lazy",
             "-Wl,-z,noexecstack": "-Wl,-z,execstack",
             "-g1": "-g0"}
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        source = folder + "/source.cc"
        with open(source, "w", encoding="utf-8") as file:
            file.write(SOURCE)
        for left_out in [None, *flags]:
            used = [other if flag == left_out else flag for flag, other in flags.items()]
            subprocess.run([compiler, "-O2", "-U_FORTIFY_SOURCE", "-Wl,-z,relro", *used, source, "-o",
                            folder + "/object"], check=True)
            found = complaints(folder + "/object", True)
            if bool(found) != (left_out is not None):
                print(f"without {left_out}: {found}")
                wrong += 1
            if bool(archive_complaints(folder + "/object")) != (left_out == "-fstack-protector-strong"):
                print(f"without {left_out}: wrong as an archive")
                wrong += 1
        found = complaints(folder + "/object", True, checked_calls(folder + "/object"))
        if not any("FORTIFY" in one for one in found):
            print("the calls that an archive checks are taken for ours")
            wrong += 1
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("objects", nargs="*", metavar="OBJECT")
    parser.add_argument("--checked", action="append", default=[], metavar="OBJECT")
    parser.add_argument("--archive", action="append", default=[], metavar="ARCHIVE")
    parser.add_argument("--selftest", metavar="COMPILER", help="leave each option out of a small program")
    options = parser.parse_args()
    if options.selftest:
        return 1 if selftest(options.selftest) else 0
    foreign = {call for archive in options.archive for call in checked_calls(archive)}
    found = [(path, archive_complaints(path)) for path in options.archive]
    found += [(path, complaints(path, path in options.checked, foreign))
              for path in options.checked + options.objects]
    lines = [f"{path}: {complaint}" for path, ones in found for complaint in ones]
    print(*lines, sep="\n", end="\n" if lines else "")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
