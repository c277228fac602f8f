"""What agents and operators can ask for: every method and tool, and who may use it."""
