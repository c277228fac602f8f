"""From an agent's events to messages for a chat: text in chunks that a platform takes.

A chunk ends at the best place before the limit: a paragraph, a line, a word, or anywhere.
A Markdown fence that is open at the end of a chunk is closed there and opened again, with its
language, in the next one.
Where the stream is cut into deltas makes no difference: a cut depends on the first `limit`
characters alone.
"""

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from remoteclaw.bridge.directives import Directives
from remoteclaw.errors import ErrorCategory
from remoteclaw.messages import (
    AgentEvent,
    AgentRunResult,
    AnswerEndEvent,
    ChannelMessage,
    DoneEvent,
    ErrorEvent,
    NoticeEvent,
    ReplyPayload,
    SteeredEvent,
    TextEvent,
    TextResetEvent,
    ThinkingEvent,
    ToolResultEvent,
    ToolUseEvent,
)
from remoteclaw.protocols import BridgeCallbacks

__all__ = ["Chunker", "Delivered", "DeliveryAdapter"]

#: How long an answer may become, in characters: an agent that runs wild must not fill Redis.
MOST_ANSWER = 1_000_000
#: Room in every chunk for a newline and a closing fence of up to 11 characters.
RESERVE = 12
#: The smallest limit that leaves room for text between a fence opened and closed.
SMALLEST_LIMIT = 80
#: How far is looked ahead of a cut, in characters: as far as a fence needs to be recognised.
LOOKAHEAD = 6
#: How much is taken from one delta at a time, in characters, so that cutting stays linear.
BITE = 16 * 1024
#: What stands before an answer that begins anew although a part of it was delivered.
ANEW = "(That broke off. Once more, from the beginning:)\n\n"

_FENCE_START = re.compile(r" {0,3}(```|~~~)")
_FENCE = re.compile(r"^ {0,3}(`{3,11}|~{3,11})(.*)$", re.MULTILINE)


