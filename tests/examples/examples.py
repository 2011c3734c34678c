#!/usr/bin/python3
"""Checks the files for firewalls, AppArmor and systemd: that they say what the layer does, and that those who read
them take them. Readers that are not here are left out, and said to be. It also installs them as packages do.

--selftest shows that each complaint arises.
"""

import argparse
import configparser
import gettext
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

SOURCE = pathlib.Path(__file__).resolve().parents[2]
KEY_PORTS = 1024  # a job key decides which of so many ports after SHIFT_PORT

UNIT = "[Unit]\nDefaultDependencies=no\n[Service]\nExecStart=/bin/true\n"
PROFILE = """abi <abi/3.0>,
include <tunables/global>
profile shift-test /nonexistent {
  include <abstractions/base>
  include <abstractions/shift>
}
"""


def read(path):
    return path.read_text(encoding="utf-8")


def run(command, **variables):
    """The command's exit status, and what it says."""
    result = subprocess.run([str(word) for word in command], env={**os.environ, **variables}, check=False,
                            capture_output=True, text=True)
    return result.returncode, (result.stdout + result.stderr).strip()


class Facts:
    """What the layer does, by its sources and by the sample, which another test compares with the layer."""

    def __init__(self):
        port = int(re.search(r"^#SHIFT_PORT = (\d+)$", read(SOURCE / "etc/shift.conf"), re.M)[1])
        self.port, self.key_ports = (port, port), (port + 1, port + KEY_PORTS)
        net = SOURCE / "providers/shift/net"
        count = int(re.search(r"kKeyPorts = (\d+);", read(net / "secrets.cc"))[1])
        assert count == KEY_PORTS, count
        self.local_name = re.search(r'"([\w-]+/)%s"', read(net / "socket.cc"))[1]
        self.settings = re.search(r'kConfigFile\[\] = "(.*)"', read(SOURCE / "providers/shift/util/config.h"))[1]


def port_range(text, between):
    first, _, last = text.partition(between)
    return int(first), int(last or first)


def judge_firewalld(path, facts):
    wanted = facts.key_ports if path.stem.endswith("-keys") else facts.port
    try:
        root = xml.etree.ElementTree.parse(path).getroot()
    except xml.etree.ElementTree.ParseError as error:
        yield "%s: %s" % (path.name, error)
        return
    found = {(one.tag, one.get("protocol"), *port_range(one.get("port"), "-"))
             for one in root if one.tag not in ("short", "description")}
    if found != {("port", "tcp", *wanted), ("port", "udp", *wanted), ("source-port", "udp", *wanted)}:
        yield "%s: it opens other ports: %s" % (path.name, sorted(found))
    if root.tag != "service" or not root.findtext("short") or not root.findtext("description"):
        yield "%s: it is no service with a name and a description" % path.name
    try:
        from firewall.core.io.service import service_reader  # pylint: disable=import-outside-toplevel
        from firewall.errors import FirewallError  # pylint: disable=import-outside-toplevel
    except ImportError:
        print("left out: firewalld is not here to read %s" % path.name)
        return
    try:
        service_reader(path.name, str(path.parent))
    except FirewallError as error:
        yield "%s: firewalld: %s" % (path.name, error)


def judge_ufw(path, facts):
    parser = configparser.ConfigParser()
    try:
        parser.read_string(read(path))
    except configparser.Error as error:
        yield "%s: %s" % (path.name, error)
        return
    for name, wanted in (("SHIFT", facts.port), ("SHIFT-keys", facts.key_ports)):
        part = parser[name] if name in parser else {}
        found = {(protocol, *port_range(ports, ":"))
                 for ports, _, protocols in (one.partition("/") for one in part.get("ports", "0").split("|"))
                 for protocol in ([protocols] if protocols else ["tcp", "udp"])}
        if found != {("tcp", *wanted), ("udp", *wanted)}:
            yield "%s: %s opens other ports: %s" % (path.name, name, sorted(found))
        if not part.get("title") or not part.get("description"):
            yield "%s: %s has no title or no description" % (path.name, name)
    try:
        from ufw import applications, common  # pylint: disable=import-outside-toplevel
    except ImportError:
        print("left out: ufw is not here to read its file")
        return
    gettext.install("ufw")  # ufw's messages expect it
    try:
        with tempfile.TemporaryDirectory() as folder:
            shutil.copy(path, os.path.join(folder, "shift"))
            names = sorted(applications.get_profiles(folder))
        if names != ["SHIFT", "SHIFT-keys"]:
            yield "%s: ufw finds other profiles: %s" % (path.name, names)
    except common.UFWError as error:
        yield "%s: ufw: %s" % (path.name, error)


