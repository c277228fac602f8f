"""Asides of claude and codex, with scripted programs: which output belongs to which question."""

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from remoteclaw.config.home import Home
from remoteclaw.errors import AsideFailed
from remoteclaw.events import AgentEvent, DoneEvent, PermissionEvent, TextEvent
from remoteclaw.protocols import AgentProcess
from remoteclaw.runtimes import asides as asides_module
from remoteclaw.runtimes.codex.thread import aside_of
from remoteclaw.session.agent import AgentKeeper
from tests.support.bridges import agent_process, claude_script, script
from tests.support.recording import spec_of
from tests.support.waiting import HANG_S, eventually

#: Functions of a scripted claude that read the question of an aside and answer it.
SCRIPT_FUNCTIONS = """
def question():
    while True:
        message = heard('control_request')
        if message['request']['subtype'] == 'side_question': return message
def tell(message, response, synthetic=False):
    say(type='control_response', response=dict(subtype='success',
        request_id=message['request_id'],
        response=dict(response=response, synthetic=synthetic)))
"""


async def text_of(events: AsyncGenerator[AgentEvent, None]) -> str:
    """Read a turn to its end and return its text."""
    return await rest_of_text(events, "")


async def rest_of_text(turn: AsyncGenerator[AgentEvent, None], text: str) -> str:
    """Read a turn to its end and return its whole text, which begins with `text`."""
    async for event in turn:
        text += event.text if isinstance(event, TextEvent) else ""
        if isinstance(event, DoneEvent):
            assert event.result.text == text
    return text


async def first_event(events: AsyncGenerator[AgentEvent, None]) -> AgentEvent:
    """Wait for the first event of a turn."""
    return await anext(events)


def claude(
    home: Home, directory: Path, body: str
) -> contextlib.AbstractAsyncContextManager[tuple[AgentProcess, AgentKeeper]]:
    """Start a scripted program that speaks claude's protocol."""
    return agent_process(home, "claude", command=claude_script(directory, SCRIPT_FUNCTIONS + body))


# -- answers during and after turns ---------------------------------------------------------------


async def test_each_aside_gets_its_own_answer_while_the_turn_runs(
    home: Home, directory: Path
) -> None:
    """The answers arrive in another order than the questions; the turn contains none of them."""
    body = (
        "echo(heard()); delta('work')\n"
        "one, two = question(), question()\n"
        "for each in (two, one): tell(each, 'about ' + each['request']['question'])\n"
        "while not os.path.exists('go'): time.sleep(0.005)\n"
        "delta('ing'); result('working'); heard()\n"
    )
    async with claude(home, directory, body) as (process, _), asyncio.timeout(HANG_S):
        turn = process.turn("go")
        assert await first_event(turn) == TextEvent("work")
        answers = list(await asyncio.gather(process.aside("one"), process.aside("two")))
        (home.path / "work" / "go").touch()
        assert await rest_of_text(turn, "work") == "working"
    assert [answer.text for answer in answers] == ["about one", "about two"]


async def test_an_aside_reads_ahead_while_the_turns_consumer_is_busy(
    home: Home, directory: Path
) -> None:
    """No text of the turn is lost or becomes the aside's answer."""
    body = (
        "echo(heard()); delta('a'); asked = question()\n"
        "for number in range(20): delta(str(number))\n"
        "tell(asked, 'beside'); result('')\n"
        "heard()\n"
    )
    async with claude(home, directory, body) as (process, _), asyncio.timeout(HANG_S):
        turn = process.turn("go")
        await first_event(turn)
        assert (await process.aside("?")).text == "beside"  # nothing reads the turn until then
        assert await rest_of_text(turn, "a") == "a" + "".join(map(str, range(20)))


