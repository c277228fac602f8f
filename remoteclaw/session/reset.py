"""The end of a session's conversation, on request or by age.

It belongs to a turn: in all attempts at the turn, it happens once, before the agent is asked.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from remoteclaw.bridge.freshness import kind_of, staleness
from remoteclaw.config.model import Config
from remoteclaw.fleet.commands import command_of
from remoteclaw.fleet.lease import Lease
from remoteclaw.messages import Entry

#: Why a conversation ends by itself.
BY_AGE = ("daily", "idle")


class Resets:
    """Ends the conversations of one session under one lease."""

    def __init__(
        self, lease: Lease, config: Config, *, discard_agent: Callable[[], Awaitable[None]]
    ) -> None:
        """`discard_agent` ends the session's agent, whether it is at hand or parked."""
        self._lease = lease
        self._discard_agent = discard_agent
        self._config = config
        self._keep_ms = config.record.keep_ms
        self._keep = config.sessions.keep_archived if self._keep_ms else 0

    async def why(self, turn: str, entries: Sequence[Entry], *, was_asked: bool) -> str | None:
        """Return why a turn of these entries begins a new conversation; None if it doesn't.

        It is the same in each attempt at the turn. If the agent `was_asked` before, the messages
        that joined the turn since then don't count.
        """
        command = command_of(entries[0])
        if command and command.name == "reset":
            return command.word
        if self._lease.state.reset_turn == turn:
            return self._lease.state.reset_reason
        if was_asked:
            return None
        person = next((entry for entry in entries if entry.origin == "chat"), None)
        if person is None:
            return None
        last_ms = self._lease.state.last_heard_ms
        kind = kind_of(self._lease.session, [person.message])
        policy = self._config.reset_of(self._lease.session.provider, kind)
        why = staleness(policy, last_ms=last_ms, now_ms=person.at_ms)
        # A session without a past has nothing to end.
        has_past = why and (self._lease.has_conversation or await self._lease.recorded())
        return why if has_past else None

    async def end_conversation(self, turn: str, why: str, first: Entry) -> None:
        """Begin a new conversation, or a copy of one, once in all attempts at the turn.

        Its `first` entry says of which. What it has set going is stopped if the end was requested,
        and goes on if it comes by age.
        """
        if self._lease.state.reset_turn == turn:
            return  # what there is by now is of the new conversation
        # First the agent: one that is parked is found by what the reset forgets.
        await self._discard_agent()
        await self._lease.reset(
            turn,
            why,
            keep_ms=self._keep_ms,
            keep=self._keep,
            stops_tasks=why not in BY_AGE,
            copy_of=first.copy_of,
            notes=first.notes,
        )

    def in_new_conversation(self, entries: Sequence[Entry]) -> tuple[Entry, ...]:
        """Return a turn's entries as its agent is to see them.

        Without the command that began the conversation, and, once a conversation of the session
        was ended, without what was said in the thread before.
        """
        first, *rest = entries
        command = command_of(first)
        if command and not command.is_alone:
            first = _with(first, text=command.rest)
        shown = (first, *rest)
        if self._lease.state.reset_turn is None:
            return shown
        return tuple(_with(entry, thread_context=None) for entry in shown)


def _with(entry: Entry, **changes: object) -> Entry:
    return replace(entry, message=entry.message.model_copy(update=changes))
