"""The console: a person at the terminal of `remoteclaw up`."""
