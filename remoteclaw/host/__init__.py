"""The machine: processes, files, locks, the terminal, logs, tokens, and fetches from the web."""
