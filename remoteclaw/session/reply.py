"""A turn's reply: complete messages on the reply stream, live text beside it.

Where it goes is decided by the message: to its channel, or only to the caller that waits for it.
"""

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from remoteclaw.clock import now_ms
from remoteclaw.errors import RedisRefused, RedisUnavailable
from remoteclaw.events import AgentUsage, PlanStep, ToolActivity
from remoteclaw.fleet.lease import Lease
from remoteclaw.fleet.reply import reply_payload
from remoteclaw.fleet.turn import LIVE_MS
from remoteclaw.fleet.usage import Usage
from remoteclaw.messages import ReplyPayload, ToolCall, Turn, origin_of
from remoteclaw.profiles import profile_of
from remoteclaw.protocols import Place

#: How often live text is written again that stays the same, in seconds: before it is forgotten.
AGAIN_S = LIVE_MS / 3 / 1000
#: How long live text may be that is shown as often as the channel takes it, in characters.
LONG = 32_000
#: Of how many tools live text tells, the ones that changed last; of how many of them it has
#: arguments and results, and how much of each, in characters. All of it is sent each time: with
#: this it stays below 12,000 characters, which is little beside a `LONG` text.
MAX_TOOLS, MAX_WHOLE, MAX_SHOWN = 20, 3, 1_000


