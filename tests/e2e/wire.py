"""Records what crosses the rendezvous ports of a fabric, and tells what of it a listener could read.

It shares no code with the layer: the layout of frames is written down here a second time, after
docs/rendezvous.md.
"""

import collections
import dataclasses
import ipaddress
import os
import signal
import socket
import struct
import subprocess
import zlib

from harness.waiting import wait_until

PORT = 9473     # SHIFT_PORT
KEY_PORTS = 1024
PORTS = range(PORT, PORT + 1 + KEY_PORTS)
START_SECONDS, END_SECONDS = 20, 60
# tcpdump's buffer has a place of the first size for each packet: all packets of a case have one, so that none is
# lost while tcpdump gets no processor.
SNAP, BUFFER_KIB = "16384", "32768"

HEADER = struct.Struct("<4sBBHIQ")  # magic, version, type, flags, length, sequence
MAGIC, VERSION, SEALED = b"SHFT", 5, 1
HELLO, HELLO_REPLY, CONFIRM = 1, 2, 3
KEY_ID = struct.Struct("<Q")  # follows the header of a sealed frame
TAG_SIZE = 16
HELLO_KEY_AT = 105  # in a Hello's body: two instances, a public key, two names of QPs and the pair come before

PCAP_HEADER, PCAP_RECORD = 24, struct.Struct("<IIII")
ETHERNET, TCP, SYN = 14, 6, 2
# The last packet of a record: a datagram of the test's own, to a port at which nobody listens (discard).
END, END_PORT = b"the end of the record", 9


def key_port(key_id):
    """The port of the processes that speak with the key of this id."""
    return PORT + 1 + key_id % KEY_PORTS


def qp_name(address, qpn):
    """How messages name the queue pair of a NIC with this address."""
    return bytes(10) + b"\xff\xff" + ipaddress.ip_address(address).packed + struct.pack("<I", qpn)


@dataclasses.dataclass
class Frame:
    type: int
    flags: int
    body: bytes

    def is_sealed(self):
        return self.flags == SEALED

    def secret(self):
        """What is behind the header, without the id of the key, which may be read, and the tag."""
        return self.body[KEY_ID.size:-TAG_SIZE] if self.is_sealed() else self.body

    def key_id(self):
        """The id of the key that the frame names; 0 for none."""
        if self.is_sealed():
            return KEY_ID.unpack_from(self.body)[0]
        return KEY_ID.unpack_from(self.body, HELLO_KEY_AT)[0] if self.type == HELLO else 0


@dataclasses.dataclass
class Connection:
    """One TCP connection: who dialed whom, and the bytes of both ways."""
    dialer: str
    listener: str
    port: int
    asked: bytes
    answered: bytes

    def handshake(self):
        """The first two frames of the dialer, and the first answer."""
        return frames_of(self.asked)[:2] + frames_of(self.answered)[:1]

    def messages(self):
        return frames_of(self.asked)[2:] + frames_of(self.answered)[1:]

    def is_empty(self):
        return not self.asked and not self.answered


def frames_of(data):
    """Takes a stream apart. Bytes that are no frame come back as a last frame of type 0; the end of a stream may
    be half a frame, when its process was killed."""
    frames, at = [], 0
    while at + HEADER.size <= len(data):
        magic, version, kind, flags, length, _ = HEADER.unpack_from(data, at)
        if magic != MAGIC or version != VERSION or length < HEADER.size:
            return frames + [Frame(0, 0, data[at:])]
        if at + length > len(data):
            break
        frames.append(Frame(kind, flags, data[at + HEADER.size:at + length]))
        at += length
    return frames


def compressed_share(chunks):
    """What a compressor leaves of the bytes: about 1 for what looks random, and for nothing."""
    data = b"".join(chunks)
    return len(zlib.compress(data, 9)) / len(data) if data else 1.0


def joined(segments, first):
    """The bytes of one way of a connection, from segments in any order, some of them twice."""
    data = bytearray()
    for number, payload in sorted(((number - first) % 2**32, payload) for number, payload in segments):
        if number > len(data):
            raise ValueError("the record of a connection has a gap")
        data += payload[len(data) - number:]
    return bytes(data)


