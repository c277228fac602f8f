"""The end of a session's conversation, when somebody asks for it: the next turn begins anew.

It belongs to a turn: whatever happens to that turn, its conversation is ended once, before its
agent is asked.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from remoteclaw.config import RecordConfig, SessionsConfig
from remoteclaw.conversation.commands import Command, command_in, words_for
from remoteclaw.fleet.lease import Lease
from remoteclaw.messages import Entry

__all__ = ["RESET", "Resets"]

RESET = "This is a new conversation: what we said before is put away."


class Resets:
    """Ends the conversations of one session under one lease."""

    def __init__(
        self,
        lease: Lease,
        sessions: SessionsConfig,
        record: RecordConfig,
        *,
        discard_agent: Callable[[], Awaitable[None]],
    ) -> None:
        """`discard_agent` ends the session's agent, whether it is at hand or parked."""
        self._lease = lease
        self._sessions = sessions
        self._record = record
        self._discard_agent = discard_agent
        self._words = words_for("reset", sessions.reset_triggers)

    def command_of(self, entry: Entry) -> Command | None:
        """Return the command that an entry is; None if it is for the agent."""
        return command_in(entry, self._words)

    def why(self, entries: Sequence[Entry]) -> str | None:
        """Return why a turn of these entries begins a new conversation; None if it doesn't."""
        command = self.command_of(entries[0])
        return command.word if command else None

    async def end_conversation(self, turn: str, why: str) -> None:
        """Have the turn begin a new conversation, once in all its attempts.

        Whatever belongs to a conversation and must not outlive it is ended here.
        """
        if self._lease.state.get("reset") == turn:
            return  # what there is by now is of the new conversation
        # First the agent: one that is parked is found by what the reset forgets.
        await self._discard_agent()
        keep_ms = self._record.keep_ms
        keep = self._sessions.keep_archived if keep_ms else 0
        await self._lease.reset(turn, why, keep_ms=keep_ms, keep=keep)

    def in_new_conversation(self, entries: Sequence[Entry]) -> tuple[Entry, ...]:
        """Return a turn's entries as its agent is to see them.

        Without the command that began the conversation, and without what was said in the thread
        before, once a conversation of the session was ended: an agent would go on from that.
        """
        first, *rest = entries
        command = self.command_of(first)
        if command and not command.is_alone:
            first = _with(first, text=command.rest)
        shown = (first, *rest)
        if "reset" not in self._lease.state:
            return shown
        return tuple(_with(entry, thread_context=None) for entry in shown)

    def is_alone(self, entries: Sequence[Entry]) -> bool:
        """Whether a turn is only about the end of the conversation, so that no agent is asked."""
        command = self.command_of(entries[0])
        return command is not None and command.is_alone and len(entries) == 1


def _with(entry: Entry, **changes: object) -> Entry:
    return replace(entry, message=entry.message.model_copy(update=changes))
