"""Tests of the plain header of the wire protocol, and of Wireshark's dissector, which has to agree with it."""
