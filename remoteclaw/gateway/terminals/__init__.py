"""The terminals of this host, and their viewers."""
