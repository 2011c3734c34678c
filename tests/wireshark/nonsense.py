"""Lets the dissector look at what is no frame, or not quite: it must never fail, and say what a receiver says."""

import random
import struct

from wireshark.frames import HEADER
from wireshark.layout import KEY_ID
from wireshark.pcap import TCP_PAYLOAD, Capture


def changed(frame, draw):
    """The frame, with a few bytes changed, too short, or too long; and mostly with a length that fits."""
    data = bytearray(frame)
    for _ in range(draw.randrange(4)):
        # Headers, and the numbers of items, decide most.
        at = draw.randrange(len(data)) if draw.random() < 0.5 else draw.randrange(HEADER.size)
        data[at] = draw.choice([0, 1, 2, 0xff, draw.randrange(256)])
    if draw.random() < 0.4:
        del data[HEADER.size + draw.randrange(len(data) - HEADER.size + 1):]
    elif draw.random() < 0.3:
        data += draw.randbytes(1 + draw.randrange(40))
    if draw.random() < 0.8:
        struct.pack_into("<I", data, 8, len(data))
    return bytes(data)


def counted(frames, draw):
    """A message with a list, with another number of items than it has."""
    name = draw.choice([name for name in frames.types if frames.header.structs[name].has_items])
    frame, _ = frames.make(name, draw, draw.randrange(5))
    data, at = bytearray(frame), HEADER.size + frames.header.structs[name].size - 4
    struct.pack_into("<I", data, at, draw.choice([0, 1, 5, 65536, 65537, 2**31, 2**32 - 1, draw.randrange(9)]))
    return bytes(data)


def nonsense(frames, draw):
    """One stream of bytes that may be wrong in any way."""
    kind = draw.randrange(6)
    if kind == 0:
        return draw.randbytes(1 + draw.randrange(100))
    if kind == 1:  # a good header, and random bytes
        size = draw.randrange(300)
        length = HEADER.size + draw.choice([size, size, size, draw.getrandbits(32), 0xffffffff, 0])
        head = frames.head(draw.randrange(256) if draw.random() < 0.3 else draw.randrange(1, 21), length % 2**32,
                           draw.choice([0, 0, 1, draw.getrandbits(16)]))
        return head + draw.randbytes(size)
    if kind == 2:
        return counted(frames, draw)
    frame, _ = frames.make(draw.choice(list(frames.types)), draw, draw.randrange(4))
    if draw.random() < 0.2:
        frame = frames.seal(frame, KEY_ID, draw)
    if kind == 3:  # it follows a good one
        return frames.make("close", draw)[0] + changed(frame, draw)
    return changed(frame, draw)


def verdicts(found):
    """What frames.judge() tells, of the messages that the dissector shows."""
    return [(message.get("type"), message.is_refused()) for message in found]


class Planned:
    """A capture of wrong bytes, with what is in each of its packets."""

    def __init__(self, frames, draw, count):
        self.capture, self.port = Capture(), frames.numbers["PORT"]
        self.streams = [self._stream(nonsense(frames, draw), draw) for _ in range(count)]
        self.datagrams = {}
        for _ in range(count // 3):
            data = nonsense(frames, draw)
            self.datagrams[self.capture.datagram(data, self.port)] = data
        # Of these only the beginning is in the capture, so nobody can say what they are.
        for _ in range(count // 3):
            self.capture.stream([nonsense(frames, draw)], self.port, draw.randrange(TCP_PAYLOAD, 400))

    def _stream(self, data, draw):
        """Returns the bytes, the number of the first packet that has some, and how many have them."""
        chunks = [data]
        for at in sorted(draw.sample(range(1, len(data)), min(len(data) - 1, draw.randrange(3))), reverse=True):
            chunks[:1] = [chunks[0][:at], chunks[0][at:]]
        # At another port nobody would look, unless it begins as a frame does.
        is_known = chunks[0].startswith(b"SHFT") and draw.random() < 0.5
        return data, self.capture.stream(chunks, 9999 if is_known else self.port), len(chunks)


def judge_streams(frames, planned, by_packet, tally):
    for data, packet, chunks in planned.streams:
        wanted, waits = frames.judge(data)
        found = verdicts(one for number in range(packet, packet + chunks) for one in by_packet.get(number, []))
        tally["waits"] += waits
        for _, is_refused in wanted:
            tally["refused" if is_refused else "good"] += 1
        # What no frame begins with is shown segment by segment.
        if found[:len(wanted)] != wanted or (chunks == 1 and found != wanted):
            yield "in %d segments, a receiver says %s, and the dissector %s of %s" % (
                chunks, wanted, found, data.hex())


def judge_datagrams(frames, planned, by_packet):
    for number, data in planned.datagrams.items():
        wanted, waits = frames.judge(data)
        found = by_packet.get(number, [])
        if not waits and verdicts(found) != wanted:
            yield "of a datagram a receiver says %s, and the dissector %s: %s" % (
                wanted, verdicts(found), data.hex())
        if waits and not any("cut" in message.experts for message in found):
            yield "it is not said that a datagram is cut: %s" % data.hex()


def check_nonsense(frames, see, seed, count=1500):
    planned = Planned(frames, random.Random("nonsense %s" % seed), count)
    seen = see(planned.capture)
    yield from seen.errors[:5]
    if seen.packets != planned.capture.packets:
        yield "%d packets of %d are shown" % (seen.packets, planned.capture.packets)
    by_packet = {}
    for message in seen.messages:
        by_packet.setdefault(message.packet, []).append(message)
    tally = {"refused": 0, "good": 0, "waits": 0}
    yield from judge_streams(frames, planned, by_packet, tally)
    yield from judge_datagrams(frames, planned, by_packet)
    if min(tally["refused"], tally["good"]) < count // 4 or tally["waits"] < count // 60:
        yield "the bytes are too much alike: %s" % tally
