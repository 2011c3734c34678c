"""Makes what the test machines boot: Debian's kernel, and an initrd with the modules that it needs.

The kernel comes from the distribution's package, which is fetched and unpacked, but not installed.
"""

import glob
import lzma
import os
import re
import shutil
import stat
import subprocess
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
QEMU = "qemu-system-x86_64"
BUSYBOX = "/bin/busybox"
MODULES = ("virtio_pci 9pnet_virtio 9p overlay virtio_net virtio_console "
           "crc32_generic crc32c_generic crc32_pclmul crc32c_intel "
           "rdma_rxe ib_uverbs rdma_ucm "
           "sch_ingress cls_u32 cls_flower cls_matchall act_gact").split()


class Missing(Exception):
    """Says why there can be no test machine here."""


def require_programs():
    if os.uname().machine != "x86_64":
        raise Missing("the machines are x86_64 ones")
    for program, package in ((QEMU, "qemu-system-x86"), (BUSYBOX, "busybox-static"),
                             ("apt-get", "apt"), ("dpkg-deb", "dpkg"), ("rdma", "iproute2")):
        if shutil.which(program, path="/usr/sbin:/usr/bin:/sbin:/bin") is None:
            raise Missing("%s is not installed (package %s)" % (program, package))
    with open(BUSYBOX, "rb") as file:
        if b"/ld-linux" in file.read(4096):
            raise Missing("%s is not static (package busybox-static)" % BUSYBOX)


def package_name():
    # The words of apt-cache are translated.
    told = subprocess.run(["apt-cache", "depends", "linux-image-amd64"], capture_output=True,
                          text=True, check=False, env={**os.environ, "LC_ALL": "C"}).stdout
    found = re.search(r"Depends: (linux-image-\S+)", told)
    if not found:
        raise Missing("apt knows no package linux-image-amd64")
    return found.group(1)


def unpack_package(directory):
    """Fetches and unpacks the kernel's package. Returns the folder of its files, in `directory`."""
    package = package_name()
    with tempfile.TemporaryDirectory(dir=directory) as scratch:
        # For downloads apt drops its rights and becomes a user that cannot write here.
        fetched = subprocess.run(
            ["apt-get", "-qq", "-o", "APT::Sandbox::User=root", "download", package],
            cwd=scratch, capture_output=True, text=True, check=False)
        found = glob.glob(os.path.join(scratch, "*.deb"))
        if not found:
            raise Missing("%s cannot be fetched: %s" % (package, fetched.stderr.strip()))
        files = os.path.join(directory, "kernel")
        shutil.rmtree(files, ignore_errors=True)
        subprocess.run(["dpkg-deb", "-x", found[0], files], check=True)
    return files


def payload(image):
    """The ELF file in a bzImage. QEMU starts it directly, which saves the slow decompression."""
    at = image.find(b"\xfd7zXZ\x00")
    while at >= 0:
        try:
            inside = lzma.LZMADecompressor().decompress(image[at:])
            if inside.startswith(b"\x7fELF"):
                return inside
        except lzma.LZMAError:
            pass
        at = image.find(b"\xfd7zXZ\x00", at + 1)
    raise Missing("the kernel image holds no xz-compressed ELF file")


def module_name(path):
    return os.path.basename(path)[:-len(".ko")].replace("-", "_")


def in_load_order(folder):
    """The paths of MODULES and of what they need; each comes after what it depends on."""
    paths = {module_name(path): path
             for path in glob.glob(os.path.join(folder, "**", "*.ko"), recursive=True)}
    order = []

    def add(name):
        # A module that is built into the kernel has no file.
        if name not in paths or paths[name] in order:
            return
        with open(paths[name], "rb") as file:
            found = re.search(rb"\0depends=([^\0]*)\0", file.read())
        for needed in found.group(1).decode().split(",") if found else []:
            if needed:
                add(needed.replace("-", "_"))
        order.append(paths[name])

    for name in MODULES:
        add(name)
    return order


class Archive:
    """Writes a cpio archive in the kernel's format ("newc")."""

    def __init__(self, file):
        self.file = file
        self.count = 0

    def add(self, name, mode, data=b"", device=(0, 0)):
        self.count += 1
        raw = name.encode() + b"\0"
        fields = (self.count, mode, 0, 0, 1, 0, len(data), 0, 0, *device, len(raw), 0)
        head = b"070701" + b"".join(b"%08x" % field for field in fields) + raw
        for part in (head, data):
            self.file.write(part + b"\0" * (-len(part) % 4))

    def folder(self, name):
        self.add(name, stat.S_IFDIR | 0o755)

    def copy(self, name, source):
        with open(source, "rb") as file:
            self.add(name, stat.S_IFREG | 0o755, file.read())

    def end(self):
        self.add("TRAILER!!!", 0)


def write_initrd(path, modules):
    with open(path, "wb") as file:
        archive = Archive(file)
        for name in ("dev", "bin", "modules"):
            archive.folder(name)
        archive.add("dev/console", stat.S_IFCHR | 0o600, device=(5, 1))
        archive.copy("init", os.path.join(HERE, "guest", "init.sh"))
        archive.copy("bin/busybox", BUSYBOX)
        archive.add("bin/sh", stat.S_IFLNK | 0o777, b"busybox")
        for module in modules:
            archive.copy("modules/" + os.path.basename(module), module)
        order = "".join(os.path.basename(module) + "\n" for module in modules)
        archive.add("modules/order", stat.S_IFREG | 0o644, order.encode())
        archive.end()


def prepare(directory):
    """Makes (kernel, initrd) for QEMU in `directory`; a kernel that is there already is kept."""
    require_programs()
    os.makedirs(directory, exist_ok=True)
    kernel, initrd = (os.path.join(directory, name) for name in ("vmlinux", "initrd"))
    files = os.path.join(directory, "kernel")
    if not os.path.exists(kernel):
        files = unpack_package(directory)
        with open(glob.glob(os.path.join(files, "boot", "vmlinuz-*"))[0], "rb") as file:
            elf = payload(file.read())
        with open(kernel + ".new", "wb") as file:
            file.write(elf)
        os.rename(kernel + ".new", kernel)  # so the file is whole or missing
    write_initrd(initrd, in_load_order(os.path.join(files, "lib", "modules")))
    return kernel, initrd
