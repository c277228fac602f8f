"""The Matrix channel."""
