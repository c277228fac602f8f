"""A terminal in the person's own: a client of the gateway that paints its screen and types."""
