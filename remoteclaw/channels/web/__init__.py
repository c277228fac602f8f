"""The channel of the browser page."""