class TurnReply:
    """The messages of a turn, numbered from 0, the agent's and RemoteClaw's."""

    def __init__(self, lease: Lease, turn: Turn) -> None:
        self._turn = turn
        self._lease = lease
        self._goes_to_channel = turn.entries[-1].deliver == "channel"
        self._live: tuple[int, str] = (0, "")
        self._activity: tuple[ToolActivity, ...] = ()
        self._tools: dict[str, ToolCall] = {}
        """By the CLI's id of the call, the one that changed last at the end."""
        self.plan: tuple[PlanStep, ...] = ()
        """The agent's plan as it was shown last."""
        self._tokens = 0
        self._last_said = ""
        """The last complete message of the agent's."""
        self.since_ms = now_ms()
        """The start of this attempt at the turn."""
        self._origin = origin_of(turn.entries)
        self.words = ""
        """What was said last, as far as it has come."""
        self.has_news = asyncio.Event()
        """Whether there are words or tools that `doing` has not told of yet."""
        self._live_changed = asyncio.Event()
        self.said: list[ReplyPayload] = []
        """The notices before the agent's answer."""
        self.next_index = 0
        """The number of the first message that is not on the reply stream yet."""

    async def say(self, words: str) -> None:
        """Say something before the agent does."""
        payload = ReplyPayload(words, index=self.next_index)
        self.said.append(payload)
        await self.publish(payload)

    async def publish(self, payload: ReplyPayload) -> None:
        """Put one complete message on the reply stream, while the turn goes on."""
        self._say_last(payload.text)
        if self._goes_to_channel:
            await self._lease.turns.publish(payload.index, self._on_stream(payload))
        else:  # the outcome alone has it, at the end: who follows the answer reads it here
            place = {"index": payload.index, "text": payload.text, "is_complete": True}
            with contextlib.suppress(RedisUnavailable, RedisRefused):
                await self._lease.turns.show({**self._shown(), **place})
        self._last_said = payload.text
        self.next_index = payload.index + 1
        if self._live[0] < self.next_index:
            self._live = (self.next_index, "")

    def aside(self, words: str) -> dict[str, Any] | None:
        """Return a notice as it goes on the reply stream; None if the reply goes elsewhere."""
        if not self._goes_to_channel:
            return None
        return self._on_stream(ReplyPayload(words, index=self.next_index))

    def rest(
        self,
        payloads: Sequence[ReplyPayload],
        entries: Sequence[str],
        *,
        status: str,
        usage: Usage | None,
    ) -> list[dict[str, Any]]:
        """Return what still has to go on the reply stream.

        The last one names the `entries`, and says how the turn ended and what it took.
        """
        if not self._goes_to_channel:
            return []
        rest = [payload for payload in payloads if payload.index >= self.next_index]
        # A reply without text says no more than "that was all".
        *most, last = rest or [ReplyPayload("", index=self.next_index)]
        taken = usage.plain() if usage else None
        ending = {**self._on_stream(last, entries), "status": status, "usage": taken}
        return [*map(self._on_stream, most), ending]

    # -- live ----------------------------------------------------------------------------------

    def show(self, index: int, text: str) -> None:
        """Show the message with this index as far as it has come."""
        self._live = (index, text)
        self._live_changed.set()
        self._say_last(text)

    def show_activity(self, tools: tuple[ToolActivity, ...]) -> None:
        """Show the tools that the agent uses at the moment, beside the live text."""
        self._activity = tools
        self._live_changed.set()

    @property
    def now_said(self) -> str:
        """What the agent says, or has said last."""
        return self._live[1] or self._last_said

    @property
    def now_doing(self) -> str:
        """The tool that runs, or ran last, and for what; empty if there was none."""
        calls = [*self._tools.values()]
        running = [call for call in calls if call.seconds is None] or calls
        return f"{running[-1].name}: {running[-1].argument}".rstrip(": ") if running else ""

    def show_tool(self, call: ToolCall) -> None:
        """Show a tool to those who follow the session, as far as its call has come."""
        self._tools.pop(call.id, None)
        self._tools[call.id] = call
        if len(self._tools) > MAX_TOOLS:
            del self._tools[next(iter(self._tools))]
        self._live_changed.set()
        self.has_news.set()

    def show_plan(self, steps: tuple[PlanStep, ...]) -> None:
        """Show the agent's plan."""
        self.plan = steps
        self._live_changed.set()

    def show_usage(self, usage: AgentUsage) -> None:
        """Show the tokens that the turn has taken so far."""
        self._tokens = usage.new_tokens
        self._live_changed.set()

    @property
    def last_tool(self) -> ToolCall | None:
        """The tool whose call has changed last."""
        return next(reversed(self._tools.values()), None)

    def _say_last(self, text: str) -> None:
        if text.strip():
            self.words = text
            self.has_news.set()

    async def keep_showing(self) -> None:
        """Show, until cancelled, that the turn runs, how far its answer has come, and what goes on.

        No more often than the channel can take it, and often enough that who comes later sees it.
        """
        every_s = profile_of(self._turn.session.provider).live_every_s
        while True:
            # First the pause: an answer that is complete by then needs no live text. A long text
            # is shown less often, so that it costs no more: each time, all of it is sent.
            await asyncio.sleep(every_s * max(1.0, len(self._live[1]) / LONG))
            self._live_changed.clear()
            with contextlib.suppress(RedisUnavailable, RedisRefused):
                shown, tools = self._shown(), self._shown_tools()
                await self._lease.turns.show(
                    {**shown, "tools": tools}, for_chat=shown if self._goes_to_channel else None
                )
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(AGAIN_S):
                    await self._live_changed.wait()

    def _shown(self) -> dict[str, Any]:
        index, text = self._live
        is_quiet = self._lease.state.is_quiet
        message = self._turn.entries[-1].message
        return {
            "sid": self._lease.sid,
            "channel_id": message.channel_id,
            "thread_id": message.thread_id,
            "turn": self._turn.id,
            "attempt": self._turn.attempt,
            "index": index,
            "text": text,
            "since_ms": self.since_ms,
            "is_quiet": is_quiet,
            "activity": [] if is_quiet else [asdict(tool) for tool in self._activity],
            "plan": [] if is_quiet else [asdict(step) for step in self.plan],
            "tokens": self._tokens,
            "origin": self._origin,
            "messages": len(self._turn.left_out) + len(self._turn.entries),
        }

    def _shown_tools(self) -> list[dict[str, Any]]:
        """Return the tools for those who may read the record, too."""
        calls = [] if self._lease.state.is_quiet else [*self._tools.values()]
        return [
            {
                "id": call.id,
                "tool": call.name,
                "argument": call.argument,
                "since_ms": call.since_ms,
                "seconds": call.seconds,
                "is_error": call.is_error,
                **(
                    {"input": call.input[:MAX_SHOWN], "output": call.output[:MAX_SHOWN]}
                    if number >= len(calls) - MAX_WHOLE
                    else {}
                ),
            }
            for number, call in enumerate(calls)
        ]

    def _on_stream(self, payload: ReplyPayload, entries: Sequence[str] = ()) -> dict[str, Any]:
        message = self._turn.entries[-1].message
        # Only what people have sent stands in the chat.
        unknown = {entry.message.id for entry in self._turn.entries if entry.origin != "chat"}
        quoted = payload.reply_to_id
        if self._turn.entries[-1].moved and payload.index == len(self.said):
            quoted = quoted or message.id  # the chat has gone on meanwhile
        return reply_payload(
            Place(message.channel_id, message.thread_id),
            payload.text,
            sid=self._lease.sid,
            turn=self._turn.id,
            attempt=self._turn.attempt,
            index=payload.index,
            is_error=payload.is_error,
            reply_to_id=None if quoted in unknown else quoted,
            attachments=payload.attachments,
            entries=entries,
            origin=self._origin,
        )
