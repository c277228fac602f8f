"""The method that waits for the outcome of a message."""

from typing import Annotated, Any

from pydantic import Field

from remoteclaw.tools.base import Method, Params, Result
from remoteclaw.tools.sessions import MAX_WAIT_S


class WaitParams(Params):
    run_id: Annotated[str, Field(pattern=r"^[0-9a-f]{1,32}-\d{1,20}-\d{1,20}$")]
    """The id of a message."""
    timeout: Annotated[float, Field(ge=0, le=MAX_WAIT_S)] = 30
    """How many seconds to wait for a final outcome; 0 does not wait."""
    knows_pause: bool = False
    """Continue to wait when the message is postponed, because the caller knows about that."""


class ReplyPart(Result):
    text: str
    is_error: bool


class ReplyFile(Result):
    name: str
    mime_type: str
    size: int
    blob: str


class MessageOutcome(Result):
    session_key: str
    run_id: str
    status: str
    """`accepted`, `running`, or a final status: `done`, `failed`, `stopped`, `interrupted`,
    `steered`, `dropped` or `dead`."""
    turn: str | None
    """The turn that answers the message; messages that share a turn share its reply."""
    reply: tuple[ReplyPart, ...]
    """The parts of the reply, in order."""
    files: tuple[ReplyFile, ...]
    """The files of the reply."""
    error: dict[str, Any] | None
    """The `category` and the `detail` of a failure."""
    usage: dict[str, Any] | None
    """The tokens, the time and the cost of the turn."""
    pause: str | None
    """Why and until when the message is postponed."""


METHODS = (
    Method(
        name="outcomes.wait",
        description="Return the outcome of a message, or wait for it.",
        params=WaitParams,
        result=MessageOutcome,
        scope="read",
    ),
)
