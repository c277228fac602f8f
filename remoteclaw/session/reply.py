"""A turn's reply: complete messages on the reply stream, and live text while the turn runs.

The message decides whether the reply goes to its channel, or only to the caller that waits for it.
"""

import asyncio
import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any

from remoteclaw.bridge.delivery import compaction_call
from remoteclaw.bridge.time_limits import PeopleWait
from remoteclaw.clock import now_ms
from remoteclaw.config.model import Price
from remoteclaw.errors import RedisRefused, RedisUnavailable
from remoteclaw.events import MAKES_ROOM, AgentUsage, PlanStep, ToolActivity
from remoteclaw.fleet.replies.reply import reply_payload
from remoteclaw.fleet.sessions.usage import Usage
from remoteclaw.fleet.turns.lease import Lease
from remoteclaw.fleet.turns.turn import LIVE_MS
from remoteclaw.messages import ReplyPayload, ToolCall, Turn, origin_of
from remoteclaw.profiles import profile_of

#: How often unchanged live text is written again, in seconds: well before it expires.
REFRESH_S = LIVE_MS / 3 / 1000
#: Live text up to this length is updated as often as the channel allows, in characters; longer
#: text less often.
LONG_TEXT_CHARS = 32_000
#: Live text lists at most `MAX_TOOLS` tools, the last changed ones. For the last
#: `MAX_DETAILED_TOOLS` of them it has the beginning of input and output, `MAX_DETAIL_CHARS`
#: characters of each. Each update sends all of it: these limits keep it below 12,000 characters.
MAX_TOOLS, MAX_DETAILED_TOOLS, MAX_DETAIL_CHARS = 20, 3, 1_000


