"""The gateway's doors: HTTP, WebSocket and MCP. All lead to `Gateway.call()`."""
