"""The gateway: the API of RemoteClaw for agents and operators, over HTTP, WebSocket and MCP.

A request arrives through one of the `doors`, is authenticated as a principal (`principals`), and is
authorised and answered only by `dispatch`. A gateway keeps no state, so any number of gateways can
serve the same fleet.
"""
