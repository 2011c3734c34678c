"""Tests of how verbs objects live and end while NICs break."""
