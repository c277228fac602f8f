"""Handlers of requests to people, for operators."""

from collections.abc import Mapping
from dataclasses import replace

from remoteclaw.commands.answers import answer_request, numbered
from remoteclaw.config.approvals import OPERATOR
from remoteclaw.fleet.request import Verdict
from remoteclaw.gateway.asks import shown
from remoteclaw.gateway.call import Call, Handler
from remoteclaw.tools import asks as contract


async def _list(call: Call, params: contract.AsksParams) -> contract.AsksResult:
    asks = call.fleet.asks
    found = await (asks.all() if params.all else asks.waiting())
    return contract.AsksResult(asks=tuple(shown(one) for one in found))


async def _show(call: Call, params: contract.AskParams) -> contract.Ask:
    asks = call.fleet.asks
    found = await asks.named(params.id)
    return shown(replace(found, what=await asks.whole(found)), is_whole=True)


async def _answer(call: Call, params: contract.AnswerParams) -> contract.AnswerResult:
    request = await call.fleet.asks.named(params.id)
    verdict: Verdict = params.verdict
    words = params.reason
    if verdict == "words":  # that are numbers of choices stand for these
        verdict, words = numbered(request, words) or (verdict, words)
    told = await answer_request(
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
    return contract.AnswerResult(counts=told.counts, detail=told.text)


HANDLERS: Mapping[str, Handler] = {
    "asks.list": _list,
    "asks.show": _show,
    "asks.answer": _answer,
}
