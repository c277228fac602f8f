"""Delivery: turns an agent's events into messages for a chat, in chunks of the platform's size."""

import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import orjson

from remoteclaw.bridge.activity import COMPACTION_ID, Activity, shown_plan
from remoteclaw.bridge.chunks import Chunker
from remoteclaw.bridge.directives import Directives
from remoteclaw.bridge.web_reading import reads_others
from remoteclaw.clock import now_ms
from remoteclaw.errors import ErrorCategory
from remoteclaw.events import (
    MAKES_ROOM,
    AgentEvent,
    AgentRunResult,
    AgentUsage,
    AnswerEndEvent,
    CompactionEvent,
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
from remoteclaw.messages import Attachment, ChannelMessage, ReplyPayload, ToolCall, shows_nothing
from remoteclaw.protocols import BridgeCallbacks, Unit

#: The maximum length of an answer, in characters: a runaway agent must not fill Redis.
MAX_ANSWER_CHARS = 1_000_000
#: At most this many of a turn's tool calls are kept, each with at most this much of its input and
#: output, in characters: enough for a person, and at most 2.4 million characters in memory.
MAX_CALLS, MAX_INPUT_CHARS, MAX_OUTPUT_CHARS = 200, 4_000, 8_000
#: The messages of a long answer after these are sent at its end, when its length is known.
MAX_STREAMED = 4
#: The end of an answer that is too long is shown in this many messages.
END_MESSAGES = 2
#: Sent before the end of an answer that is too long for the chat.
LEFT_OUT = "(… {count:,} characters are left out here. The file {name} has the whole answer.)"
#: A longer summary of the conversation is cut to this length, in characters.
MAX_SUMMARY_CHARS = 16_000
#: Sent before text that replaces delivered text.
BROKE_OFF = "(The text above was cut off. This replaces it:)"


@dataclass(frozen=True, slots=True)
class Delivered:
    """The outcome of a stream of events; the messages are the adapter's `payloads`."""

    run: AgentRunResult = field(default_factory=AgentRunResult)
    error: ErrorEvent | None = None
    """The last error that the agent reported."""
    has_ended: bool = False
    """Whether the stream ended with a `DoneEvent`."""
    steered: tuple[str, ...] = ()
    """The entries that the agent took up during the turn."""
    is_silent: bool = False
    """Whether the agent chose not to reply."""
    has_words: bool = False
    """Whether the agent has written words since its last complete answer."""
    tool_calls: tuple[ToolCall, ...] = ()
    """The last `MAX_CALLS` tool calls, in their order."""
    answered: tuple[str, ...] = ()
    """The entries whose answer was complete before another answer began."""
    forms: Mapping[str, str] = field(default_factory=dict)
    """The questions of cancelled forms, the first one of each server, by server."""
    ends_agent: bool = False
    """Whether the process must not be used for another turn."""
    compaction: CompactionEvent | None = None
    """The last compaction of the conversation in this turn that is done; None if there is none."""


@dataclass(frozen=True, slots=True)
class Listeners:
    """The bridge's own reactions to a turn's events; all are optional."""

    take_files: Callable[[Sequence[str]], Awaitable[tuple[list[Attachment], list[str]]]] | None = (
        None
    )
    """Stores the files that an answer names; returns them, and notices about rejected files."""
    keep_answer: Callable[[str], Awaitable[Attachment | None]] | None = None
    """Stores an answer that is too long for the chat as a file; None if that is impossible."""
    on_permission: Callable[[PermissionEvent, Callable[[], Awaitable[None]]], Awaitable[None]] | (
        None
    ) = None
    """Begins to decide about a permission that the agent waits for. The second argument delivers
    the text so far: people read it before they are asked."""
    on_withdrawn: Callable[[str], Awaitable[None]] | None = None
    """Receives the id of a permission that the agent no longer waits for."""
    label: Callable[[ToolUseEvent], tuple[str, str]] = lambda event: (event.tool_name, "")
    """Returns the name and argument of a running tool that the chat shows."""
    head: Callable[[ToolUseEvent], tuple[str, str]] = lambda event: (event.tool_name, "")
    """Returns the full name and main argument of a tool, for the record."""
    scrub: Callable[[str, int], str] = lambda text, max_chars: text[:max_chars]
    """Returns at most so many characters of a text, without secrets."""
    is_earlier_message: Callable[[str], Awaitable[bool]] | None = None
    """Returns whether an earlier message of the conversation, which can be quoted, has an id."""


class DeliveryAdapter:
    """Turns a stream of events into payloads, and calls the callbacks in the events' order."""

    def __init__(
        self,
        *,
        chunk_limit: int,
        chunk_unit: Unit = "characters",
        code_file_lines: int = 0,
        callbacks: BridgeCallbacks,
        first_index: int,
        messages: Mapping[str, ChannelMessage],
        max_messages: int | None = None,
        opening: str = "",
    ) -> None:
        """`messages` are those that the agent may quote, by entry; it answers the last of them.

        A longer answer than `max_messages` is delivered as its beginning, its end and a file. A
        code block of more than `code_file_lines` lines stays whole: its channel makes it a file.
        `opening` is a notice that is delivered once the agent begins to answer or to act.
        """
        self._opening = opening
        self._listeners = Listeners()
        self._taken_up = list(messages)
        """The entries that the agent has taken up."""
        self._new_chunker = functools.partial(
            Chunker, chunk_limit, chunk_unit, code_file_lines=code_file_lines
        )
        self._code_file_lines = code_file_lines
        self._chunker = self._new_chunker()
        self._directives = Directives()
        self._text: list[str] = []
        """The deltas of the current message, as the agent has written them."""
        self._chunks: list[str] = []
        """The delivered chunks of the current message."""
        self._matched = 0
        """The number of `_chunks` that the text matches: fewer than all after a part of it was
        taken back, until the agent has written it again."""
        self._max_messages = max_messages
        self._held: list[str] = []
        """The complete chunks of the current message that are delivered at its end."""
        self._shown: list[str] = []
        """The text of the current message, without directives."""
        self._was_silent = False
        """Whether an earlier message was the silent token."""
        self._messages = messages
        self._newest = list(messages.values())[-1]
        """The message that the agent answers."""
        self._earlier: dict[str, bool] = {}
        """Whether messages that the agent quotes are earlier ones of the conversation, by id."""
        self._callbacks = callbacks
        self._payloads: list[ReplyPayload] = []
        self._next_index = first_index
        self._phases: set[str] = set()
        self._activity: Activity | None = None
        self._calls: dict[str, ToolCall] = {}
        """The tool calls, by the CLI's id of the call."""
        self._length = 0
        self._steered: list[str] = []
        self._answered: tuple[str, ...] = ()
        self._begun = 0
        """The number of messages before the current answer."""
        self._forms: dict[str, str] = {}
        self._compacting: ToolCall | None = None
        """The last compaction, as a tool call that is shown and not recorded."""
        self._compaction: CompactionEvent | None = None
        self._error: ErrorEvent | None = None
        self._done: DoneEvent | None = None
        self._usage = AgentUsage()
        """The tokens that the agent has reported so far."""

    async def process(
        self, events: AsyncIterator[AgentEvent], listeners: Listeners | None = None
    ) -> Delivered:
        """Consume a turn's events; the text of a stream that breaks off is delivered, too."""
        self._listeners = listeners or Listeners()
        if self._callbacks.on_activity:
            self._activity = Activity(self._listeners.label, self._callbacks.on_activity)
        async for event in events:
            await self._take(event)
            if self._length > MAX_ANSWER_CHARS:
                why = f"more than {MAX_ANSWER_CHARS:,} characters"
                self._error = ErrorEvent(ErrorCategory.ANSWER_TOO_LONG, why, ends_agent=True)
                break
        if self._done and self._error is None:
            await self._open()  # the agent may have said nothing
        await self.flush()
        is_silent = (self._was_silent or self._directives.is_silent) and not self._payloads
        return Delivered(
            run=self._done.result if self._done else AgentRunResult(usage=self._usage),
            error=self._error,
            has_ended=self._done is not None,
            steered=tuple(self._steered),
            is_silent=is_silent,
            has_words=any(part.text and not part.is_ours for part in self._payloads[self._begun :]),
            tool_calls=tuple(self._calls.values()),
            answered=self._answered,
            forms=self._forms,
            ends_agent=self._done is not None and self._done.ends_agent,
            compaction=self._compaction,
        )

    async def _take(self, event: AgentEvent) -> None:
        match event:
            case TextEvent(text):
                self._length += len(text)
                if self._length <= MAX_ANSWER_CHARS:
                    await self._add_text(text)
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
                self._taken_up.append(key)
                self._newest = self._messages[key]
            case AnswerEndEvent():
                await self._end_answer()
            case PermissionEvent():
                # Not every CLI sends an event for a tool that was allowed.
                await self._reach("tool", event.tool_name)
                if self._listeners.on_permission:
                    await self._listeners.on_permission(event, self._deliver_so_far)
            case PermissionWithdrawnEvent(permission):
                if self._listeners.on_withdrawn:
                    await self._listeners.on_withdrawn(permission)
            case FormEvent(server, message):
                self._forms.setdefault(server, message)
            case PlanEvent(steps):
                if self._callbacks.on_plan:
                    self._callbacks.on_plan(shown_plan(steps, self._listeners.scrub))
            case UsageEvent(usage):
                self._usage = usage
                if self._callbacks.on_usage:
                    self._callbacks.on_usage(usage)
            case NoticeEvent(message):
                self.show(f"({message})")
            case CompactionEvent():
                self._take_compaction(event)
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
            self._excerpt(arguments, MAX_INPUT_CHARS),
            id=event.tool_id,
            argument=argument,
            since_ms=now_ms(),
        )
        self._keep_call(call)
        if self._activity:
            self._activity.begin(event)
        await self._reach("tool", event.tool_name)
        if reads_others(event):
            await self._reach("web", event.tool_name)

    async def _end_tool(self, event: ToolResultEvent) -> None:
        if call := self._calls.get(event.tool_id):
            output = self._excerpt(event.output, MAX_OUTPUT_CHARS)
            self._keep_call(replace(_ended(call), output=output, is_error=event.is_error))
        if self._activity:
            self._activity.end(event.tool_id)
        if self._callbacks.on_tool_result:
            await self._callbacks.on_tool_result(event)

    def _take_compaction(self, event: CompactionEvent) -> None:
        """Show a compaction like a tool, and keep it once it is done."""
        if event.phase == "began":
            self._compacting = compaction_call(now_ms())
            if self._activity:
                self._activity.begin_compaction()
        elif self._compacting:
            self._compacting = _ended(self._compacting)
            if self._activity:
                self._activity.end(COMPACTION_ID)
        if self._compacting and self._callbacks.on_tool:
            self._callbacks.on_tool(self._compacting)
        if event.phase == "done":
            summary = self._listeners.scrub(event.summary, MAX_SUMMARY_CHARS)
            self._compaction = replace(event, summary=summary)

    def _keep_call(self, call: ToolCall) -> None:
        self._calls[call.id] = call
        if self._callbacks.on_tool:
            self._callbacks.on_tool(call)

    def _excerpt(self, text: str, max_chars: int) -> str:
        """Return the beginning of a text, without secrets, and the number of further characters."""
        beginning = self._listeners.scrub(text, max_chars)
        if len(text) <= max_chars:
            return beginning
        return f"{beginning}\n(… {len(text) - max_chars:,} more characters)"

    async def _end_answer(self) -> None:
        await self._deliver_so_far()
        self._answered, self._begun = tuple(self._taken_up), len(self._payloads)

    async def _deliver_so_far(self) -> None:
        """Deliver the text so far; later text is a new message."""
        await self._finish(self._callbacks.on_partial_reply)
        self._was_silent |= self._directives.is_silent
        self._chunks = []
        self._begin_text()

    def _begin_text(self) -> None:
        self._chunker, self._directives = self._new_chunker(), Directives()
        self._text, self._matched = [], 0
        self._held, self._shown = [], []

    async def flush(self) -> None:
        """Deliver the text that is in no message yet."""
        await self._finish(self._callbacks.on_block_reply)

    async def _finish(self, callback: Callable[[ReplyPayload], Awaitable[None]] | None) -> None:
        """Deliver the end of a message, and with it the files that it names."""
        await self._feed(self._directives.finish())
        rest, self._held = [*self._held, *self._chunker.finish()] or [""], []
        paths, self._directives.attached = self._directives.attached, []
        files: list[Attachment] = []
        problems: list[str] = []
        if paths and self._listeners.take_files:
            files, problems = await self._listeners.take_files(paths)
        if self._is_too_long(rest) and (whole := await self._keep_whole()):
            rest, left_out = rest[-END_MESSAGES:], rest[:-END_MESSAGES]
            files.append(whole)
            text = LEFT_OUT.format(count=sum(map(len, left_out)), name=whole.name)
            notice = ReplyPayload(text, index=self._next_index, is_ours=True)
            await self._deliver_payload(notice, callback)
        for chunk in rest[:-1]:
            await self._deliver(chunk, callback)
        await self._deliver(rest[-1], callback, files)
        if problems:
            notice = ReplyPayload("\n".join(problems), index=self._next_index, is_ours=True)
            await self._deliver_payload(notice, callback)

    async def deliver_notice(self, payload: ReplyPayload, *, is_last: bool = True) -> None:
        """Deliver a message of RemoteClaw's own, after the agent's messages so far."""
        payload = replace(payload, index=self._next_index)
        callbacks = self._callbacks
        callback = callbacks.on_block_reply if is_last else callbacks.on_partial_reply
        await self._deliver_payload(payload, callback)

    async def deliver_whole(self, answer: str) -> tuple[ReplyPayload, ...]:
        """Deliver a complete answer and return its messages."""
        await self._take(TextEvent(answer))
        await self.flush()
        return self.payloads

    @property
    def payloads(self) -> tuple[ReplyPayload, ...]:
        """All messages so far, in order."""
        return tuple(self._payloads)

    async def _add_text(self, text: str) -> None:
        if text.strip():
            await self._reach("output", "")
            if self._activity:
                self._activity.clear_ended()
        await self._write(text)
        is_new = self._matched == len(self._chunks)
        if is_new and self._callbacks.on_live_text and (pending := self._chunker.pending):
            self._callbacks.on_live_text(self._next_index, pending)

    async def _take_back(self, characters: int) -> None:
        """Remove the last characters of the message.

        The chunks depend only on the text, so the remaining text yields the same chunks again;
        those that were delivered are not delivered again.
        """
        text = "".join(self._text)
        self._begin_text()
        await self._write(text[: max(0, len(text) - characters)])

    async def _write(self, text: str) -> None:
        self._text.append(text)
        for piece in self._directives.feed(text):
            await self._feed(piece)

    def show(self, notice: str) -> None:
        """Show a notice as live text, until the agent writes more."""
        if self._callbacks.on_live_text:
            self._callbacks.on_live_text(self._next_index, notice)

    async def _feed(self, text: str) -> None:
        if self._max_messages is not None:
            self._shown.append(text)
        for chunk in self._chunker.feed(text):
            if self._max_messages is not None and self._matched >= MAX_STREAMED:
                self._held.append(chunk)
            else:
                await self._deliver(chunk, self._callbacks.on_partial_reply)

    def _is_too_long(self, rest: Sequence[str]) -> bool:
        """Whether the current message is too long for the chat, with `rest` still to deliver."""
        return self._max_messages is not None and (
            self._matched + len([*filter(None, rest)]) > self._max_messages
        )

    async def _keep_whole(self) -> Attachment | None:
        """Store the current message as a file; None if that is impossible."""
        keep = self._listeners.keep_answer
        return await keep("".join(self._shown)) if keep else None

    async def _reply_to_id(self) -> str | None:
        """Return the id of the message to quote; None without one, or if it can't be quoted."""
        quoted = self._directives.reply_to
        if quoted is None:
            return None
        if quoted == "":
            return self._newest.id
        if not any(quoted in (m.id, m.reply_to_id) for m in self._messages.values()):
            if quoted not in self._earlier:
                ask = self._listeners.is_earlier_message
                self._earlier[quoted] = ask is not None and await ask(quoted)
            if not self._earlier[quoted]:
                return None
        return quoted

    @property
    def has_begun(self) -> bool:
        """Whether the agent has begun to answer or to act."""
        return bool(self._phases)

    async def _reach(self, phase: str, detail: str) -> None:
        if phase in self._phases:
            return
        self._phases.add(phase)
        if self._callbacks.on_phase:
            await self._callbacks.on_phase(phase, detail)
        await self._open()

    async def _open(self) -> None:
        """Deliver the opening notice, once."""
        opening, self._opening = self._opening, ""
        if opening:
            await self.deliver_notice(ReplyPayload(opening, is_ours=True), is_last=False)

    async def _deliver(
        self,
        text: str,
        callback: Callable[[ReplyPayload], Awaitable[None]] | None,
        files: Sequence[Attachment] = (),
    ) -> None:
        """Deliver a chunk and files; a chunk that was delivered before, or is blank, is skipped."""
        if shows_nothing(text):
            text = ""
        delivered = self._chunks[self._matched : self._matched + 1]
        if text and delivered == [text]:
            text = ""
            self._matched += 1
        elif text:
            if delivered:
                broke_off = ReplyPayload(BROKE_OFF, index=self._next_index, is_ours=True)
                await self._deliver_payload(broke_off, callback)
            self._chunks[self._matched :] = [text]
            self._matched += 1
        if not text and not files:
            return
        payload = ReplyPayload(
            text,
            index=self._next_index,
            reply_to_id=await self._reply_to_id(),
            attachments=tuple(files),
            code_file_lines=self._code_file_lines,
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


def compaction_call(since_ms: int) -> ToolCall:
    """Return the tool call that shows a compaction."""
    return ToolCall(MAKES_ROOM, "", id=f"{COMPACTION_ID} {since_ms}", since_ms=since_ms)


def _ended(call: ToolCall) -> ToolCall:
    """Return a call that has ended now, with its duration."""
    return replace(call, seconds=max(0, now_ms() - call.since_ms) / 1000)
