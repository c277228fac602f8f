"""Resets of a session's conversation, on request or by age.

A reset belongs to a turn: it happens once in all attempts at the turn, before the agent is asked.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from remoteclaw.bridge.freshness import kind_of, staleness
from remoteclaw.config.model import Config
from remoteclaw.fleet.budgets.standing import tree_keys
from remoteclaw.fleet.turns.commands import command_of
from remoteclaw.fleet.turns.lease import Lease
from remoteclaw.messages import Entry

#: The reasons of resets by age, which nobody has requested.
BY_AGE = ("daily", "idle")


class Resets:
    """Resets the conversation of one session under one lease."""

    def __init__(
        self, lease: Lease, config: Config, *, discard_agent: Callable[[], Awaitable[None]]
    ) -> None:
        """`discard_agent` ends the session's agent, whether it is attached or parked."""
        self._lease = lease
        self._discard_agent = discard_agent
        self._config = config
        self._keep_ms = config.record.keep_ms
        self._keep = config.sessions.keep_archived if self._keep_ms else 0

    async def reason_for(
        self, turn: str, entries: Sequence[Entry], *, was_asked: bool
    ) -> str | None:
        """Return why a turn of these entries begins a new conversation; None if it doesn't.

        The reason is the same in every attempt at the turn. Once the agent `was_asked`, messages
        that have joined the turn can't cause a reset by age.
        """
        command = command_of(entries[0])
        if command and command.name == "reset":
            return command.word
        if self._lease.state.reset_turn == turn:
            return self._lease.state.reset_reason
        if was_asked:
            return None
        chat_entry = next((entry for entry in entries if entry.origin == "chat"), None)
        if chat_entry is None:
            return None
        last_ms = self._lease.state.last_heard_ms
        kind = kind_of(self._lease.session, [chat_entry.message])
        policy = self._config.reset_of(chat_entry.message.provider, kind)
        reason = staleness(policy, last_ms=last_ms, now_ms=chat_entry.at_ms)
        # A session without a conversation has nothing to end.
        has_past = reason and (self._lease.has_conversation or await self._lease.read_record())
        return reason if has_past else None

    async def end_conversation(self, turn: str, reason: str, first: Entry) -> None:
        """Reset the conversation, once in all attempts at the turn.

        The turn's `first` entry may name another conversation that the new one begins as a copy of.
        The conversation's tasks are stopped if the reset was requested, and continue if it is by
        age.
        """
        if self._lease.state.reset_turn == turn:
            return  # an earlier attempt has reset it: this is the new conversation
        # The agent ends first, because the reset removes the reference to a parked agent.
        await self._discard_agent()
        await self._lease.reset(
            turn,
            reason,
            keep_ms=self._keep_ms,
            keep=self._keep,
            stops_tasks=reason not in BY_AGE,
            copy_of=first.copy_of,
            notes=first.notes,
            budgets=tree_keys(self._config, self._lease.sid),
        )

    def in_new_conversation(self, entries: Sequence[Entry]) -> tuple[Entry, ...]:
        """Return a turn's entries as its agent sees them.

        The command that began the conversation is removed. If the session has ever been reset,
        the earlier messages of the chat thread are removed, too.
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
