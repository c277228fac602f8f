"""The channel of the page."""
