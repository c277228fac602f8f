"""Requests to people as clients of the gateway are shown them."""

from remoteclaw.bridge.scrubber import Scrubber
from remoteclaw.fleet.request import Request
from remoteclaw.tools.asks import Answered, Ask, ChangeAsked


def shown(request: Request, *, is_whole: bool = False) -> Ask:
    """Return a request as clients read it, without the keys that people may have answered with."""
    answer, change = request.answer, request.change
    words = Scrubber().text(answer.words, len(answer.words)) if answer else ""
    return Ask.of(
        request,
        session_key=str(request.session),
        agent=request.session.agent,
        is_cut=request.file is not None and not is_whole,
        change=ChangeAsked.of(change, became=request.became) if change else None,
        chat=str(request.chat) if request.chat else None,
        unshown=request.unshown or None,
        until_ms=request.until_ms if request.can_pass else None,
        answer=Answered.of(answer, words=words) if answer else None,
    )
