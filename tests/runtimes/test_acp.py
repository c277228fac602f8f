"""The Agent Client Protocol with programs that speak it correctly, badly, or not at all."""

import asyncio
import dataclasses
import json
import time
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from remoteclaw.bridge.exchange import FORM
from remoteclaw.config.home import Home
from remoteclaw.errors import ErrorCategory
from remoteclaw.events import PermissionEvent, PlanStep, TextEvent
from remoteclaw.messages import (
    OWN_SERVER,
    AgentDeliveryResult,
    Attachment,
    Entry,
    McpServerConfig,
    SessionKey,
    Turn,
)
from remoteclaw.protocols import SIDE_EFFECTS_FILE, BridgeCallbacks, Decision, TurnSources
from remoteclaw.runtimes.acp.process import AcpProcess
from remoteclaw.runtimes.acp.runtime import AcpRuntime
from tests.support.bridges import OneFile, acp_script, agent_bridge, agent_process
from tests.support.pictures import png
from tests.support.stack import message
from tests.support.waiting import HANG_S, eventually


async def ask_once(
    home: Home,
    directory: Path,
    body: str,
    callbacks: BridgeCallbacks | None = None,
    abort: asyncio.Event | None = None,
    name: str = "acp",
    **options: Any,
) -> AgentDeliveryResult:
    """Send one message to an agent that is scripted by `body`; return the result."""
    command = acp_script(directory, body)
    async with (
        asyncio.timeout(HANG_S),
        agent_bridge(home, name, command=command, **options) as (bridge, *_),
    ):
        return await bridge.handle(message("hello"), callbacks, abort)


def texts_of(result: AgentDeliveryResult) -> list[str]:
    return [payload.text for payload in result.payloads]


async def test_an_acp_agent_answers_turns_and_reports_its_plan_and_its_tools(
    home: Home, directory: Path
) -> None:
    """The first prompt begins with the instructions, because ACP has no other place for them."""
    plan: list[PlanStep] = []
    body = (
        "prompt = begin()\n"
        "update('plan', entries=[dict(content='look', status='completed'),\n"
        "    dict(content='tell', status='pending')])\n"
        "update('tool_call', toolCallId='1', title='look', status='pending', rawInput={})\n"
        "update('tool_call_update', toolCallId='1', status='in_progress', rawInput=dict(at='x'))\n"
        "update('tool_call_update', toolCallId='1', status='completed', title='Looked at x',\n"
        "    content=[dict(type='content', content=dict(type='text', text='seen'))])\n"
        "update('of_the_future', what=1)\n"
        "text(prompt['params']['prompt'][0]['text'][:200])\n"
        "answer(prompt, stopReason='end_turn', usage=dict(inputTokens=3, outputTokens=4))\n"
        "prompt = asked('session/prompt')\n"
        "text(prompt['params']['prompt'][0]['text'][:20])\n"
        "answer(prompt, stopReason='end_turn')\n"
    )
    callbacks = BridgeCallbacks(on_plan=plan.extend)
    command = acp_script(directory, body)
    async with agent_bridge(home, "acp", command=command) as (bridge, *_):
        first = await bridge.handle(message("hello"), callbacks)
        second = await bridge.handle(message("hello"))

    assert "You are running inside RemoteClaw" in texts_of(first)[0]
    assert (first.run.usage.input_tokens, first.run.usage.output_tokens) == (3, 4)
    (call,) = first.tool_calls
    assert (call.name, call.input, call.output) == ("look", '{"at":"x"}', "seen")
    assert plan == [PlanStep("look", "completed"), PlanStep("tell", "pending")]
    assert texts_of(second)[0].startswith("[remoteclaw {")


#: A title with the name of our own server.
FETCHED = "Fetch https://evil.example/remoteclaw-tips"


