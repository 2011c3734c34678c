"""What the bed takes to a machine with a GPU: the layer, the emulator, and this Debian's stock verbs libraries.

A bundle is a folder like a build folder (bin, lib, test), with one more, `stock`: copies of the distribution's
libraries. It holds plain files only, since links do not survive every way of copying. It is never committed.
"""

import json
import os
import re
import shutil
import subprocess

PROGRAMS = ("bin/cxemu", "bin/shift-run", "bin/shiftctl", "test/shift-nccl")
LIBRARIES = ("lib/libcxemu.so", "lib/libibverbs.so.1", "lib/librdmacm.so.1", "lib/libmlx5.so.1")
# NCCL asks for this name first.
ALIAS = "lib/libibverbs.so"
# Every machine has its own of these, and needs it.
OF_THE_SYSTEM = re.compile(r"^(linux-vdso|ld-linux|lib(c|m|dl|pthread|rt|stdc\+\+|gcc_s|resolv)\.so)")
NEEDED = re.compile(r"^\s*(\S+)(?: => (\S+))? \(0x", re.M)


def needed(path):
    """{name: file} of all libraries that a program or library loads at its start."""
    text = subprocess.run(["ldd", path], check=True, capture_output=True, text=True).stdout
    return {os.path.basename(name): os.path.realpath(file or name) for name, file in NEEDED.findall(text)}


def copied(source, target, stripped=True):
    os.makedirs(os.path.dirname(target), exist_ok=True)
    shutil.copy(os.path.realpath(source), target)
    if stripped and shutil.which("strip"):
        subprocess.run(["strip", "--strip-debug", target], check=True)


def place_of(front):
    """The folder where the front library expects the stock libraries, since it names them by their path."""
    text = subprocess.run(["ldd", front], check=True, capture_output=True, text=True).stdout
    for name, _ in NEEDED.findall(text):
        if name.startswith("/") and os.path.basename(name) == "libibverbs.so.1":
            return os.path.dirname(name)
    raise ValueError("%s does not name its stock library" % front)


def make(build, directory):
    """Makes a bundle of a build folder in an empty `directory`. Returns its size in bytes."""
    shutil.rmtree(directory, ignore_errors=True)
    for name in PROGRAMS + LIBRARIES:
        copied(os.path.join(build, name), os.path.join(directory, name))
    place = place_of(os.path.join(build, "lib/libibverbs.so.1"))
    stock = {name: os.path.join(place, name) for name in ("libibverbs.so.1", "libmlx5.so.1", "librdmacm.so.1")}
    for name in PROGRAMS + LIBRARIES + tuple(stock.values()):
        for library, file in needed(os.path.join(build, name)).items():
            if not OF_THE_SYSTEM.match(library) and library not in stock:
                stock[library] = file
    for name, file in stock.items():
        copied(file, os.path.join(directory, "stock", name), stripped=False)
    with open(os.path.join(directory, "bundle.json"), "w") as file:
        json.dump({"place": place, "stock": {name: os.path.basename(os.path.realpath(one))
                                             for name, one in stock.items()}}, file, indent=1)
    return sum(os.path.getsize(os.path.join(folder, name))
               for folder, _, names in os.walk(directory) for name in names)


def described(directory):
    """The description of a bundle, whose programs can be run afterwards: the ways of copying may lose that."""
    with open(os.path.join(directory, "bundle.json")) as file:
        told = json.load(file)
    for name in PROGRAMS:
        os.chmod(os.path.join(directory, name), 0o755)
    if not os.path.lexists(os.path.join(directory, ALIAS)):
        os.symlink(os.path.basename(ALIAS) + ".1", os.path.join(directory, ALIAS))
    return told
