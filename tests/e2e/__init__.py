"""The whole on emulated hosts: our own checker, faults at any moment, every byte judged."""
