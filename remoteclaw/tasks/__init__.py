"""Tasks: sessions that another session starts to work for it; their limits and their results."""
