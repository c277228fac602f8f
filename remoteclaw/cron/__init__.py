"""Cron: when jobs are due, how they are kept, fired and settled."""
