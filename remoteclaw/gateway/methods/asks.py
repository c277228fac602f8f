"""Handlers of requests to people, for operators."""

from collections.abc import Mapping
from dataclasses import replace

from remoteclaw.commands.answers import answer_as_operator
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
    told = await answer_as_operator(
        call.fleet,
        call.home,
        call.config,
        params.id,
        params.verdict,
        params.reason,
        name=call.operator.known_as,
    )
    return contract.AnswerResult(counts=told.counts, detail=told.text)


HANDLERS: Mapping[str, Handler] = {
    "asks.list": _list,
    "asks.show": _show,
    "asks.answer": _answer,
}
