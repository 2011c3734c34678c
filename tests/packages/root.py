"""A root folder with a fresh Debian, in which packages are installed and programs run."""

import hashlib
import os
import pathlib
import platform
import shutil
import stat
import subprocess

# Runs in namespaces of its own, so that nothing stays mounted and no process is left. What is mounted is what
# cxemu and package scripts need; devices of the machine are out of reach.
ENTER = """
set -e
mount --make-rprivate /
mount -t tmpfs dev "$ROOT/dev"
for device in null zero full random urandom tty; do
  touch "$ROOT/dev/$device"
  mount --bind "/dev/$device" "$ROOT/dev/$device"
done
mkdir "$ROOT/dev/shm"
mount -t tmpfs shm "$ROOT/dev/shm"
ln -s /proc/self/fd "$ROOT/dev/fd"
mount -t proc proc "$ROOT/proc"
mount -t sysfs -o ro sysfs "$ROOT/sys"
test -z "$ALONE" || ip link set lo up
exec "$@"
"""
ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive",
               "HOME": "/root"}
# What package managers and the linker keep for themselves.
UNCOMPARED = ("dev", "proc", "sys", "run", "tmp", "root", "var/cache", "var/log", "var/lib/apt", "var/lib/dpkg",
              "var/lib/rpm")


def enter(root, alone, *command):
    """A command, and its environment, that runs another one with all this. `alone`: with a network of its own, so
    that programs of other roots have neither its ports nor the addresses of its emulated hosts."""
    words = ["unshare", "--mount", "--pid", *["--net"] * alone, "--fork", "--kill-child", "sh", "-c", ENTER,
             "enter", *map(str, command)]
    return words, ENVIRONMENT | {"ROOT": str(root.path), "ALONE": "yes" * alone}


class Failure(Exception):
    pass


def mirror(suite):
    """The address of an archive that this machine's apt uses; the suite may be one that apt does not."""
    said = subprocess.run(["apt-get", "indextargets", "--format", "$(REPO_URI) $(CODENAME) $(ORIGIN)"], check=True,
                          capture_output=True, text=True)
    targets = [line.split() for line in sorted(set(said.stdout.splitlines()))]
    for wanted in (suite, platform.freedesktop_os_release().get("VERSION_CODENAME")):
        for address, codename, *origin in targets:
            if codename == wanted and "Debian" in origin:
                return address
    raise Failure("apt knows no archive with the suite %s" % suite)


def base(suite, cache):
    """A folder with the smallest Debian, made once."""
    folder = pathlib.Path(cache, suite)
    if not (folder / "complete").exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        print("debootstrap of %s" % suite, flush=True)
        # In a namespace of its own, since debootstrap leaves /proc mounted where a program has a file of it open.
        subprocess.run(["unshare", "--mount", "debootstrap", "--variant=minbase", suite, folder / "root",
                        mirror(suite)], check=True, stdout=subprocess.DEVNULL)
        (folder / "complete").touch()
    return folder / "root"


def describe(path):
    """What must not change of a file; its times may."""
    status = path.lstat()
    about = [stat.filemode(status.st_mode), status.st_uid, status.st_gid]
    if path.is_symlink():
        about.append(os.readlink(path))
    elif path.is_file():
        about.append(hashlib.sha256(path.read_bytes()).hexdigest())
    return about


def copy_tree(there, here):
    """Copies a root, and nothing that is mounted in it: /proc has files without an end."""
    subprocess.run(["cp", "-a", "--one-file-system", there, here], check=True)


class Root:
    def __init__(self, suite, cache, scratch):
        self.suite, self.path = suite, pathlib.Path(scratch, suite)
        shutil.rmtree(self.path, ignore_errors=True)
        copy_tree(base(suite, cache), self.path)
        shutil.copy("/etc/resolv.conf", self.path / "etc/resolv.conf")
        (self.path / "debs").mkdir()
        self.run("apt-get", "-qq", "update")

    def attempt(self, *command, **environment):
        return self.attempt_beside("chroot", self.path, *command, **environment)

    def attempt_beside(self, *command, alone=False, **environment):
        """Runs a program of this machine, with all that is mounted for programs in the root."""
        words, always = enter(self, alone, *command)
        return subprocess.run(words, env=always | environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=900, check=False)

    def run(self, *command, **environment):
        done = self.attempt(*command, **environment)
        if done.returncode != 0:
            raise Failure("%s ends with %d:\n%s" % (" ".join(map(str, command)), done.returncode,
                                                   done.stdout[-4000:]))
        return done.stdout

    def install(self, *names):
        """Names of packages, and files of them."""
        words = []
        for name in names:
            if isinstance(name, pathlib.Path):
                shutil.copy(name, self.path / "debs")
                name = "/debs/" + name.name
            words.append(name)
        return self.run("apt-get", "-qq", "install", "-y", "--no-install-recommends", *words)

    def remove(self, *names):
        return self.run("apt-get", "-qq", "remove", "-y", *names)

    def purge(self, *names):
        """With everything that only these needed."""
        return self.run("apt-get", "-qq", "autoremove", "--purge", "-y", *names)

    def tree(self):
        """Each file of the root, and the packages that are known."""
        found = {}
        for folder, folders, files in os.walk(self.path):
            here = pathlib.Path(folder).relative_to(self.path)
            folders[:] = [name for name in folders if str(here / name) not in (*UNCOMPARED, "debs")]
            for name in folders + files:
                found[str(here / name)] = describe(self.path / here / name)
        for line in self.run("dpkg-query", "-W", "-f", "package ${Package}|${db:Status-Abbrev}\n").splitlines():
            found[line.split("|")[0]] = line.split("|")[1]
        return found

    def library(self, name="libibverbs.so.1"):
        """Where a program finds the library: one that opens it by its name."""
        script = ('use DynaLoader; DynaLoader::dl_load_file($ARGV[0], 1) or die DynaLoader::dl_error(), "\\n";'
                  'open(MAPS, "/proc/self/maps"); print grep { m{/\\Q$ARGV[0]\\E} } <MAPS>;')
        paths = [line.split()[5] for line in self.run("perl", "-e", script, name).splitlines()]
        return paths

    def close(self):
        shutil.rmtree(self.path)


def differences(before, after):
    for path in sorted(before.keys() | after.keys()):
        if before.get(path) != after.get(path):
            yield "%s: %s became %s" % (path, before.get(path), after.get(path))


def require(condition, what):
    if not condition:
        raise Failure(what)
