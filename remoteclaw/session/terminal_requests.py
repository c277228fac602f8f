"""Requests of a terminal's program, which people can answer in the chat instead of the terminal.

They are stored like a turn's requests, under the lease of the terminal's holder. The program keeps
showing its dialog; the first answer, in the chat or by keys, counts.
"""

import contextlib
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from remoteclaw.bridge.permission_text import as_shown, place_shown
from remoteclaw.bridge.scrubber import Scrubber, secrets_of
from remoteclaw.config.model import Config
from remoteclaw.config.requests import can_be_asked, permission_holders, request_settings
from remoteclaw.events import PermissionEvent
from remoteclaw.fleet.blobs import Blobs
from remoteclaw.fleet.requests.card import make_card, other_chat_note, with_file
from remoteclaw.fleet.requests.request import Request, id_of
from remoteclaw.fleet.requests.requests import Requests
from remoteclaw.fleet.terminals.state import HeldLease
from remoteclaw.fleet.terminals.terminals import Terminals
from remoteclaw.protocols import Decision, TerminalWatch
from remoteclaw.session.permission import denial_by, request_text, rule_of, tool_of

ANSWERED = "It was answered in the terminal."
#: How long a request may be open, in milliseconds: longer than any dialog. It is closed with the
#: dialog, or with the terminal's turn.
HOLD_MS = 30 * 86_400_000


class TerminalRequests:
    """The requests of one terminal's program."""

    def __init__(
        self,
        terminals: Terminals,
        requests: Requests,
        blobs: Blobs,
        held: HeldLease,
        config: Callable[[], Config],
    ) -> None:
        """`config` returns the current configuration."""
        self._stored = requests
        self._blobs = blobs
        self._held = held
        self._config = config
        self._requests = terminals.requests(held)
        self._open: set[str] | None = None
        """The ids of the requests that people can answer; None until they are read from Redis."""

    async def sync(self, watch: TerminalWatch) -> bool:
        """Ask people about the program's new dialogs, and pass their answers to the program.

        Return whether the program waits for people who are asked, or was just allowed to go on.
        Raises `LeaseLost`.
        """
        if self._open is None:
            requests = await self._stored.of_session(self._held.sid)
            self._open = {each.id for each in requests if each.turn == self._held.place.turn}
        if watch.activity == "unknown":  # so are its dialogs
            return bool(self._open)
        place = self._held.place
        current = {id_of(place.path, each.id): each for each in watch.requests}
        for name in self._open - current.keys():
            await self._requests.retract(name, ANSWERED)
        self._open &= current.keys()
        is_allowed = False
        for name, event in current.items():
            state = "open" if name in self._open else await self._ask(name, event)
            if state == "open":
                self._open.add(name)
                await self._pass_on_answer(name, event, watch)
            elif state == "allowed":
                is_allowed = True
                await _send_decision(watch, event.id, Decision("allow"))
        return is_allowed or bool(self._open)

    async def _ask(self, name: str, event: PermissionEvent) -> str:
        """Ask people; return the state of the request, or "nobody" if no one can be asked."""
        session, place = self._held.session, self._held.place
        config = await self._stored.chats.config_of(self._config(), session)
        if not can_be_asked(config, session, place.people):
            return "nobody"
        event = as_shown(replace(event, workspace=place.cwd), Scrubber(secrets_of(config)))
        request = Request(
            id=name,
            session=session,
            turn=place.turn,
            tool=tool_of(event),
            what=event.description,
            where=place_shown(event.place),
            incomplete=event.incomplete,
            deliver="channel",
            here=session.place,
            chat=request_settings(config, session).chat,
            people=place.people,
        )
        store = partial(self._blobs.put, session.sid, chat=session)
        request = await with_file(request, event.full_description, store)
        text = request_text(request, about=other_chat_note(request, ()), is_again=False)
        state, _ = await self._requests.ask(
            request,
            holders=permission_holders(config, session, place.people),
            digest=name,
            rule=rule_of(event),
            is_again=False,
            hold_ms=HOLD_MS,
            keep_ms=config.record.keep_ms,
            shown=make_card(request, attempt=1, text=text),
        )
        return state

    async def _pass_on_answer(
        self, name: str, event: PermissionEvent, watch: TerminalWatch
    ) -> None:
        """Send the program the answer of people, again as long as it shows the dialog."""
        state, answer = await self._requests.take(name, is_heard=True)
        if answer is None or state != "given":
            return
        is_denied = answer.verdict == "deny"
        decision = denial_by(answer) if is_denied else Decision("allow")
        await _send_decision(watch, event.id, decision)


async def _send_decision(watch: TerminalWatch, request: str, decision: Decision) -> None:
    with contextlib.suppress(OSError):  # it is sent again as long as the dialog is shown
        await watch.answer(request, decision)
