"""The section `[hooks]`."""

from typing import Annotated

from remoteclaw.config.model.section import Section
from remoteclaw.config.rights import by_people

__all__ = ["HooksConfig"]

WITH_WORKERS = by_people(restart="the workers, and `remoteclaw up` where it has a console")


class HooksConfig(Section):
    """Python functions, as "module:function", to call at moments of a turn."""

    message_received: Annotated[tuple[str, ...], WITH_WORKERS] = ()
    """An agent is about to be given a message."""
    before_runtime_spawn: Annotated[tuple[str, ...], WITH_WORKERS] = ()
    """Before each turn; may return another working directory and more environment."""
    session_resumed: Annotated[tuple[str, ...], WITH_WORKERS] = ()
    """A new agent process goes on with a conversation of an earlier one."""
    after_runtime_exit: Annotated[tuple[str, ...], WITH_WORKERS] = ()
    """After each turn, with its bounded output and side effects."""
    agent_end: Annotated[tuple[str, ...], WITH_WORKERS] = ()
    """After each turn, with its id, success and duration."""
    message_sending: Annotated[tuple[str, ...], WITH_WORKERS] = ()
    """Before a message is delivered to a chat; may change or cancel it. While there is such a hook,
    answers are not shown before they are complete."""
    message_sent: Annotated[tuple[str, ...], WITH_WORKERS] = ()
    """After a message was delivered to a chat, or could not be."""
