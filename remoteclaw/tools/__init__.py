"""The contract: every method and tool that agents and operators can call, declared once."""
