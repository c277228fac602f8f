"""Previews and typing of running turns, on a platform that can edit messages."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from remoteclaw.channels import delivery, live
from remoteclaw.errors import LeaseLost
from remoteclaw.fleet import keys
from remoteclaw.host import process
from remoteclaw.session.notices import SECOND_TRY
from tests.support.bridges import script
from tests.support.leases import postpone
from tests.support.manual_turn import ManualTurn, wait_for_live_text_listener
from tests.support.platform import Platform
from tests.support.processes import children, is_alive
from tests.support.stack import REPLIES, Stack, kill
from tests.support.waiting import eventually


@pytest.fixture
def platform(directory: Path) -> Iterator[Platform]:
    made = Platform(directory / "platform")
    yield made
    made.end()


@contextlib.asynccontextmanager
async def served(stack: Stack, platform: Platform) -> AsyncIterator[None]:
    """Run an adapter that has subscribed to live text."""
    async with platform.served(stack.fleet):
        await wait_for_live_text_listener(stack.fleet)
        yield


async def wait_until_settled(stack: Stack) -> None:
    """Wait until every reply has its receipt and no preview is noted."""
    client: Any = stack.fleet.scripts.client

    async def is_settled() -> bool:
        left = keys.previews("test", "default"), keys.delivery_marks("test", "default")
        return not await client.xlen(REPLIES) and not await client.exists(*left)

    await eventually(is_settled)


def shown(platform: Platform, chat: str = "chat-1") -> list[str]:
    return [post.text for post in platform.chat(chat)]


def is_shown(platform: Platform, *texts: str, chat: str = "chat-1") -> bool:
    return shown(platform, chat) == [*texts]


async def test_one_message_shows_a_turn_and_becomes_its_answer(
    stack: Stack, platform: Platform
) -> None:
    async with served(stack, platform):
        turn = await ManualTurn.begin(stack.fleet)
        for text in ("Let", "Let me", "Let me see."):
            await turn.show(text)
            await eventually(partial(is_shown, platform, text))
        await turn.end("Let me see. Done.")
        await wait_until_settled(stack)

    assert shown(platform) == ["Let me see. Done."]
    assert [event["event"] for event in platform.events if event["event"] != "typing"] == [
        "preview",
        "edited",
        "edited",
        "delivered",
    ]


async def test_an_answer_long_after_its_preview_is_a_new_message(
    stack: Stack, platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new message notifies people, unlike an edit; the preview is deleted after it."""
    monkeypatch.setattr(delivery, "FRESH_S", -1.0)
    async with served(stack, platform):
        turn = await ManualTurn.begin(stack.fleet)
        await turn.show("Let me see.")
        await eventually(lambda: shown(platform) == ["Let me see."])
        await turn.end("Done.")
        await wait_until_settled(stack)

    assert shown(platform) == ["Done."]
    names = [event["event"] for event in platform.events if event["event"] != "typing"]
    assert names == ["preview", "delivered", "delete"]


async def test_each_message_of_a_turn_has_its_own_preview(stack: Stack, platform: Platform) -> None:
    async with served(stack, platform):
        turn = await ManualTurn.begin(stack.fleet)
        await turn.show("One")
        await eventually(lambda: shown(platform) == ["One"])
        await turn.say("One.")
        await eventually(lambda: shown(platform) == ["One."])
        await turn.show("Two", 1)
        await eventually(lambda: shown(platform) == ["One.", "Two"])
        await turn.end("Two.", 1)
        await wait_until_settled(stack)

    assert shown(platform) == ["One.", "Two."]


async def test_a_turn_that_ends_without_text_leaves_no_preview(
    stack: Stack, platform: Platform
) -> None:
    async with served(stack, platform):
        turn = await ManualTurn.begin(stack.fleet)
        await turn.show("Hm")
        await eventually(lambda: shown(platform) == ["Hm"])
        await turn.end("")
        await wait_until_settled(stack)

    assert shown(platform) == []


