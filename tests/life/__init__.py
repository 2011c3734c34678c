"""The life of verbs objects, while NICs break."""
