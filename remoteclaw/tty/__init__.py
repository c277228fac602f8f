"""Terminals: an agent's own program on a screen that people watch and type at."""