@pytest.mark.parametrize(
    ("title", "kind", "found"),
    [
        ("Looking for tips", "fetch", ["Looking for tips (fetch)"]),
        (FETCHED, "fetch", [FETCHED]),
        ("Looking at a file", "read", []),
    ],
)
async def test_a_fetch_of_an_acp_agent_is_known_whatever_its_title_says(
    title: str, kind: str, found: list[str], home: Home, directory: Path
) -> None:
    body = (
        "prompt = begin()\n"
        f"update('tool_call', toolCallId='1', title={title!r}, kind={kind!r})\n"
        "update('tool_call_update', toolCallId='1', status='completed')\n"
        "text('done')\n"
        "answer(prompt, stopReason='end_turn')\n"
    )
    reached: list[tuple[str, str]] = []

    async def note(phase: str, detail: str) -> None:
        reached.append((phase, detail))

    result = await ask_once(home, directory, body, BridgeCallbacks(on_phase=note))

    assert texts_of(result) == ["done"]
    assert [name for phase, name in reached if phase == "web"] == found


async def test_an_unknown_acp_request_is_refused(home: Home, directory: Path) -> None:
    body = (
        "prompt = begin()\n"
        "say(jsonrpc='2.0', id='q', method='fs/read_text_file', params=dict(path='/etc/passwd'))\n"
        "text(json.dumps(asked()['error']))\n"
        "answer(prompt, stopReason='end_turn')\n"
    )
    result = await ask_once(home, directory, body)

    assert json.loads(texts_of(result)[0])["code"] == -32601


async def test_a_form_from_the_agent_is_cancelled_and_reported_once(
    home: Home, directory: Path
) -> None:
    body = (
        "prompt = begin()\n"
        "for id in 'ab':\n"
        "    say(jsonrpc='2.0', id=id, method='elicitation/create', params=dict(sessionId='s',\n"
        "        mode='form', message='Who `are`\\nyou?', requestedSchema=dict(type='object')))\n"
        "    text(json.dumps(asked()['result']))\n"
        "answer(prompt, stopReason='end_turn')\n"
    )
    result = await ask_once(home, directory, body)

    answers, notice = texts_of(result)
    assert answers == '{"action": "cancel"}{"action": "cancel"}'
    assert notice == FORM.format(who="The agent", message="Who 'are' you?")


@pytest.mark.parametrize(
    ("permissions", "verdict", "chosen"),
    [
        ("auto", None, "once"),
        ("ask", None, "no"),
        ("ask", "allow", "once"),
        ("ask", "deny", "no"),
        ("deny", "allow", "no"),
    ],
)
async def test_a_permission_request_is_answered_with_the_matching_option(
    home: Home, directory: Path, permissions: str, verdict: Any, chosen: str
) -> None:
    body = (
        "prompt = begin()\n"
        "options = [dict(optionId=i, kind=k, name=k) for i, k in (('always', 'allow_always'),\n"
        "    ('once', 'allow_once'), ('no', 'reject_once'))]\n"
        "call = dict(toolCallId='1', title='rm -rf', kind='execute', rawInput=dict(command='rm'))\n"
        "say(jsonrpc='2.0', id=0, method='session/request_permission',\n"
        "    params=dict(sessionId='s', toolCall=call, options=options))\n"
        "text(asked()['result']['outcome']['optionId'])\n"
        "answer(prompt, stopReason='end_turn')\n"
    )
    asked_for: list[PermissionEvent] = []

    async def decide(event: PermissionEvent) -> Decision:
        asked_for.append(event)
        return Decision(verdict)

    callbacks = BridgeCallbacks(on_permission=decide if verdict else None)
    result = await ask_once(home, directory, body, callbacks, permissions=permissions)

    assert texts_of(result)[0] == chosen
    is_denied = chosen == "no"
    assert result.run.permission_denials == (("rm -rf",) if is_denied else ())
    # A person who has denied it needs no notice.
    assert ("needs a permission" in texts_of(result)[-1]) is (is_denied and not asked_for)
    if asked_for:
        assert (asked_for[0].tool_name, asked_for[0].input) == ("rm -rf", {"command": "rm"})


