"""Makes the key files of tests: the one of a script with many runs, usable ones, and one for each cause for which
the layer refuses a file."""

import dataclasses
import hashlib
import os
import random
import secrets
import shutil
import subprocess

from harness.build import words

from e2e.wire import key_port

NOBODY = 65534


def id_of(secret):
    """The id of a key: thousands of them are wanted, and shift-run tells one at a time."""
    return int.from_bytes(hashlib.blake2b(b"SHIFT job key id" + secret, digest_size=32).digest()[:8], "little")


class KeyFiles:
    """Files in one folder, with keys that shift-run makes."""

    def __init__(self, build, directory):
        self.build, self.directory = build, directory
        os.makedirs(directory)
        self.ids = {}  # {name of a key: its id}

    def _run(self, *argv):
        return subprocess.run(words([self.build.shift_run, *argv]), check=True, capture_output=True,
                              text=True).stdout.split()

    def path(self, name):
        return os.path.join(self.directory, name)

    def make(self, name):
        """A file with one new key, whose port no other key here has, so that its connections are known by it."""
        taken = {key_port(one) for one in self.ids.values()}
        while True:
            key_id = int(self._run("--make-key", self.path(name))[0], 16)
            if key_port(key_id) not in taken:
                self.ids[name] = key_id
                return self.path(name)
            os.remove(self.path(name))

    def neighbour(self, name, of):
        """A file with another key that has the port of the key `of`."""
        port = key_port(self.ids[of])
        secret = next(one for one in iter(lambda: secrets.token_bytes(32), None) if key_port(id_of(one)) == port)
        path = self.write(name, secret.hex() + "\n")
        self.ids[name] = int(self._run("--key-id", path)[0], 16)
        if key_port(self.ids[name]) != port:
            raise SystemExit("FAILED: shift-run tells another id of a key than it has")
        return path

    def text(self, name):
        with open(self.path(name)) as file:
            return file.read()

    def write(self, name, text, mode=0o600):
        with open(self.path(name), "w") as file:
            file.write(text)
        os.chmod(self.path(name), mode)
        return self.path(name)

    def joined(self, name, *keys):
        """A file with these keys, the first one to speak with."""
        return self.write(name, "".join(self.text(key) for key in keys))


class JobKey:
    """The key of a script's runs, in a folder of its `options.out`. Each run draws whether it has the key, unless
    `options.key` decides for all."""

    def __init__(self, build, options):
        self.decided = options.key
        directory = os.path.join(os.path.abspath(options.out), "key")
        shutil.rmtree(directory, ignore_errors=True)
        self.path = None if self.decided is False else KeyFiles(build, directory).make("job.key")

    def has(self, *run):
        """`run` is what all of a run follows from, such as its seed and its index."""
        if self.decided is not None:
            return self.decided
        return random.Random("key " + "/".join(map(str, run))).random() < 0.5

    def settings(self, *run):
        """The run's variables of the environment."""
        return {"SHIFT_KEY_FILE": self.path} if self.has(*run) else {}

    def word(self, *run):
        return ", with a job key" if self.has(*run) else ""


@dataclasses.dataclass
class Unusable:
    name: str
    path: str
    cause: str   # what the line must say of it
    remedy: str  # and what it must tell the user to do


def unusable_files(files, good):
    """One file for each cause. `good` names a file that would be usable."""
    key = files.text(good)
    os.mkdir(files.path("directory"))
    os.symlink(files.path(good), files.path("link"))
    os.symlink(files.path("nothing"), files.path("dangling"))
    os.mkfifo(files.path("fifo"), 0o600)
    digits = next(line for line in key.split("\n") if len(line) == 64)
    yield Unusable("a directory", files.path("directory"), "not a regular file", "give the path of one")
    yield Unusable("no file", files.path("missing"), "no such file", "shift-run --make-key")
    yield Unusable("a dangling link", files.path("dangling"), "a symbolic link", "name the file itself")
    yield Unusable("a link to a good file", files.path("link"), "a symbolic link", "name the file itself")
    yield Unusable("mode 0644", files.write("open", key, 0o644), "its mode is 0644", "chmod 600")
    yield Unusable("too short", files.write("short", digits[:-1] + "\n"), "line 1 is not a key of 64",
                   "correct it")
    yield Unusable("one bad line", files.write("bad", key + "secret\n"), "is not a key of 64", "correct it")
    yield Unusable("empty", files.write("empty", ""), "no key in it", "shift-run --make-key")
    yield Unusable("a FIFO", files.path("fifo"), "not a regular file", "give the path of one")
    # As a script exports it whose own variable is not set.
    yield Unusable("an empty name", "", "its name is empty", "name a file")
    yield Unusable("a device", "/dev/zero", "not a regular file", "give the path of one")
    others = files.write("others", key)
    try:
        os.chown(others, NOBODY, -1)
    except OSError as error:
        print("left out: a file of another user: %s" % error, flush=True)
        return
    yield Unusable("a file of another user", others, "belongs to user %d" % NOBODY, "make a copy")
