"""An agent's events on their way to a chat: bounded, whole, and in order."""

import asyncio
import tracemalloc
from collections.abc import AsyncGenerator
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remoteclaw.bridge.delivery import (
    BROKE_OFF,
    MAX_ANSWER,
    MAX_INPUT,
    MAX_OUTPUT,
    Delivered,
    DeliveryAdapter,
)
from remoteclaw.errors import ErrorCategory
from remoteclaw.events import (
    AgentEvent,
    AgentRunResult,
    AnswerEndEvent,
    DoneEvent,
    ErrorEvent,
    TextEvent,
    TextResetEvent,
    ToolResultEvent,
    ToolUseEvent,
)
from remoteclaw.messages import ReplyPayload, ToolCall
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
    """Return the messages that come of some events, and what else does."""

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
async def test_fifty_megabytes_take_bounded_memory(step: int) -> None:
    """And not all of it is read: an agent that runs wild is stopped."""
    read = 0

    async def runs_wild() -> AsyncGenerator[AgentEvent, None]:
        nonlocal read
        text = "All work and no play makes a dull boy.\n\n" * (step // 40)
        for _ in range(50_000_000 // step):
            read += step
            yield TextEvent(text)
        yield DONE

    tracemalloc.start()
    delivered = await adapter().process(runs_wild())
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert delivered.error is not None
    assert delivered.error.category is ErrorCategory.TOO_LONG
    assert read == min(50_000_000, (MAX_ANSWER // step + 1) * step)
    assert peak < 2 * step + 16_000_000


async def test_a_stream_without_a_result_delivers_what_it_said() -> None:
    payloads, delivered = await sent(TextEvent("half an ans"))

    assert [payload.text for payload in payloads] == ["half an ans"]
    assert not delivered.has_ended


async def test_an_error_comes_behind_the_text_before_it() -> None:
    heard: list[str] = []

    async def note(payload: ReplyPayload) -> None:
        heard.append(payload.text)

    callbacks = BridgeCallbacks(on_partial_reply=note, on_block_reply=note)
    failed = ErrorEvent(ErrorCategory.FATAL, "why")
    delivered = await deliver(
        TextEvent("said"), failed, TextEvent(" more"), DONE, callbacks=callbacks
    )

    assert heard == ["said more"]
    assert delivered.error == failed


async def test_of_tool_calls_the_beginning_is_kept() -> None:
    heard: list[ToolCall] = []
    use = ToolUseEvent("Bash", "1", {"command": "x" * 5000})
    delivered = await deliver(
        use,
        ToolResultEvent("1", "y" * 10_000, is_error=True),
        ToolResultEvent("unknown", "z"),
        DONE,
        callbacks=BridgeCallbacks(on_tool=heard.append),
    )

    (call,) = delivered.tool_calls
    assert (call.name, call.id, call.is_error) == ("Bash", "1", True)
    assert call.input[MAX_INPUT:] == "\n(… 1,014 more characters)"
    assert call.output[MAX_OUTPUT:] == "\n(… 2,000 more characters)"
    assert call.seconds is not None
    assert heard == [replace(call, output="", is_error=False, seconds=None), call]


async def test_silence_of_an_earlier_answer_is_silence() -> None:
    payloads, delivered = await sent(TextEvent("NO_REPLY"), AnswerEndEvent(), DONE)

    assert (payloads, delivered.is_silent) == ((), True)


@pytest.mark.parametrize("step", [1, 3, 100])
@pytest.mark.parametrize("limit", [4000, 85])
async def test_a_token_behind_an_answer_is_never_shown(step: int, limit: int) -> None:
    """Neither in a message, wherever that is cut, nor in live text."""
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
async def test_what_quotes_does_not_depend_on_how_the_stream_is_cut(step: int) -> None:
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
async def test_nothing_that_an_agent_says_breaks_delivery(text: str, step: int) -> None:
    """Whatever it is, it arrives within the limit and the same however it is cut."""
    deltas = [TextEvent(text[at : at + step]) for at in range(0, len(text), step)]

    payloads, _ = await sent(*deltas, DONE, limit=200)

    whole, _ = await sent(TextEvent(text), DONE, limit=200)
    assert payloads == whole
    assert all(0 < len(payload.text) <= 200 for payload in payloads)


# -- text that is taken back ----------------------------------------------------------------------

PARAGRAPHS = "".join(f"Paragraph {number} of the answer.\n\n" for number in range(12))


@given(st.lists(st.tuples(st.integers(1, 300), st.integers(0, 300)), max_size=9))
def test_what_was_delivered_and_is_said_again_is_not_delivered_again(
    breaks: list[tuple[int, int]],
) -> None:
    """A stream that breaks behind a complete message: claude reports the whole text then."""
    text = f"[[reply_to_current]] {PARAGRAPHS} NO_REPLY"
    events, position = list[AgentEvent](), 0
    for said, taken_back in breaks:
        events.append(TextEvent(text[position : position + said]))
        position = min(len(text), position + said)
        events.append(TextResetEvent(min(position, taken_back)))
        position -= min(position, taken_back)

    payloads, _ = asyncio.run(sent(*events, TextEvent(text[position:]), DONE, limit=100))

    whole, _ = asyncio.run(sent(TextEvent(text), DONE, limit=100))
    assert [payload.text for payload in payloads] == [payload.text for payload in whole]
    assert all(payload.reply_to_id for payload in payloads)


async def test_other_words_than_those_that_were_delivered_say_so() -> None:
    text, other = TextEvent(PARAGRAPHS[:250]), TextEvent("In other words.")

    payloads, _ = await sent(text, TextResetEvent(200), other, DONE, limit=100)

    *delivered, broke_off, last = [payload.text for payload in payloads]
    assert "".join(delivered).startswith("Paragraph 0 of the answer.")
    assert broke_off == BROKE_OFF
    assert last.endswith("In other words.")


async def test_other_words_than_those_that_were_only_shown_say_nothing() -> None:
    payloads, _ = await sent(TextEvent("One way"), TextResetEvent(7), TextEvent("Another"), DONE)

    assert [payload.text for payload in payloads] == ["Another"]
