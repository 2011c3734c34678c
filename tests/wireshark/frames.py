"""Makes frames by the header's layout, and says which ones a receiver refuses. It has no code of the layer or of
the dissector."""

import dataclasses
import struct

HEADER = struct.Struct("<4sBBHIQ")  # magic, version, type, flags, length, sequence
MAGIC = b"SHFT"


@dataclasses.dataclass
class Leaf:
    """A field of a frame: the struct that has it, its path in the struct, and its place in the frame."""
    struct: str
    name: str
    at: int
    value: bytes
    is_bytes: bool


class Frames:
    """Makes frames after a header."""

    def __init__(self, header):
        self.header, self.numbers = header, header.numbers
        self.types = header.types()
        self.names = {number: name for name, number in self.types.items()}

    def head(self, kind, length, flags=0, sequence=0, version=None):
        return HEADER.pack(MAGIC, self.numbers["VERSION"] if version is None else version, kind, flags, length,
                           sequence)

    def make(self, name, random, items=3):
        """A frame of random values, and its leaves, without those of the frame's header."""
        body, leaves = b"", []
        for part in self.header.parts(name, items):
            base = HEADER.size + len(body)
            for field in self.header.leaves(part):
                value = random.randbytes(field.size)
                if field.is_flag:
                    value = bytes([random.randrange(2)])
                if field.name == "count":
                    value = struct.pack("<I", items)
                leaves.append(Leaf(part, field.name, base + field.at, value, field.is_bytes))
                body += value
        head = self.head(self.types[name], HEADER.size + len(body), 0, random.getrandbits(63))
        return head + body, leaves

    def seal(self, frame, key_id, random):
        """The frame as it looks when it is sealed. What is sealed in it is random."""
        _, version, kind, _, length, sequence = HEADER.unpack_from(frame)
        head = self.head(kind, length + self.numbers["SEAL_SIZE"], self.header.enums["flags"]["SEALED"], sequence,
                         version)
        secret = random.randbytes(length - HEADER.size + self.numbers["TAG_SIZE"])
        return head + struct.pack("<Q", key_id) + secret

    # ---- what a receiver says of bytes

    def judge(self, data):
        """Takes a stream apart. Returns a list of (type, whether it is refused), with the type None where there is
        no header; and whether the end of the stream waits for more bytes. Nothing is taken after bytes that
        leave the next frame's place unknown."""
        found, at = [], 0
        while at < len(data):
            rest = data[at:]
            if not MAGIC.startswith(rest[:4]) and rest[:4] != MAGIC:
                return found + [(None, True)], False
            if len(rest) < HEADER.size:
                return found, True
            _, version, kind, flags, length, _ = HEADER.unpack_from(rest)
            seal = self.numbers["SEAL_SIZE"] if flags == 1 else 0
            if (version != self.numbers["VERSION"] or flags > 1 or
                    not HEADER.size + seal <= length <= self.numbers["FRAME_MAX"] + seal):
                return found + [(kind, True)], False
            if len(rest) < length:
                return found, True
            is_fit = kind in self.names and (flags == 1 or self._fits(self.names[kind], rest[HEADER.size:length]))
            found.append((kind, not is_fit))
            at += length
        return found, False

    def _fits(self, name, body):
        size = self.header.structs[name].size
        if len(body) < size:
            return False
        items = struct.unpack_from("<I", body, size - 4)[0] if self.header.structs[name].has_items else 0
        if items > self.numbers["ITEMS_MAX"] or items > len(body):
            return False
        at = 0
        for part in self.header.parts(name, items):
            chunk = body[at:at + self.header.structs[part].size]
            at += self.header.structs[part].size
            if len(body) < at:
                return False
            if any(chunk[field.at] > 1 for field in self.header.leaves(part) if field.is_flag):
                return False
        return at == len(body)