async def test_tools_and_the_plan_are_shown_as_one_line(stack: Stack, platform: Platform) -> None:
    tool = {"tool": "Bash", "argument": "make", "since_ms": 0, "seconds": None}
    ended = {"tool": "Read", "argument": "x", "since_ms": 0, "seconds": 1.0}
    plan = [{"text": "Look", "state": "completed"}, {"text": "Build", "state": "in_progress"}]
    async with served(stack, platform):
        turn = await ManualTurn.begin(stack.fleet)
        await turn.show("", activity=[ended, tool], plan=plan)

        await eventually(lambda: shown(platform) == ["Bash make · 1/2 Build"])


async def test_a_quiet_chat_gets_only_typing_and_replies(
    stack: Stack, platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "TYPING_S", 0.02)
    async with served(stack, platform):
        turn = await ManualTurn.begin(stack.fleet)
        await turn.show("Let", is_quiet=True)
        await eventually(lambda: len(platform.did("typing")) > 3)
        assert shown(platform) == []
        await turn.end("Done.")
        await wait_until_settled(stack)

    assert shown(platform) == ["Done."]


async def test_typing_is_shown_only_while_a_turn_runs(
    stack: Stack, platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "TYPING_S", 0.02)
    async with served(stack, platform):
        turn = await ManualTurn.begin(stack.fleet)
        await turn.show("")
        await eventually(lambda: len(platform.did("typing")) > 3)
        assert shown(platform) == []
        await turn.end("Done.")
        await wait_until_settled(stack)
        count = len(platform.did("typing"))
        other = await ManualTurn.begin(stack.fleet, "more", chat="chat-2")
        await other.show("")
        await eventually(lambda: len(platform.did("typing")) > count + 3)

        assert {event["chat"] for event in platform.did("typing")[count:]} == {"chat-2"}


async def test_a_postponed_turn_shows_no_typing_and_leaves_no_preview(
    stack: Stack, platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "TYPING_S", 0.02)
    monkeypatch.setattr(live, "ENDED_S", 0.2)
    async with served(stack, platform):
        turn = await ManualTurn.begin(stack.fleet)
        await turn.show("Let")
        await eventually(lambda: len(platform.did("typing")) > 3)
        await postpone(stack.fleet, turn.lease, 3_600_000)
        await wait_until_settled(stack)
        count = len(platform.did("typing"))
        other = await ManualTurn.begin(stack.fleet, "more", chat="chat-2")
        await other.show("")
        await eventually(lambda: len(platform.did("typing")) > count + 3)

        assert {event["chat"] for event in platform.did("typing")[count:]} == {"chat-2"}
        assert shown(platform) == []


async def test_late_live_text_of_an_ended_turn_is_not_shown(
    stack: Stack, platform: Platform
) -> None:
    client: Any = stack.fleet.scripts.client
    async with served(stack, platform):
        turn = await ManualTurn.begin(stack.fleet)
        await turn.show("Done")
        await eventually(lambda: shown(platform) == ["Done"])
        late = await client.get(keys.live(turn.lease.sid))
        await turn.end("Done.")
        await wait_until_settled(stack)
        await client.publish(keys.live_of("test", "default"), late)
        other = await ManualTurn.begin(stack.fleet, chat="chat-2")
        for text in ("And", "And so"):
            await other.show(text)
            await eventually(partial(is_shown, platform, text, chat="chat-2"))
        await other.end("And so on.")
        await wait_until_settled(stack)

    assert shown(platform) == ["Done."]
    assert len(platform.did("preview")) == 2


async def test_a_preview_is_taken_over_by_the_next_process(
    stack: Stack, platform: Platform
) -> None:
    first = platform.start_process(stack.redis.url)
    await wait_for_live_text_listener(stack.fleet)
    turn = await ManualTurn.begin(stack.fleet)
    await turn.show("Let")
    await eventually(lambda: shown(platform) == ["Let"])
    await wait_for_preview_note(stack)
    first.kill()
    first.wait()
    await turn.show("Let me see")
    platform.start_process(stack.redis.url)
    await eventually(lambda: shown(platform) == ["Let me see"])
    await turn.end("Let me see. Done.")
    await wait_until_settled(stack)

    assert shown(platform) == ["Let me see. Done."]