async def test_messages_of_an_unread_turn_are_read_ahead_up_to_a_limit(
    home: Home, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asides_module, "MAX_MESSAGES_AHEAD", 3)
    body = (
        "echo(heard()); delta('a'); asked = question()\n"
        "for number in range(20): delta(str(number))\n"
        "tell(asked, 'beside'); result('')\n"
        "heard()\n"
    )
    async with claude(home, directory, body) as (process, _), asyncio.timeout(HANG_S):
        turn = process.turn("go")
        await first_event(turn)
        asking = asyncio.create_task(process.aside("?"))
        await eventually(lambda: len(process._messages._read_ahead) == 3)  # type: ignore[attr-defined]
        assert not asking.done()
        assert await rest_of_text(turn, "a") == "a" + "".join(map(str, range(20)))
        assert (await asking).text == "beside"


# -- compactions ----------------------------------------------------------------------------------


async def test_claude_is_asked_nothing_in_a_turn_that_begins_with_a_compaction(
    home: Home, directory: Path
) -> None:
    """The question waits until it is known whether the turn begins so."""
    body = (
        "echo(heard())\n"
        "while not os.path.exists('go'): time.sleep(0.005)\n"
        "say(type='system', subtype='status', status='compacting')\n"
        "say(type='system', subtype='compact_boundary', compact_metadata=dict(trigger='auto'))\n"
        "delta('a'); result('a'); heard()\n"
    )
    async with claude(home, directory, body) as (process, _), asyncio.timeout(HANG_S):
        turn = asyncio.create_task(text_of(process.turn("go")))
        asking = asyncio.create_task(process.aside("?"))
        await asyncio.sleep(0)
        (home.path / "work" / "go").touch()
        with pytest.raises(AsideFailed, match="claude summarizes the conversation"):
            await asking
        assert await turn == "a"


async def test_an_aside_of_claude_does_not_repeat_the_last_answer(
    home: Home, directory: Path
) -> None:
    body = (
        "echo(heard()); result('the last answer')\n"
        "echo(heard()); delta('a')\n"
        "for text in ('the last answer\\n\\nand this', 'the last answer', 'this'):\n"
        "    tell(question(), text)\n"
        "result('a'); heard()\n"
    )
    async with claude(home, directory, body) as (process, _), asyncio.timeout(HANG_S):
        await text_of(process.turn("one"))
        turn = process.turn("two")
        await first_event(turn)
        answers = [await process.aside("?") for _ in range(3)]
        assert await rest_of_text(turn, "a") == "a"
    assert [answer.text for answer in answers] == ["and this", "the last answer", "this"]


# -- the end of the turn --------------------------------------------------------------------------


async def test_the_end_of_a_turn_does_not_wait_for_its_asides(home: Home, directory: Path) -> None:
    """Their answers arrive after the turn; the agent isn't parked until then."""
    body = (
        "echo(heard()); delta('a'); one, two = question(), question(); result('a')\n"
        "while not os.path.exists('go'): time.sleep(0.005)\n"
        "tell(one, '1'); say(type='system', subtype='init', model='m'); tell(two, '2')\n"
        "echo(heard()); delta('b'); result('b')\n"
        "heard()\n"
    )
    async with claude(home, directory, body) as (process, _), asyncio.timeout(HANG_S):
        turn = process.turn("go")
        await first_event(turn)
        asking = [asyncio.create_task(process.aside(text)) for text in ("one", "two")]
        assert await rest_of_text(turn, "a") == "a"
        assert process.parked_state() is None
        (home.path / "work" / "go").touch()
        assert [answer.text for answer in await asyncio.gather(*asking)] == ["1", "2"]
        state = process.parked_state()
        assert state is not None
        assert state["default_model"] == "m"  # the message between the two answers was processed
        assert await text_of(process.turn("again")) == "b"


async def test_a_turn_that_begins_before_an_aside_is_answered_loses_nothing(
    home: Home, directory: Path
) -> None:
    body = (
        "echo(heard()); result(''); asked = question()\n"
        "echo(heard()); delta('b'); tell(asked, 'late'); delta('c'); result('bc')\n"
        "heard()\n"
    )
    async with claude(home, directory, body) as (process, _), asyncio.timeout(HANG_S):
        await text_of(process.turn("one"))
        asking = asyncio.create_task(process.aside("?"))
        await asyncio.sleep(0)
        assert await text_of(process.turn("two")) == "bc"
        assert (await asking).text == "late"


