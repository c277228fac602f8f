"""Claude Code, over its stream-json protocol."""
