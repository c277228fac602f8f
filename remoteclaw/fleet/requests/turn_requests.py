"""The requests to people of a running turn."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal, Protocol

import orjson

from remoteclaw.fleet.lua import Value
from remoteclaw.fleet.requests.card import ShownCard, request_args
from remoteclaw.fleet.requests.request import Request, RequestAnswer, State

#: After a waiting turn has released its worker, no other turn does so for this long, in
#: milliseconds: one free worker may be enough.
RELEASE_PAUSE_MS = 1000


class Fenced(Protocol):
    """A session whose lease this process has, for a worker or for the holder of a terminal."""

    @property
    def sid(self) -> str:
        """The id of the session."""

    async def run_fenced(self, name: str, /, **values: Value) -> Any:
        """Run the script `name`; raise `LeaseLost` if another process has the lease."""


class TurnRequests:
    """The requests of the turn that runs under a lease.

    Every method raises `LeaseLost` once another process has the lease.
    """

    def __init__(self, lease: Fenced, turn: str) -> None:
        self._lease = lease
        self._turn = turn

    async def ask(
        self,
        request: Request,
        *,
        holders: Sequence[Sequence[str]],
        digest: str,
        rule: str,
        is_edit: bool = False,
        is_again: bool,
        hold_ms: int,
        keep_ms: int,
        shown: ShownCard | None,
    ) -> tuple[Literal["open", "allowed", "again", "full"], str]:
        """Store a request and send its card, unless the action is already allowed.

        `holders` are the people of the turn, each with the names under which permissions for that
        person are kept. `digest` identifies the exact action. `rule` is the rule that allows it for
        the whole conversation; a change of files (`is_edit`) may also have been allowed with a
        plan. Returns the result and a detail:

        - "open" and the id of the request, which may be one of an earlier attempt;
        - "allowed" and the earlier answer, as JSON;
        - "again" if `is_again` was wrong: whether an earlier attempt may have taken the action;
        - "full" if too many requests are open.
        """
        asked = replace(request, is_again=is_again)
        result, detail = await self._lease.run_fenced(
            "request",
            turn=self._turn,
            digest=digest,
            rule=rule,
            is_edit=is_edit,
            is_harmless=request.is_question or request.is_plan,
            is_again=is_again,
            hold_ms=hold_ms,
            holders=["\n".join(names) for names in holders],
            **request_args(asked, shown, keep_ms=keep_ms),
        )
        return result, detail or ""

    async def take(self, id_: str, *, is_heard: bool) -> tuple[State, RequestAnswer | None]:
        """Take the answer, if there is one, right before it is passed to the agent.

        `is_heard` says that the agent also gets the reason of a denial.
        """
        state, answer = await self._lease.run_fenced(
            "take",
            turn=self._turn,
            request_id=id_,
            is_heard=is_heard,
        )
        return state, RequestAnswer.decode(answer) if answer else None

    async def unreported_denials(self) -> list[dict[str, str]]:
        """Return the denials whose reason the agent has not received yet, oldest first.

        They are returned to every attempt at this turn, and to no later turn.
        """
        rows = await self._lease.run_fenced("unreported_denials", turn=self._turn)
        pairs = [(orjson.loads(request), RequestAnswer.decode(answer)) for request, answer in rows]
        pairs.sort(key=lambda pair: pair[1].at_ms)
        return [
            {
                "tool": request["tool"],
                "what": request["what"],
                "by": answer.name,
                "why": answer.words,
            }
            for request, answer in pairs
        ]

    async def lapse(self, *, is_needed: bool) -> bool:
        """Stop waiting for the answers to this turn's requests, which can still be answered.

        `is_needed` says that other sessions wait for a worker. Returns False if the turn goes on,
        because another turn releases its worker instead, or because an answer has arrived.
        """
        done = await self._lease.run_fenced(
            "lapse",
            turn=self._turn,
            is_needed=is_needed,
            pause_ms=RELEASE_PAUSE_MS,
        )
        return bool(done)

    async def retract(self, id_: str, words: str) -> None:
        """Close a request that the agent has withdrawn; `words` replace its card."""
        await self._lease.run_fenced(
            "retract",
            turn=self._turn,
            request_id=id_,
            words=words,
        )
