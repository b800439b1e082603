"""The rules: one policy a file, found by the registry. No rule imports another of its folder."""
