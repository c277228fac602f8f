"""The gateway's doors: HTTP, WebSocket and MCP. All of them pass calls to `Gateway.call()`."""