class Chunker:
    """Cuts a text that is still being written into chunks of at most `limit` characters."""

    def __init__(self, limit: int) -> None:
        if limit < SMALLEST_LIMIT:
            raise ValueError(f"a chunk limit of {limit} is too small: {SMALLEST_LIMIT} at least")
        self._limit = limit
        self._buffer = ""
        self._fence = ""
        """The line that opened the fence in which the buffer begins; empty outside of fences."""
        self._gone: list[str] = []
        """What was fed and is no longer in the buffer."""
        self._withdrawn = ""
        """What was withdrawn when it was in complete chunks already."""
        self._repeated = 0
        """How much of that has been said again."""

    @property
    def pending(self) -> str:
        """The chunk that is being written, as far as it has come."""
        return self._reopened + self._buffer if self._buffer else ""

    def feed(self, text: str) -> list[str]:
        """Take more text; return the chunks that are complete by now."""
        if self._withdrawn:
            text = self._without_repetition(text)
        chunks = []
        for start in range(0, len(text), BITE):
            self._buffer += text[start : start + BITE]
            self._strip_newlines()
            while len(self._buffer) > self._room:
                if chunk := self._cut():
                    chunks.append(chunk)
        return chunks

    def withdraw(self, characters: int) -> None:
        """Take back the end of what was fed.

        What is in complete chunks by then was read by people. If the text that follows begins with
        it, as a repetition does, it is not said twice; otherwise it is a new answer and says so.
        """
        if not self._withdrawn:
            rest = len(self._buffer) - characters
            self._buffer = self._buffer[: max(0, rest)]
        else:
            rest = self._repeated - characters
            self._repeated = max(0, rest)
        if rest < 0:
            gone = "".join(self._gone)
            self._gone = [gone[:rest]]
            self._withdrawn = gone[rest:] + self._withdrawn

    def finish(self) -> str:
        """Return the last chunk; empty if there is nothing more to say."""
        rest, self._buffer = self._buffer, ""
        fence, self._fence = self._fence, ""
        return self._complete(fence, rest)

    def _without_repetition(self, text: str) -> str:
        """Return what of a text is not delivered yet, while it may repeat what was withdrawn."""
        expected = self._withdrawn[self._repeated : self._repeated + len(text)]
        withdrawn, repeated = self._withdrawn, self._repeated
        if text.startswith(expected):
            self._repeated += len(expected)
            if self._repeated == len(withdrawn):
                self._gone.append(withdrawn)
                self._withdrawn, self._repeated = "", 0
            return text[len(expected) :]
        self._withdrawn, self._repeated, self._fence = "", 0, ""
        # Blank lines before a text are in no chunk.
        return (ANEW if withdrawn.strip() else "") + withdrawn[:repeated] + text

    @property
    def _reopened(self) -> str:
        return f"{self._fence}\n" if self._fence else ""

    @property
    def _room(self) -> int:
        return self._limit - RESERVE - len(self._reopened)

    def _cut(self) -> str:
        """Take one chunk off the buffer, which is longer than there is room."""
        position, skip = self._best_cut(self._buffer[: self._room - LOOKAHEAD])
        piece = self._buffer[:position]
        self._drop(position + skip)
        opened, self._fence = self._fence, self._shortened(_open_fence(piece, self._fence))
        self._strip_newlines()
        return self._complete(opened, piece)

    def _strip_newlines(self) -> None:
        """Drop the blank lines that the buffer begins with; in a fence they are a part of it."""
        if not self._fence and self._buffer.startswith("\n"):
            self._drop(len(self._buffer) - len(self._buffer.lstrip("\n")))

    def _drop(self, size: int) -> None:
        self._gone.append(self._buffer[:size])
        self._buffer = self._buffer[size:]

    def _best_cut(self, window: str) -> tuple[int, int]:
        """Return where to cut and how many characters to drop there.

        A place in the second half is wanted, so that no chunk is tiny; the kind of place comes
        second, the length third.
        """
        half = len(window) // 2
        # A blank line inside a fence is a line like any other.
        paragraph = max(
            (window.rfind("\n\n", max(start, half), end) for start, end in self._outside(window)),
            default=-1,
        )
        for position, skip in ((paragraph, 2), (window.rfind("\n", half), 1)):
            if position > 0:
                return position, skip
        if not _open_fence(window, self._fence) and (position := self._last_space(window, half)):
            return position, 1
        for position in (window.rfind("\n"), self._last_space(window, 0)):
            if position > 0:
                return position, 1
        position = len(window)
        while position > 1 and self._would_begin_a_fence(position):
            position -= 1
        return (position, 0) if position > 1 else (len(window), 0)

    def _outside(self, window: str) -> Iterator[tuple[int, int]]:
        """Return where the parts of the window are that are in no fence."""
        start = 0
        opened = self._fence
        for line in _FENCE.finditer(window):
            before, opened = opened, _after_fence_line(line, opened)
            if opened and not before:
                yield start, line.start()
            elif before and not opened:
                start = line.end()
        if not opened:
            yield start, len(window)

    def _last_space(self, window: str, start: int) -> int:
        """Return the last space behind which a line can be cut; 0 if there is none."""
        position = window.rfind(" ", start)
        while position > 0 and self._would_begin_a_fence(position + 1):
            position = window.rfind(" ", start, position)
        return max(position, 0)

    def _would_begin_a_fence(self, position: int) -> bool:
        """Whether the middle of a line would look like a fence at the start of a chunk."""
        return _FENCE_START.match(self._buffer, position) is not None

    def _shortened(self, fence: str) -> str:
        """Return a fence line that leaves room for text: a long one loses its language."""
        if len(fence) <= self._limit // 4:
            return fence
        match = _FENCE.match(fence)
        return match[1] if match else ""

    def _complete(self, opened: str, piece: str) -> str:
        """Return a chunk with its fences opened and closed."""
        if not piece.strip():
            return ""
        still_open = _open_fence(piece, opened)
        head = f"{opened}\n" if opened else ""
        if not still_open:
            return head + piece.rstrip()
        match = _FENCE.match(still_open)
        marker = match[1] if match else "```"
        return f"{head}{piece.rstrip()}\n{marker}"


def _open_fence(text: str, opened: str) -> str:
    """Return the line that opened the fence in which `text` ends; empty if it ends outside.

    `opened` is the same for the place where it begins. The rules are CommonMark's: a fence closes
    with the same character, at least as often, and nothing behind it.
    """
    for line in _FENCE.finditer(text):
        opened = _after_fence_line(line, opened)
    return opened


def _after_fence_line(line: re.Match[str], opened: str) -> str:
    """Return the line of the fence that is open behind a line that looks like one."""
    marker, info = line[1], line[2]
    if not opened:
        return line[0] if marker[0] == "~" or "`" not in info else ""
    current = _FENCE.match(opened)
    return "" if current and marker.startswith(current[1]) and not info.strip() else opened


@dataclass(frozen=True, slots=True)
class Delivered:
    """What came of a stream of events."""

    payloads: tuple[ReplyPayload, ...]
    run: AgentRunResult
    error: ErrorEvent | None
    """The last error that the agent reported."""
    has_ended: bool
    """False when the stream stopped without saying so."""
    steered: tuple[str, ...]
    """What the agent took up of the messages that it was given meanwhile."""
    is_silent: bool
    """Whether the agent chose to say nothing."""


