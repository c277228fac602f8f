"""Claude's protocol with programs that speak it badly: real processes behind a bridge."""

import asyncio
import json
import time
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from remoteclaw.bridge import ChannelBridge
from remoteclaw.config.home import Home
from remoteclaw.errors import ErrorCategory
from remoteclaw.events import PermissionEvent
from remoteclaw.messages import AgentDeliveryResult, Entry, McpServerConfig, SessionKey, Turn
from remoteclaw.protocols import SIDE_EFFECTS_FILE, BridgeCallbacks, Decision, TurnSources
from remoteclaw.runtimes import pipes as pipes_module
from tests.support.bridges import agent_bridge, claude_script
from tests.support.processes import is_alive
from tests.support.stack import message
from tests.support.waiting import HANG_S, eventually


def texts_of(result: AgentDeliveryResult) -> list[str]:
    return [payload.text for payload in result.payloads]


async def answers_of(bridge: ChannelBridge, *texts: str) -> list[list[str]]:
    async with asyncio.timeout(HANG_S):
        return [texts_of(await bridge.handle(message(text))) for text in texts]


# -- results and turns ----------------------------------------------------------------------------


async def test_an_unrequested_result_of_claude_answers_no_message(
    home: Home, directory: Path
) -> None:
    body = (
        "for number in range(1, 4):\n"
        "    echo(heard()); delta(f'answer {number}'); result('')\n"
        "    say(type='system', subtype='init'); delta('by the way'); result('by the way')\n"
    )

    async with agent_bridge(home, "claude", command=claude_script(directory, body)) as (bridge, *_):
        answers = await answers_of(bridge, "one", "two", "three")

    assert answers == [["answer 1"], ["answer 2"], ["answer 3"]]


@pytest.mark.parametrize(
    ("lines", "is_kept"),
    [
        ("result('done'); say(type='control_request', request_id='r1', request={})", False),
        ("result('done'); sys.stdout.write('{'); sys.stdout.flush()", False),
        ("result('done'); say(type='control_response', response={})", True),
    ],
    ids=["question", "half a line", "nothing"],
)
async def test_claude_is_not_parked_with_an_open_request_or_half_a_line(
    home: Home, directory: Path, lines: str, is_kept: bool
) -> None:
    done = directory / "done"
    body = f"while True:\n    echo(heard()); {lines}; open({str(done)!r}, 'w').close()\n"

    async with agent_bridge(home, "claude", command=claude_script(directory, body)) as (
        bridge,
        keeper,
        _,
    ):
        await bridge.handle(message("one"))
        await eventually(done.exists)
        await keeper.park()
        await bridge.handle(message("two"))

        assert keeper.description.startswith("warm") is is_kept


# -- unreadable lines -----------------------------------------------------------------------------


async def test_an_agent_whose_request_cannot_be_answered_is_terminated(
    home: Home, directory: Path
) -> None:
    """Otherwise it would wait for the answer for as long as a turn may take."""
    body = (
        "echo(heard())\n"
        "request = dict(subtype='can_use_tool', tool_name='Bash', input={})\n"
        "say(type='control_request', request_id='r1', request=request)\n"
        "heard('control_response')\n"
    )

    async def decide(_event: PermissionEvent) -> Decision:
        return "yes"  # type: ignore[return-value]

    command = claude_script(directory, body)
    async with agent_bridge(home, "claude", command=command) as (bridge, keeper, _):
        async with asyncio.timeout(HANG_S):
            result = await bridge.handle(message("one"), BridgeCallbacks(on_permission=decide))

        assert keeper.ready is None
    assert result.error_category is ErrorCategory.FATAL
    assert result.error == "unforeseen: AttributeError"


async def test_the_time_that_people_take_to_decide_is_no_work_of_the_agent(
    home: Home, directory: Path
) -> None:
    body = "echo(heard())\nasks('r', 'Bash', {})\nheard('control_response')\nresult('done')\n"
    took_s = 0.0

    async def decide(_event: PermissionEvent) -> Decision:
        nonlocal took_s
        began = time.monotonic()
        await asyncio.sleep(0.5)
        took_s = time.monotonic() - began
        return Decision("allow")

    command = claude_script(directory, body)
    async with agent_bridge(home, "claude", command=command) as (bridge, *_):
        began = time.monotonic()
        result = await bridge.handle(message("one"), BridgeCallbacks(on_permission=decide))
        whole_s = time.monotonic() - began

    assert result.error_category is None
    assert took_s >= 0.5
    assert result.run.duration_ms <= (whole_s - took_s) * 1000 + 1


