"""The machine: processes, files, terminal, logs, tokens, and what is fetched from elsewhere."""
