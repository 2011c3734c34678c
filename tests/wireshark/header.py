"""Reads kernel-headers/rdma/shift-wire.h as a program in another language may: with nothing of C but its patterns.

The tests lay out frames by what it finds here; kernel-headers/test compares the same header with the codec.
"""

import collections
import dataclasses
import os
import re

from harness import ROOT

PATH = os.path.join(ROOT, "kernel-headers", "rdma", "shift-wire.h")
NUMBERS = {"__u8": 1, "__le16": 2, "__le32": 4, "__le64": 8}
STRUCT = re.compile(r"^struct shift_wire_(\w+) \{ /\* (\d+) bytes(, then items)?( and an end)? \*/\n(.*?)\n\}"
                    r" __attribute__\(\(packed\)\);", re.M | re.S)
FIELD = re.compile(r"/\*\s*(?:\* )?(\d+):([^/]*)\*/\s+(?:struct shift_wire_(\w+)|(__\w+)) (\w+)"
                   r"(?:\[SHIFT_WIRE_(\w+)\])?;")
DEFINE = re.compile(r"^#define SHIFT_WIRE_(\w+) (\w+)", re.M)
ENUM = re.compile(r"^enum shift_wire_(\w+) \{\n(.*?)\n\};", re.M | re.S)
ENUMERATOR = re.compile(r"SHIFT_WIRE_(\w+) = (\d+(?: << \d+)?)")


@dataclasses.dataclass
class Field:
    name: str
    at: int
    size: int
    struct: str      # the struct that it is, or ""
    is_bytes: bool   # and not a number
    is_flag: bool    # of which other values than 0 and 1 are refused
    enum: str        # what its values mean, or ""


@dataclasses.dataclass
class Struct:
    name: str
    size: int
    fields: list
    has_items: bool
    has_end: bool


class Header:
    """What the header says. `complaints` tells where it contradicts itself."""

    def __init__(self, text):
        self.complaints = []
        self.numbers = {name: int(value, 0) for name, value in DEFINE.findall(text) if value[0].isdigit()}
        self.enums = {name: {key: eval_shift(value) for key, value in ENUMERATOR.findall(body)}
                      for name, body in ENUM.findall(text)}
        self.structs = {}
        for name, size, items, end, body in STRUCT.findall(text):
            self.structs[name] = self._struct(name, int(size), bool(items), bool(end), body)
        wanted = len(re.findall(r"^struct shift_wire_\w+ \{", text, re.M))
        if len(self.structs) != wanted:
            self.complaints.append("%d structs of %d can be read" % (len(self.structs), wanted))
        for one in self.structs.values():
            self._parts_judge(one)

    def _struct(self, name, size, has_items, has_end, body):
        fields, at = [], 0
        for offset, text, struct, kind, field, length in FIELD.findall(body):
            if struct:
                width = self.structs[struct].size
            else:
                width = NUMBERS[kind] * (self.numbers[length] if length else 1)
            if int(offset) != at:
                self.complaints.append("%s.%s: it is at %d, and its comment says %s" % (name, field, at, offset))
            values = re.search(r"enum shift_wire_(\w+)", text)
            fields.append(Field(field, at, width, struct, bool(length), text.strip().startswith("0 or 1"),
                                values[1] if values else ""))
            at += width
        if at != size:
            self.complaints.append("%s: it has %d bytes, and its comment says %d" % (name, at, size))
        if len(fields) != len(re.findall(r";", re.sub(r"/\*.*?\*/", "", body, flags=re.S))):
            self.complaints.append("%s: a field has no comment with its offset" % name)
        return Struct(name, size, fields, has_items, has_end)

    def _parts_judge(self, struct):
        for has_it, part in ((struct.has_items, "_item"), (struct.has_end, "_end")):
            if has_it != (struct.name + part in self.structs):
                self.complaints.append("%s: %s%s is there, or is not, against its comment" % (
                    struct.name, struct.name, part))
        if struct.has_items and struct.fields[-1].name != "count":
            self.complaints.append("%s does not end with the number of items" % struct.name)

    def types(self):
        """{name of the struct: number} of all messages, in the order of their numbers."""
        return {key.lower(): number for key, number in self.enums["type"].items()}

    def leaves(self, name, prefix=""):
        """The fields of a struct that are no structs themselves, with their paths as names."""
        for field in self.structs[name].fields:
            if field.struct:
                for leaf in self.leaves(field.struct, prefix + field.name + "."):
                    yield dataclasses.replace(leaf, at=field.at + leaf.at)
            else:
                yield dataclasses.replace(field, name=prefix + field.name)

    def parts(self, name, items):
        """The structs of a body with that many items, in a row."""
        struct = self.structs[name]
        return [name] + [name + "_item"] * (items if struct.has_items else 0) + (
            [name + "_end"] if struct.has_end else [])


def eval_shift(text):
    number, _, places = text.partition(" << ")
    return int(number) << int(places or 0)


def read(path=PATH):
    with open(path, encoding="utf-8") as file:
        return Header(file.read())


def judge_types(header):
    """Each type has a struct, and each struct that is a whole body has a type."""
    types = header.types()
    parts = {"header", "seal", "qp", "path", "address"}
    bodies = {name for name in header.structs if not name.endswith(("_item", "_end"))} - parts
    for name in sorted(set(types) ^ bodies):
        yield "%s has no type, or no struct" % name
    if sorted(types.values()) != list(range(1, header.numbers["TYPE_MAX"] + 1)):
        yield "the types are not numbered from 1 to %d" % header.numbers["TYPE_MAX"]
    twice = [name for name, count in collections.Counter(types.values()).items() if count > 1]
    if twice:
        yield "a number is used twice: %s" % twice