async def test_a_cli_request_between_turns_is_denied_while_an_aside_waits(
    home: Home, directory: Path
) -> None:
    body = (
        "echo(heard()); result(''); asked = question()\n"
        "say(type='control_request', request_id='r', request=dict(subtype='can_use_tool'))\n"
        "answer = heard('control_response')['response']\n"
        "tell(asked, answer['response']['behavior']); heard()\n"
    )
    async with claude(home, directory, body) as (process, _), asyncio.timeout(HANG_S):
        await text_of(process.turn("one"))
        assert (await process.aside("?")).text == "deny"


async def test_asides_are_answered_while_a_permission_request_is_open(
    home: Home, directory: Path
) -> None:
    body = (
        "echo(heard())\n"
        "say(type='control_request', request_id='r', request=dict(subtype='can_use_tool'))\n"
        "tell(question(), 'beside'); result(''); heard()\n"
    )
    async with claude(home, directory, body) as (process, _), asyncio.timeout(HANG_S):
        turn = process.turn("one")
        assert isinstance(await first_event(turn), PermissionEvent)
        assert (await process.aside("?")).text == "beside"
        await turn.aclose()


# -- no answer ------------------------------------------------------------------------------------


async def test_the_late_answer_to_a_cancelled_aside_is_dropped(home: Home, directory: Path) -> None:
    """Neither another aside nor a turn receives it."""
    body = (
        "echo(heard()); delta('a'); one = question(); two = question()\n"
        "tell(one, 'of one'); tell(two, 'of two'); delta('b'); result('ab')\n"
        "heard()\n"
    )
    async with claude(home, directory, body) as (process, _), asyncio.timeout(HANG_S):
        turn = process.turn("go")
        await first_event(turn)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await process.aside("one")
        assert (await process.aside("two")).text == "of two"
        assert await rest_of_text(turn, "a") == "ab"
        assert process.parked_state() is not None


@pytest.mark.parametrize(
    "ending", ["sys.exit()", "print('{cut', flush=True); time.sleep(600)"], ids=["dies", "cut"]
)
async def test_asides_fail_when_their_agent_dies(home: Home, directory: Path, ending: str) -> None:
    body = f"echo(heard()); delta('a'); question(); question(); {ending}\n"
    async with claude(home, directory, body) as (process, _), asyncio.timeout(HANG_S):
        turn = process.turn("go")
        await first_event(turn)
        results = await asyncio.gather(
            process.aside("one"), process.aside("two"), return_exceptions=True
        )
        assert [type(each) for each in results] == [AsideFailed, AsideFailed]
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
async def test_a_text_that_the_model_did_not_write_is_no_answer_to_an_aside(
    home: Home, directory: Path, answer: str
) -> None:
    body = f"echo(heard()); delta('a'); asked = question(); {answer}; result('a'); heard()\n"
    async with claude(home, directory, body) as (process, _), asyncio.timeout(HANG_S):
        turn = process.turn("go")
        await first_event(turn)
        with pytest.raises(AsideFailed, match=r"^No answer to the aside: claude says .*\w"):
            await process.aside("?")
        assert await rest_of_text(turn, "a") == "a"


# -- one turn after the other ---------------------------------------------------------------------


async def test_a_turn_that_is_closed_late_takes_nothing_from_the_next_turn(
    home: Home, directory: Path
) -> None:
    """Its consumer has read its end, but closes it only after the next turn has begun."""
    body = (
        "echo(heard()); result('')\n"
        "echo(heard()); delta('b'); asked = question(); delta('c'); tell(asked, 'beside')\n"
        "result('bc'); heard()\n"
    )
    async with claude(home, directory, body) as (process, _), asyncio.timeout(HANG_S):
        before = process.turn("one")
        assert isinstance(await first_event(before), DoneEvent)
        turn = process.turn("two")
        assert await first_event(turn) == TextEvent("b")
        await before.aclose()
        assert (await process.aside("?")).text == "beside"
        assert await rest_of_text(turn, "b") == "bc"


