#!/usr/bin/python3
"""Lets Wireshark's dissector take frames apart that are made here, after the plain header of the wire protocol.

Each field of each message must be shown by its name, at its place and with its value, sealed messages as sealed.
Frames are found in a stream however it is cut into segments. Of changed frames and of random bytes it must say
which a receiver refuses, and nothing makes it fail. --selftest plants bugs into the dissector and into the header,
each of which must be found.
"""

import argparse
import os
import random
import re
import sys
import tempfile

from harness import ROOT
from harness.options import seed_add

from wireshark import header, tshark
from wireshark.frames import HEADER, Frames
from wireshark.layout import check_layout, check_values, judge_constants
from wireshark.nonsense import check_nonsense
from wireshark.pcap import SOURCE_PORT, Capture

SEGMENT = 50000  # the bytes of a large segment
def check_streams(frames, see, seed):
    """Many frames in one connection, however they are cut, and a long one."""
    draw, capture, planned = random.Random("streams %s" % seed), Capture(), []
    for most in (1, 7, 60, 400, 5000):
        data, kinds = b"", []
        for _ in range(8 if most == 1 else 60):
            name = draw.choice(list(frames.types))
            data += frames.make(name, draw, draw.randrange(6))[0]
            kinds.append(frames.types[name])
        if most == 5000:
            data += frames.make("key_query", draw, 5000)[0]
            kinds.append(frames.types["key_query"])
        chunks, at = [], 0
        while at < len(data):
            size = 1 + draw.randrange(most)
            chunks.append(data[at:at + size])
            at += size
        planned.append((most, kinds, capture.stream(chunks, frames.numbers["PORT"]), len(chunks)))
    seen = see(capture)
    yield from seen.errors
    for most, kinds, packet, chunks in planned:
        found = [message for message in seen.messages if packet <= message.packet < packet + chunks]
        if [message.get("type") for message in found] != kinds:
            yield "in segments of up to %d bytes it finds %s, and there are %s" % (
                most, [message.get("type") for message in found], kinds)
        refused = [message.text for message in found if message.is_refused() or "cut" in message.experts]
        if refused:
            yield "in segments of up to %d bytes it complains about %s" % (most, refused)


def check_experts(frames, see, seed):
    """What is wrong with a frame must be said."""
    draw = random.Random("experts %s" % seed)
    close, gone = frames.make("close", draw)[0], frames.make("keys_gone", draw)[0]
    query, reply = frames.make("gid_query", draw)[0], frames.make("accept", draw)[0]

    def head(frame, **change):
        given = {"kind": frame[5], "length": len(frame), **change}
        return frames.head(**given) + frame[HEADER.size:]

    longest, port = frames.numbers["FRAME_MAX"], frames.numbers["PORT"]
    flag_at = HEADER.size + 48
    cases = [
        ("magic", b"GET / HTTP/1.1\r\n\r\n", False), ("version", head(close, version=6), False),
        ("flags", head(close, flags=2), False), ("length", head(close, length=longest + 1), False),
        ("length", head(close, length=19), False), ("type", head(close, kind=23), False),
        ("short", head(close[:-1], length=59), False), ("long", head(close + b"x", length=61), False),
        ("items", head(gone[:-4], length=len(gone) - 4), False),
        ("flag", gone[:flag_at] + b"\2" + gone[flag_at + 1:], False),
        ("value", reply[:HEADER.size + 46] + b"\7" + reply[HEADER.size + 47:], False),
        ("transport", close, True), ("transport", query, False), ("cut", close[:-1], True),
        ("datagram", query + query, True), ("datagram", gone + bytes(100), True),
        ("items", frames.make("key_query", draw, frames.numbers["ITEMS_MAX"] + 1)[0], False),
    ]
    capture, ends = Capture(), []
    for _, data, is_datagram in cases:
        chunks = [data[at:at + SEGMENT] for at in range(0, len(data), SEGMENT)]
        first = capture.datagram(data, port) if is_datagram else capture.stream(chunks, port)
        ends.append(first + len(chunks) - 1)
    seen = see(capture)
    yield from seen.errors
    for (name, data, _), packet in zip(cases, ends):
        found = set().union(*[message.experts for message in seen.of(packet)] or [set()])
        if name not in found:
            yield "of %s... it says %s, and not %r" % (data[:64].hex(), found or "nothing", name)