@pytest.mark.parametrize("line", ['{"type": "result", "resu', "x" * 300_000], ids=["cut", "long"])
async def test_an_unreadable_line_ends_the_turn_and_the_agent(
    home: Home, directory: Path, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    """It may have been the result, after which claude would send nothing else."""
    monkeypatch.setattr(pipes_module, "MAX_LINE_BYTES", 2000)
    body = f"echo(heard()); delta('so far'); print({line!r}, flush=True); time.sleep(600)\n"

    async with agent_bridge(home, "claude", command=claude_script(directory, body)) as (
        bridge,
        keeper,
        _,
    ):
        async with asyncio.timeout(HANG_S):
            result = await bridge.handle(message("one"))

        assert result.error_category is ErrorCategory.FATAL
        assert texts_of(result)[0] == "so far"
        assert keeper.ready is None


# -- session ids ----------------------------------------------------------------------------------


async def test_an_invalid_session_id_from_claude_is_ignored(home: Home, directory: Path) -> None:
    """It would become an argument on the next claude's command line."""
    argv = directory / "argv"
    body = (
        f"open({str(argv)!r}, 'a').write(json.dumps(sys.argv) + '\\n')\n"
        "echo(heard()); result('one', session_id='--dangerously-skip-permissions')\n"
    )

    async with agent_bridge(home, "claude", command=claude_script(directory, body)) as (
        bridge,
        keeper,
        session_map,
    ):
        await bridge.handle(message("one"))
        kept = list(session_map.values())
        await keeper.discard()
        await bridge.handle(message("two"))

    first, second = (json.loads(line) for line in argv.read_text().splitlines())
    assert f"--session-id={kept[0]}" in first
    assert f"--resume={kept[0]}" in second
    assert not any("dangerously" in argument for argument in second)


# -- starting -------------------------------------------------------------------------------------


async def test_a_stop_is_prompt_while_an_mcp_server_hangs_at_the_start(
    home: Home, directory: Path
) -> None:
    pid_file = directory / "pid"
    body = (
        "for _ in range(3): heard('control_request')\n"
        f"open({str(pid_file)!r}, 'w').write(str(os.getpid()))\n"
        "time.sleep(600)\n"
    )
    servers = {"slow": McpServerConfig(url="http://127.0.0.1:1/")}
    abort = asyncio.Event()

    command = claude_script(directory, body)
    async with agent_bridge(home, "claude", command=command, mcp_servers=servers) as (bridge, *_):
        turn = asyncio.create_task(bridge.handle(message("one"), abort=abort))
        await eventually(lambda: pid_file.exists() and pid_file.read_text())
        abort.set()
        async with asyncio.timeout(HANG_S):
            result = await turn

    assert result.error_category is ErrorCategory.ABORTED
    assert texts_of(result) == ["Stopped."]
    assert not is_alive(int(pid_file.read_text()))


# -- messages that join a turn --------------------------------------------------------------------


def entry(text: str, number: int) -> Entry:
    return Entry(f"{number}-0", message(text))


async def steered_by(bridge: ChannelBridge, *texts: str) -> AgentDeliveryResult:
    """Run a turn that `texts` join while it runs."""

    async def newcomers() -> AsyncGenerator[Entry, None]:
        for number, text in enumerate(texts, 2):
            yield entry(text, number)
        await asyncio.Event().wait()

    first = entry("one", 1)
    turn = Turn(SessionKey.of(first.message, agent="main"), (first,))
    async with asyncio.timeout(HANG_S):
        return await bridge.handle(turn, sources=TurnSources(newcomers=newcomers))


async def test_a_joined_message_that_a_hook_refuses_is_answered_with_the_refusal(
    home: Home, directory: Path
) -> None:
    body = (
        "one, two = heard(), heard()\n"
        "echo(one); delta('answer 1'); result('')\n"
        "say(type='result', num_turns=0, result='refused')\n"
        "heard()\n"
    )
    async with agent_bridge(home, "claude", command=claude_script(directory, body)) as (bridge, *_):
        result = await steered_by(bridge, "two")

    assert texts_of(result) == ["answer 1", "refused"]
    assert (result.error, result.steered, result.answered) == (None, ("2-0",), ("1-0",))


async def test_a_joined_message_counts_as_steered_if_claude_dies_while_answering(
    home: Home, directory: Path
) -> None:
    body = (
        "one, two = heard(), heard()\n"
        "echo(one); delta('answer 1'); result('')\n"
        "delta('[[reply_to_current]] half of answer'); os._exit(1)\n"
    )
    async with agent_bridge(home, "claude", command=claude_script(directory, body)) as (bridge, *_):
        result = await steered_by(bridge, "two")

    assert result.error_category is ErrorCategory.DIED
    assert (result.steered, result.answered) == (("2-0",), ("1-0",))
    assert [payload.text.strip() for payload in result.payloads[:2]] == [
        "answer 1",
        "half of answer",
    ]
    assert result.payloads[2].text.startswith("main stopped working")


@pytest.mark.parametrize(
    ("decision", "answer"),
    [
        (Decision("allow"), {"behavior": "allow", "updatedInput": {"command": "x"}}),
        (Decision("deny", "not today"), {"behavior": "deny", "message": "not today"}),
    ],
)
async def test_the_decision_of_a_person_is_passed_to_claude(
    home: Home, directory: Path, decision: Decision, answer: dict[str, Any]
) -> None:
    body = (
        "echo(heard())\n"
        "say(type='control_request', request_id='r', request=dict(subtype='can_use_tool',\n"
        "    tool_name='Bash', input=dict(command='x')))\n"
        "delta('while it waits ')\n"
        "delta(json.dumps(heard('control_response')['response']['response'])); result('')\n"
    )
    asked: list[PermissionEvent] = []
    shown = asyncio.Event()

    async def decide(event: PermissionEvent) -> Decision:
        asked.append(event)
        await shown.wait()  # the agent continues to send text
        return decision

    callbacks = BridgeCallbacks(
        on_permission=decide, on_live_text=lambda _, text: shown.set() if text else None
    )
    command = claude_script(directory, body)
    async with agent_bridge(home, "claude", command=command) as (bridge, *_):
        result = await bridge.handle(message("one"), callbacks)

    assert [(event.tool_name, event.input) for event in asked] == [("Bash", {"command": "x"})]
    assert result.run.permission_denials == (("Bash",) if decision.verdict == "deny" else ())
    text = result.payloads[0].text
    assert json.loads(text.removeprefix("while it waits ")) == answer


async def test_a_permission_request_that_claude_cancels_is_withdrawn(
    home: Home, directory: Path
) -> None:
    asked = directory / "asked"
    body = (
        "echo(heard())\n"
        "say(type='control_request', request_id='r', request=dict(subtype='can_use_tool',\n"
        "    tool_name='Bash', input={}))\n"
        f"while not os.path.exists({str(asked)!r}): time.sleep(0.01)\n"
        "say(type='control_cancel_request', request_id='r')\n"
        "result('I go on without it')\n"
    )
    is_cancelled = asyncio.Event()

    async def decide(event: PermissionEvent) -> Decision:
        asked.touch()
        try:
            await asyncio.sleep(600)
        finally:
            is_cancelled.set()
        raise AssertionError

    command = claude_script(directory, body)
    async with agent_bridge(home, "claude", command=command) as (bridge, *_):
        result = await bridge.handle(message("one"), BridgeCallbacks(on_permission=decide))

    assert result.payloads[0].text == "I go on without it"
    assert is_cancelled.is_set()


async def test_an_mcp_server_of_claude_gets_its_environment_and_a_side_effects_file(
    home: Home, directory: Path
) -> None:
    body = (
        "servers = None\n"
        "while servers is None:\n"
        "    asked = heard('control_request')\n"
        "    servers = asked['request'].get('servers')\n"
        "done = dict(subtype='success', request_id=asked['request_id'], response={})\n"
        "say(type='control_response', response=done)\n"
        "echo(heard()); delta(json.dumps(servers)); result('')\n"
    )
    servers = {"probe": McpServerConfig(command="probe", args=("-x",), env={"KEY": "value"})}
    command = claude_script(directory, body)
    async with agent_bridge(home, "claude", command=command, mcp_servers=servers) as (
        bridge,
        keeper,
        _,
    ):
        [[answer]] = await answers_of(bridge, "one")
        file = keeper.run_dir / SIDE_EFFECTS_FILE

    assert json.loads(answer)["probe"] == {
        "type": "stdio",
        "command": "probe",
        "args": ["-x"],
        "env": {"KEY": "value", "REMOTECLAW_SIDE_EFFECTS_FILE": str(file)},
    }


async def test_a_refused_conversation_is_kept_until_a_new_one_is_answered(
    home: Home, directory: Path
) -> None:
    body = (
        "while True:\n"
        "    message = heard(); echo(message)\n"
        "    fails = message['message']['content'][-2]['text'].endswith('fail')\n"
        "    result('API Error: 400' if fails else 'fine', is_error=fails, api_error_status=400)\n"
    )
    command = claude_script(directory, body)
    ids: list[str] = []
    async with agent_bridge(home, "claude", command=command) as (bridge, _, session_map):
        for text, begins_anew in (("hi", False), ("fail", False), ("fail", True), ("hi", True)):
            result = await bridge.handle(
                message(text), begins_anew=begins_anew, opening="(Anew.)" if begins_anew else ""
            )
            ids += session_map.values()
            assert result.is_stuck is (text == "fail" and not begins_anew)
            assert [each.text for each in result.payloads if each.text == "(Anew.)"] == (
                ["(Anew.)"] if (text, begins_anew) == ("hi", True) else []
            )

    assert ids[0] == ids[1] == ids[2]
    assert len({*ids}) == 2


# -- usage limits ---------------------------------------------------------------------------------

#: The messages of claude 2.1.197 about a reached usage limit.
LIMIT = (
    "say(type='rate_limit_event', rate_limit_info=dict(status='rejected', resetsAt={at},"
    " rateLimitType='five_hour', isUsingOverage=False))\n"
    "say(type='assistant', error='rate_limit', message=dict(model='<synthetic>', content=[]))\n"
)
HIT = "You've hit your session limit · resets 3:39am (UTC)"


async def test_the_end_of_a_usage_limit_is_read_from_its_event_and_remembered(
    home: Home, directory: Path
) -> None:
    ends = round(time.time()) + 7200
    failed = f"result({HIT!r}, is_error=True, api_error_status=429)\n"
    body = f"echo(heard())\n{LIMIT.format(at=ends)}{failed}echo(heard())\n{failed}heard()\n"
    async with agent_bridge(home, "claude", command=claude_script(directory, body)) as (bridge, *_):
        first, second = [await bridge.handle(message(text)) for text in ("one", "two")]

    for outcome in (first, second):
        assert outcome.error_category is ErrorCategory.USAGE_LIMIT
        assert outcome.retry_at_ms == ends * 1000
        assert "has used up what its plan allows until" in texts_of(outcome)[-1]


async def test_an_answer_that_quotes_a_limit_message_is_no_failure(
    home: Home, directory: Path
) -> None:
    body = f"echo(heard()); delta({HIT!r}); result({HIT!r})\nheard()\n"
    async with agent_bridge(home, "claude", command=claude_script(directory, body)) as (bridge, *_):
        outcome = await bridge.handle(message("what did the other one say?"))

    assert outcome.error_category is None
    assert texts_of(outcome) == [HIT]


# -- an answer that has ended, or breaks off ------------------------------------------------------

END = "say(type='stream_event', event=dict(type='message_delta', delta=dict(stop_reason={!r})))\n"


@pytest.mark.parametrize(
    ("late", "sentence"),
    [
        (
            "result('API Error: x', is_error=True)\nheard()",
            "main failed and couldn't finish your message: the answer",
        ),
        ("sys.exit(1)", "main stopped working in the middle of your message"),
    ],
)
@pytest.mark.parametrize(("reason", "is_done"), [("end_turn", True), ("max_tokens", False)])
async def test_a_failure_behind_the_end_of_the_answer_leaves_the_turn_done(
    home: Home, directory: Path, late: str, sentence: str, reason: str, is_done: bool
) -> None:
    """An answer that ended for another reason breaks off; the message need not be sent again."""
    body = f"echo(heard()); delta('Here it is.')\n{END.format(reason)}{late}\n"
    async with agent_bridge(home, "claude", command=claude_script(directory, body)) as (bridge, *_):
        outcome = await bridge.handle(message("one"))

    assert (outcome.error_category is None) is is_done
    words, *failure = texts_of(outcome)
    assert words == "Here it is."
    assert bool(failure) is not is_done
    assert all(text.startswith(sentence) for text in failure)


async def test_a_joining_message_without_an_answer_is_no_late_failure(
    home: Home, directory: Path
) -> None:
    """The first answer has ended, and claude fails before the second."""
    body = (
        f"one, two = heard(), heard(); echo(one); delta('One.')\n{END.format('end_turn')}"
        "result('API Error: 529 overloaded', is_error=True, api_error_status=529)\nheard()\n"
    )
    async with agent_bridge(home, "claude", command=claude_script(directory, body)) as (bridge, *_):
        outcome = await steered_by(bridge, "two")

    assert outcome.error_category is ErrorCategory.RETRYABLE
