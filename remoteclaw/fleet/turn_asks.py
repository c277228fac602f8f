"""Requests to people, from the side of the turn that asks."""

from dataclasses import replace
from typing import Any, Literal, Protocol

import orjson

from remoteclaw.fleet import keys
from remoteclaw.fleet.lua import Arguments, Keys
from remoteclaw.fleet.request import Answered, Request, State
from remoteclaw.fleet.request_card import Shown, record_args

#: How long the other turns look on after one has let its worker go, in milliseconds.
LETTING_GO_MS = 1000


class Fenced(Protocol):
    """A session that somebody has: its worker, or the holder of its terminal."""

    @property
    def sid(self) -> str:
        """The session."""

    async def run_fenced(self, name: str, names: Keys, args: Arguments) -> Any:
        """Run a script that is refused once another one has the session."""


class TurnAsks:
    """The requests of the turn that runs under a lease.

    Every method raises `LeaseLost` once another worker has the session.
    """

    def __init__(self, lease: Fenced, turn: str) -> None:
        self._lease = lease
        self._turn = turn

    async def ask(
        self,
        request: Request,
        *,
        digest: str,
        rule: str,
        is_edit: bool = False,
        is_again: bool,
        hold_ms: int,
        keep_ms: int,
        shown: Shown | None,
    ) -> tuple[Literal["open", "allowed", "again", "full"], str]:
        """Ask people, with a message that shows it.

        `digest` names exactly what would be done, and `rule` what is allowed with it for the
        conversation, as `is_edit` is with a plan. Return "open" and the request's id, which may be
        that of an earlier attempt; "allowed", by an earlier answer as JSON; "again" if the message
        has to say that it may have been done before; and "full" if too many wait.
        """
        sid = self._lease.sid
        asked = replace(request, is_again=is_again)
        names, args = record_args(asked, shown, keep_ms=keep_ms)
        told, name = await self._lease.run_fenced(
            "ask",
            {**names, "rules": keys.rules(sid), "grants": keys.grants(sid)},
            {
                **args,
                "turn": self._turn,
                "digest": digest,
                "rule": rule,
                "is_edit": is_edit,
                "is_harmless": request.is_question or request.is_plan,
                "is_again": is_again,
                "hold_ms": hold_ms,
            },
        )
        return told.decode(), name.decode()

    async def take(self, id_: str, *, is_heard: bool) -> tuple[State, Answered | None]:
        """Take the answer, if there is one: from then on the agent may have heard it.

        `is_heard` says that it hears the reason of a denial as well.
        """
        state, answer = await self._lease.run_fenced(
            "take",
            {"ask": keys.ask(id_), "unheard": keys.unheard(self._lease.sid)},
            {"turn": self._turn, "id": id_, "is_heard": is_heard},
        )
        return state.decode(), Answered.decode(answer) if answer else None

    async def unheard(self) -> list[dict[str, str]]:
        """Return the denials of which the agent has yet to hear the reason, oldest first.

        They are told in this turn, and in no later one.
        """
        name = {"unheard": keys.unheard(self._lease.sid)}
        found = await self._lease.run_fenced("unheard", name, {"turn": self._turn})
        pairs = [(orjson.loads(asked), Answered.decode(answer)) for asked, answer in found]
        pairs.sort(key=lambda pair: pair[1].at_ms)
        return [
            {"tool": asked["tool"], "what": asked["what"], "by": answer.name, "why": answer.words}
            for asked, answer in pairs
        ]

    async def lapse(self, *, is_needed: bool) -> bool:
        """Wait no longer for answers; False if the turn goes on.

        `is_needed` says that other sessions wait for a worker: another turn may let its own go
        instead, and an answer may have come.
        """
        done = await self._lease.run_fenced(
            "lapse",
            {"letting_go": keys.LETTING_GO},
            {
                "turn": self._turn,
                "sid": self._lease.sid,
                "is_needed": is_needed,
                "pause_ms": LETTING_GO_MS,
            },
        )
        return bool(done)

    async def retract(self, id_: str, words: str) -> None:
        """Close a request that the agent has taken back."""
        await self._lease.run_fenced(
            "retract", {"ask": keys.ask(id_)}, {"turn": self._turn, "id": id_, "words": words}
        )