def judge_apparmor(path, facts):
    lines = [line.strip() for line in read(path).splitlines()]
    rules = [line for line in lines if line and not line.startswith("#")]
    for rule in rules:
        if not rule.endswith(","):
            yield "%s: a rule ends without a comma: %s" % (path.name, rule)
    for wanted in ("%s r," % facts.settings, 'addr="@%s' % facts.local_name):
        if not any(wanted in rule for rule in rules):
            yield "%s: no rule has %s" % (path.name, wanted)
    parser = shutil.which("apparmor_parser", path=os.environ["PATH"] + ":/usr/sbin:/sbin")
    if not parser or not os.path.exists("/etc/apparmor.d/abstractions/base"):
        print("left out: apparmor_parser is not here")
        return
    with tempfile.TemporaryDirectory() as folder:
        os.mkdir(folder + "/abstractions")
        shutil.copy(path, folder + "/abstractions/shift")
        pathlib.Path(folder, "profile").write_text(PROFILE, encoding="utf-8")
        command = [parser, "--skip-kernel-load", "--skip-cache", "--quiet", "-I", folder, "-I", "/etc/apparmor.d"]
        status, said = run([*command, folder + "/profile"])
        if status != 0:
            yield "%s: apparmor_parser: %s" % (path.name, said)


def judge_systemd(path, facts):
    del facts
    parser = configparser.ConfigParser()
    parser.optionxform = str
    try:
        parser.read_string(read(path))
    except configparser.Error as error:
        yield "%s: %s" % (path.name, error)
        return
    wanted = {"memlock": {"LimitMEMLOCK": "infinity"},
              "plain-verbs": {"Environment": "SHIFT_DISABLE=1"}}[path.stem]
    if {name: dict(part) for name, part in parser.items() if part} != {"Service": wanted}:
        yield "%s: it sets something else" % path.name
    if not shutil.which("systemd-analyze"):
        print("left out: systemd-analyze is not here to read %s" % path.name)
        return
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "shift-test.service").write_text(UNIT, encoding="utf-8")
        os.mkdir(folder + "/shift-test.service.d")
        shutil.copy(path, folder + "/shift-test.service.d/")
        _, said = run(["systemd-analyze", "verify", folder + "/shift-test.service"], SYSTEMD_UNIT_PATH=folder)
    for line in said.splitlines():
        if "shift-test" in line:  # others are about the machine
            yield "%s: systemd: %s" % (path.name, line)


JUDGES = {
    "firewalld/shift.xml": judge_firewalld,
    "firewalld/shift-keys.xml": judge_firewalld,
    "ufw/shift": judge_ufw,
    "apparmor/shift": judge_apparmor,
    "systemd/memlock.conf": judge_systemd,
    "systemd/plain-verbs.conf": judge_systemd,
}
# What is replaced in a file, by what, and a part of the complaint that follows.
FAULTS = [
    ("firewalld/shift.xml", '"tcp" port="9473"', '"tcp" port="9474"', "opens other ports"),
    ("firewalld/shift.xml", "<source-port", "<port", "opens other ports"),
    ("firewalld/shift.xml", "</service>", "", "no element found"),
    ("firewalld/shift-keys.xml", "10497", "10496", "opens other ports"),
    ("firewalld/shift-keys.xml", "<short>SHIFT with job keys</short>", "", "no service with a name"),
    ("ufw/shift", "ports=9473", "ports=9473/tcp", "SHIFT opens other ports"),
    ("ufw/shift", "10497/udp", "10498/udp", "SHIFT-keys opens other ports"),
    ("ufw/shift", "[SHIFT]", "[SHIFT", "File contains no section headers"),
    ("ufw/shift", "title=", "tilte=", "has no title"),
    ("apparmor/shift", "/etc/shift.conf r,", "/etc/shift.conf r", "without a comma"),
    ("apparmor/shift", "/etc/shift.conf r,", "/etc/shift.cfg r,", "no rule has /etc/shift.conf r,"),
    ("apparmor/shift", "@shift-rendezvous", "@shift", "no rule has addr="),
    ("systemd/memlock.conf", "LimitMEMLOCK", "LimitMEMLOK", "sets something else"),
    ("systemd/plain-verbs.conf", "[Service]", "Service", "File contains no section headers"),
]
# Faults that only the readers themselves see, and who they are.
READERS = [
    ("ufw/shift", "9474:10497/tcp|9474:10497/udp", "9474:10497", "ufw"),
    ("apparmor/shift", "network inet dgram,", "netwrok inet dgram,", "apparmor_parser"),
    ("systemd/memlock.conf", "[Service]", "[Servise]", "systemd-analyze"),
]


