"""The contract: declarations of all methods and tools that agents and operators can call."""
