"""The chat in a terminal: a client of the gateway."""
