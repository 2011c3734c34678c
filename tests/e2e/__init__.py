"""Tests of the whole layer on emulated hosts: traffic that judges every byte, under faults at any moment."""
