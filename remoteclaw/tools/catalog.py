"""The catalog: every method and tool of the gateway.

The WebSocket RPC, `POST /tools/invoke`, the MCP tools, the reference and the tests of rights are
generated from `METHODS`.
"""

from collections.abc import Mapping

from remoteclaw.tools import (
    access,
    chat,
    chats,
    configuration,
    cron,
    fleet,
    operators,
    oversight,
    push,
    requests,
    sessions,
    tasks,
    terminals,
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
        *chat.METHODS,
        *push.METHODS,
        *terminals.METHODS,
        *access.METHODS,
    )
}
#: All tools, by name, in the order of `METHODS`.
TOOLS: Mapping[str, Tool] = {
    method.tool: method for method in METHODS.values() if isinstance(method, Tool)
}
