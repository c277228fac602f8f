"""Handlers of requests to people, for operators."""

from collections.abc import Mapping
from dataclasses import replace

from remoteclaw.commands.answers import answer_request, verdict_of_numbers
from remoteclaw.config.approvals import OPERATOR
from remoteclaw.fleet.request import Verdict
from remoteclaw.gateway.asks import ask_of
from remoteclaw.gateway.call import Call, Handler
from remoteclaw.tools import asks as contract


async def _list(call: Call, params: contract.AsksParams) -> contract.AsksResult:
    asks = call.fleet.asks
    requests = await (asks.all() if params.all else asks.waiting())
    return contract.AsksResult(asks=tuple(ask_of(request) for request in requests))


async def _show(call: Call, params: contract.AskParams) -> contract.Ask:
    asks = call.fleet.asks
    request = await asks.named(params.id)
    return ask_of(replace(request, what=await asks.full_text(request)), is_whole=True)


async def _answer(call: Call, params: contract.AnswerParams) -> contract.AnswerResult:
    request = await call.fleet.asks.named(params.id)
    verdict: Verdict = params.verdict
    words = params.reason
    if verdict == "words":  # numbers stand for the choices that they number
        verdict, words = verdict_of_numbers(request, words) or (verdict, words)
    outcome = await answer_request(
        call.fleet,
        call.home,
        call.config,
        request,
        verdict,
        by=OPERATOR,
        name=call.operator.known_as,
        is_owner=True,
        words=words,
    )
    return contract.AnswerResult(counts=outcome.counts, detail=outcome.text)


HANDLERS: Mapping[str, Handler] = {
    "asks.list": _list,
    "asks.show": _show,
    "asks.answer": _answer,
}
