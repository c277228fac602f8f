"""A turn's reply: complete messages on the reply stream, live text beside it.

Where the reply goes is decided by the message: to its channel, or only to whoever waits for it.
"""

import asyncio
import contextlib
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from remoteclaw.errors import RedisRefused, RedisUnavailable
from remoteclaw.events import ToolActivity
from remoteclaw.fleet.inbound import encode_entry
from remoteclaw.fleet.lease import Finished, Lease, Owed, Record
from remoteclaw.fleet.replies import reply_payload
from remoteclaw.fleet.usage import Usage
from remoteclaw.messages import (
    ChannelMessage,
    Deliver,
    Provenance,
    ReplyPayload,
    SessionKey,
    Turn,
    hops_of,
    people_of,
    via_of,
)
from remoteclaw.profiles import profile_of

__all__ = ["Answer"]

#: How much of a result another session gets, in characters.
MOST_RESULT = 100_000
CUT = "(… The rest is left out: sessions_history of {session} has more.)"
NO_RESULT = "(It ended without saying anything.)"


class Answer:
    """What is said in a turn, numbered from 0, whoever says it."""

    def __init__(self, lease: Lease, turn: Turn) -> None:
        self.turn = turn
        self._lease = lease
        self._goes_to_channel = turn.entries[-1].deliver == "channel"
        self._said: list[ReplyPayload] = []
        self._live: tuple[int, str] = (0, "")
        self._activity: tuple[ToolActivity, ...] = ()
        self._live_changed = asyncio.Event()
        self.next_index = 0
        """The number of the first message that is not on the reply stream yet."""

    async def say(self, words: str) -> None:
        """Say something before the agent does."""
        payload = ReplyPayload(words, index=self.next_index)
        self._said.append(payload)
        await self.publish(payload)

    async def publish(self, payload: ReplyPayload) -> None:
        """Put one complete message on the reply stream, while the turn goes on."""
        if self._goes_to_channel:
            await self._lease.publish(payload.index, self._on_stream(payload, ()))
        self.next_index = payload.index + 1
        if self._live[0] < self.next_index:
            self._live = (self.next_index, "")

    def aside(self, words: str, *, after: int = 0) -> dict[str, Any] | None:
        """Return words of ours as they go on the reply stream, so many `after` the next message.

        None if the answer goes elsewhere.
        """
        if not self._goes_to_channel:
            return None
        return self._on_stream(ReplyPayload(words, index=self.next_index + after), ())

    def show(self, index: int, text: str) -> None:
        """Have the message with this index shown as far as it has come."""
        self._live = (index, text)
        self._live_changed.set()

    def show_activity(self, tools: tuple[ToolActivity, ...]) -> None:
        """Have the tools shown that the agent uses at the moment, beside the live text."""
        self._activity = tools
        self._live_changed.set()

    async def keep_showing(self) -> None:
        """Show the newest live text and activity until cancelled.

        No more often than the channel can take it.
        """
        if not self._goes_to_channel:
            return
        every_s = profile_of(self.turn.session.provider).live_every_s
        while True:
            await self._live_changed.wait()
            # First the pause: an answer that is complete by then needs no live text.
            await asyncio.sleep(every_s)
            self._live_changed.clear()
            index, text = self._live
            position = {"turn": self.turn.id, "attempt": self.turn.attempt, "index": index}
            with contextlib.suppress(RedisUnavailable, RedisRefused):
                activity = [asdict(tool) for tool in self._activity]
                await self._lease.show({**position, "text": text, "activity": activity})

    async def finish(
        self,
        status: str,
        payloads: Sequence[ReplyPayload],
        *,
        error: dict[str, Any] | None,
        agent_process: dict[str, Any] | None,
        steered: Sequence[str],
        answered: Sequence[str],
        blobs: Sequence[str],
        record: Record | None,
        has_heard: bool,
        usage: Usage | None,
    ) -> Finished:
        """End the turn: its outcome, its last messages and its entries are one step.

        `steered` are the entries that came during the turn and were answered with it, `answered`
        those that were before it failed. `blobs` are the files that came with all of them;
        `has_heard` tells whether an agent was asked what a person wrote, and `usage` what it took.
        """
        everything = [*self._said, *payloads]
        return await self._lease.finish(
            status,
            reply=[_in_outcome(payload) for payload in everything],
            error=error,
            agent_process=agent_process,
            first_index=self.next_index,
            payloads=self._rest(payloads, steered),
            steered=steered,
            answered=answered,
            blobs=blobs,
            record=record,
            owed=self._owed(status, everything),
            has_heard=has_heard,
            usage=usage,
        )

    def _owed(self, status: str, payloads: Sequence[ReplyPayload]) -> Owed | None:
        """Return the turn's result for the session that has started this one, if it gets one."""
        asked, state = self.turn.entries[-1], self._lease.state
        told = asked.provenance.parent if asked.provenance else None
        parent = SessionKey.parse(told) if told else state.parent
        if asked.deliver != "parent" or parent is None:
            return None
        session = self._lease.session
        # It goes by the name under which the task was begun, also when it was retried.
        run = f"{self._lease.sid}-{state.task_entry or self.turn.id}"
        text = "\n\n".join(payload.text for payload in payloads if payload.text)
        files = [file.name for payload in payloads for file in payload.attachments]
        if files:
            text += f"\n\n(It also made files, which stay there: {', '.join(files)}.)"
        if len(text) > MOST_RESULT:
            text = f"{text[:MOST_RESULT]}\n\n{CUT.format(session=session)}"
        message = ChannelMessage(
            id=f"result-{run}",
            text=text.strip() or NO_RESULT,
            from_=f"session:{self._lease.sid}",
            user_name=f"the session {session}",
            channel_id=parent.channel_id,
            provider=parent.provider,
            account=parent.account,
            thread_id=parent.thread,
            timestamp=int(time.time() * 1000),
        )
        provenance = Provenance(
            by=str(session),
            via=tuple(sid for sid in via_of(self.turn.entries) if sid != parent.sid),
            hops=hops_of(self.turn.entries) + 1,
            run=run,
            status=status,
            label=state.label,
        )
        deliver: Deliver = "parent" if parent.task else "channel"
        people = people_of(self.turn.entries)
        return Owed(parent, encode_entry(message, deliver, "result", provenance, people))

    def _rest(
        self,
        payloads: Sequence[ReplyPayload],
        steered: Sequence[str],
    ) -> list[dict[str, Any]]:
        """Return what still has to go on the reply stream; the last one names the entries."""
        if not self._goes_to_channel:
            return []
        rest = [payload for payload in payloads if payload.index >= self.next_index]
        # A reply without text says no more than "that was all".
        *most, last = rest or [ReplyPayload("", index=self.next_index)]
        ids = [*(entry.id for entry in (*self.turn.left_out, *self.turn.entries)), *steered]
        return [*(self._on_stream(payload, ()) for payload in most), self._on_stream(last, ids)]

    def _on_stream(self, payload: ReplyPayload, entries: Sequence[str]) -> dict[str, Any]:
        message = self.turn.entries[-1].message
        # Only what people have sent stands in the chat.
        unknown = {entry.message.id for entry in self.turn.entries if entry.origin != "chat"}
        return reply_payload(
            sid=self._lease.sid,
            turn=self.turn.id,
            attempt=self.turn.attempt,
            index=payload.index,
            channel_id=message.channel_id,
            thread_id=message.thread_id,
            text=payload.text,
            is_error=payload.is_error,
            reply_to_id=None if payload.reply_to_id in unknown else payload.reply_to_id,
            attachments=payload.attachments,
            entries=entries,
        )


def _in_outcome(payload: ReplyPayload) -> dict[str, Any]:
    """Return a message as whoever waits for the outcome reads it."""
    said: dict[str, Any] = {"text": payload.text, "is_error": payload.is_error}
    if payload.attachments:
        said["attachments"] = [attachment.model_dump() for attachment in payload.attachments]
    return said
