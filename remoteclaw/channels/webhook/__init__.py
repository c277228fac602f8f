"""The webhook channel: signed HTTP in both directions, for platforms that have no adapter."""
