"""The catalog: every method and tool of the gateway.

The WebSocket RPC, `POST /tools/invoke`, the MCP tools, the reference and the test of who may do
what are loops over `METHODS`.
"""

from collections.abc import Mapping

from remoteclaw.tools import (
    asks,
    chats,
    configuration,
    console,
    cron,
    fleet,
    operators,
    oversight,
    sessions,
    tasks,
    terminals,
    web,
)
from remoteclaw.tools.base import Method, Tool

#: Every method by its name.
METHODS: Mapping[str, Method] = {
    method.name: method
    for method in (
        *sessions.METHODS,
        *tasks.METHODS,
        *chats.METHODS,
        *cron.METHODS,
        *configuration.METHODS,
        *operators.METHODS,
        *oversight.METHODS,
        *fleet.METHODS,
        *asks.METHODS,
        *console.METHODS,
        *web.METHODS,
        *terminals.METHODS,
    )
}
#: The tools by their names, in the order in which people look for them.
TOOLS: Mapping[str, Tool] = {
    method.tool: method for method in METHODS.values() if isinstance(method, Tool)
}