async def test_a_permission_request_between_turns_is_denied(home: Home, directory: Path) -> None:
    question = (
        "say(jsonrpc='2.0', id='late', method='session/request_permission', params=dict(\n"
        "    toolCall=dict(toolCallId='1', title='x'), options=[]))\n"
    )
    body = (
        "answer(begin(), stopReason='end_turn')\n"
        f"{question}open('asked', 'w').close()\n"
        "got = asked()\n"
        "prompt = asked('session/prompt')\n"
        "text(json.dumps([got['id'], got['result']['outcome']['outcome']]))\n"
        "answer(prompt, stopReason='end_turn')\n"
        "asked('nothing')\n"
    )
    command = acp_script(directory, body)
    async with agent_bridge(home, "acp", command=command) as (bridge, *_):
        await bridge.handle(message("one"))
        await eventually((home.path / "work" / "asked").exists)
        result = await bridge.handle(message("two"))

    assert texts_of(result) == ['["late", "cancelled"]']


async def test_an_agent_with_an_unanswered_request_is_not_parked(
    home: Home, directory: Path
) -> None:
    body = (
        "answer(begin(), stopReason='end_turn')\n"
        "say(jsonrpc='2.0', id='late', method='session/request_permission', params={})\n"
        "open('asked', 'w').close()\n"
        "asked('nothing')\n"
    )
    command = acp_script(directory, body)
    async with agent_bridge(home, "acp", command=command) as (bridge, keeper, _):
        await bridge.handle(message("one"))
        await eventually((home.path / "work" / "asked").exists)
        await keeper.park()

        assert keeper.record() is None


async def test_a_permission_request_is_cancelled_when_the_turn_is_stopped(
    home: Home, directory: Path
) -> None:
    body = (
        "prompt = begin()\n"
        "say(jsonrpc='2.0', id=7, method='session/request_permission',\n"
        "    params=dict(sessionId='s', toolCall=dict(toolCallId='1', title='x'), options=[]))\n"
        "asked('session/cancel')\n"
        "got = asked()\n"
        "text(json.dumps([got['id'], got['result']['outcome']['outcome']]))\n"
        "answer(prompt, stopReason='cancelled')\n"
    )
    abort = asyncio.Event()

    async def decide(_event: PermissionEvent) -> Decision:
        abort.set()
        await asyncio.Event().wait()
        raise AssertionError

    result = await ask_once(home, directory, body, BridgeCallbacks(on_permission=decide), abort)

    assert texts_of(result) == ['[7, "cancelled"]', "Stopped."]
    assert result.error_category is ErrorCategory.ABORTED


@pytest.mark.parametrize(
    ("body", "category"),
    [
        ("sys.exit()", ErrorCategory.DIED),
        ("print('error: 401 unauthorized', file=sys.stderr); sys.exit(1)", ErrorCategory.AUTH),
        ("fail(asked('initialize'), -32000, 'sign in')", ErrorCategory.AUTH),
        ("print('{broken', flush=True); asked('nothing')", ErrorCategory.FATAL),
        ("prompt = begin(); sys.exit()", ErrorCategory.DIED),
        ("prompt = begin(); print('{bro', flush=True); asked('nothing')", ErrorCategory.FATAL),
        ("fail(begin(), 429, 'slow down'); asked('nothing')", ErrorCategory.RETRYABLE),
        (
            "fail(begin(), 429, 'daily quota spent'); asked('nothing')",
            ErrorCategory.USAGE_LIMIT,
        ),
        ("fail(begin(), -32603, 'context length'); asked('x')", ErrorCategory.CONTEXT_OVERFLOW),
        ("answer(begin(), stopReason='refusal'); asked('x')", ErrorCategory.FATAL),
        ("fail(begin(), 400, 'Invalid argument.'); asked('x')", ErrorCategory.INVALID_REQUEST),
        ("named(begin(), 'APIError', 'Invalid value'); asked('x')", ErrorCategory.INVALID_REQUEST),
        ("named(begin(), 'APIError', 'Forbidden'); asked('x')", ErrorCategory.AUTH),
        (
            "named(begin(), 'ContextOverflowError', 'too large'); asked('x')",
            ErrorCategory.CONTEXT_OVERFLOW,
        ),
    ],
)
async def test_each_acp_failure_has_its_error_category(
    home: Home, directory: Path, body: str, category: ErrorCategory
) -> None:
    named = (
        "def named(request, name, why):\n"
        "    error = dict(code=-32603, message=why, data=dict(service='session', errorName=name))\n"
        "    say(jsonrpc='2.0', id=request['id'], error=error)\n"
    )
    result = await ask_once(home, directory, named + body + "\n")

    assert result.error_category is category


