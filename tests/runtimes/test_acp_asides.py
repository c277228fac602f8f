"""Asides over ACP, with scripted programs: their sessions, modes, answers and failures."""

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from remoteclaw.config.home import Home
from remoteclaw.errors import AsideFailed
from remoteclaw.events import AgentEvent, DoneEvent, NoticeEvent, TextEvent
from remoteclaw.protocols import AgentProcess
from remoteclaw.runtimes.acp.runtime import AcpRuntime
from remoteclaw.session.agent import AgentKeeper
from tests.support.bridges import acp_script, agent_process
from tests.support.waiting import HANG_S, eventually

#: Functions of a scripted program for sessions other than `s`; `note` records a request.
SCRIPT_FUNCTIONS = """
import os, time
def note(message):
    with open('notes', 'a') as file: file.write(json.dumps(message) + '\\n')
def within(session, kind, **more):
    say(jsonrpc='2.0', method='session/update',
        params=dict(sessionId=session, update=dict(sessionUpdate=kind, **more)))
def words(session, text):
    within(session, 'agent_message_chunk', content=dict(type='text', text=text))
def second(session, method='session/new', **offers):
    message = asked(method); note(message)
    answer(message, sessionId=session, **offers)
def question():
    message = asked('session/prompt'); note(message); return message
def wait(name):
    while not os.path.exists(name): time.sleep(0.005)
MODES = dict(availableModes=[dict(id=i) for i in ('code', 'plan', 'read-only')],
    currentModeId='code')
def option(name, *values):
    return dict(id=name, category=name, currentValue=values[0],
        options=[dict(value=value) for value in values])
"""
ASIDE_MODE = "option('mode', 'build', 'remoteclaw-aside')"


@contextlib.asynccontextmanager
async def agent_in_turn(
    home: Home, directory: Path, body: str, name: str = "acp", **spec: Any
) -> AsyncGenerator[tuple[AgentProcess, AsyncGenerator[AgentEvent, None], AgentKeeper], None]:
    """Start a scripted agent and a turn that has sent its first text."""
    command = acp_script(directory, SCRIPT_FUNCTIONS + body)
    async with (
        asyncio.timeout(HANG_S),
        agent_process(home, name, command=command, **spec) as (process, keeper),
    ):
        turn = process.turn("go")
        assert await anext(turn) == TextEvent("work")
        yield process, turn, keeper


async def rest_of_text(turn: AsyncGenerator[AgentEvent, None]) -> str:
    """Read a turn to its end and return its remaining text."""
    events = [event async for event in turn]
    assert isinstance(events[-1], DoneEvent)
    return "".join(event.text for event in events if isinstance(event, TextEvent))


def recorded_requests(home: Home) -> list[dict[str, Any]]:
    """Return the requests that the program has recorded outside its turn."""
    file = home.path / "work" / "notes"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def create_file(home: Home, name: str) -> None:
    (home.path / "work" / name).touch()


NL = "\n"
BEGIN = "prompt = begin(); text('work')\n"
END = "text(' done'); answer(prompt, stopReason='end_turn'); asked('nothing')\n"


async def test_an_acp_aside_runs_in_another_session_without_mcp_servers(
    home: Home, directory: Path
) -> None:
    """The aside gets the instructions without those about tools. The turn has none of its text."""
    body = (
        "prompt = begin(sessionCapabilities=dict(fork={})); text('work')\n"
        "second('t'); asking = question()\n"
        "words('t', 'be'); text(' and'); words('t', 'side')\n"
        f"answer(asking, stopReason='end_turn')\n{END}"
    )
    prompts = {"system_prompt": "with tools", "plain_prompt": "Be kind."}
    async with agent_in_turn(home, directory, body, **prompts) as (process, turn, _):
        answer = await process.aside("how far?")
        rest = await rest_of_text(turn)

    assert answer.text == "beside"
    assert rest == " and done"
    begun, asking = recorded_requests(home)
    assert begun["params"] == {"cwd": str(home.path / "work"), "mcpServers": []}
    assert asking["params"]["sessionId"] == "t"
    assert [part["text"] for part in asking["params"]["prompt"]] == ["Be kind.\n\nhow far?"]


