"""Worlds: the platforms with people on them, for the tests that every adapter must pass."""
