"""The catalog: every method and tool of the gateway.

The WebSocket RPC, `POST /tools/invoke`, the MCP tools, the reference and the tests of rights are
generated from `METHODS`.
"""

from collections.abc import Mapping

from remoteclaw.tools import (
    chats,
    configuration,
    console,
    cron,
    fleet,
    operators,
    oversight,
    requests,
    sessions,
    tasks,
    terminals,
    web,
)
from remoteclaw.tools.base import Method, Tool

#: All methods, by name.
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
        *requests.METHODS,
        *console.METHODS,
        *web.METHODS,
        *terminals.METHODS,
    )
}
#: All tools, by name, in the order of `METHODS`.
TOOLS: Mapping[str, Tool] = {
    method.tool: method for method in METHODS.values() if isinstance(method, Tool)
}
