"""The gateway: what agents and operators may ask of RemoteClaw, through three doors.

A request is authenticated to a principal (`principals`), comes through HTTP, WebSocket or MCP
(`doors`), and is answered by `dispatch`, which alone decides whether it may be. A gateway keeps no
state: any number of them serve the same fleet.
"""
