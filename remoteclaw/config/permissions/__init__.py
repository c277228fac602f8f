"""Permissions: what an agent's CLI may do without a person's answer."""
