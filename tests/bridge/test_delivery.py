"""The delivery of an agent's events to a chat: limited in size, complete and in order."""

import asyncio
import tracemalloc
from collections.abc import AsyncGenerator
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remoteclaw.bridge.delivery import (
    BROKE_OFF,
    END_MESSAGES,
    MAX_ANSWER_CHARS,
    MAX_INPUT_CHARS,
    MAX_OUTPUT_CHARS,
    MAX_STREAMED,
    Delivered,
    DeliveryAdapter,
    Listeners,
)
from remoteclaw.errors import ErrorCategory
from remoteclaw.events import (
    AgentEvent,
    AgentRunResult,
    AgentUsage,
    AnswerEndEvent,
    DoneEvent,
    ErrorEvent,
    TextEvent,
    TextResetEvent,
    ToolResultEvent,
    ToolUseEvent,
    UsageEvent,
)
from remoteclaw.messages import Attachment, ReplyPayload, ToolCall
from remoteclaw.protocols import BridgeCallbacks
from tests.support.hostile import HOSTILE
from tests.support.stack import message


async def deliver(
    *events: AgentEvent, limit: int = 4000, callbacks: BridgeCallbacks | None = None
) -> Delivered:
    return (await sent(*events, limit=limit, callbacks=callbacks))[1]


async def sent(
    *events: AgentEvent, limit: int = 4000, callbacks: BridgeCallbacks | None = None
) -> tuple[tuple[ReplyPayload, ...], Delivered]:
    """Deliver the events; return the resulting messages and the rest of the result."""

    async def stream() -> AsyncGenerator[AgentEvent, None]:
        for event in events:
            yield event

    delivery = adapter(limit, callbacks)
    delivered = await delivery.process(stream())
    return delivery.payloads, delivered


def adapter(limit: int = 4000, callbacks: BridgeCallbacks | None = None) -> DeliveryAdapter:
    return DeliveryAdapter(
        chunk_limit=limit,
        callbacks=callbacks or BridgeCallbacks(),
        first_index=0,
        messages={"1-0": message("hello")},
    )


DONE = DoneEvent(AgentRunResult())