async def test_several_acp_asides_run_at_once_and_outlast_their_turn(
    home: Home, directory: Path
) -> None:
    body = (
        f"{BEGIN}second('one'); second('two')\n"
        "first, other = question(), question()\n"
        "text(' done'); answer(prompt, stopReason='end_turn'); wait('go')\n"
        "for each in (other, first):\n"
        "    words(each['params']['sessionId'], each['params']['prompt'][0]['text'])\n"
        "    answer(each, stopReason='end_turn')\n"
        "prompt = asked('session/prompt'); text('again')\n"
        "answer(prompt, stopReason='end_turn'); asked('nothing')\n"
    )
    async with agent_in_turn(home, directory, body) as (process, turn, _):
        asking = [asyncio.create_task(process.aside(text)) for text in ("one?", "two?")]
        assert await rest_of_text(turn) == " done"
        assert process.parked_state() is None
        create_file(home, "go")
        assert [answer.text for answer in await asyncio.gather(*asking)] == ["one?", "two?"]
        assert process.parked_state() is not None
        assert await rest_of_text(process.turn("again")) == "again"


@pytest.mark.parametrize(
    ("offers", "chosen"),
    [
        ("models=dict(currentModelId='large')", []),
        (
            "modes=MODES, models=dict(currentModelId='small')",
            [
                ("session/set_model", {"modelId": "large"}),
                ("session/set_mode", {"modeId": "read-only"}),
            ],
        ),
        (
            "configOptions=[option('model', 'large'), option('mode', 'code', 'ask')]",
            [("session/set_config_option", {"configId": "mode", "value": "ask"})],
        ),
    ],
)
async def test_the_session_of_an_acp_aside_has_the_turns_model_and_a_safe_mode(
    home: Home, directory: Path, offers: str, chosen: list[Any]
) -> None:
    methods = [method for method, _ in chosen]
    body = (
        "answer(asked('initialize'), protocolVersion=1, agentCapabilities={})\n"
        "answer(asked('session/new'), sessionId='s', models=dict(currentModelId='large'))\n"
        f"prompt = asked('session/prompt'); text('work'); second('t', {offers})\n"
        f"for method in {methods}: message = asked(method); note(message); answer(message)\n"
        f"asking = question(); words('t', 'ok'); answer(asking, stopReason='end_turn'){NL}{END}"
    )
    async with agent_in_turn(home, directory, body, model="large") as (process, turn, _):
        assert (await process.aside("?")).text == "ok"
        await rest_of_text(turn)

    between = [(message["method"], message["params"]) for message in recorded_requests(home)[1:-1]]
    assert between == [(method, {"sessionId": "t", **choice}) for method, choice in chosen]


TOOLS = {
    "a permission": (
        "say(jsonrpc='2.0', id='p', method='session/request_permission',\n"
        "    params=dict(sessionId='t', toolCall=dict(toolCallId='1'), options=[]))\n"
        "denied = json.loads(sys.stdin.readline()); note(denied)\n"
    ),
    "a tool": "within('t', 'tool_call', toolCallId='1', title='rm', status='in_progress')\n",
    "the end of a tool": "within('t', 'tool_call_update', toolCallId='1', status='failed')\n",
}


@pytest.mark.parametrize("tool", TOOLS)
async def test_an_acp_aside_that_uses_a_tool_is_cancelled_and_fails(
    home: Home, directory: Path, tool: str
) -> None:
    """Its text is neither the answer nor part of the turn."""
    body = (
        f"{BEGIN}second('t'); asking = question(); words('t', 'Let me look.')\n"
        f"{TOOLS[tool]}note(asked('session/cancel')); words('t', 'Seen!')\n"
        f"answer(asking, stopReason='cancelled'){NL}{END}"
    )
    async with agent_in_turn(home, directory, body) as (process, turn, _):
        with pytest.raises(AsideFailed):
            await process.aside("?")
        assert await rest_of_text(turn) == " done"

    *_, last = recorded_requests(home)
    assert (last["method"], last["params"]) == ("session/cancel", {"sessionId": "t"})
    if tool == "a permission":
        (denied,) = (message for message in recorded_requests(home) if message.get("id") == "p")
        assert denied["result"] == {"outcome": {"outcome": "cancelled"}}


