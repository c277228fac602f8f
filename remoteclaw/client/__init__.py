"""Clients of the gateway: the WebSocket connection that chat, attach and commands share."""