# -- codex ----------------------------------------------------------------------------------------

#: Functions of a scripted codex; `asked` returns RemoteClaw's next request with a method.
CODEX = """
def asked(method):
    for line in sys.stdin:
        message = json.loads(line)
        with open('asked', 'a') as file: file.write(line)
        if message.get('method') == method: return message
        if message.get('method') in ('initialize', 'account/read', 'hooks/list'): answer(message)
    sys.exit()
def answer(message, **result): say(id=message['id'], result=result)
def tell(method, thread, **params): say(method=method, params=dict(threadId=thread, **params))
def item(kind, thread, event='completed', **fields):
    tell('item/' + event, thread, item=dict(type=kind, id='i', **fields))
def end(thread, turn, status='completed'):
    tell('turn/completed', thread, turn=dict(id=turn, status=status))
answer(asked('thread/start'), thread=dict(id='main'), model='m-1')
first = asked('turn/start'); answer(first, turn=dict(id='t1')); end('main', 't1')
def running():
    answer(asked('turn/start'), turn=dict(id='t2')); item('agentMessage', 'main', text='a')
def copied():
    answer(asked('thread/fork'), thread=dict(id='copy')); return asked('turn/start')
"""


def codex(
    home: Home, directory: Path, body: str, **spec: Any
) -> contextlib.AbstractAsyncContextManager[tuple[AgentProcess, AgentKeeper]]:
    """Start a scripted program that speaks codex's protocol and has finished one turn."""
    return agent_process(home, "codex", command=script(directory, CODEX + body), **spec)


def requests(home: Home, method: str) -> list[dict[str, Any]]:
    """Return the parameters of each request with `method` that codex has received."""
    asked = map(json.loads, (home.path / "work" / "asked").read_text().splitlines())
    return [each["params"] for each in asked if each.get("method") == method]


async def test_a_codex_aside_runs_in_a_temporary_fork_of_the_thread(
    home: Home, directory: Path
) -> None:
    """The fork has the thread's model, which codex does not copy, and a read-only sandbox."""
    body = (
        "running(); asking = copied(); item('reasoning', 'copy', 'started')\n"
        "answer(asking, turn=dict(id='t3')); item('agentMessage', 'copy', text='beside')\n"
        "item('agentMessage', 'main', text='b'); end('copy', 't3')\n"
        "asked('thread/unsubscribe'); end('main', 't2'); asked('nothing')\n"
    )
    async with codex(home, directory, body, permissions="auto") as (process, _):
        async with asyncio.timeout(HANG_S):
            await text_of(process.turn("one"))
            turn = process.turn("two")
            assert await first_event(turn) == TextEvent("a")
            assert (await process.aside("?")).text == "beside"
            assert await rest_of_text(turn, "a") == "a\n\nb"
            assert process.parked_state() is not None
    (fork,) = requests(home, "thread/fork")
    assert (fork["threadId"], fork["lastTurnId"], fork["model"]) == ("main", "t1", "m-1")
    assert (fork["sandbox"], fork["approvalPolicy"]) == ("read-only", "untrusted")
    assert requests(home, "thread/unsubscribe") == [{"threadId": "copy"}]


@pytest.mark.parametrize("kind", ["webSearch", "imageView", "commandExecution", "unheardOf"])
async def test_a_codex_aside_that_starts_a_tool_is_interrupted_and_fails(
    home: Home, directory: Path, kind: str
) -> None:
    """It is interrupted at once, and its later text is dropped."""
    body = (
        "running(); answer(copied(), turn=dict(id='t3'))\n"
        f"item('agentMessage', 'copy', text='let me see'); item({kind!r}, 'copy', 'started')\n"
        "asked('turn/interrupt'); item('agentMessage', 'copy', text='found'); end('copy', 't3')\n"
        "asked('thread/unsubscribe'); end('main', 't2'); asked('nothing')\n"
    )
    async with codex(home, directory, body) as (process, _), asyncio.timeout(HANG_S):
        await text_of(process.turn("one"))
        turn = process.turn("two")
        await first_event(turn)
        with pytest.raises(AsideFailed, match="began to use a tool"):
            await process.aside("?")
        assert await rest_of_text(turn, "a") == "a"
    assert requests(home, "turn/interrupt") == [{"threadId": "copy", "turnId": "t3"}]


