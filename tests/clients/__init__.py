"""Unmodified programs under SHIFT while a NIC breaks."""
