"""The terminal chat, which is a client of the gateway."""
