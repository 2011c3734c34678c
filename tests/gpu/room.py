"""A mount namespace in which the stock verbs libraries of a bundle are where the layer expects them.

The front library names the stock libraries by their path. A machine with a GPU may have none there, or others;
and nothing of it should be changed. So this process, and what it starts, see another folder at that path: the
machine's own, with a bundle's libraries in place of its verbs libraries.
"""

import atexit
import ctypes
import os
import tempfile

CLONE_NEWNS, CLONE_NEWUSER = 0x00020000, 0x10000000
MS_BIND, MS_REC, MS_PRIVATE = 4096, 16384, 1 << 18
MNT_DETACH = 2
OWN_VERBS = ("libibverbs", "libmlx5", "libmlx4", "librdmacm")
DRIVERS = "/etc/libibverbs.d"


def _call(function, *arguments):
    if function(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(arguments[1] if len(arguments) > 1 else arguments[0]))


def _mount(libc, source, target, kind, flags):
    _call(libc.mount, source.encode(), target.encode(), kind and kind.encode(), ctypes.c_ulong(flags), None)


def _become_root_of_namespace(libc):
    """Without root's rights, a user namespace of its own gives the right to mount."""
    user, group = os.getuid(), os.getgid()
    _call(libc.unshare, CLONE_NEWUSER | CLONE_NEWNS)
    for name, text in (("setgroups", "deny"), ("uid_map", "0 %d 1" % user), ("gid_map", "0 %d 1" % group)):
        with open("/proc/self/" + name, "w") as file:
            file.write(text)


def _fill(place, own, stock):
    """Fills the empty folder `place` with links: to the bundle's libraries, and else to the machine's own, which
    are at `own` now."""
    names = {name: os.path.join(stock, name) for name in os.listdir(stock)}
    for name in os.listdir(own):
        if name in names or name.startswith(OWN_VERBS):
            continue
        path = os.path.join(own, name)
        # A link is relative to this folder, so it stays as it is.
        names[name] = os.readlink(path) if os.path.islink(path) else path
    for name, target in names.items():
        os.symlink(target, os.path.join(place, name))
    os.mkdir(os.path.join(place, "libibverbs"))
    os.symlink("../libmlx5.so.1", os.path.join(place, "libibverbs", "libmlx5-rdmav34.so"))


def _leave(libc, own):
    """The room ends with its processes; the folder in /tmp would stay."""
    libc.umount2(own.encode(), MNT_DETACH)
    os.rmdir(own)


def enter(bundle, place):
    """Moves this process, which has one thread, into the room. Returns the settings that its programs need.

    Raises OSError where the machine allows no mount namespace."""
    libc = ctypes.CDLL(None, use_errno=True)
    stock = os.path.join(os.path.abspath(bundle), "stock")
    own = tempfile.mkdtemp(prefix="shift-room-")
    if os.geteuid() == 0:
        _call(libc.unshare, CLONE_NEWNS)
    else:
        _become_root_of_namespace(libc)
    _mount(libc, "none", "/", None, MS_REC | MS_PRIVATE)
    place = os.path.realpath(place)
    _mount(libc, place, own, None, MS_BIND | MS_REC)
    atexit.register(_leave, libc, own)
    _mount(libc, "tmpfs", place, "tmpfs", 0)
    _fill(place, own, stock)
    if os.path.isdir(DRIVERS):
        _mount(libc, "tmpfs", DRIVERS, "tmpfs", 0)
    # Without /etc/libibverbs.d the stock library is told of its driver like this.
    return {"IBV_DRIVERS": os.path.join(place, "libibverbs", "libmlx5")}