@pytest.mark.parametrize("step", [4000, 50_000_000])
async def test_an_answer_of_fifty_megabytes_takes_bounded_memory_and_is_stopped(step: int) -> None:
    """The answer is not read to its end: the turn is stopped at the length limit."""
    read = 0

    async def endless() -> AsyncGenerator[AgentEvent, None]:
        nonlocal read
        text = "All work and no play makes a dull boy.\n\n" * (step // 40)
        for _ in range(50_000_000 // step):
            read += step
            yield TextEvent(text)
        yield DONE

    tracemalloc.start()
    delivered = await adapter().process(endless())
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert delivered.error is not None
    assert delivered.error.category is ErrorCategory.ANSWER_TOO_LONG
    assert read == min(50_000_000, (MAX_ANSWER_CHARS // step + 1) * step)
    assert peak < 2 * step + 16_000_000


async def test_a_stream_without_a_result_delivers_its_text_and_its_tokens() -> None:
    payloads, delivered = await sent(
        UsageEvent(AgentUsage(1)), TextEvent("half an ans"), UsageEvent(AgentUsage(3, 4))
    )

    assert [payload.text for payload in payloads] == ["half an ans"]
    assert not delivered.has_ended
    assert delivered.run.usage == AgentUsage(3, 4)


async def test_text_before_and_after_an_error_is_delivered() -> None:
    texts: list[str] = []

    async def note(payload: ReplyPayload) -> None:
        texts.append(payload.text)

    callbacks = BridgeCallbacks(on_partial_reply=note, on_block_reply=note)
    failed = ErrorEvent(ErrorCategory.FATAL, "why")
    delivered = await deliver(
        TextEvent("said"), failed, TextEvent(" more"), DONE, callbacks=callbacks
    )

    assert texts == ["said more"]
    assert delivered.error == failed


async def test_only_the_beginning_of_tool_inputs_and_outputs_is_kept() -> None:
    reported: list[ToolCall] = []
    use = ToolUseEvent("Bash", "1", {"command": "x" * 5000})
    delivered = await deliver(
        use,
        ToolResultEvent("1", "y" * 10_000, is_error=True),
        ToolResultEvent("unknown", "z"),
        DONE,
        callbacks=BridgeCallbacks(on_tool=reported.append),
    )

    (call,) = delivered.tool_calls
    assert (call.name, call.id, call.is_error) == ("Bash", "1", True)
    assert call.input[MAX_INPUT_CHARS:] == "\n(… 1,014 more characters)"
    assert call.output[MAX_OUTPUT_CHARS:] == "\n(… 2,000 more characters)"
    assert call.seconds is not None
    assert reported == [replace(call, output="", is_error=False, seconds=None), call]


async def test_a_turn_is_silent_if_its_only_answer_is_no_reply() -> None:
    payloads, delivered = await sent(TextEvent("NO_REPLY"), AnswerEndEvent(), DONE)

    assert (payloads, delivered.is_silent) == ((), True)


@pytest.mark.parametrize("step", [1, 3, 100])
@pytest.mark.parametrize("limit", [4000, 85])
async def test_a_no_reply_token_after_an_answer_is_never_shown(step: int, limit: int) -> None:
    """It is neither in a message, wherever the message is split, nor in live text."""
    answer = "Here it is, in a line that is as long as this one is, with 80 characters in it."
    text = f"{answer} NO_REPLY"
    deltas = [TextEvent(text[at : at + step]) for at in range(0, len(text), step)]
    shown: list[str] = []
    callbacks = BridgeCallbacks(on_live_text=lambda _index, live: shown.append(live))

    payloads, delivered = await sent(*deltas, DONE, limit=limit, callbacks=callbacks)

    whole, _ = await sent(TextEvent(answer), DONE, limit=limit)
    assert [payload.text for payload in payloads] == [payload.text for payload in whole]
    assert all(live.rstrip() in answer for live in shown)
    assert not delivered.is_silent


@pytest.mark.parametrize("step", [1, 50, 10_000])
async def test_which_messages_quote_does_not_depend_on_how_the_stream_is_split(step: int) -> None:
    text = "a" * 150 + " [[reply_to_current]]" + "b" * 300
    deltas = [TextEvent(text[at : at + step]) for at in range(0, len(text), step)]

    payloads, _ = await sent(*deltas, DONE, limit=100)

    quotes = [payload.reply_to_id is not None for payload in payloads]
    assert quotes[0] is False
    assert quotes[-1] is True
    whole, _ = await sent(TextEvent(text), DONE, limit=100)
    assert [payload.text for payload in payloads] == [payload.text for payload in whole]
    assert quotes == [payload.reply_to_id is not None for payload in whole]


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("step", [1, 7, 10_000])
async def test_hostile_text_of_an_agent_does_not_break_delivery(text: str, step: int) -> None:
    """It arrives within the limit, and does not depend on how the stream is split."""
    deltas = [TextEvent(text[at : at + step]) for at in range(0, len(text), step)]

    payloads, _ = await sent(*deltas, DONE, limit=200)

    whole, _ = await sent(TextEvent(text), DONE, limit=200)
    assert payloads == whole
    assert all(0 < len(payload.text) <= 200 for payload in payloads)


# -- text that a stream resets --------------------------------------------------------------------

PARAGRAPHS = "".join(f"Paragraph {number} of the answer.\n\n" for number in range(12))


@given(st.lists(st.tuples(st.integers(1, 300), st.integers(0, 300)), max_size=9))
def test_text_that_is_repeated_after_a_reset_is_not_delivered_again(
    breaks: list[tuple[int, int]],
) -> None:
    """If a stream breaks after a complete message, claude reports the whole text again."""
    text = f"[[reply_to_current]] {PARAGRAPHS} NO_REPLY"
    events, position = list[AgentEvent](), 0
    for written, reset in breaks:
        events.append(TextEvent(text[position : position + written]))
        position = min(len(text), position + written)
        events.append(TextResetEvent(min(position, reset)))
        position -= min(position, reset)

    payloads, _ = asyncio.run(sent(*events, TextEvent(text[position:]), DONE, limit=100))

    whole, _ = asyncio.run(sent(TextEvent(text), DONE, limit=100))
    assert [payload.text for payload in payloads] == [payload.text for payload in whole]
    assert all(payload.reply_to_id for payload in payloads)


async def test_text_that_differs_from_delivered_text_begins_with_a_notice() -> None:
    text, other = TextEvent(PARAGRAPHS[:250]), TextEvent("In other words.")

    payloads, _ = await sent(text, TextResetEvent(200), other, DONE, limit=100)

    *delivered, broke_off, last = [payload.text for payload in payloads]
    assert "".join(delivered).startswith("Paragraph 0 of the answer.")
    assert broke_off == BROKE_OFF
    assert last.endswith("In other words.")


async def test_text_that_replaces_undelivered_text_has_no_notice() -> None:
    payloads, _ = await sent(TextEvent("One way"), TextResetEvent(7), TextEvent("Another"), DONE)

    assert [payload.text for payload in payloads] == ["Another"]


# -- long answers ----------------------------------------------------------------------------------

MAX_MESSAGES = 8


async def deliver_long(
    *events: AgentEvent, takes_file: bool = True
) -> tuple[list[str], list[str], list[str], list[str]]:
    """Deliver the events to a chat with a limit of messages.

    Return the texts that are delivered while the agent writes, those at the end, the names of the
    files, and the texts of the files.
    """
    during: list[str] = []
    stored: list[str] = []

    async def stream() -> AsyncGenerator[AgentEvent, None]:
        for event in events:
            yield event

    async def publish(payload: ReplyPayload) -> None:
        during.append(payload.text)

    async def keep(answer: str) -> Attachment | None:
        stored.append(answer)
        blob = "0" * 32
        made = Attachment(name="answer.md", mime_type="text/markdown", size=len(answer), blob=blob)
        return made if takes_file else None

    delivery = DeliveryAdapter(
        chunk_limit=100,
        callbacks=BridgeCallbacks(on_partial_reply=publish),
        first_index=0,
        messages={"1-0": message("hello")},
        max_messages=MAX_MESSAGES,
    )
    await delivery.process(stream(), Listeners(keep_answer=keep))
    at_end = [payload for payload in delivery.payloads if not payload.delivered]
    assert [payload.index for payload in delivery.payloads] == [*range(len(delivery.payloads))]
    files = [file.name for payload in delivery.payloads for file in payload.attachments]
    assert not files or delivery.payloads[-1].attachments
    return during, [payload.text for payload in at_end], files, stored


def words(count: int) -> str:
    return " ".join(f"word{number:04}" for number in range(count))


@pytest.mark.parametrize("step", [7, 10_000])
async def test_a_very_long_answer_is_its_beginning_its_end_and_a_file(step: int) -> None:
    whole = words(500)
    pieces = [whole[at : at + step] for at in range(0, len(whole), step)]
    during, at_end, files, stored = await deliver_long(*map(TextEvent, pieces), DONE)

    assert (len(during), len(at_end)) == (MAX_STREAMED, 1 + END_MESSAGES)
    assert (files, stored) == (["answer.md"], [whole])
    assert whole.startswith(" ".join(during))
    assert whole.endswith(" ".join(at_end[1:]))
    shown = len(" ".join(during)) + len(" ".join(at_end[1:]))
    assert at_end[0].startswith("(… ")
    count = int(at_end[0].split()[1].replace(",", ""))
    assert abs(count - (len(whole) - shown)) <= 60, "white space between messages"
    assert len(during) + len(at_end) + len(files) == MAX_MESSAGES


@pytest.mark.parametrize(("count", "takes_file"), [(60, True), (500, False)])
async def test_an_answer_within_the_limit_or_without_a_file_is_delivered_in_messages(
    count: int, takes_file: bool
) -> None:
    whole = words(count)
    during, at_end, files, stored = await deliver_long(
        TextEvent(whole), DONE, takes_file=takes_file
    )

    assert len(during) == MAX_STREAMED, "the messages after these are sent at the end"
    assert " ".join([*during, *at_end]) == whole
    assert files == []
    assert bool(stored) is not takes_file


async def test_text_that_a_long_answer_takes_back_is_neither_lost_nor_in_the_file() -> None:
    whole = words(500)
    taken_back = (TextEvent(whole + " wrong"), TextResetEvent(len(words(300)) + 6))
    rest = whole[len(whole) - len(words(300)) :]
    during, at_end, files, stored = await deliver_long(*taken_back, TextEvent(rest), DONE)

    assert stored == [whole]
    assert files == ["answer.md"]
    assert (len(during), len(at_end)) == (MAX_STREAMED, 1 + END_MESSAGES)


async def test_each_of_two_answers_of_a_turn_has_its_own_messages_and_file() -> None:
    first, second = words(500), words(501)
    during, at_end, files, stored = await deliver_long(
        TextEvent(first), AnswerEndEvent(), TextEvent(second), DONE
    )

    assert stored == [first, second]
    assert files == ["answer.md", "answer.md"]
    assert (len(during), len(at_end)) == (2 * MAX_STREAMED + 1 + END_MESSAGES, 1 + END_MESSAGES)
