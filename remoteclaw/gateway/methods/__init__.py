"""Handlers of the methods that `remoteclaw/tools/` declares."""

from collections.abc import Mapping

from remoteclaw.gateway.call import Handler
from remoteclaw.gateway.methods import (
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

__all__ = ["HANDLERS"]

#: The handler of every method, by the method's name.
HANDLERS: Mapping[str, Handler] = {
    **sessions.HANDLERS,
    **tasks.HANDLERS,
    **messages.HANDLERS,
    **cron.HANDLERS,
    **config.HANDLERS,
    **fleet.HANDLERS,
    **usage.HANDLERS,
    **hosts.HANDLERS,
    **memory.HANDLERS,
    **outcomes.HANDLERS,
    **requests.HANDLERS,
    **chat.HANDLERS,
    **push.HANDLERS,
    **terminals.HANDLERS,
    **access.HANDLERS,
}
