"""Delivery: an agent's events become messages for a chat, in chunks of the platform's size."""

import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import orjson

from remoteclaw.bridge.activity import Activity, shown_plan
from remoteclaw.bridge.chunks import Chunker
from remoteclaw.bridge.directives import Directives
from remoteclaw.clock import now_ms
from remoteclaw.errors import ErrorCategory
from remoteclaw.events import (
    AgentEvent,
    AgentRunResult,
    AnswerEndEvent,
    DoneEvent,
    ErrorEvent,
    FormEvent,
    NoticeEvent,
    PermissionEvent,
    PermissionWithdrawnEvent,
    PlanEvent,
    SteeredEvent,
    TextEvent,
    TextResetEvent,
    ThinkingEvent,
    ToolResultEvent,
    ToolUseEvent,
    UsageEvent,
)
from remoteclaw.messages import Attachment, ChannelMessage, ReplyPayload, ToolCall
from remoteclaw.protocols import BridgeCallbacks, Unit

#: How long an answer may become, in characters: an agent that runs wild must not fill Redis.
MAX_ANSWER = 1_000_000
#: How many of a turn's tool calls are kept, and how much of arguments and result, in characters:
#: what a person reads, and no more than 2.4 million for the worker to hold.
MAX_CALLS, MAX_INPUT, MAX_OUTPUT = 200, 4_000, 8_000
#: What is said before words that take the place of delivered ones.
BROKE_OFF = "(That broke off. This takes the place of what was said last:)"


@dataclass(frozen=True, slots=True)
class Delivered:
    """The outcome of a stream of events; the messages are the adapter's `payloads`."""

    run: AgentRunResult = field(default_factory=AgentRunResult)
    error: ErrorEvent | None = None
    """The last error that the agent reported."""
    has_ended: bool = False
    """False when the stream stopped without saying so."""
    steered: tuple[str, ...] = ()
    """The entries that the agent took up while it worked."""
    is_silent: bool = False
    """Whether the agent chose to say nothing."""
    tool_calls: tuple[ToolCall, ...] = ()
    """The tools that it used, in their order, the last `MAX_CALLS`."""
    answered: tuple[str, ...] = ()
    """The entries whose answer was complete before another one began."""
    forms: Mapping[str, str] = field(default_factory=dict)
    """What forms that were cancelled were to ask, the first one of each server."""
    ends_agent: bool = False
    """Whether the process can't be trusted with another turn."""


@dataclass(frozen=True, slots=True)
class Listeners:
    """The bridge's own reactions to a turn's events; all are optional."""

    take_files: Callable[[Sequence[str]], Awaitable[tuple[list[Attachment], list[str]]]] | None = (
        None
    )
    """Takes the files that an answer names; returns them, and words about those that can't be."""
    on_permission: Callable[[PermissionEvent, Callable[[], Awaitable[None]]], Awaitable[None]] | (
        None
    ) = None
    """Hears that the agent waits for a permission, which nothing waits for here. What it is given
    delivers what was said so far: people read that before they are asked."""
    on_withdrawn: Callable[[str], Awaitable[None]] | None = None
    """Hears that it doesn't any more."""
    label: Callable[[ToolUseEvent], tuple[str, str]] = lambda event: (event.tool_name, "")
    """Returns what chats are shown of a tool that runs."""
    head: Callable[[ToolUseEvent], tuple[str, str]] = lambda event: (event.tool_name, "")
    """Returns its name, and the argument that tells most."""
    scrub: Callable[[str, int], str] = lambda text, most: text[:most]
    """Returns so many characters of a text, without secrets."""


