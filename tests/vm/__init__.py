"""Tests on two machines with the distribution's kernel and its soft-RoCE driver."""