def check_longest(frames, see, seed):
    """A message may have as many items as the header says. They are too many to look at each."""
    most, capture = frames.numbers["ITEMS_MAX"], Capture()
    data = frames.make("key_query", random.Random(seed), most)[0]
    capture.stream([data[at:at + SEGMENT] for at in range(0, len(data), SEGMENT)], frames.numbers["PORT"])
    wanted = "_ws.expert || shift.count", "shift.count", "shift.rkey", "_ws.expert.message"
    found, errors = see(capture, fields=wanted)
    yield from errors
    if [(row[0], row[1].count(",") + 1, row[2]) for row in found] != [(str(most), most, "")]:
        yield "of a message of %d items it shows %s" % (most, [[text[:80] for text in row] for row in found])


def check_port(frames, see, seed):
    """The port is a setting, and frames at other ports are known by their beginning. At the ports of keys, which
    others may use, no other protocol is at home; the dialer's port may be that of one."""
    capture, busy = Capture(), 44818  # EtherNet/IP
    frame = frames.make("switch", random.Random(seed))[0]
    key_ports = frames.numbers["KEY_PORTS"]
    wanted = []
    cases = ((9473, SOURCE_PORT, 1, 0), (9999, SOURCE_PORT, 1, 0), (12345, SOURCE_PORT, 1, 1), (12345, busy, 1, 1),
             (12346, busy, 1, 0), (12345 + key_ports, busy, 1, 0), (12346 + key_ports, busy, 0, 0))
    for port, source, *shown in cases:
        for data, count in zip((frame, b"nothing of it"), shown):
            wanted.append((port, source, capture.stream([data], port, source=source), count))
    seen = see(capture, options=("-o", "shift.port:12345"))
    yield from seen.errors
    for port, source, packet, count in wanted:
        if len(seen.of(packet)) != count:
            yield "from port %d to %d it shows %d frames, and there are %d" % (
                source, port, len(seen.of(packet)), count)


def filters_of(text):
    """The filters in a document: those of commands, and those that stand by themselves."""
    found = re.findall(r"-Y '([^']+)'", text) + re.findall(r"`([^`\n]*\bshift\.[a-z_.]+[^`\n]*)`", text)
    return [one.replace("\\|", "|") for one in found if not re.search(r"\.(lua|pcap|conf|h)\b|-Y |-o ", one)]


def check_filters(frames, see, seed):
    """Wireshark understands each filter that the documents and the dissector's own head tell of."""
    capture = Capture()
    capture.stream([frames.make("switch", random.Random(seed))[0]], frames.numbers["PORT"])
    manual = read(os.path.join(ROOT, "docs", "troubleshooting.md"))
    manual = manual.partition("\n## Looking at the control channel\n")[2]
    head = read(tshark.SCRIPT).partition("\nlocal ")[0]
    filters = [one for text in (manual, head) for one in filters_of(text)]
    if len(filters) < 10:
        yield "only %s are found in the documents" % filters
    for one in filters:
        _, errors = see(capture, fields=(one, "frame.number"))
        yield from ("%s: %s" % (one, error) for error in errors[:2])


CHECKS = (check_layout, check_values, check_streams, check_experts, check_longest, check_port, check_filters,
          check_nonsense)


def run_checks(text, script, seed, checks=CHECKS):
    """Returns the complaints about a header and a dissector."""
    plain = header.Header(text)
    complaints = plain.complaints + list(header.judge_types(plain))
    complaints += judge_constants(plain, read(script)) if not complaints else []
    if complaints:
        return complaints
    frames = Frames(plain)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "frames.pcap")

        def see(capture, options=(), fields=()):
            capture.write(path)
            return tshark.fields(path, script, *fields) if fields else tshark.Seen(path, script, options)

        for check in checks:
            found = list(check(frames, see, seed))
            complaints += ["%s: %s" % (check.__name__, one) for one in found]
    return complaints


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


