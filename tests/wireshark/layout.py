"""Compares what the dissector shows of each message with the plain header: names, places and values of fields."""

import math
import random
import re

from wireshark.frames import HEADER
from wireshark.pcap import TCP_PAYLOAD, UDP_PAYLOAD, Capture

ITEMS = 3
KEY_ID = 0x0123456789abcdef
# What the dissector calls fields whose plain name means something else in another message.
NAMES = {
    "gid_query.nonce": "gid_nonce", "gid_answer.nonce": "gid_nonce", "bind.gid": "member", "nics.gid": "member",
    "key_query.member": "query_member", "key_reply.member": "query_member",
}


def names_of(leaf):
    """What a field may be called: by its message, or by its own name alone."""
    message = re.sub(r"_(item|end)$", "", leaf.struct)
    own = "%s.%s" % (message, leaf.name)
    return {"shift." + name for name in (NAMES.get(own), own, leaf.name) if name}


def judge_leaves(frame, leaves, message, base):
    """Each leaf must be shown at its place, and nothing else but the frame's header."""
    shown = {(field.at - base, field.size): field for field in message.fields}
    for leaf in leaves:
        field = shown.get((leaf.at, len(leaf.value)))
        what = "%s.%s" % (leaf.struct, leaf.name)
        if field is None or field.name not in names_of(leaf):
            yield "%s is not shown at byte %d: %s" % (what, leaf.at, field)
        elif field.value != leaf.value:
            yield "%s is shown as %s, and is %s" % (what, field.value, leaf.value)
        elif not leaf.is_bytes and field.number() != int.from_bytes(leaf.value, "little"):
            yield "%s is shown as %s, and is %s" % (what, field.show, leaf.value)
    covered = set()
    for field in message.fields:
        covered |= set(range(field.at - base, field.at - base + field.size))
    if covered != set(range(len(frame))):
        yield "bytes that are not shown: %s" % sorted(set(range(len(frame))) - covered)


def judge_header(frames, frame, message, base):
    _, version, kind, flags, length, sequence = HEADER.unpack_from(frame)
    wanted = {"version": version, "type": kind, "flags": flags, "length": length, "sequence": sequence}
    for leaf in frames.header.leaves("header"):
        field = next((one for one in message.fields if one.at - base == leaf.at and one.size == leaf.size), None)
        if field is None or field.name != "shift." + leaf.name:
            yield "header.%s is not shown" % leaf.name
        elif leaf.name in wanted and field.number() != wanted[leaf.name]:
            yield "header.%s is shown as %s" % (leaf.name, field.show)
    if (message.at, message.size) != (base, len(frame)):
        yield "the frame is shown at %d, with %d bytes" % (message.at, message.size)


def check_layout(frames, see, seed):
    """One frame of each type, in clear and sealed."""
    capture, planned = Capture(), []
    for name in frames.types:
        frame, leaves = frames.make(name, random.Random("%s %s" % (seed, name)), ITEMS)
        if name in ("gid_query", "gid_answer"):
            planned.append((name, frame, leaves, capture.datagram(frame, frames.numbers["PORT"]), UDP_PAYLOAD))
            continue
        planned.append((name, frame, leaves, capture.stream([frame], frames.numbers["PORT"]), TCP_PAYLOAD))
        sealed = frames.seal(frame, KEY_ID, random.Random(seed))
        planned.append(("sealed " + name, sealed, None, capture.stream([sealed], 9999), TCP_PAYLOAD))
    seen = see(capture)
    yield from seen.errors
    for name, frame, leaves, packet, base in planned:
        found = seen.of(packet)
        if len(found) != 1:
            yield "%s is shown as %d frames" % (name, len(found))
            continue
        message = found[0]
        complaints = list(judge_header(frames, frame, message, base))
        if leaves is None:
            complaints += judge_sealed(frames, frame, message, base)
        else:
            complaints += judge_leaves(frame, leaves, message, base)
        if message.experts - {"value"}:
            complaints.append("it is complained about: %s" % message.experts)
        wanted = re.sub(r"_", "", name)
        if wanted not in message.text.lower():
            complaints.append("it is called %s" % message.text)
        yield from ("%s: %s" % (name, complaint) for complaint in complaints)


