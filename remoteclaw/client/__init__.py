"""The gateway client: the WebSocket connection that chat, attach and commands share."""