class TurnReply:
    """The messages of a turn, the agent's and RemoteClaw's own, numbered from 0."""

    def __init__(self, lease: Lease, turn: Turn) -> None:
        self._turn = turn
        self._lease = lease
        self._goes_to_channel = turn.entries[-1].deliver == "channel"
        self._is_awaited = turn.entries[-1].waits or not self._goes_to_channel
        self._live: tuple[int, str] = (0, "")
        """The index of the unfinished message, and its text so far."""
        self._activity: tuple[ToolActivity, ...] = ()
        self._tools: dict[str, ToolCall] = {}
        """The tool calls by the CLI's id of the call, the last changed one last."""
        self.plan: tuple[PlanStep, ...] = ()
        """The agent's current plan."""
        self.spent = Usage()
        """The usage of this attempt's finished calls of the agent."""
        self._usage = AgentUsage()
        """The tokens of the running call so far."""
        self._call_since_ms: int | None = None
        """The start of the running call, as if the time in which it waited for people had been
        before it; None if no call runs."""
        self.price: Price | None = None
        """The price of the running call's tokens; None if it is not known."""
        self._last_message = ""
        """The text of the last complete message."""
        self.since_ms = now_ms()
        """The start of this attempt at the turn."""
        self._people = PeopleWait()
        self._origin = origin_of(turn.entries)
        self.last_text = ""
        """The text of the last message, complete or not, that is not blank."""
        self.has_changed = asyncio.Event()
        """Set when `last_text` or `last_tool` changes; `keep_noting()` clears it."""
        self._live_changed = asyncio.Event()
        self.notices: list[ReplyPayload] = []
        """RemoteClaw's notices before the agent's answer."""
        self.next_index = 0
        """The index of the next message that is not on the reply stream yet."""

    @contextlib.contextmanager
    def waiting_for_people(self) -> Iterator[None]:
        """Count the time of the block as that of people, not as that of the turn's work."""
        self._people.begin()
        try:
            yield
        finally:
            self._people.end()

    @contextlib.contextmanager
    def making_room(self) -> Iterator[None]:
        """Show a compaction during the block, like a tool."""
        since_ms = now_ms()
        self.show_activity((ToolActivity(MAKES_ROOM, "", since_ms),))
        call = compaction_call(since_ms)
        self.show_tool(call)
        try:
            yield
        finally:
            self.show_activity(())
            self.show_tool(replace(call, seconds=(now_ms() - since_ms) / 1000))

    async def send_notice(self, text: str) -> None:
        """Send a notice before the agent's answer."""
        payload = ReplyPayload(text, index=self.next_index, is_ours=True)
        self.notices.append(payload)
        await self.publish(payload)

    async def publish(self, payload: ReplyPayload) -> None:
        """Put one complete message on the reply stream, while the turn goes on."""
        self._set_last_text(payload.text)
        if self._is_awaited:  # the outcome has it at the end; until then, live text has it
            place = {"index": payload.index, "text": payload.text, "is_complete": True}
            with contextlib.suppress(RedisUnavailable, RedisRefused):
                await self._lease.turns.publish_live_text(
                    {**self._shown(), **place}, usage=self.spent_now
                )
        if self._goes_to_channel:  # later: the page removes the live text when the message arrives
            await self._lease.turns.publish(payload.index, self._stream_payload(payload))
        self._last_message = payload.text
        self.next_index = payload.index + 1
        if self._live[0] < self.next_index:
            self._live = (self.next_index, "")

    def notice_payload(self, text: str) -> dict[str, Any] | None:
        """Return a notice for the reply stream; None if the reply does not go to the channel."""
        if not self._goes_to_channel:
            return None
        return self._stream_payload(ReplyPayload(text, index=self.next_index, is_ours=True))

    def final_payloads(
        self,
        payloads: Sequence[ReplyPayload],
        entries: Sequence[str],
        *,
        status: str,
        usage: Usage | None,
    ) -> list[dict[str, Any]]:
        """Return the messages that are not on the reply stream yet.

        The last of them names the answered `entries`, the turn's status and its usage.
        """
        if not self._goes_to_channel:
            return []
        unpublished = [payload for payload in payloads if payload.index >= self.next_index]
        # An empty last message marks the end of the reply.
        *others, last = unpublished or [ReplyPayload("", index=self.next_index)]
        plain_usage = usage.plain() if usage else None
        ending = {**self._stream_payload(last, entries), "status": status, "usage": plain_usage}
        return [*map(self._stream_payload, others), ending]

    # -- live ----------------------------------------------------------------------------------

    def show(self, index: int, text: str) -> None:
        """Show the text so far of the message with this index."""
        self._live = (index, text)
        self._live_changed.set()
        self._set_last_text(text)

    def show_activity(self, tools: tuple[ToolActivity, ...]) -> None:
        """Show the tools that are running, as a part of live text."""
        self._activity = tools
        self._live_changed.set()

    @property
    def current_text(self) -> str:
        """The text of the unfinished message; without one, that of the last complete message."""
        return self._live[1] or self._last_message

    @property
    def current_tool(self) -> str:
        """The name and argument of the running or last tool; empty if no tool was used."""
        calls = [*self._tools.values()]
        running = [call for call in calls if call.seconds is None] or calls
        return f"{running[-1].name}: {running[-1].argument}".rstrip(": ") if running else ""

    def show_tool(self, call: ToolCall) -> None:
        """Show a tool call, running or ended, to the session's followers."""
        self._tools.pop(call.id, None)
        self._tools[call.id] = call
        if len(self._tools) > MAX_TOOLS:
            del self._tools[next(iter(self._tools))]
        self._live_changed.set()
        self.has_changed.set()

    def show_plan(self, steps: tuple[PlanStep, ...]) -> None:
        """Show the agent's plan."""
        self.plan = steps
        self._live_changed.set()

    def begin_call(self, price: Price | None) -> None:
        """Note that a call of the agent begins; `price` is that of the model, if it is known."""
        self.price = price
        self._call_since_ms = now_ms() - self._waited_ms

    @property
    def _waited_ms(self) -> int:
        return round(self._people.seconds * 1000)

    def show_usage(self, usage: AgentUsage) -> None:
        """Show the tokens that the running call of the agent has used so far."""
        self._usage = usage
        self._live_changed.set()

    def count_usage(self, usage: Usage) -> None:
        """Add the usage of a call of the agent that has ended."""
        self.spent += usage
        self._usage, self._call_since_ms = AgentUsage(), None

    @property
    def spent_now(self) -> Usage:
        """The usage of this attempt so far."""
        if self._call_since_ms is None:
            return self.spent
        since_ms = self._call_since_ms + self._waited_ms
        return self.spent + Usage.of_tokens(self._usage, self.price, since_ms=since_ms)

    @property
    def last_tool(self) -> ToolCall | None:
        """The last changed tool call; None if no tool was used."""
        return next(reversed(self._tools.values()), None)

    def _set_last_text(self, text: str) -> None:
        if text.strip():
            self.last_text = text
            self.has_changed.set()

    async def keep_showing(self) -> None:
        """Write the turn's live text until cancelled: text so far, running tools, plan and tokens.

        It is written no more often than the channel allows, and again before it expires in Redis.
        """
        every_s = profile_of(self._turn.place.provider).live_every_s
        while True:
            # The pause comes first, because a quick answer needs no live text. Each update sends
            # the whole text, so a long text is updated less often.
            await asyncio.sleep(every_s * max(1.0, len(self._live[1]) / LONG_TEXT_CHARS))
            self._live_changed.clear()
            with contextlib.suppress(RedisUnavailable, RedisRefused):
                shown, tools = self._shown(), self._shown_tools()
                await self._lease.turns.publish_live_text(
                    {**shown, "tools": tools},
                    usage=self.spent_now,
                    for_chat=shown if self._goes_to_channel else None,
                )
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(REFRESH_S):
                    await self._live_changed.wait()

    def _shown(self) -> dict[str, Any]:
        index, text = self._live
        is_quiet = self._lease.state.is_quiet
        place = self._turn.place
        return {
            "sid": self._lease.sid,
            "channel_id": place.chat,
            "thread_id": place.thread,
            "turn": self._turn.id,
            "attempt": self._turn.attempt,
            "index": index,
            "text": text,
            "since_ms": self.since_ms + self._waited_ms,
            "is_quiet": is_quiet,
            "activity": [] if is_quiet else [asdict(tool) for tool in self._activity],
            "plan": [] if is_quiet else [asdict(step) for step in self.plan],
            "tokens": self.spent_now.new_tokens,
            "origin": self._origin,
            "messages": len(self._turn.left_out) + len(self._turn.entries),
        }

    def _shown_tools(self) -> list[dict[str, Any]]:
        """Return the tools with their details, for clients that may also read the record."""
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
                    {
                        "input": call.input[:MAX_DETAIL_CHARS],
                        "output": call.output[:MAX_DETAIL_CHARS],
                    }
                    if number >= len(calls) - MAX_DETAILED_TOOLS
                    else {}
                ),
            }
            for number, call in enumerate(calls)
        ]

    def _stream_payload(self, payload: ReplyPayload, entries: Sequence[str] = ()) -> dict[str, Any]:
        """Return a message for the reply stream."""
        message = self._turn.entries[-1].message
        # Only people's messages are in the chat, so no other message can be quoted.
        unknown = {entry.message.id for entry in self._turn.entries if entry.origin != "chat"}
        quoted = payload.reply_to_id
        if self._turn.entries[-1].moved and payload.index == len(self.notices):
            quoted = quoted or message.id  # later messages may stand in between
        return reply_payload(
            self._turn.place,
            payload.text,
            sid=self._lease.sid,
            turn=self._turn.id,
            attempt=self._turn.attempt,
            index=payload.index,
            is_error=payload.is_error,
            is_notice=payload.is_ours,
            reply_to_id=None if quoted in unknown else quoted,
            attachments=payload.attachments,
            code_file_lines=payload.code_file_lines,
            entries=entries,
            origin=self._origin,
            asked_by=message.from_ if self._turn.entries[-1].origin == "chat" else None,
        )
