"""Slack: an account is an app in a workspace, which Slack pushes events to over a WebSocket."""
