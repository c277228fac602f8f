"""Handlers of the methods that `remoteclaw/tools/` declares."""

from collections.abc import Mapping

from remoteclaw.gateway.call import Handler
from remoteclaw.gateway.methods import (
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

__all__ = ["HANDLERS"]

#: The handler of every method, by the method's name.
HANDLERS: Mapping[str, Handler] = {
    **sessions.HANDLERS,
    **tasks.HANDLERS,
    **chats.HANDLERS,
    **cron.HANDLERS,
    **configuration.HANDLERS,
    **operators.HANDLERS,
    **oversight.HANDLERS,
    **fleet.HANDLERS,
    **requests.HANDLERS,
    **console.HANDLERS,
    **web.HANDLERS,
    **terminals.HANDLERS,
}
