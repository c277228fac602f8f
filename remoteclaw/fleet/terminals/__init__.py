"""Terminals: their state, their events and their audit log."""
