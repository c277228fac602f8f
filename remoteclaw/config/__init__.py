"""The configuration: its model, how it is read, changed and checked, and where it is kept."""
