"""Requests to people by a terminal's program: asked in the chat, answered without keys.

They go the way of a turn's, under the lease of the terminal's holder. The program shows its dialog
all the while; what is answered first counts.
"""

import contextlib
from collections.abc import Callable
from dataclasses import replace

from remoteclaw.bridge.permission_text import as_shown
from remoteclaw.bridge.scrubber import Scrubber, secrets_of
from remoteclaw.config.approvals import approvals_of, can_be_asked
from remoteclaw.config.model import Config
from remoteclaw.events import PermissionEvent
from remoteclaw.fleet import Fleet
from remoteclaw.fleet.request import Request, id_of
from remoteclaw.fleet.request_card import of_other_chat, shown_by
from remoteclaw.fleet.terminal_state import Held
from remoteclaw.protocols import Decision, TerminalWatch
from remoteclaw.session.permission import denial_by, rule_of, tool_of, words_of

ANSWERED = "It was answered in the terminal."
#: How long a request is open, in milliseconds: longer than any program asks. It ends with the
#: dialog, or with the terminal's turn.
HOLD_MS = 30 * 86_400_000


class TerminalAsks:
    """The requests of one terminal's program."""

    def __init__(self, fleet: Fleet, held: Held, config: Callable[[], Config]) -> None:
        """`config` returns the current configuration."""
        self._fleet = fleet
        self._held = held
        self._config = config
        self._asks = fleet.terminals.asks(held)
        self._open: set[str] | None = None
        """The requests that people may answer; None until it was looked which there are."""

    async def look(self, watch: TerminalWatch) -> bool:
        """Ask people what is new, and tell the program their answers.

        Return whether all is seen to: people are asked, or have allowed it. Raises `LeaseLost`.
        """
        if self._open is None:
            known = await self._fleet.asks.of_session(self._held.sid)
            self._open = {each.id for each in known if each.turn == self._held.place.turn}
        if watch.activity == "unknown":  # so is what it asks
            return bool(self._open)
        place = self._held.place
        wanted = {id_of(place.path, each.id): each for each in watch.requests}
        for name in self._open - wanted.keys():
            await self._asks.retract(name, ANSWERED)
        self._open &= wanted.keys()
        is_allowed = False
        for name, event in wanted.items():
            told = "open" if name in self._open else await self._ask(name, event)
            if told == "open":
                self._open.add(name)
                await self._answer(name, event, watch)
            elif told == "allowed":
                is_allowed = True
                await _tell(watch, event.id, Decision("allow"))
        return is_allowed or bool(self._open)

    async def _ask(self, name: str, event: PermissionEvent) -> str:
        """Ask people; return what `TurnAsks.ask()` does, or "nobody" where no one may be asked."""
        config, session, place = self._config(), self._held.session, self._held.place
        if not can_be_asked(config, session):
            return "nobody"
        event = as_shown(replace(event, where=place.cwd), Scrubber(secrets_of(config)))
        request = Request(
            id=name,
            session=session,
            turn=place.turn,
            tool=tool_of(event),
            what=event.shown,
            where=event.where,
            deliver="channel",
            chat=approvals_of(config, session).chat,
            people=place.people,
        )
        text = words_of(request, about=of_other_chat(request, ()), is_again=False)
        told, _ = await self._asks.ask(
            request,
            digest=name,
            rule=rule_of(event),
            is_again=False,
            hold_ms=HOLD_MS,
            keep_ms=config.record.keep_ms,
            shown=shown_by(request, attempt=1, text=text),
        )
        return told

    async def _answer(self, name: str, event: PermissionEvent, watch: TerminalWatch) -> None:
        """Tell the program what people have answered; once more if it may not have heard it."""
        state, answer = await self._asks.take(name, is_heard=True)
        if answer is None or state != "given":
            return
        is_denied = answer.verdict == "deny"
        await _tell(watch, event.id, denial_by(answer) if is_denied else Decision("allow"))


async def _tell(watch: TerminalWatch, request: str, decision: Decision) -> None:
    with contextlib.suppress(OSError):  # as long as it asks, it is told again
        await watch.answer(request, decision)
