"""The catalog: every method and tool of the gateway.

The WebSocket RPC, `POST /tools/invoke`, the MCP tools, the reference and the tests of rights are
generated from `METHODS`.
"""

from collections.abc import Mapping

from remoteclaw.tools import (
    access,
    chat,
    config,
    cron,
    fleet,
    hosts,
    memory,
    messages,
    outcomes,
    push,
    requests,
    sessions,
    tasks,
    terminals,
    usage,
)
from remoteclaw.tools.base import Method, Tool

#: All methods, by name.
METHODS: Mapping[str, Method] = {
    method.name: method
    for method in (
        *sessions.METHODS,
        *fleet.METHODS,
        *usage.METHODS,
        *hosts.METHODS,
        *tasks.METHODS,
        *messages.METHODS,
        *cron.METHODS,
        *config.METHODS,
        *outcomes.METHODS,
        *requests.METHODS,
        *chat.METHODS,
        *push.METHODS,
        *terminals.METHODS,
        *access.METHODS,
        *memory.METHODS,
    )
}
#: All tools, by name, in the order of `METHODS`.
TOOLS: Mapping[str, Tool] = {
    method.tool: method for method in METHODS.values() if isinstance(method, Tool)
}