@pytest.mark.parametrize(
    ("end", "why"),
    [
        ("fail(asking, 401, 'the key is wrong')", "the key is wrong"),
        ("fail(asking, 429, 'quota')", "quota"),
        ("words('t', 'I'); fail(asking, -32603, 'terminated')", "terminated"),
        ("answer(asking, stopReason='refusal')", "refusal"),
        ("words('t', 'I'); answer(asking, stopReason='cancelled')", "cancelled"),
        ("answer(asking, stopReason='end_turn')", "end_turn"),
    ],
)
async def test_a_failed_acp_aside_does_not_affect_the_next_one(
    home: Home, directory: Path, end: str, why: str
) -> None:
    body = (
        f"{BEGIN}second('t'); asking = question(); {end}\n"
        f"second('u'); asking = question(); words('u', 'ok')\n"
        f"answer(asking, stopReason='end_turn'){NL}{END}"
    )
    async with agent_in_turn(home, directory, body) as (process, turn, _):
        with pytest.raises(AsideFailed, match=why):
            await process.aside("?")
        assert (await process.aside("?")).text == "ok"
        assert await rest_of_text(turn) == " done"


@pytest.mark.parametrize(
    "refusal",
    [
        "fail(message, -32601, 'no such method')",
        "answer(message, sessionId='s')",
        "answer(message)",
    ],
)
async def test_an_agent_without_a_second_session_gets_no_further_asides(
    home: Home, directory: Path, refusal: str
) -> None:
    body = f"{BEGIN}message = asked('session/new'); note(message); {refusal}\nwait('go')\n{END}"
    async with agent_in_turn(home, directory, body) as (process, turn, _):
        for _ in range(2):
            with pytest.raises(AsideFailed):
                await process.aside("?")
        create_file(home, "go")
        assert await rest_of_text(turn) == " done"

    assert len(recorded_requests(home)) == 1


async def test_an_acp_agent_that_exits_fails_its_turn_and_its_asides(
    home: Home, directory: Path
) -> None:
    body = f"{BEGIN}second('t'); question(); sys.exit(1)\n"
    async with agent_in_turn(home, directory, body) as (process, turn, _):
        with pytest.raises(AsideFailed, match="ended"):
            await process.aside("?")
        *_, error, done = [event async for event in turn]

    assert "ended in mid-turn" in error.detail  # type: ignore[union-attr]
    assert isinstance(done, DoneEvent)


async def test_a_cancelled_acp_aside_is_stopped_and_its_late_text_is_dropped(
    home: Home, directory: Path
) -> None:
    body = (
        f"{BEGIN}second('t'); asking = question(); words('t', 'a')\n"
        "note(asked('session/cancel')); words('t', 'late')\n"
        "say(jsonrpc='2.0', id='late', method='session/request_permission',\n"
        "    params=dict(sessionId='t', toolCall=dict(toolCallId='1'), options=[]))\n"
        "note(json.loads(sys.stdin.readline()))\n"
        f"answer(asking, stopReason='cancelled'){NL}{END}"
    )
    async with agent_in_turn(home, directory, body) as (process, turn, _):
        asking = asyncio.create_task(process.aside("?"))
        await eventually(lambda: len(recorded_requests(home)) == 2)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert await rest_of_text(turn) == " done"

    *_, cancelled, denied = recorded_requests(home)
    assert cancelled["params"] == {"sessionId": "t"}
    assert denied["result"] == {"outcome": {"outcome": "cancelled"}}


