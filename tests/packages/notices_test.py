#!/usr/bin/python3
"""redhat/notices before an rpm that knows what it is told; and on this machine, if it is Debian."""
import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

# Files of the source packages, and where each of these has its licence: seldom with the file itself.
RPM = """
case "$*" in
  *-qf*CLI.hpp) echo cli11-1.src.rpm ;;
  *-qf*libsodium.a | *-qf*verbs.h | *-qf*libz.a) basename "$4" ;;
  *-qf*json.hpp) echo json-1.src.rpm ;;
  *-qf*libstdc++.a) echo gcc-1.src.rpm ;;
  -qa*)
    echo "cli11-1.src.rpm cli11-devel"
    for name in libsodium.a verbs.h libz.a; do echo "$name $name-devel"; echo "$name $name-base"; done
    echo "json-1.src.rpm json-devel"
    echo "gcc-1.src.rpm libgcc"
    echo "gcc-1.src.rpm libstdc++-static"
    echo "other-1.src.rpm other" ;;
  "-qL $WITHOUT") echo "(contains no files)" ;;
  "-qL "*-base | "-qL "cli11-devel | "-qL "json-devel | "-qL "libgcc | "-qL "other)
    echo "licence of $2" >"$DIR/$2"
    echo "$DIR/$2" ;;
  *) echo "(contains no files)" ;;
esac
"""
PROGRAMS = {"rpm": RPM, "dpkg-query": "exit 1", "g++": 'mkdir -p "$DIR/11"; echo "$DIR/11/${1#*=}"'}
WANTED = {"libcli11-dev": "cli11-devel", "libsodium-dev": "libsodium.a-base", "nlohmann-json3-dev": "json-devel",
          "libibverbs-dev": "verbs.h-base", "zlib1g-dev": "libz.a-base", "libstdc++-11-dev": "libgcc"}


def notices(script, folder, **variables):
    made = pathlib.Path(folder, "made")
    done = subprocess.run(["sh", script, made], env=os.environ | {"DIR": folder, "WITHOUT": ""} | variables,
                          capture_output=True, text=True, timeout=50, check=False)
    return done, {path.parent.name: path.read_text() for path in made.glob("*/copyright")}


def rpm_is_asked(script, folder):
    for name, text in PROGRAMS.items():
        program = pathlib.Path(folder, "bin", name)
        program.parent.mkdir(exist_ok=True)
        program.write_text("#!/bin/sh\n" + text)
        program.chmod(0o755)
    path = "%s/bin:%s" % (folder, os.environ["PATH"])
    done, found = notices(script, folder, PATH=path)
    assert done.returncode == 0, done
    assert found == {name: "licence of %s\n" % owner for name, owner in WANTED.items()}, found
    done, _ = notices(script, folder, PATH=path, WITHOUT="libgcc")
    assert done.returncode == 1 and "no package of gcc-1.src.rpm" in done.stderr, done


def debian_has_its_own(script, folder):
    if not shutil.which("dpkg-query"):
        print("left out: this is not Debian")
        return
    done, found = notices(script, folder)
    found_always = found.keys() - {"libhiredis-dev"}  # a build does without it where it is not installed
    assert done.returncode == 0 and len(found_always) == len(WANTED), (done, list(found))
    for name, text in found.items():
        assert text == pathlib.Path("/usr/share/doc", name, "copyright").read_text(), name


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--script", type=pathlib.Path, required=True)
    script = parser.parse_args().script.resolve()
    for case in (rpm_is_asked, debian_has_its_own):
        with tempfile.TemporaryDirectory() as folder:
            case(script, folder)
        print("ok:", case.__name__)
    return 0


if __name__ == "__main__":
    sys.exit(main())
