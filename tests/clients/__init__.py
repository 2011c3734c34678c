"""Tests of unmodified programs under SHIFT while a NIC breaks."""
