"""`remoteclaw up` and `remoteclaw doctor`: start, supervise and check everything on one machine."""
