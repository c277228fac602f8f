"""OpenCode, over ACP."""