@pytest.mark.parametrize(
    ("abilities", "method"),
    [("close={}", "session/close"), ("close={}, delete={}", "session/delete")],
)
async def test_the_session_of_an_acp_aside_is_deleted_or_else_closed(
    home: Home, directory: Path, abilities: str, method: str
) -> None:
    body = (
        f"prompt = begin(sessionCapabilities=dict({abilities})); text('work'); second('t')\n"
        "asking = question(); words('t', 'ok'); answer(asking, stopReason='end_turn')\n"
        f"message = asked({method!r}); note(message); answer(message){NL}{END}"
    )
    async with agent_in_turn(home, directory, body) as (process, turn, _):
        assert (await process.aside("?")).text == "ok"
        assert await rest_of_text(turn) == " done"

    assert recorded_requests(home)[-1]["params"] == {"sessionId": "t"}


async def test_commands_of_an_asides_session_are_not_offered_in_the_conversation(
    home: Home, directory: Path
) -> None:
    body = (
        "def commands(session, name): within(session, 'available_commands_update',\n"
        "    availableCommands=[dict(name=name, description='')])\n"
        f"{BEGIN}commands('s', 'ours'); second('t'); asking = question()\n"
        "text(' done'); answer(prompt, stopReason='end_turn'); wait('go')\n"
        "words('t', 'ok'); answer(asking, stopReason='end_turn'); commands('t', 'its')\n"
        "commands('u', 'else'); open('said', 'w').close(); asked('nothing')\n"
    )
    async with agent_in_turn(home, directory, body) as (process, turn, _):
        asking = asyncio.create_task(process.aside("?"))
        await rest_of_text(turn)
        create_file(home, "go")
        await asking
        await eventually((home.path / "work" / "said").exists)
        answer = await rest_of_text(process.turn("/its", is_command=True))

    assert answer == "acp has no command /its. It has /ours."


# -- a copy of the conversation -------------------------------------------------------------------

COPIED = (
    "within('t', 'user_message_chunk', content=dict(type='text', text='go'))\n"
    "words('t', 'work'); within('t', 'tool_call', toolCallId='0', title='old', status='pending')\n"
)


async def test_an_opencode_aside_runs_in_a_fork_whose_mode_asks_for_every_tool(
    home: Home, directory: Path
) -> None:
    """The conversation that opencode replays is neither an answer nor a use of a tool."""
    body = (
        "prompt = begin(sessionCapabilities=dict(fork={}, close={}))\n"
        "answer(prompt, stopReason='end_turn'); prompt = asked('session/prompt'); text('work')\n"
        f"message = asked('session/fork'); note(message)\n{COPIED}"
        f"answer(message, sessionId='t', configOptions=[{ASIDE_MODE}])\n"
        "message = asked('session/set_config_option'); note(message)\n"
        "words('t', '[another mode]'); answer(message)\n"
        "asking = question(); words('t', 'ok'); answer(asking, stopReason='end_turn')\n"
        f"note(asked('session/close')){NL}{END}"
    )
    command = acp_script(directory, SCRIPT_FUNCTIONS + body)
    async with (
        asyncio.timeout(HANG_S),
        agent_process(home, "opencode", command=command) as (process, _),
    ):
        await rest_of_text(process.turn("one"))
        turn = process.turn("two")
        await anext(turn)
        assert (await process.aside("how far?")).text == "ok"
        assert await rest_of_text(turn) == " done"

    copied, mode, asking, closed = recorded_requests(home)
    assert copied["params"]["sessionId"] == "s"
    assert copied["params"]["mcpServers"] == []
    assert mode["params"] == {"sessionId": "t", "configId": "mode", "value": "remoteclaw-aside"}
    prompt = asking["params"]["prompt"][0]["text"]
    assert prompt.endswith("\n\nhow far?")
    # In a fork, opencode reports a running tool as interrupted; the prompt corrects this.
    assert "nothing of it was interrupted" in prompt
    assert closed["params"] == {"sessionId": "t"}