def selftest():
    wrong = 0
    facts = Facts()
    with tempfile.TemporaryDirectory() as folder:
        for name, old, new, wanted in FAULTS + READERS:
            text = read(SOURCE / "etc" / name)
            assert old in text, (name, old)
            file = pathlib.Path(folder, pathlib.Path(name).name)
            file.write_text(text.replace(old, new), encoding="utf-8")
            found = list(JUDGES[name](file, facts))
            print("%s, %s: %s" % (name, new, found))
            is_reader = wanted in [reader for *_, reader in READERS]
            if is_reader and not shutil.which(wanted, path=os.environ["PATH"] + ":/usr/sbin"):
                print("left out: %s is not here" % wanted)
            else:
                wrong += not any(wanted.partition("-")[0] in one if is_reader else wanted in one for one in found)
    return 1 if wrong else 0


PROJECT = """cmake_minimum_required(VERSION 3.25)
project(shift-settings NONE)
set(SHIFT_DOCUMENTS_shift-rdma share/doc/shift-rdma)
include(GNUInstallDirs)
add_subdirectory(%s/etc etc)
"""
SETTINGS = {"shift.conf", "ufw/applications.d/shift", "apparmor.d/abstractions/shift"}
OTHERS = {"lib/firewalld/services/shift.xml", "lib/firewalld/services/shift-keys.xml",
          "share/doc/shift-rdma/examples/systemd/memlock.conf",
          "share/doc/shift-rdma/examples/systemd/plain-verbs.conf"}


def files_below(folder):
    return {str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()}


def judge_installation(cmake, top):
    """Whether each way to install puts all files where they belong, and leaves what people have changed alone."""
    (top / "project").mkdir()
    (top / "project" / "CMakeLists.txt").write_text(PROJECT % SOURCE, encoding="utf-8")

    def configure(name, prefix, **variables):
        variables = {**variables, "CMAKE_INSTALL_PREFIX": prefix, "CMAKE_INSTALL_LIBDIR": "lib"}
        status, said = run([cmake, "-S", top / "project", "-B", top / name,
                            *["-D%s=%s" % one for one in variables.items()]])
        assert status == 0, said
        return [cmake, "--install", top / name]

    package = configure("package", "/usr", CMAKE_INSTALL_SYSCONFDIR="/etc")
    usr = configure("usr", "/usr")
    local = configure("local", top / "prefix")
    etc = {"etc/" + name for name in SETTINGS}
    for name, command, variables, wanted in (
            ("staged", package, {"DESTDIR": str(top / "staged")}, etc | {"usr/" + one for one in OTHERS}),
            ("usr-staged", usr, {"DESTDIR": str(top / "usr-staged")}, etc | {"usr/" + one for one in OTHERS}),
            ("moved", [*package, "--prefix", top / "moved"], {}, etc | OTHERS),
            ("prefix", local, {}, etc | OTHERS)):
        run(command, **variables)
        found = files_below(top / name)
        if found != wanted:
            yield "%s: %s are not where they should be" % (name, sorted(found ^ wanted))
    changed = top / "prefix" / "etc" / "shift.conf"
    changed.write_text("SHIFT_LOG = info\n", encoding="utf-8")
    run(local)
    if read(changed) != "SHIFT_LOG = info\n":
        yield "an installation overwrites a file that somebody has changed"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cmake", default="cmake")
    parser.add_argument("--selftest", action="store_true")
    options = parser.parse_args()
    if options.selftest:
        return selftest()
    facts = Facts()
    complaints = [one for name, judge in JUDGES.items() for one in judge(SOURCE / "etc" / name, facts)]
    with tempfile.TemporaryDirectory() as folder:
        complaints += judge_installation(options.cmake, pathlib.Path(folder))
    for complaint in complaints:
        print(complaint)
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
