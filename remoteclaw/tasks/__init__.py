"""Tasks: sessions that a session starts to work for it, their limits, and their results."""
