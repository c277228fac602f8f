"""Webhook: signed HTTP in both directions, for platforms without an adapter of their own."""