async def test_a_tool_title_that_looks_like_an_mcp_tool_grants_no_permission(
    home: Home, directory: Path
) -> None:
    body = (
        "prompt = begin()\n"
        "options = [dict(optionId=i, kind=k) for i, k in (('once', 'allow_once'),\n"
        "    ('no', 'reject_once'))]\n"
        "for title in ('mcp__a__b__wipe', 'mcp__a__x; rm -rf ~', 'rm (a MCP Server)'):\n"
        "    say(jsonrpc='2.0', id=title, method='session/request_permission',\n"
        "        params=dict(toolCall=dict(toolCallId=title, title=title), options=options))\n"
        "    text(asked()['result']['outcome']['optionId'])\n"
        "answer(prompt, stopReason='end_turn')\n"
    )
    servers = {"a": McpServerConfig(command="a")}

    result = await ask_once(home, directory, body, mcp_servers=servers)

    assert texts_of(result)[0].split() == ["no", "no", "no"]


async def test_messages_of_other_acp_sessions_are_ignored(home: Home, directory: Path) -> None:
    body = (
        "prompt = begin()\n"
        "text('mine')\n"
        "chunk = dict(sessionUpdate='agent_message_chunk',\n"
        "    content=dict(type='text', text=' SOMEBODY ELSE'))\n"
        "say(jsonrpc='2.0', method='session/update', params=dict(sessionId='x', update=chunk))\n"
        "say(jsonrpc='2.0', id=0, method='session/request_permission',\n"
        "    params=dict(sessionId='x', toolCall=dict(toolCallId='1', title='x'), options=[]))\n"
        "assert asked()['result']['outcome']['outcome'] == 'cancelled'\n"
        "answer(prompt, stopReason='end_turn')\n"
    )

    assert texts_of(await ask_once(home, directory, body)) == ["mine"]


@pytest.mark.parametrize("is_parked", [False, True])
async def test_late_text_of_an_answer_is_not_part_of_the_next_answer(
    home: Home, directory: Path, is_parked: bool
) -> None:
    chunk = "update('agent_message_chunk', messageId='{}', content=dict(type='text', text='{}'))\n"
    body = (
        "prompt = begin()\n"
        f"{chunk.format('m1', 'one')}"
        "answer(prompt, stopReason='end_turn')\n"
        "prompt = asked('session/prompt')\n"
        f"{chunk.format('m1', ' late')}{chunk.format('m2', 'two')}"
        "answer(prompt, stopReason='end_turn')\n"
        "asked('nothing')\n"
    )
    command = acp_script(directory, body)
    async with agent_bridge(home, "acp", command=command) as (bridge, keeper, _):
        first = await bridge.handle(message("one"))
        if is_parked:
            await keeper.park()
        second = await bridge.handle(message("two"))

    assert (texts_of(first), texts_of(second)) == (["one"], ["two"])


