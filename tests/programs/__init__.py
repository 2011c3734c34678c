"""Tests of unmodified programs of the distribution: what each must do on emulated hosts without SHIFT."""
