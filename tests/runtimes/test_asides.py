"""Questions beside a turn, with a program that speaks claude's lines: who hears what, and when."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from remoteclaw.config.home import Home
from remoteclaw.errors import AsideFailed
from remoteclaw.events import AgentEvent, DoneEvent, PermissionEvent, TextEvent
from remoteclaw.protocols import AgentProcess
from remoteclaw.runtimes import asides as asides_module
from remoteclaw.session.agent import AgentKeeper
from tests.support.bridges import agent_process, claude_script
from tests.support.waiting import HANG_S, eventually

#: What such a program does about a question beside the turn.
WORDS = """
def question():
    while True:
        message = heard('control_request')
        if message['request']['subtype'] == 'side_question': return message
def tell(message, response, synthetic=False):
    say(type='control_response', response=dict(subtype='success',
        request_id=message['request_id'],
        response=dict(response=response, synthetic=synthetic)))
"""


async def spoken(events: AsyncGenerator[AgentEvent, None]) -> str:
    """Return what a turn says, to its end."""
    return await spoken_after(events, "")


async def spoken_after(turn: AsyncGenerator[AgentEvent, None], said: str) -> str:
    """Return what a turn says in all, with what was heard of it already."""
    async for event in turn:
        said += event.text if isinstance(event, TextEvent) else ""
        if isinstance(event, DoneEvent):
            assert event.result.text == said
    return said


async def first(events: AsyncGenerator[AgentEvent, None]) -> AgentEvent:
    """Return the first event of a turn, once it has come."""
    return await anext(events)


def claude(
    home: Home, directory: Path, body: str
) -> contextlib.AbstractAsyncContextManager[tuple[AgentProcess, AgentKeeper]]:
    """Have a program that speaks claude's lines as `body` says."""
    return agent_process(home, "claude", command=claude_script(directory, WORDS + body))


# -- who hears what -------------------------------------------------------------------------------


async def test_answers_come_while_the_turn_runs_each_to_its_question(
    home: Home, directory: Path
) -> None:
    """In another order than they were asked; the turn says nothing of them."""
    body = (
        "echo(heard()); delta('work')\n"
        "one, two = question(), question()\n"
        "for each in (two, one): tell(each, 'about ' + each['request']['question'])\n"
        "while not os.path.exists('go'): time.sleep(0.005)\n"
        "delta('ing'); result('working'); heard()\n"
    )
    async with claude(home, directory, body) as (process, _), asyncio.timeout(HANG_S):
        turn = process.turn("go")
        assert await first(turn) == TextEvent("work")
        answers = list(await asyncio.gather(process.aside("one"), process.aside("two")))
        (home.path / "work" / "go").touch()
        assert await spoken_after(turn, "work") == "working"
    assert answers == ["about one", "about two"]


async def test_an_aside_reads_for_a_turn_whose_listener_is_busy(
    home: Home, directory: Path
) -> None:
    """Nothing of the turn is lost, and none of it is the aside's."""
    body = (
        "echo(heard()); delta('a'); asked = question()\n"
        "for number in range(20): delta(str(number))\n"
        "tell(asked, 'beside'); result('')\n"
        "heard()\n"
    )
    async with claude(home, directory, body) as (process, _), asyncio.timeout(HANG_S):
        turn = process.turn("go")
        await first(turn)
        assert await process.aside("?") == "beside"  # meanwhile nobody reads the turn
        assert await spoken_after(turn, "a") == "a" + "".join(map(str, range(20)))


async def test_a_turn_that_nobody_reads_is_not_read_ahead_without_end(
    home: Home, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asides_module, "MOST_AHEAD", 3)
    body = (
        "echo(heard()); delta('a'); asked = question()\n"
        "for number in range(20): delta(str(number))\n"
        "tell(asked, 'beside'); result('')\n"
        "heard()\n"
    )
    async with claude(home, directory, body) as (process, _), asyncio.timeout(HANG_S):
        turn = process.turn("go")
        await first(turn)
        asking = asyncio.create_task(process.aside("?"))
        await eventually(lambda: len(process._messages._read) == 3)  # type: ignore[attr-defined]
        assert not asking.done()
        assert await spoken_after(turn, "a") == "a" + "".join(map(str, range(20)))
        assert await asking == "beside"


# -- the end of the turn --------------------------------------------------------------------------


async def test_the_end_of_a_turn_does_not_wait_for_its_asides(home: Home, directory: Path) -> None:
    """The answer comes behind it, also to several; the agent isn't parked until then."""
    body = (
        "echo(heard()); delta('a'); one, two = question(), question(); result('a')\n"
        "while not os.path.exists('go'): time.sleep(0.005)\n"
        "tell(one, '1'); say(type='system', subtype='init', model='m'); tell(two, '2')\n"
        "echo(heard()); delta('b'); result('b')\n"
        "heard()\n"
    )
    async with claude(home, directory, body) as (process, _), asyncio.timeout(HANG_S):
        turn = process.turn("go")
        await first(turn)
        asking = [asyncio.create_task(process.aside(text)) for text in ("one", "two")]
        assert await spoken_after(turn, "a") == "a"
        assert process.parked_state() is None
        (home.path / "work" / "go").touch()
        assert list(await asyncio.gather(*asking)) == ["1", "2"]
        state = process.parked_state()
        assert state is not None
        assert state["model"] == "m"  # what came between was not overheard
        assert await spoken(process.turn("again")) == "b"


