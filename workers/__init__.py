"""Modules that `rq worker` loads: settings, the only job, and the class that allows no other."""