def judge_sealed(frames, frame, message, base):
    tag, begin = frames.numbers["TAG_SIZE"], HEADER.size + frames.header.structs["seal"].size
    parts = {"key_id": frame[HEADER.size:begin], "sealed": frame[begin:-tag], "tag": frame[-tag:]}
    for name, value in parts.items():
        found = message.all(name)
        if len(found) != (1 if value else 0) or (value and found[0].value != value):
            yield "its %s is shown as %s" % (name, found)
    if message.get("key_id") != KEY_ID:
        yield "the id of the key is shown as another"
    if sum(field.size for field in message.fields) < len(frame):
        yield "bytes are not shown"
    if any(field.at - base >= HEADER.size and field.name[6:] not in parts for field in message.fields):
        yield "what is sealed is shown as if it were read"


def check_values(frames, see, seed):
    """Each value of an enumeration has its name, and the one after them none; so have bits."""
    capture, planned = Capture(), []
    for name in frames.types:
        for leaf in frames.header.leaves(name):
            values = {number: key for key, number in frames.header.enums.get(leaf.enum, {}).items()}
            others = [other.at for other in frames.header.leaves(name) if other.enum and other.at != leaf.at]
            for value in [*values, len(values)] if values else []:
                frame = bytearray(frames.make(name, random.Random(seed))[0])
                for at in others:
                    frame[HEADER.size + at] = 0
                frame[HEADER.size + leaf.at] = value
                wanted = values.get(value, "").partition("_")[2].replace("_", " ").lower()
                planned.append((name, wanted, capture.stream([bytes(frame)], frames.numbers["PORT"])))
    flags = frames.header.enums["bind_flags"]
    for bit in flags.values():
        frame = bytearray(frames.make("bind", random.Random(seed))[0])
        frame[-8:-4] = bit.to_bytes(4, "little")
        planned.append(("bind", bit, capture.stream([bytes(frame)], frames.numbers["PORT"])))
    seen = see(capture)
    yield from seen.errors
    for name, wanted, packet in planned:
        message = seen.of(packet)[0]
        if name == "bind":
            set_now = {"bind.flags." + key.lower()[len("bind_"):]: bit == wanted for key, bit in flags.items()}
            shown = {key: value for key, value in message.bits.items() if key.startswith("bind.")}
            if shown != set_now:
                yield "the flags %d of a Bind are shown as %s" % (wanted, shown)
        elif ("value" in message.experts) == bool(wanted) or wanted not in message.text.lower():
            yield "a %s with %r is called %s" % (name, wanted or "an unknown value", message.text)
    if len(planned) < 20:
        yield "only %d values are named in the header" % len(planned)


def judge_constants(header, script):
    """The dissector's own numbers."""
    numbers = header.numbers
    own = dict(zip(("HEADER", "SEAL", "TAG"), (HEADER.size, numbers["SEAL_SIZE"], numbers["TAG_SIZE"])),
               VERSION=numbers["VERSION"], SEALED=header.enums["flags"]["SEALED"],
               GID_QUERY=header.types()["gid_query"], GID_ANSWER=header.types()["gid_answer"],
               **{name: numbers[name] for name in ("FRAME_MAX", "ITEMS_MAX", "DATAGRAM_MAX", "KEY_PORTS")})
    found = {}
    for names, values in re.findall(r"^local ([A-Z_]+(?:, [A-Z_]+)*) = ([^{\n]+?)(?:  --.*)?$", script, re.M):
        for name, value in zip(names.split(", "), values.split(", ")):
            factors = re.findall(r"\d+", value)
            found[name] = math.prod(map(int, factors)) if factors else value
    for name, value in own.items():
        if found.get(name) != value:
            yield "the dissector's %s is %s, and the header's is %s" % (name, found.get(name), value)
