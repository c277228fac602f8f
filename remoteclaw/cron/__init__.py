"""Cron: scheduled messages; their schedules, their storage, and the runs that they begin."""