async def wait_for_preview_note(stack: Stack) -> None:
    """Wait until a preview is noted in Redis."""
    client: Any = stack.fleet.scripts.client
    await eventually(lambda: client.exists(keys.previews("test", "default")))


async def test_a_preview_of_a_killed_process_does_not_outlive_its_turn(
    stack: Stack, platform: Platform
) -> None:
    first = platform.start_process(stack.redis.url)
    await wait_for_live_text_listener(stack.fleet)
    turn = await ManualTurn.begin(stack.fleet)
    await turn.show("Let")
    await wait_for_preview_note(stack)
    first.kill()
    first.wait()
    await turn.end("Done.")
    platform.start_process(stack.redis.url)
    await wait_until_settled(stack)

    assert shown(platform) == ["Done."]


@pytest.mark.parametrize("side", ["before", "after"])
async def test_killing_an_adapter_around_a_previews_receipt_leaves_one_answer(
    stack: Stack, platform: Platform, side: Any
) -> None:
    """The preview is already the answer, and the next adapter doesn't duplicate it."""
    proxy = await stack.proxied()
    first = platform.start_process(proxy.url)
    await wait_for_live_text_listener(stack.fleet)
    turn = await ManualTurn.begin(stack.fleet)
    await turn.show("Let")
    await wait_for_preview_note(stack)
    failpoint = proxy.arm("receipt", side)
    await turn.end("Done.")
    await failpoint.wait()
    first.kill()
    first.wait()
    failpoint.cut()
    platform.start_process(stack.redis.url)
    await wait_until_settled(stack)

    assert shown(platform) == ["Done."]


async def test_a_preview_that_became_part_of_an_answer_stays_if_the_adapter_is_killed(
    stack: Stack, platform: Platform
) -> None:
    """The preview has become the first part; the second one is being sent."""
    first = platform.start_process(stack.redis.url)
    await wait_for_live_text_listener(stack.fleet)
    turn = await ManualTurn.begin(stack.fleet)
    await turn.show("Let")
    await wait_for_preview_note(stack)
    platform.tell(stops="file before")
    file = await stack.fleet.blobs.put(turn.lease.sid, "plan.txt", b"1, 2")
    await turn.end("Here.", attachments=(file,))
    await eventually(lambda: platform.did("held"))
    first.kill()
    first.wait()
    platform.tell()
    platform.start_process(stack.redis.url)
    await wait_until_settled(stack)

    (post,) = platform.chat("chat-1")
    assert (post.text, post.files) == ("Here.", {"plan.txt": "1, 2"})


async def test_replies_are_sent_before_live_text(stack: Stack, platform: Platform) -> None:
    """While a reply waits for a chat, no live text is sent there."""
    platform.tell(holds="chat-1")
    async with served(stack, platform):
        await stack.put_reply("test", "default", "first", chat="chat-1")
        await eventually(lambda: platform.did("held"))
        turn = await ManualTurn.begin(stack.fleet)
        other = await ManualTurn.begin(stack.fleet, chat="chat-2")
        await turn.show("Let")
        for text in ("a", "b", "c"):  # other chats still get live text
            await other.show(text)
            await eventually(partial(is_shown, platform, text, chat="chat-2"))
        assert [event["what"] for event in platform.did("held")] == ["send"]
        platform.tell()
        await eventually(lambda: shown(platform) == ["first", "Let"])
        await turn.end("Done.")
        await other.end("")
        await wait_until_settled(stack)

    assert shown(platform) == ["first", "Done."]


async def test_only_the_current_reader_can_note_a_preview(stack: Stack) -> None:
    late, next_ = (stack.fleet.replies.reader("test", "default") for _ in range(2))
    assert await next_.claim()

    with pytest.raises(LeaseLost):
        await late.note_preview("0" * 32, "m1", {"id": "m1"})
    assert not await next_.previews()


