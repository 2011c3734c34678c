"""Runs tshark with the dissector, and reads what it saw."""

import dataclasses
import os
import re
import shutil
import subprocess
import xml.etree.ElementTree

from harness import ROOT

SCRIPT = os.path.join(ROOT, "contrib", "wireshark", "shift.lua")
EXPERT = "shift.expert."
# Expert information about what a receiver refuses. What else there is, is no more than worth a look.
REFUSED = {"magic", "version", "flags", "length", "type", "short", "long", "items", "flag"}


def missing():
    """Why the dissector cannot be run here, or ''."""
    if not shutil.which("tshark"):
        return "tshark is not installed"
    said = subprocess.run(["tshark", "--version"], capture_output=True, text=True, check=False).stdout
    return "" if re.search(r"\bwith Lua\b", said) else "this tshark cannot run Lua"


def taken_ports():
    """The TCP ports at which Wireshark expects other protocols."""
    said = subprocess.run(["tshark", "-G", "decodes"], capture_output=True, text=True, check=True).stdout
    return {int(port) for port in re.findall(r"^tcp\.port\t(\d+)\t", said, re.M)}


@dataclasses.dataclass
class Field:
    name: str
    at: int
    size: int
    show: str
    value: bytes

    def number(self):
        return int(self.show, 0)


@dataclasses.dataclass
class Message:
    """One frame as the dissector shows it. `fields` has those with a value, and `bits` the flags in them."""
    packet: int
    way: tuple       # source and its port, destination and its port
    is_again: bool   # the packet was sent again
    is_datagram: bool
    text: str
    at: int
    size: int
    fields: list
    bits: dict
    experts: set

    def all(self, name):
        return [field for field in self.fields if field.name == "shift." + name]

    def get(self, name):
        """The number in a field, or None."""
        found = self.all(name)
        return found[0].number() if found else None

    def is_refused(self):
        return bool(self.experts & REFUSED)


def leaves(element):
    for one in element:
        name = one.get("name", "")
        if name.startswith(EXPERT) or name.startswith("_ws.") or not name:
            continue
        if len([child for child in one if child.get("name", "").startswith("shift.")]) and not one.get("value"):
            yield from leaves(one)
        else:
            yield Field(name, int(one.get("pos")), int(one.get("size")), one.get("show"),
                        bytes.fromhex(one.get("value", "")))


def bits(proto):
    """The names of single bits, without "shift.", and whether they are set."""
    for parent in proto.iter("field"):
        for one in parent:
            if parent.get("value") and one.get("name", "").startswith(parent.get("name") + "."):
                yield one.get("name")[len("shift."):], one.get("show") in ("1", "True")


def way_of(found):
    transport = "tcp" if "tcp.srcport" in found else "udp"
    return (found.get("ip.src"), int(found.get(transport + ".srcport", 0)),
            found.get("ip.dst"), int(found.get(transport + ".dstport", 0)))


def run(path, script, *options):
    """Returns what tshark prints, and its complaints."""
    done = subprocess.run(["tshark", "-n", "-r", path, "-X", "lua_script:" + script, *options],
                          capture_output=True, check=False)
    complaints = [line for line in done.stderr.decode(errors="replace").splitlines()
                  if line.strip() and not line.startswith("Running as user")]
    return done.stdout, complaints + ["exit status %d" % done.returncode] * (done.returncode != 0)


def fields(path, script, match, *names):
    """Returns a row of these fields for each packet that the filter `match` finds, and tshark's complaints."""
    words = [word for name in names for word in ("-e", name)]
    text, errors = run(path, script, "-Y", match, "-T", "fields", *words)
    return [line.split("\t") for line in text.decode(errors="replace").splitlines()], errors


class Seen:
    """What tshark made of a capture. `errors` are those of the script."""

    def __init__(self, path, script=SCRIPT, options=()):
        text, self.errors = run(path, script, "-T", "pdml", *options)
        self.messages, self.packets = [], 0
        # Another dissector's text may hold bytes that are no XML.
        text = re.sub(rb"[\x00-\x08\x0b\x0c\x0e-\x1f]", b"?", text)
        if not text.strip():
            return
        for packet in xml.etree.ElementTree.fromstring(text.decode(errors="replace")):
            self.packets += 1
            self._packet_add(packet)

    def _packet_add(self, packet):
        for one in packet.iter("field"):
            if one.get("name", "").startswith("_ws.lua.error") or "Lua Error" in one.get("show", ""):
                self.errors.append(one.get("showname") or one.get("show"))
        found = {one.get("name"): one.get("show") for one in packet.iter("field")}
        is_again = any(name.startswith("tcp.analysis.") and "retransmission" in name for name in found)
        for proto in packet.iter("proto"):
            if proto.get("name") == "shift":
                experts = {one.get("name")[len(EXPERT):] for one in proto.iter("field")
                           if one.get("name", "").startswith(EXPERT)}
                place = int(proto.get("pos")), int(proto.get("size"))
                is_datagram = "udp.srcport" in found
                self.messages.append(Message(
                    self.packets, way_of(found), is_again, is_datagram, proto.get("showname"), *place,
                    list(leaves(proto)), dict(bits(proto)), experts))

    def kind(self, number):
        """The messages of one type that can be read."""
        return [one for one in self.messages if one.get("type") == number and one.get("flags") == 0]

    def of(self, packet):
        return [message for message in self.messages if message.packet == packet]
