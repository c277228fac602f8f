"""Loaded by `rq worker`: its settings, the one job it runs, and the class that allows no other."""