async def test_a_request_sent_while_an_agent_is_parked_is_answered_later(
    home: Home, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if it arrives right after the check for parking: a lost request stays open forever."""
    body = (
        "answer(begin(), stopReason='end_turn')\n"
        "while not os.path.exists('ask'): time.sleep(0.001)\n"
        "say(jsonrpc='2.0', id='late', method='session/request_permission', params={})\n"
        "open('asked', 'w').close()\n"
        "got = asked()\n"
        "prompt = asked('session/prompt') if got['id'] == 'late' else got\n"
        "text('answered' if got['id'] == 'late' else 'lost')\n"
        "answer(prompt, stopReason='end_turn')\n"
        "asked('nothing')\n"
    )
    work = home.path / "work"
    parked_state = AcpProcess.parked_state

    def check_and_wait(process: AcpProcess) -> dict[str, Any] | None:
        state = parked_state(process)
        (work / "ask").touch()
        while not (work / "asked").exists():
            time.sleep(0.001)
        return state

    monkeypatch.setattr(AcpProcess, "parked_state", check_and_wait)
    command = acp_script(directory, body)
    async with agent_bridge(home, "acp", command=command) as (bridge, keeper, _):
        await bridge.handle(message("one"))
        await keeper.park()
        second = await bridge.handle(message("two"))

        assert keeper.description.startswith("warm")
    assert texts_of(second) == ["answered"]


async def test_an_agent_that_finishes_a_turn_with_an_open_request_is_terminated(
    home: Home, directory: Path
) -> None:
    body = (
        "prompt = begin()\n"
        "say(jsonrpc='2.0', id=0, method='session/request_permission',\n"
        "    params=dict(toolCall=dict(toolCallId='1', title='x'), options=[]))\n"
        "text('never mind'); answer(prompt, stopReason='end_turn')\n"
        "asked('nothing')\n"
    )

    async def decide(_event: PermissionEvent) -> Decision:
        await asyncio.Event().wait()
        raise AssertionError

    command = acp_script(directory, body)
    async with agent_bridge(home, "acp", command=command) as (bridge, keeper, _):
        result = await bridge.handle(message("one"), BridgeCallbacks(on_permission=decide))

        assert texts_of(result) == ["never mind"]
        assert keeper.record() is None


async def test_a_steered_message_that_is_slow_to_send_is_answered_once(
    home: Home, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message is part of the turn as soon as sending it begins."""
    capabilities = dataclasses.replace(AcpRuntime.capabilities, steers=True)
    monkeypatch.setattr(AcpRuntime, "capabilities", capabilities)
    body = (
        "one = begin()\n"
        "text('one. ')\n"
        "time.sleep(0.5)\n"  # the pipe is full by now
        "answer(one, stopReason='end_turn')\n"
        "two = asked('session/prompt')\n"
        "text('two.')\n"
        "answer(two, stopReason='end_turn')\n"
        "asked('nothing')\n"
    )
    is_begun = asyncio.Event()
    joined = Entry("2-0", message("x" * 400_000))

    async def newcomers() -> AsyncGenerator[Entry, None]:
        await is_begun.wait()
        yield joined
        await asyncio.Event().wait()

    turn = Turn(SessionKey.of(message("x"), agent="main"), (Entry("1-0", message("one")),))
    callbacks = BridgeCallbacks(on_live_text=lambda *_: is_begun.set())
    command = acp_script(directory, body)
    async with agent_bridge(home, "acp", command=command) as (bridge, *_):
        result = await bridge.handle(turn, callbacks, sources=TurnSources(newcomers=newcomers))

    assert result.steered == ("2-0",)
    assert "".join(texts_of(result)).count("two.") == 1


@pytest.mark.parametrize(
    ("capabilities", "method", "is_known"),
    [
        ("sessionCapabilities=dict(resume={}), loadSession=True", "session/resume", True),
        ("loadSession=True", "session/load", True),
        ("", "", False),
    ],
)
async def test_an_acp_session_is_resumed_or_else_loaded(
    home: Home, directory: Path, capabilities: str, method: str, is_known: bool
) -> None:
    body = (
        f"answer(asked('initialize'), agentCapabilities=dict({capabilities}))\n"
        "begun = asked()\n"
        "if begun['method'] == 'session/new': answer(begun, sessionId='s')\n"
        "else:\n"
        "    update('user_message_chunk', content=dict(type='text', text='before'))\n"
        "    text('said before')\n"
        "    answer(begun)\n"
        "prompt = asked('session/prompt')\n"
        "text(begun['method'] + ' ' + prompt['params']['sessionId'])\n"
        "answer(prompt, stopReason='end_turn')\n"
        "asked('nothing')\n"
    )
    command = acp_script(directory, body)
    async with agent_bridge(home, "acp", command=command) as (bridge, keeper, session_map):
        await bridge.handle(message("one"))
        await keeper.discard()
        result = await bridge.handle(message("two"))
        kept = dict(session_map)

    if is_known:
        assert texts_of(result) == [f"{method} s"]
    else:
        assert result.error_category is ErrorCategory.SESSION_EXPIRED
        assert kept == {}


async def test_a_resumed_acp_session_gets_the_agents_default_model_back(
    home: Home, directory: Path
) -> None:
    body = (
        "answer(asked('initialize'), agentCapabilities=dict(sessionCapabilities=dict(resume={})))\n"
        "begun, own = asked(), dict(currentModelId='its-own')\n"
        "if begun['method'] == 'session/new': answer(begun, sessionId='s', models=own)\n"
        "else:\n"
        "    answer(begun, models=dict(currentModelId='asked-for-last'))\n"
        "    begun = asked('session/set_model')\n"
        "    answer(begun)\n"
        "prompt = asked('session/prompt')\n"
        "text(json.dumps(begun['params'].get('modelId'))); answer(prompt, stopReason='end_turn')\n"
        "asked('nothing')\n"
    )
    command = acp_script(directory, body)
    async with agent_bridge(home, "acp", command=command) as (bridge, keeper, _):
        first = await bridge.handle(message("one"))
        await keeper.discard()
        second = await bridge.handle(message("two"))

    assert [*texts_of(first), *texts_of(second)] == ["null", '"its-own"']


async def test_a_loaded_acp_session_without_history_counts_as_lost(
    home: Home, directory: Path
) -> None:
    """Some agents begin an empty session for an unknown id."""
    body = (
        "answer(asked('initialize'), agentCapabilities=dict(loadSession=True))\n"
        "begun = asked()\n"
        "update('available_commands_update', availableCommands=[])\n"
        "answer(begun, sessionId='s')\n"
        "answer(asked('session/prompt'), stopReason='end_turn')\n"
        "asked('nothing')\n"
    )
    command = acp_script(directory, body)
    async with agent_bridge(home, "acp", command=command) as (bridge, keeper, session_map):
        await bridge.handle(message("one"))
        await keeper.discard()
        result = await bridge.handle(message("two"))

    assert result.error_category is ErrorCategory.SESSION_EXPIRED
    assert session_map == {}


MODELS = "models=dict(currentModelId='a/1', availableModels=[])"
OPTIONS = (
    "configOptions=[dict(id='mode', category='mode', currentValue='x', options=[]),"
    " dict(id='llm', category='model', currentValue='a/1', options=[])]"
)
SET_MODEL = {"method": "session/set_model", "params": {"sessionId": "s", "modelId": "a/2"}}
SET_OPTION = {
    "method": "session/set_config_option",
    "params": {"sessionId": "s", "configId": "llm", "value": "a/2"},
}


@pytest.mark.parametrize(
    ("offered", "model", "request_"),
    [
        (MODELS, "a/1", None),
        (MODELS, "a/2", SET_MODEL),
        ("models=dict(currentModelId='a/2')", "a/2", None),  # gemini doesn't list its current model
        ("", "a/2", SET_MODEL),
        (f"{MODELS}, {OPTIONS}", "a/1", None),
        (f"{MODELS}, {OPTIONS}", "a/2", SET_OPTION),
    ],
)
async def test_the_acp_model_is_set_by_id_and_only_if_needed(
    home: Home, directory: Path, offered: str, model: str, request_: dict[str, Any] | None
) -> None:
    body = (
        "answer(asked('initialize'))\n"
        f"answer(asked('session/new'), sessionId='s', {offered})\n"
        "chosen = None\n"
        "while (prompt := asked())['method'] != 'session/prompt':\n"
        "    chosen = dict(method=prompt['method'], params=prompt['params'])\n"
        "    answer(prompt)\n"
        "text(json.dumps(chosen))\n"
        "answer(prompt, stopReason='end_turn')\n"
    )

    result = await ask_once(home, directory, body, model=model)

    assert json.loads(texts_of(result)[0]) == request_


async def test_an_acp_model_that_cannot_be_set_is_reported(home: Home, directory: Path) -> None:
    body = (
        "answer(asked('initialize'))\n"
        "answer(asked('session/new'), sessionId='s')\n"
        "fail(asked('session/set_model'), -32602, 'no such model')\n"
        "asked('nothing')\n"
    )
    command = acp_script(directory, body)
    async with agent_bridge(home, "acp", command=command, model="best") as (bridge, *_):
        result = await bridge.handle(message("hello", provider="web"))

    assert result.error_category is ErrorCategory.UNKNOWN_MODEL
    assert texts_of(result)[0].startswith(
        "main's account can't use the model `best` (acp: `no such model`). "
    )


async def test_an_acp_model_whose_change_was_cut_off_is_set_again(
    home: Home, directory: Path
) -> None:
    """The agent may have changed it, so neither model is certain."""
    body = (
        "answer(asked('initialize'))\n"
        f"answer(asked('session/new'), sessionId='s', {MODELS})\n"
        "late = asked('session/set_model')\n"
        "open('heard', 'w').close()\n"
        "again = asked('session/set_model'); answer(late); answer(again)\n"
        "prompt = asked('session/prompt')\n"
        "text(again['params']['modelId']); answer(prompt, stopReason='end_turn')\n"
        "asked('nothing')\n"
    )
    command = acp_script(directory, body)
    async with agent_process(home, "acp", command=command) as (process, _):
        changing = asyncio.create_task(process.set_model("a/2"))
        await eventually((home.path / "work" / "heard").exists)
        changing.cancel()
        await asyncio.wait((changing,))
        async with asyncio.timeout(HANG_S):
            assert await process.set_model(None) is True
            events = [event async for event in process.turn("hello")]

    assert TextEvent("a/1") in events


async def test_an_unknown_command_is_not_sent(home: Home, directory: Path) -> None:
    body = (
        "answer(asked('initialize'))\n"
        "answer(asked('session/new'), sessionId='s')\n"
        "known = [dict(name='init'), dict(name='memory show'), dict(name='memory list')]\n"
        "update('available_commands_update', availableCommands=known)\n"
        "prompt = asked('session/prompt')\n"
        "text(json.dumps(prompt['params']['prompt'])); answer(prompt, stopReason='end_turn')\n"
        "asked('nothing')\n"
    )

    def command(text: str) -> Turn:
        entry = Entry(id="1-0", message=message(text), is_command=True)
        return Turn(SessionKey.of(entry.message, agent="main"), (entry,))

    async with agent_bridge(home, "acp", command=acp_script(directory, body)) as (bridge, *_):
        unknown = await bridge.handle(command("/nonsense now"))
        known = await bridge.handle(command("/memory show"))

    assert texts_of(unknown) == ["acp has no command /nonsense. It has /init, /memory."]
    assert texts_of(known) == ['[{"type": "text", "text": "/memory show"}]']


async def test_mcp_servers_are_passed_with_their_environment_and_headers(
    home: Home, directory: Path
) -> None:
    body = (
        "answer(asked('initialize'), agentCapabilities=dict(mcpCapabilities=dict(http=True)))\n"
        "begun = asked('session/new')\n"
        "answer(begun, sessionId='s')\n"
        "prompt = asked('session/prompt')\n"
        "text(json.dumps(begun['params']['mcpServers']))\n"
        "answer(prompt, stopReason='end_turn')\n"
        "asked('nothing')\n"
    )
    servers = {
        "probe": McpServerConfig(command="probe", args=("-x",), env={"KEY": "value"}),
        "web": McpServerConfig(url="https://example.org/mcp", headers={"Authorization": "t"}),
    }
    command = acp_script(directory, body)
    async with agent_bridge(home, "acp", command=command, mcp_servers=servers) as (
        bridge,
        keeper,
        _,
    ):
        result = await bridge.handle(message("hello"))
        file = str(keeper.run_dir / SIDE_EFFECTS_FILE)

    probe, web = json.loads(texts_of(result)[0])
    assert probe == {
        "name": "probe",
        "command": "probe",
        "args": ["-x"],
        "env": [
            {"name": "KEY", "value": "value"},
            {"name": "REMOTECLAW_SIDE_EFFECTS_FILE", "value": file},
        ],
    }
    assert web["headers"] == [{"name": "Authorization", "value": "t"}]


async def test_an_http_mcp_server_is_left_out_if_the_agent_does_not_support_http(
    home: Home, directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    body = (
        "answer(asked('initialize'), agentCapabilities=dict(mcpCapabilities=dict(sse=True)))\n"
        "begun = asked('session/new')\n"
        "answer(begun, sessionId='s')\n"
        "prompt = asked('session/prompt')\n"
        "text(json.dumps([server['name'] for server in begun['params']['mcpServers']]))\n"
        "answer(prompt, stopReason='end_turn')\n"
    )
    servers = {
        "probe": McpServerConfig(command="probe"),
        "web": McpServerConfig(url="https://example.org/mcp"),
        OWN_SERVER: McpServerConfig(url="http://127.0.0.1:1/mcp"),
    }

    result = await ask_once(home, directory, body, mcp_servers=servers)

    assert texts_of(result) == ['["probe"]']
    assert [record.getMessage() for record in caplog.records if "HTTP" in record.msg] == [
        "acp takes no MCP server over HTTP: web is left out",
        f"acp takes no MCP server over HTTP: {OWN_SERVER} is left out, "
        'unless mcp_transport = "stdio"',
    ]


@pytest.mark.parametrize("is_shown", [True, False])
async def test_an_image_is_sent_if_the_agent_accepts_images_and_its_path_always(
    home: Home, directory: Path, is_shown: bool
) -> None:
    body = (
        f"prompt = begin(promptCapabilities=dict(image={is_shown}))\n"
        "text(json.dumps(prompt['params']['prompt']))\n"
        "answer(prompt, stopReason='end_turn')\n"
    )
    picture = png()
    file = Attachment(name="red.png", mime_type="image/png", size=len(picture), blob="0" * 32)
    command = acp_script(directory, body)
    async with agent_bridge(home, "acp", command=command, attachments=OneFile(picture)) as (
        bridge,
        *_,
    ):
        result = await bridge.handle(message("look", attachments=(file,)))

    # After it, there is a note about the `[[attach:PATH]]` of the system prompt.
    parts, _ = json.JSONDecoder().raw_decode("".join(texts_of(result)))
    assert [part["type"] for part in parts] == ["text", "image"][: 1 + is_shown]
    assert "1-red.png" in parts[0]["text"]


async def test_a_command_is_sent_without_instructions_which_the_next_prompt_has(
    home: Home, directory: Path
) -> None:
    body = """
prompt = begin()
while True:
    text(prompt['params']['prompt'][0]['text'])
    answer(prompt, stopReason='end_turn')
    prompt = asked('session/prompt')
"""
    asked_for: list[int] = []

    async def denials() -> list[dict[str, str]]:
        asked_for.append(1)
        return [{"tool": "Bash", "what": "rm", "by": "Ada", "why": "no"}]

    command = acp_script(directory, body)
    session = SessionKey.of(message("hello"), agent="main")
    entry = Entry("1-0", message("/memory show"), is_command=True)
    async with agent_bridge(home, "acp", command=command) as (bridge, *_):
        first = await bridge.handle(Turn(session, (entry,)), sources=TurnSources(denials=denials))
        assert not asked_for
        second = await bridge.handle(message("hello"), sources=TurnSources(denials=denials))

    assert texts_of(first) == ["/memory show"]
    assert '"denied":[{"tool":"Bash","what":"rm","by":"Ada","why":"no"}]' in "".join(
        texts_of(second)
    )
    assert "You are running inside RemoteClaw" in texts_of(second)[0]
