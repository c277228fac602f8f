"""Writes to an agent's memory after a person has allowed it, and reports the result once."""

from typing import Literal

from remoteclaw.config.home import Home
from remoteclaw.errors import CallRefused
from remoteclaw.fleet.requests.request import Request
from remoteclaw.fleet.requests.requests import Requests

IS_DONE = "{decided} `/memory undo` takes it back."
NOT_DONE = "{decided} It is not done: {problem}"
#: The message to the agent that requested it.
RESULT = "Your request {id} to change your memory is decided. {became}\n\n{what}"


async def carry_out(requests: Requests, home: Home, request: Request, decided: str) -> None:
    """Carry out the answer to a request for a change of a memory, once.

    `decided` is a sentence that says who answered what, and when.
    """
    assert request.change, "only called for changes"
    assert request.answer, "only called for answered requests"
    assert request.change.memory, "only called for changes of a memory"
    line, became = request.change.memory, decided
    state: Literal["used", "denied", "void"] = "denied"
    if request.answer.verdict != "deny":
        try:
            # A repeated call, after a kill before the request is closed, writes nothing.
            await requests.memories.write_line(
                home,
                line.agent,
                line.line,
                replaces=line.replaces,
                by=line.by,
                call=f"request {request.id}",
                is_private=request.session.channel_id == request.session.user,
            )
        except CallRefused as problem:
            state, became = "void", NOT_DONE.format(decided=decided, problem=problem)
        else:
            state, became = "used", IS_DONE.format(decided=decided)
    text = RESULT.format(id=request.id, became=became, what=request.what)
    await requests.close_change(request, state, closing_text=became, entry_text=text)
