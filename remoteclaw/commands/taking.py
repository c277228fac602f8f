"""Takes a message of a chat: its command is answered, all else is for the agent."""

from collections.abc import Callable
from dataclasses import dataclass

from remoteclaw.commands.asked import Answer, Asked
from remoteclaw.commands.parse import parse, unescaped
from remoteclaw.commands.table import answer

__all__ = ["Taken", "take"]


@dataclass(frozen=True, slots=True)
class Taken:
    """What comes of a message."""

    answer: Answer | None
    """The answer to its command, if it is one."""
    text: str
    """What the agent is sent; nothing if the answer is all."""
    is_command: bool | None
    """Whether that is a command for the agent's CLI; None if the queue is to look."""


async def take(text: str, asked: Callable[[str], Asked], *, has_files: bool) -> Taken:
    """Look whether a message is a command, and do it; `asked` is given what stands behind its name.

    Raises `RedisUnavailable` and `RedisRefused`.
    """
    if has_files:  # the caption of a file is looked at by the queue, which knows /new there
        return Taken(None, unescaped(text), None)
    told = None
    if command := parse(text):
        told = await answer(command, asked(command.rest))
    if told is None:
        return Taken(None, unescaped(text), False)
    return Taken(told, told.forward, told.is_for_cli)