@dataclasses.dataclass
class Packet:
    way: tuple     # source and its port, destination and its port
    sequence: int  # None when the packet is not one of TCP
    flags: int
    payload: bytes


def packets_of(path):
    """The packets in a pcap file."""
    with open(path, "rb") as file:
        data = file.read()
    at = PCAP_HEADER
    while at + PCAP_RECORD.size <= len(data):
        size = PCAP_RECORD.unpack_from(data, at)[2]
        at += PCAP_RECORD.size
        packet = data[at + ETHERNET:at + size]
        at += size
        head = (packet[0] & 15) * 4
        source, destination = (str(ipaddress.ip_address(packet[n:n + 4])) for n in (12, 16))
        ports = struct.unpack_from(">HH", packet, head)
        way = (source, ports[0], destination, ports[1])
        if packet[9] != TCP and ports[1] == END_PORT:
            continue
        if packet[9] != TCP:
            yield Packet(way, None, 0, b"")
            continue
        sequence, offset, flags = struct.unpack_from(">I4xBB", packet, head + 4)
        # The length is 0 in packets that the kernel has not cut up yet.
        end = struct.unpack_from(">H", packet, 2)[0] or len(packet)
        yield Packet(way, sequence, flags, packet[head + (offset >> 4) * 4:end])


class Wire:
    """Records the rendezvous ports of one fabric with tcpdump. `problem` says why it does not."""

    def __init__(self, fabric):
        for host in "ab":
            subprocess.run(fabric.command(host, ["true"]), check=True)  # makes the host
        net = fabric.counters("a/mlx5_0")["address"].split(".")[1]
        self.end_address = "127.%s.255.254" % net
        self.path = os.path.join(fabric.directory, "wire.pcap")
        # As another user, which tcpdump would become by default, it could not write here.
        told = os.path.join(fabric.directory, "tcpdump.log")
        self.problem = ""
        with open(told, "w") as log:
            try:
                self.process = subprocess.Popen(
                    ["tcpdump", "-i", "lo", "-p", "-n", "-U", "-s", SNAP, "-B", BUFFER_KIB, "--immediate-mode",
                     "-Z", "root", "-w", self.path,
                     "net 127.%s.0.0/16 and (portrange %d-%d or udp port %d)" % (
                         net, PORTS[0], PORTS[-1], END_PORT)],
                    stderr=log, stdout=subprocess.DEVNULL)
            except OSError as error:
                self.problem = "tcpdump: %s" % error
                return

        def text():
            with open(told) as log:
                return log.read()

        wait_until(lambda: "listening on" in text() or self.process.poll() is not None, START_SECONDS)
        if "listening on" not in text():
            self.end()
            self.problem = "tcpdump: %s" % (text().strip() or "it does not start")

    def end(self):
        """Call it when the programs have ended."""
        if not self.problem and self.process.poll() is None:
            # At the signal tcpdump leaves what it has not read yet: on a busy machine the programs' last words.
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
                sender.sendto(END, (self.end_address, END_PORT))
            is_whole = wait_until(self._has_end, END_SECONDS)
            self.process.send_signal(signal.SIGINT)
            self.process.wait()
            if not is_whole:
                raise ValueError("tcpdump has not read the last packet within %d s" % END_SECONDS)

    def _has_end(self):
        with open(self.path, "rb") as file:
            return END in file.read()

    def packets(self):
        return list(packets_of(self.path))

    def connections(self):
        """The connections that were dialed, in the order of their first packets."""
        said, first = collections.defaultdict(list), {}
        for one in self.packets():
            if one.sequence is not None and one.flags & SYN:
                first.setdefault(one.way, one.sequence + 1)
            elif one.payload:
                said[one.way].append((one.sequence, one.payload))
        found = []
        for way, begin in first.items():
            back = way[2:] + way[:2]
            if way[3] in PORTS and way[1] not in PORTS:
                found.append(Connection(way[0], way[2], way[3], joined(said[way], begin),
                                        joined(said[back], first.get(back, 0))))
        return found
