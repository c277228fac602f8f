"""`remoteclaw up` and `doctor`: everything on one machine, started, watched and looked at."""
