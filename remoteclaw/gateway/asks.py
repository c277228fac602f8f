"""Requests to people as clients of the gateway are shown them."""

from dataclasses import asdict, replace

from remoteclaw.bridge.scrubber import Scrubber
from remoteclaw.fleet.request import Request
from remoteclaw.tools.asks import Answered, Ask, ChangeAsked

__all__ = ["shown"]


def shown(request: Request, *, is_whole: bool = False) -> Ask:
    """Return a request as clients read it, without the keys that people may have answered with."""
    answer, change = request.answer, request.change
    words = Scrubber().text(answer.words, len(answer.words)) if answer else ""
    return Ask(
        id=request.id,
        session_key=str(request.session),
        agent=request.session.agent,
        kind=request.kind,
        tool=request.tool,
        what=request.what,
        is_cut=request.file is not None and not is_whole,
        is_again=request.is_again,
        is_question=request.is_question,
        choices=tuple(request.choices),
        is_multiple=request.is_multiple,
        offered=tuple(request.offered),
        change=ChangeAsked(
            host=change.host,
            changed=tuple(change.changed),
            needs_restart=tuple(change.needs_restart),
            became=request.became,
        )
        if change
        else None,
        where=request.where,
        chat=str(request.chat) if request.chat else None,
        unshown=request.unshown or None,
        people=tuple(request.people),
        state=request.state,
        asked_ms=request.asked_ms,
        until_ms=request.until_ms if request.can_pass else None,
        answer=Answered(**asdict(replace(answer, words=words))) if answer else None,
    )
