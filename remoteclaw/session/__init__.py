"""A session's turns: what waits, who answers, and when its conversation ends."""
