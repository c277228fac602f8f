"""`remoteclaw attach`: a session's terminal in the user's own, as a client of the gateway."""
