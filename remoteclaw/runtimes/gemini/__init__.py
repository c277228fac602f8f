"""Gemini CLI, over ACP."""
