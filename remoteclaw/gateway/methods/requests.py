"""Handlers of requests to people, for operators."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from remoteclaw.commands.answers import answer_request, verdict_of_numbers
from remoteclaw.config.requests import OPERATOR
from remoteclaw.fleet.requests.request import Request, Verdict
from remoteclaw.gateway.call import Call, Handler
from remoteclaw.gateway.request_view import request_view
from remoteclaw.messages import SessionKey
from remoteclaw.tools import requests as contract


async def _list(call: Call, params: contract.RequestsParams) -> contract.RequestsResult:
    requests = call.fleet.requests
    listed = await (requests.all() if params.all else requests.waiting())
    titles = await _titles(call, listed)
    return contract.RequestsResult(
        requests=tuple(request_view(each, title=titles.get(each.session)) for each in listed)
    )


async def _show(call: Call, params: contract.RequestParams) -> contract.RequestView:
    requests = call.fleet.requests
    request = await requests.named(params.id)
    title = (await _titles(call, [request])).get(request.session)
    whole = replace(request, what=await requests.full_text(request))
    return request_view(whole, is_whole=True, title=title)


async def _titles(call: Call, requests: Sequence[Request]) -> Mapping[SessionKey, str | None]:
    """Return the labels or titles of the sessions of requests."""
    views = await call.fleet.sessions.views([*{each.session.sid.encode() for each in requests}])
    return {view.key: view.label or view.title for view in views}


async def _answer(call: Call, params: contract.AnswerParams) -> contract.AnswerResult:
    request = await call.fleet.requests.named(params.id)
    verdict: Verdict = params.verdict
    words = params.reason
    if verdict == "words":  # numbers stand for the choices that they number
        verdict, words = verdict_of_numbers(request, words) or (verdict, words)
    outcome = await answer_request(
        call.fleet.requests,
        call.home,
        call.config,
        request,
        verdict,
        by=OPERATOR,
        name=call.operator.name,
        is_owner=True,
        words=words,
    )
    return contract.AnswerResult(counts=outcome.counts, detail=outcome.text)


HANDLERS: Mapping[str, Handler] = {
    "requests.list": _list,
    "requests.show": _show,
    "requests.answer": _answer,
}
