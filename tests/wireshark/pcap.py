"""Writes files of captured packets: segments of TCP connections, and datagrams."""

import struct

FILE = struct.pack("<IHHiIII", 0xa1b2c3d4, 2, 4, 0, 0, 262144, 1)
RECORD = struct.Struct("<IIII")
ETHERNET = bytes(12) + b"\x08\x00"
TCP, UDP = 6, 17
PUSH = 0x18  # and ACK
FIRST_SOURCE = 0x0a010000  # 10.1.0.0
SOURCE_PORT = 55555  # no protocol is at home there
# Where the payload of a packet begins.
TCP_PAYLOAD, UDP_PAYLOAD = 14 + 20 + 20, 14 + 20 + 8


class Capture:
    """Collects packets. Each connection comes from an address of its own."""

    def __init__(self):
        self.data = FILE
        self.packets = 0
        self._connections = 0

    def _add(self, packet, snap):
        kept = packet[:snap]
        self.data += RECORD.pack(self.packets // 1000, self.packets % 1000 * 1000, len(kept), len(packet)) + kept
        self.packets += 1

    def _packet(self, protocol, source, payload):
        head = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 20 + len(payload), self.packets & 0xffff, 0, 64, protocol, 0,
                           source, bytes([10, 0, 0, 1]))
        return ETHERNET + head + payload

    def _source(self):
        self._connections += 1
        return struct.pack(">I", FIRST_SOURCE + self._connections)

    def stream(self, chunks, port, snap=None, source=SOURCE_PORT):
        """A connection on which one end sends these chunks, a segment for each. With `snap`, no more bytes of a
        packet are in the capture. Returns the number of its first packet, which counts from 1."""
        address, first, sequence = self._source(), self.packets + 1, 1000
        for chunk in chunks:
            head = struct.pack(">HHIIBBHHH", source, port, sequence, 1, 5 << 4, PUSH, 8192, 0, 0)
            self._add(self._packet(TCP, address, head + chunk), snap)
            sequence += len(chunk)
        return first

    def datagram(self, data, port):
        head = struct.pack(">HHHH", SOURCE_PORT, port, 8 + len(data), 0)
        self._add(self._packet(UDP, self._source(), head + data), None)
        return self.packets

    def write(self, path):
        with open(path, "wb") as file:
            file.write(self.data)
