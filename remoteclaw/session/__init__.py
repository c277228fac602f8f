"""A session's turns: its queue, the calls of its agent, and the resets of its conversation."""
