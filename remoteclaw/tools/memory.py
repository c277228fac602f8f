"""Methods about agents' memories."""

from typing import Annotated, Literal

from pydantic import Field

from remoteclaw.tools.base import Id, Method, Params, Result, Tool

#: The maximum length of a memory's line without its date and source, in characters.
MAX_LINE_CHARS = 1_000

Line = Annotated[str, Field(max_length=MAX_LINE_CHARS)]


class MemoryWriteParams(Params):
    text: Line
    """One fact, in a sentence that is clear without this conversation; empty to remove a line."""
    replaces: Line | None = None
    """Words of the one line to replace or remove."""


class MemoryWritten(Result):
    status: Literal["written", "requested"]
    """`requested`: a person has to allow it first, and you go on without waiting."""
    line: str
    """The line as it is, or would be, in the memory; empty if one is removed."""
    detail: str
    """What the person was told, or how full the memory is."""


class MemoryParams(Params):
    agent: Id
    """The agent's name."""


class MemoryReplaceParams(MemoryParams):
    text: Annotated[str, Field(max_length=100_000)]
    """The whole new text."""
    base: Annotated[str, Field(max_length=100_000)]
    """The text from which the new one was made. Lines that were added since are kept."""


class MemoryText(Result):
    agent: str
    text: str
    """The memory, a line for each fact."""
    bytes: int
    max_bytes: int
    is_used: bool
    """Whether the agent has a memory (`memory = true`)."""


class MemoryUndone(Result):
    undone: str | None = None
    """The change that was undone, with who had made it; null if there is none."""
    by: str | None = None
    """Who had made it, and where."""


METHODS = (
    Tool(
        name="memory.write",
        tool="memory_write",
        title="Remember something",
        description="Keep a fact in your memory, which you read at the begin of each later "
        "conversation with an owner, or replace or remove a line of it. Use it when an owner asks "
        "you to remember or forget something, or tells you a lasting preference; never for what "
        "others have written. The owner is told, and can undo it. "
        'Example: {"text": "Ada deploys on Tuesdays only."}.',
        params=MemoryWriteParams,
        result=MemoryWritten,
        scope="admin",
        effect="system",
        destroys=True,
        groups=("memory",),
        owner_only=True,
        approvable=True,
        is_about_session=True,
    ),
    Method(
        name="memory.show",
        description="Show an agent's memory.",
        params=MemoryParams,
        result=MemoryText,
        scope="admin",
    ),
    Method(
        name="memory.replace",
        description="Replace the text of an agent's memory.",
        params=MemoryReplaceParams,
        result=MemoryText,
        scope="admin",
        effect="system",
        destroys=True,
    ),
    Method(
        name="memory.undo",
        description="Undo the last change of an agent's memory.",
        params=MemoryParams,
        result=MemoryUndone,
        scope="admin",
        effect="system",
        destroys=True,
    ),
)
