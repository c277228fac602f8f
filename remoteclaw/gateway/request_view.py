"""Requests to people, in the form in which clients of the gateway receive them."""

from remoteclaw.bridge.scrubber import Scrubber
from remoteclaw.fleet.requests.request import Request
from remoteclaw.tools.requests import GivenAnswer, RequestedChange, RequestView


def request_view(
    request: Request, *, is_whole: bool = False, title: str | None = None
) -> RequestView:
    """Return a request as clients receive it, without API keys in its answer."""
    answer, change = request.answer, request.change
    # A person may have answered with an API key.
    words = Scrubber().text(answer.words, len(answer.words)) if answer else ""
    return RequestView.of(
        request,
        session_key=str(request.session),
        title=title,
        agent=request.session.agent,
        is_cut=request.file is not None and not is_whole,
        change=RequestedChange.of(change, became=request.became) if change else None,
        chat=str(request.chat) if request.chat else None,
        unshown=request.unshown or None,
        until_ms=request.until_ms if request.can_pass else None,
        answer=GivenAnswer.of(answer, words=words) if answer else None,
    )