async def test_a_turn_that_begins_before_an_aside_is_answered_loses_nothing(
    home: Home, directory: Path
) -> None:
    body = (
        "echo(heard()); result(''); asked = question()\n"
        "echo(heard()); delta('b'); tell(asked, 'late'); delta('c'); result('bc')\n"
        "heard()\n"
    )
    async with claude(home, directory, body) as (process, _), asyncio.timeout(HANG_S):
        await spoken(process.turn("one"))
        asking = asyncio.create_task(process.aside("?"))
        await asyncio.sleep(0)
        assert await spoken(process.turn("two")) == "bc"
        assert await asking == "late"


async def test_a_question_of_the_cli_between_turns_is_denied_while_an_aside_waits(
    home: Home, directory: Path
) -> None:
    body = (
        "echo(heard()); result(''); asked = question()\n"
        "say(type='control_request', request_id='r', request=dict(subtype='can_use_tool'))\n"
        "answer = heard('control_response')['response']\n"
        "tell(asked, answer['response']['behavior']); heard()\n"
    )
    async with claude(home, directory, body) as (process, _), asyncio.timeout(HANG_S):
        await spoken(process.turn("one"))
        assert await process.aside("?") == "deny"


async def test_asides_go_on_while_a_permission_is_open(home: Home, directory: Path) -> None:
    body = (
        "echo(heard())\n"
        "say(type='control_request', request_id='r', request=dict(subtype='can_use_tool'))\n"
        "tell(question(), 'beside'); result(''); heard()\n"
    )
    async with claude(home, directory, body) as (process, _), asyncio.timeout(HANG_S):
        turn = process.turn("one")
        assert isinstance(await first(turn), PermissionEvent)
        assert await process.aside("?") == "beside"
        await turn.aclose()


# -- no answer ------------------------------------------------------------------------------------


async def test_what_comes_late_of_a_cancelled_aside_is_dropped(home: Home, directory: Path) -> None:
    """Nobody else hears it: no other question, and no turn."""
    body = (
        "echo(heard()); delta('a'); one = question(); two = question()\n"
        "tell(one, 'of one'); tell(two, 'of two'); delta('b'); result('ab')\n"
        "heard()\n"
    )
    async with claude(home, directory, body) as (process, _), asyncio.timeout(HANG_S):
        turn = process.turn("go")
        await first(turn)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await process.aside("one")
        assert await process.aside("two") == "of two"
        assert await spoken_after(turn, "a") == "ab"
        assert process.parked_state() is not None


@pytest.mark.parametrize(
    "ending", ["sys.exit()", "print('{cut', flush=True); time.sleep(600)"], ids=["dies", "cut"]
)
async def test_an_agent_that_dies_answers_no_question_any_more(
    home: Home, directory: Path, ending: str
) -> None:
    body = f"echo(heard()); delta('a'); question(); question(); {ending}\n"
    async with claude(home, directory, body) as (process, _), asyncio.timeout(HANG_S):
        turn = process.turn("go")
        await first(turn)
        told = await asyncio.gather(
            process.aside("one"), process.aside("two"), return_exceptions=True
        )
        assert [type(each) for each in told] == [AsideFailed, AsideFailed]
        assert [type(event).__name__ async for event in turn] == ["ErrorEvent", "DoneEvent"]


@pytest.mark.parametrize(
    "answer",
    [
        "tell(asked, '(The model tried to call Bash.)', synthetic=True)",
        "tell(asked, None)",
        "tell(asked, 'API Error: 529 Overloaded.')",
        "tell(asked, 'Invalid API key · Fix external API key')",
        "tell(asked, 'Please run /login · API Error: 401')",
        "tell(asked, 'Prompt is too long')",
        "say(type='control_response', response=dict(subtype='error', error='Session is shutting "
        "down', request_id=asked['request_id']))",
    ],
    ids=["tool", "nothing", "529", "key", "login", "long", "refused"],
)
async def test_what_claude_says_in_the_model_s_place_is_no_answer(
    home: Home, directory: Path, answer: str
) -> None:
    body = f"echo(heard()); delta('a'); asked = question(); {answer}; result('a'); heard()\n"
    async with claude(home, directory, body) as (process, _), asyncio.timeout(HANG_S):
        turn = process.turn("go")
        await first(turn)
        with pytest.raises(AsideFailed, match=r"^No answer beside the turn: claude says .*\w"):
            await process.aside("?")
        assert await spoken_after(turn, "a") == "a"


async def test_an_agent_that_can_not_answer_beside_says_so(home: Home) -> None:
    async with agent_process(home, "demo") as (process, _):
        with pytest.raises(AsideFailed):
            await process.aside("?")