# A bug in the dissector: what is changed, and the check that must find it.
PLANTED = [
    (r'\{"u32", "epoch"\}, \{"u32", "seq"\}, \{"u8", "switch', '{"u32", "seq"}, {"u32", "epoch"}, {"u8", "switch',
     check_layout),
    (r'\{"u32", "number"\}, \{"flag", "all"\}', '{"flag", "all"}, {"u32", "number"}', check_layout),
    (r"item = tree:add_le\(fields\[name\], range\)", "item = tree:add(fields[name], range)", check_layout),
    (r"  sealed_add\(body\)", "  body_add(body, name)", check_layout),
    (r'"KeyReply", "Refuse", "Close"', '"KeyReply", "Close", "Refuse"', check_layout),
    (r"local at, said = 0, \{\}", 'local at, said = 0, {}; error("planted")', check_layout),
    (r'"fence failed", "key missing"', '"key missing", "fence failed"', check_values),
    (r"32, nil, 4\)", "32, nil, 16)", check_values),
    (r"FRAME_MAX, ITEMS_MAX, DATAGRAM_MAX = 1024", "FRAME_MAX, ITEMS_MAX, DATAGRAM_MAX = 1000", check_layout),
    (r"header\.length - left end", "1 end", check_streams),
    (r"pinfo\.desegment_offset, pinfo\.desegment_len = at, text", "", check_streams),
    (r"if header\.version ~= VERSION then", "if false then", check_experts),
    (r"if body\.stop - body\.at < size then", "if false then", check_nonsense),
    (r"if count > ITEMS_MAX or \(count > room", "if (count > room", check_experts),
    (r"if count > ITEMS_MAX or", "if count >= ITEMS_MAX or", check_longest),
    (r"shift\.prefs_changed = ports_set", "", check_port),
    (r'"shift\.expert\."', '"shift.told."', check_filters),
    (r'shift:register_heuristic\("tcp", heuristic\)', "", check_port),
    (r"for one = first, last do", "for one = first, last - 1 do", check_port),
    (r"for _, one in ipairs\(added\) do one\[1\]:remove", "for _, one in ipairs({}) do one[1]:remove", check_port),
]
# A bug in the header, which its own comments or the dissector must contradict.
PLANTED_HEADER = [
    (r"(/\* 40: that of the Switch \*/\n  __le32) epoch;", r"\1 epochs;"),
    (r"  __le32 attempt;", "  __le16 attempt;"),
    (r"/\* 44: counts the leader's drains", "/* 45: counts the leader's drains"),
    (r"SHIFT_WIRE_DRAIN = 9,", "SHIFT_WIRE_DRAIN = 23,"),
    (r"  /\* 46: enum shift_wire_ready_kind \*/\n", ""),
    (r"struct shift_wire_close \{", "struct shift_wire_closed {"),
]


def selftest(seed):
    text, lua, missed = read(header.PATH), read(tshark.SCRIPT), 0
    for number, (pattern, other, check) in enumerate(PLANTED):
        changed_lua, count = re.subn(pattern, lambda match, other=other: other, lua, count=1)
        with tempfile.NamedTemporaryFile("w", suffix=".lua") as file:
            file.write(changed_lua)
            file.flush()
            found = run_checks(text, file.name, seed, [check]) if count else []
        print("dissector, bug %d: %s" % (number, (found or ["NOT FOUND"])[0][:150]), flush=True)
        missed += not found
    for number, (pattern, other) in enumerate(PLANTED_HEADER):
        changed_text, count = re.subn(pattern, other, text, count=1)
        found = run_checks(changed_text, tshark.SCRIPT, seed, [check_layout]) if count else []
        print("header, bug %d: %s" % (number, (found or ["NOT FOUND"])[0][:150]), flush=True)
        missed += not found
    return 1 if missed else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    seed_add(parser)
    parser.add_argument("--selftest", action="store_true")
    options = parser.parse_args()
    if why := tshark.missing():
        print("SKIPPED: %s" % why)
        return 77
    if options.selftest:
        return selftest(options.seed)
    complaints = run_checks(read(header.PATH), tshark.SCRIPT, options.seed)
    for complaint in complaints[:20]:
        print(complaint)
    print("%s: %d complaints; seed %d" % (os.path.relpath(tshark.SCRIPT, ROOT), len(complaints), options.seed))
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
