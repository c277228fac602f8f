"""The Agent Client Protocol: any agent that speaks it, and the base of gemini and opencode."""
