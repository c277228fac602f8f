"""Codex, over its app-server protocol."""