class DeliveryAdapter:
    """Turns a stream of events into payloads and calls back on the way, in the events' order."""

    def __init__(
        self,
        *,
        chunk_limit: int,
        chunk_unit: Unit = "characters",
        callbacks: BridgeCallbacks,
        first_index: int,
        messages: Mapping[str, ChannelMessage],
    ) -> None:
        """`messages` are those that the agent may quote, by entry; the last one is answered."""
        self._listeners = Listeners()
        self._asked = list(messages)
        """The entries that the agent has taken up."""
        self._new_chunker = functools.partial(Chunker, chunk_limit, chunk_unit)
        self._chunker = self._new_chunker()
        self._directives = Directives()
        self._text: list[str] = []
        """The answer, as the agent has written it."""
        self._chunks: list[str] = []
        """The chunks of the answer that were delivered."""
        self._repeated = 0
        """How many of them the text has come to again since a part of it was taken back."""
        self._was_silent = False
        """Whether an earlier answer was silent."""
        self._messages = messages
        self._newest = list(messages.values())[-1]
        """The message that is answered."""
        self._callbacks = callbacks
        self._payloads: list[ReplyPayload] = []
        self._next_index = first_index
        self._phases: set[str] = set()
        self._activity: Activity | None = None
        self._calls: dict[str, ToolCall] = {}
        """The tools that were used, by the CLI's id of the call."""
        self._length = 0
        self._steered: list[str] = []
        self._answered: tuple[str, ...] = ()
        self._forms: dict[str, str] = {}
        self._error: ErrorEvent | None = None
        self._done: DoneEvent | None = None

    async def process(
        self, events: AsyncIterator[AgentEvent], listeners: Listeners | None = None
    ) -> Delivered:
        """Consume a turn's events; a stream that breaks off still delivers what it said."""
        self._listeners = listeners or Listeners()
        if self._callbacks.on_activity:
            self._activity = Activity(self._listeners.label, self._callbacks.on_activity)
        async for event in events:
            await self._take(event)
            if self._length > MAX_ANSWER:
                why = f"more than {MAX_ANSWER:,} characters"
                self._error = ErrorEvent(ErrorCategory.TOO_LONG, why, ends_agent=True)
                break
        await self.flush()
        is_silent = (self._was_silent or self._directives.is_silent) and not self._payloads
        return Delivered(
            run=self._done.result if self._done else AgentRunResult(),
            error=self._error,
            has_ended=self._done is not None,
            steered=tuple(self._steered),
            is_silent=is_silent,
            tool_calls=tuple(self._calls.values()),
            answered=self._answered,
            forms=self._forms,
            ends_agent=self._done is not None and self._done.ends_agent,
        )

    async def _take(self, event: AgentEvent) -> None:
        match event:
            case TextEvent(text):
                self._length += len(text)
                if self._length <= MAX_ANSWER:
                    await self._say(text)
            case TextResetEvent(chars):
                self._length -= chars
                await self._take_back(chars)
            case ThinkingEvent(text):
                if self._callbacks.on_thinking:
                    self._callbacks.on_thinking(text)
            case ToolUseEvent():
                await self._begin_tool(event)
            case ToolResultEvent():
                await self._end_tool(event)
            case SteeredEvent(key):
                self._steered.append(key)
                self._asked.append(key)
                self._newest = self._messages[key]
            case AnswerEndEvent():
                await self._end_answer()
            case PermissionEvent():
                # Once it is allowed, nothing else may say so.
                await self._reach("tool", event.tool_name)
                if self._listeners.on_permission:
                    await self._listeners.on_permission(event, self._pause)
            case PermissionWithdrawnEvent(permission):
                if self._listeners.on_withdrawn:
                    await self._listeners.on_withdrawn(permission)
            case FormEvent(server, message):
                self._forms.setdefault(server, message)
            case PlanEvent(steps):
                if self._callbacks.on_plan:
                    self._callbacks.on_plan(shown_plan(steps, self._listeners.scrub))
            case UsageEvent(usage):
                if self._callbacks.on_usage:
                    self._callbacks.on_usage(usage)
            case NoticeEvent(message):
                self.show(f"({message})")
            case ErrorEvent():
                self._error = event
            case DoneEvent():
                self._done = event

    async def _begin_tool(self, event: ToolUseEvent) -> None:
        if len(self._calls) >= MAX_CALLS:
            del self._calls[next(iter(self._calls))]
        arguments = orjson.dumps(event.input, default=str).decode()
        name, argument = self._listeners.head(event)
        call = ToolCall(
            name,
            self._kept(arguments, MAX_INPUT),
            id=event.tool_id,
            argument=argument,
            since_ms=now_ms(),
        )
        self._keep_call(call)
        if self._activity:
            self._activity.begin(event)
        await self._reach("tool", event.tool_name)

    async def _end_tool(self, event: ToolResultEvent) -> None:
        if call := self._calls.get(event.tool_id):
            ended = replace(
                call,
                output=self._kept(event.output, MAX_OUTPUT),
                is_error=event.is_error,
                seconds=max(0, now_ms() - call.since_ms) / 1000,
            )
            self._keep_call(ended)
        if self._activity:
            self._activity.end(event.tool_id)
        if self._callbacks.on_tool_result:
            await self._callbacks.on_tool_result(event)

    def _keep_call(self, call: ToolCall) -> None:
        self._calls[call.id] = call
        if self._callbacks.on_tool:
            self._callbacks.on_tool(call)

    def _kept(self, text: str, most: int) -> str:
        """Return the beginning of a text, without secrets, and how much more there was."""
        kept = self._listeners.scrub(text, most)
        return f"{kept}\n(… {len(text) - most:,} more characters)" if len(text) > most else kept

    async def _end_answer(self) -> None:
        await self._pause()
        self._answered = tuple(self._asked)

    async def _pause(self) -> None:
        """Deliver what was said so far: what follows is a message of its own."""
        await self._finish(self._callbacks.on_partial_reply)
        self._was_silent |= self._directives.is_silent
        self._chunks = []
        self._begin_text()

    def _begin_text(self) -> None:
        self._chunker, self._directives = self._new_chunker(), Directives()
        self._text, self._repeated = [], 0

    async def flush(self) -> None:
        """Deliver what was said and is in no message yet."""
        await self._finish(self._callbacks.on_block_reply)

    async def _finish(self, callback: Callable[[ReplyPayload], Awaitable[None]] | None) -> None:
        """Deliver the rest of an answer, and with it the files that it names."""
        await self._feed(self._directives.finish())
        last = self._chunker.finish()
        paths, self._directives.attached = self._directives.attached, []
        files: list[Attachment] = []
        problems: list[str] = []
        if paths and self._listeners.take_files:
            files, problems = await self._listeners.take_files(paths)
        await self._deliver(last, callback, files)
        if problems:
            words = "\n".join(problems)
            problem = ReplyPayload(words, index=self._next_index, is_ours=True)
            await self._deliver_payload(problem, callback)

    async def say(self, payload: ReplyPayload, *, is_last: bool = True) -> None:
        """Deliver a message that isn't the agent's, behind all that the agent has said."""
        payload = replace(payload, index=self._next_index)
        callbacks = self._callbacks
        callback = callbacks.on_block_reply if is_last else callbacks.on_partial_reply
        await self._deliver_payload(payload, callback)

    async def whole(self, answer: str) -> tuple[ReplyPayload, ...]:
        """Return an answer that is complete as the messages that it makes."""
        await self._take(TextEvent(answer))
        await self.flush()
        return self.payloads

    @property
    def payloads(self) -> tuple[ReplyPayload, ...]:
        """Everything so far, in order."""
        return tuple(self._payloads)

    async def _say(self, text: str) -> None:
        if text.strip():
            await self._reach("output", "")
            if self._activity:
                self._activity.say()
        await self._write(text)
        is_new = self._repeated == len(self._chunks)
        if is_new and self._callbacks.on_live_text and (pending := self._chunker.pending):
            self._callbacks.on_live_text(self._next_index, pending)

    async def _take_back(self, characters: int) -> None:
        """Take back the end of the answer.

        What is passed on depends on the text alone, so the rest of it, written again, comes to the
        same chunks; those that were delivered are not delivered again.
        """
        text = "".join(self._text)
        self._begin_text()
        await self._write(text[: max(0, len(text) - characters)])

    async def _write(self, text: str) -> None:
        self._text.append(text)
        for piece in self._directives.feed(text):
            await self._feed(piece)

    def show(self, words: str) -> None:
        """Show words that are no part of the answer, until more of the answer comes."""
        if self._callbacks.on_live_text:
            self._callbacks.on_live_text(self._next_index, words)

    async def _feed(self, text: str) -> None:
        for chunk in self._chunker.feed(text):
            await self._deliver(chunk, self._callbacks.on_partial_reply)

    @property
    def _reply_to_id(self) -> str | None:
        """The message to quote: one that the agent was shown, or none."""
        wanted = self._directives.reply_to
        if wanted == "":
            return self._newest.id
        shown = (id_ for m in self._messages.values() for id_ in (m.id, m.reply_to_id))
        return wanted if wanted in shown else None

    async def _reach(self, phase: str, detail: str) -> None:
        if phase not in self._phases and self._callbacks.on_phase:
            self._phases.add(phase)
            await self._callbacks.on_phase(phase, detail)

    async def _deliver(
        self,
        text: str,
        callback: Callable[[ReplyPayload], Awaitable[None]] | None,
        files: Sequence[Attachment] = (),
    ) -> None:
        """Deliver a chunk, unless it was before a part of the text was taken back."""
        delivered = self._chunks[self._repeated : self._repeated + 1]
        if text and delivered == [text]:
            text = ""
            self._repeated += 1
        elif text:
            if delivered:
                broke_off = ReplyPayload(BROKE_OFF, index=self._next_index, is_ours=True)
                await self._deliver_payload(broke_off, callback)
            self._chunks[self._repeated :] = [text]
            self._repeated += 1
        if not text and not files:
            return
        payload = ReplyPayload(
            text,
            index=self._next_index,
            reply_to_id=self._reply_to_id,
            attachments=tuple(files),
        )
        await self._deliver_payload(payload, callback)

    async def _deliver_payload(
        self,
        payload: ReplyPayload,
        callback: Callable[[ReplyPayload], Awaitable[None]] | None,
    ) -> None:
        self._next_index += 1
        if callback:
            await callback(payload)
            payload = replace(payload, delivered=True)
        self._payloads.append(payload)
