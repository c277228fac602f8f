"""The demo agent, for machines without an agent CLI."""