class DeliveryAdapter:
    """Turns a stream of events into payloads and calls back on the way, in the events' order."""

    def __init__(
        self,
        *,
        chunk_limit: int,
        callbacks: BridgeCallbacks,
        first_index: int,
        messages: Mapping[str, ChannelMessage],
    ) -> None:
        """`messages` are those that the agent may quote, by entry, the last one is answered."""
        self._chunk_limit = chunk_limit
        self._chunker = Chunker(chunk_limit)
        self._directives = Directives()
        self._messages = messages
        self._answered = list(messages.values())[-1]
        self._callbacks = callbacks
        self._payloads: list[ReplyPayload] = []
        self._next_index = first_index
        self._phases: set[str] = set()

    async def process(self, events: AsyncIterator[AgentEvent]) -> Delivered:
        """Consume a turn's events; a stream that breaks off still delivers what it said."""
        run, error, has_ended = AgentRunResult(), None, False
        length = 0
        steered: list[str] = []
        async for event in events:
            match event:
                case TextEvent(text):
                    length += len(text)
                    if length > MOST_ANSWER:
                        why = f"more than {MOST_ANSWER:,} characters"
                        error = ErrorEvent(ErrorCategory.TOO_LONG, why, ends_agent=True)
                        break
                    await self._text(text)
                case TextResetEvent(chars):
                    length -= chars
                    self._chunker.withdraw(self._directives.withdraw(chars))
                case ThinkingEvent(text):
                    if self._callbacks.on_thinking:
                        self._callbacks.on_thinking(text)
                case ToolUseEvent():
                    await self._reach("tool", event.tool_name)
                case ToolResultEvent():
                    if self._callbacks.on_tool_result:
                        await self._callbacks.on_tool_result(event)
                case SteeredEvent(key):
                    steered.append(key)
                    self._answered = self._messages[key]
                case AnswerEndEvent():
                    await self._end_answer()
                case NoticeEvent(message):
                    if self._callbacks.on_live_text:
                        self._callbacks.on_live_text(self._next_index, f"({message})")
                case ErrorEvent():
                    error = event
                case DoneEvent(run):
                    has_ended = True
        await self.flush()
        is_silent = self._directives.is_silent and not self._payloads
        return Delivered(tuple(self._payloads), run, error, has_ended, tuple(steered), is_silent)

    async def _end_answer(self) -> None:
        await self._finish(self._callbacks.on_partial_reply)
        self._chunker = Chunker(self._chunk_limit)
        self._directives = Directives()

    async def flush(self) -> None:
        """Deliver what was said and is in no message yet."""
        await self._finish(self._callbacks.on_block_reply)

    async def _finish(self, callback: Callable[[ReplyPayload], Awaitable[None]] | None) -> None:
        await self._feed(self._directives.finish())
        if last := self._chunker.finish():
            await self._deliver(last, callback)

    async def say(self, payload: ReplyPayload) -> None:
        """Deliver a message that isn't the agent's, behind all that the agent said."""
        payload = replace(payload, index=self._next_index)
        await self._deliver_payload(payload, self._callbacks.on_block_reply)

    @property
    def payloads(self) -> tuple[ReplyPayload, ...]:
        """Everything so far, in order."""
        return tuple(self._payloads)

    async def _text(self, text: str) -> None:
        if text.strip():
            await self._reach("output", "")
        await self._feed(self._directives.feed(text))
        if self._callbacks.on_live_text and (pending := self._chunker.pending):
            self._callbacks.on_live_text(self._next_index, pending)

    async def _feed(self, text: str) -> None:
        for chunk in self._chunker.feed(text):
            await self._deliver(chunk, self._callbacks.on_partial_reply)

    @property
    def _reply_to_id(self) -> str | None:
        """The message to quote: one that the agent was shown, or none."""
        wanted = self._directives.reply_to
        if wanted == "":
            return self._answered.id
        shown = (id_ for m in self._messages.values() for id_ in (m.id, m.reply_to_id))
        return wanted if wanted in shown else None

    async def _reach(self, phase: str, detail: str) -> None:
        if phase not in self._phases and self._callbacks.on_phase:
            self._phases.add(phase)
            await self._callbacks.on_phase(phase, detail)

    async def _deliver(
        self, text: str, callback: Callable[[ReplyPayload], Awaitable[None]] | None
    ) -> None:
        payload = ReplyPayload(text, index=self._next_index, reply_to_id=self._reply_to_id)
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