async def test_an_opencode_aside_in_a_first_turn_forks_nothing(home: Home, directory: Path) -> None:
    body = (
        "prompt = begin(sessionCapabilities=dict(fork={})); text('work')\n"
        f"second('t', configOptions=[{ASIDE_MODE}]); answer(asked('session/set_config_option'))\n"
        f"asking = question(); words('t', 'ok'); answer(asking, stopReason='end_turn'){NL}{END}"
    )
    async with agent_in_turn(home, directory, body, "opencode") as (process, turn, _):
        assert (await process.aside("how far?")).text == "ok"
        await rest_of_text(turn)

    _, asking = recorded_requests(home)
    assert asking["params"]["prompt"][0]["text"] == "how far?"


async def test_an_opencode_aside_fails_without_a_mode_that_asks_for_every_tool(
    home: Home, directory: Path
) -> None:
    """Another version, or its own settings, may lack the mode."""
    body = (
        f"{BEGIN}second('t', configOptions=[option('mode', 'build', 'plan')]); wait('go')\n"
        f"open('end', 'w').close(){NL}{END}"
    )
    async with agent_in_turn(home, directory, body, "opencode") as (process, turn, _):
        for _ in range(2):
            with pytest.raises(AsideFailed, match="no mode"):
                await process.aside("?")
        create_file(home, "go")
        await rest_of_text(turn)

    assert [message["method"] for message in recorded_requests(home)] == ["session/new"]


async def test_a_parked_agent_remembers_that_it_can_fork_sessions(
    home: Home, directory: Path
) -> None:
    body = "prompt = begin(sessionCapabilities=dict(fork={})); text('work')\n" + END
    async with agent_in_turn(home, directory, body, "opencode") as (process, turn, _):
        await rest_of_text(turn)
        state = process.parked_state()
        assert state is not None
        process.restore(state)  # type: ignore[attr-defined]
        aside = process._new_aside()  # type: ignore[attr-defined]

    assert aside._copies


# -- the log --------------------------------------------------------------------------------------

OPENCODE_LOG = (
    "def log(line): print('timestamp=1 level=ERROR run=1 message=' + line, file=sys.stderr,\n"
    "    flush=True)\n"
)
GEMINI_LOG = (
    "def log(line): print('[2026-11-23T05:52:00.000Z] [WARN] ' + line, file=sys.stderr,\n"
    "    flush=True)\n"
)


@pytest.mark.parametrize(
    ("name", "log", "line"),
    [
        (
            "opencode",
            OPENCODE_LOG,
            '"stream error" session.id=t error.error="The usage limit is reached"',
        ),
        ("gemini", GEMINI_LOG, "Attempt 1 failed with status 429. Retrying with backoff..."),
    ],
    ids=["opencode", "gemini"],
)
async def test_an_aside_that_waits_for_its_model_fails_and_its_turn_does_not(
    home: Home, directory: Path, name: str, log: str, line: str
) -> None:
    """gemini's log doesn't name the session: an aside's wait could abort its turn."""
    mode = f"configOptions=[{ASIDE_MODE}]" if name == "opencode" else ""
    body = (
        f"{log}{BEGIN}second('t', {mode})\n"
        + ("answer(asked('session/set_config_option'))\n" if mode else "")
        + f"asking = question(); log({line!r}); note(asked('session/cancel'))\n"
        f"answer(asking, stopReason='cancelled'){NL}{END}"
    )
    async with agent_in_turn(home, directory, body, name) as (process, turn, _):
        with pytest.raises(AsideFailed, match=r"limit|429"):
            await process.aside("?")
        events = [event async for event in turn]

    assert not [event for event in events if isinstance(event, NoticeEvent)]
    assert not events[-1].result.aborted  # type: ignore[union-attr]


def test_the_modes_for_asides_run_no_tools_unasked() -> None:
    assert {"auto", "code", "bypassPermissions", "yolo"}.isdisjoint(AcpRuntime.aside_modes)