async def test_a_codex_aside_that_would_summarize_its_copy_fails(
    home: Home, directory: Path
) -> None:
    body = (
        "running(); answer(copied(), turn=dict(id='t3'))\n"
        "item('contextCompaction', 'copy', 'started')\n"
        "asked('turn/interrupt'); end('copy', 't3')\n"
        "asked('thread/unsubscribe'); end('main', 't2'); asked('nothing')\n"
    )
    async with codex(home, directory, body) as (process, _), asyncio.timeout(HANG_S):
        await text_of(process.turn("one"))
        turn = process.turn("two")
        await first_event(turn)
        with pytest.raises(AsideFailed, match="began to summarize the conversation"):
            await process.aside("?")
        assert await rest_of_text(turn, "a") == "a"


async def test_an_approval_request_in_a_codex_aside_is_denied_and_fails_it(
    home: Home, directory: Path
) -> None:
    """Also if codex reports no item. No person is asked."""
    body = (
        "running(); answer(copied(), turn=dict(id='t3'))\n"
        "say(id='r', method='item/commandExecution/requestApproval',\n"
        "    params=dict(threadId='copy', command='x'))\n"
        "json.loads(sys.stdin.readline())['result'] == {'decision': 'decline'} or sys.exit()\n"
        "asked('turn/interrupt'); item('agentMessage', 'copy', text='no'); end('copy', 't3')\n"
        "asked('thread/unsubscribe'); end('main', 't2'); asked('nothing')\n"
    )
    async with codex(home, directory, body) as (process, _), asyncio.timeout(HANG_S):
        await text_of(process.turn("one"))
        turn = process.turn("two")
        await first_event(turn)
        with pytest.raises(AsideFailed, match="asked to use a tool"):
            await process.aside("?")
        assert await rest_of_text(turn, "a") == "a"


async def test_a_codex_aside_cancelled_before_its_turn_starts_is_interrupted_then(
    home: Home, directory: Path
) -> None:
    """Codex reports the turn's id only then; without an interrupt, the model would work in vain."""
    body = (
        "running(); asking = copied()\n"
        "while not os.path.exists('go'): time.sleep(0.005)\n"
        "answer(asking, turn=dict(id='t3')); asked('turn/interrupt')\n"
        "end('copy', 't3', 'interrupted'); asked('thread/unsubscribe')\n"
        "end('main', 't2'); asked('nothing')\n"
    )
    async with codex(home, directory, body) as (process, _), asyncio.timeout(HANG_S):
        await text_of(process.turn("one"))
        turn = process.turn("two")
        await first_event(turn)
        asking = asyncio.create_task(process.aside("?"))
        await eventually(lambda: len(requests(home, "turn/start")) == 3)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        (home.path / "work" / "go").touch()
        assert await rest_of_text(turn, "a") == "a"


async def test_a_server_with_an_approved_tool_is_disabled_in_codex_asides(
    home: Home, directory: Path
) -> None:
    """In codex's own configuration, a single tool can have an approval mode."""
    settings = directory / "user" / ".codex"
    settings.mkdir()
    (settings / "config.toml").write_text(
        '[mcp_servers.free.tools.x]\napproval_mode = "approve"\n[mcp_servers.other]\ncommand="x"\n'
    )
    spec = spec_of("codex", env={"HOME": str(directory / "user")})
    config = aside_of(spec, directory)["config"]
    assert config == {
        "mcp_servers.free.enabled": False,
        "mcp_servers.other.default_tools_approval_mode": "prompt",
    }