async def test_a_chat_too_busy_for_live_text_gets_its_answer(
    stack: Stack, platform: Platform
) -> None:
    """A rate limit of live text delays only live text."""
    platform.tell(busy_s={"chat-1": 0.2})
    async with served(stack, platform):
        turn = await ManualTurn.begin(stack.fleet)
        await turn.show("Let")
        await eventually(lambda: platform.did("busy"))
        await turn.end("Done.")
        platform.tell()
        await wait_until_settled(stack)

    assert shown(platform) == ["Done."]


async def test_a_rate_limited_chat_gets_live_text_less_often(
    stack: Stack, platform: Platform
) -> None:
    platform.tell(busy_s={"chat-1": 0.01})
    async with served(stack, platform):
        turn = await ManualTurn.begin(stack.fleet)
        await turn.show("Let")
        # Typing, then retries after 0.25 s and 0.5 s.
        await eventually(lambda: len(platform.did("busy")) > 2)
        since = time.monotonic()
        platform.tell()
        await eventually(lambda: shown(platform) == ["Let"])
        await turn.show("Let me")
        await eventually(lambda: shown(platform) == ["Let me"])
        assert time.monotonic() - since > 0.9  # the second update follows a second after the first
        await turn.end("Done.")
        await wait_until_settled(stack)


async def test_a_refused_edit_of_a_preview_does_not_lose_the_answer(
    stack: Stack, platform: Platform
) -> None:
    async with served(stack, platform):
        turn = await ManualTurn.begin(stack.fleet)
        await turn.show("Let")
        await eventually(lambda: shown(platform) == ["Let"])
        platform.delete("chat-1", platform.chat("chat-1")[0].id)
        await turn.end("Done.")
        await wait_until_settled(stack)

    assert shown(platform) == ["Done."]


#: An agent that uses a tool and writes text, and waits for a file after each of the two.
AT_WORK = """
def until(name):
    while not os.path.exists(f'DIRECTORY/{name}'): time.sleep(0.01)
while True:
    turn()
    say(type='tool_use', id='1', name='Bash', input={'command': 'make'})
    until('one')
    say(type='tool_result', id='1', output='done')
    say(type='text', text='It is made. ')
    until('two')
    say(type='text', text='All is well.')
    say(type='done')
"""


async def test_the_live_text_of_a_real_worker_is_shown(
    stack: Stack, platform: Platform, directory: Path
) -> None:
    command = list(script(directory, AT_WORK.replace("DIRECTORY", str(directory))))
    stack.configure({"runtime": "demo", "command": command})
    await stack.start_worker()
    async with served(stack, platform):
        await stack.append("go")
        await eventually(lambda: shown(platform) == ["Bash"])
        await eventually(lambda: platform.did("typing"))
        (directory / "one").touch()
        await eventually(lambda: shown(platform) == ["It is made."])
        (directory / "two").touch()
        await wait_until_settled(stack)

    assert shown(platform) == ["It is made. All is well."]
    assert len(platform.did("preview")) == 1


#: An agent that writes text and hangs at its first start, and answers at its second.
HANGS = """
turn()
if not os.path.exists('begun'):
    open('begun', 'w')
    say(type='text', text='Let me see')
    time.sleep(1000)
say(type='text', text='Done.')
say(type='done')
"""


async def test_the_preview_of_a_killed_worker_gives_way_to_the_second_attempt(
    stack: Stack, platform: Platform, directory: Path
) -> None:
    command = list(script(directory, HANGS))
    stack.configure({"runtime": "demo", "command": command})
    worker = await stack.start_worker()
    sweeping = asyncio.create_task(stack.fleet.sweeper.run())
    async with served(stack, platform):
        await stack.append("go")
        await eventually(lambda: shown(platform) == ["Let me see"])
        (horse,) = children(worker.pid)
        kill(horse)
        await eventually(lambda: not is_alive(horse))
        await stack.fleet.sweeper.release_dead(stack.home.host_id, process.is_alive)
        await eventually(lambda: "Done." in platform.texts)
        await wait_until_settled(stack)
    sweeping.cancel()

    assert shown(platform) == [SECOND_TRY, "Done."]
