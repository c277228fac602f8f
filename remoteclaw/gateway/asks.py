"""Requests to people as clients of the gateway are shown them."""

from dataclasses import asdict, replace

from remoteclaw.bridge.scrubber import Scrubber
from remoteclaw.fleet.request import Request
from remoteclaw.tools.asks import Answered, Ask

__all__ = ["shown"]


def shown(request: Request) -> Ask:
    """Return a request as clients read it, without the keys that people may have answered with."""
    answer = request.answer
    words = Scrubber().text(answer.words, len(answer.words)) if answer else ""
    return Ask(
        id=request.id,
        session_key=str(request.session),
        agent=request.session.agent,
        tool=request.tool,
        what=request.what,
        is_question=request.is_question,
        choices=tuple(request.choices),
        is_multiple=request.is_multiple,
        offered=tuple(request.offered),
        where=request.where,
        people=tuple(request.people),
        state=request.state,
        asked_ms=request.asked_ms,
        until_ms=request.until_ms if request.can_pass else None,
        answer=Answered(**asdict(replace(answer, words=words))) if answer else None,
    )
