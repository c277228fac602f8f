"""The ten steps of a turn, with the demo agent in a real holder."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from remoteclaw.bridge import Hooks
from remoteclaw.bridge.hooks import AfterRuntimeExit, AgentEnd, BeforeRuntimeSpawn, SpawnOverride
from remoteclaw.config.home import Home
from remoteclaw.config.model import HooksConfig
from remoteclaw.errors import ConfigError, ErrorCategory, LeaseLost
from remoteclaw.events import ToolResultEvent
from remoteclaw.holder import client, runs
from remoteclaw.messages import Entry, ReplyPayload, SentTarget, SessionKey, Turn
from remoteclaw.protocols import BridgeCallbacks
from tests.support.bridges import demo_bridge, script
from tests.support.processes import is_alive, is_killed, marked_processes, parent
from tests.support.stack import message
from tests.support.waiting import HANG_S, eventually


async def test_the_next_message_goes_to_the_same_process(home: Home) -> None:
    async with demo_bridge(home) as (bridge, keeper, _):
        await bridge.handle(message("hello"))
        first = keeper.description
        result = await bridge.handle(message("memory"))

        assert keeper.description == first.replace("new", "warm")
    assert "- hello" in result.payloads[0].text


async def test_a_failure_is_reported_after_the_text_before_it(home: Home) -> None:
    async with demo_bridge(home) as (bridge, _, _):
        result = await bridge.handle(message("fail"))

    assert [payload.is_error for payload in result.payloads] == [False, True]
    assert result.payloads[0].text == "I try, and then…"
    assert "main failed" in result.payloads[1].text
    assert result.error_category is ErrorCategory.FATAL
    assert result.run.error_subtype == "fatal"
    assert "the demo fails" in (result.error or "")
    assert "the demo fails" not in result.payloads[1].text  # a CLI's error is for operators only


async def test_an_agent_that_dies_is_reported_and_the_next_message_starts_another(
    home: Home,
) -> None:
    async with demo_bridge(home) as (bridge, _, _):
        result = await bridge.handle(message("crash"))
        after = await bridge.handle(message("hello"))

    assert [payload.is_error for payload in result.payloads] == [False, True]
    assert result.error_category is ErrorCategory.DIED
    assert after.error is None


async def test_a_stopped_turn_keeps_its_conversation(home: Home) -> None:
    abort = asyncio.Event()

    def live(_index: int, text: str) -> None:
        if "3" in text:
            abort.set()

    async with demo_bridge(home) as (bridge, _, session_map):
        result = await bridge.handle(message("slow"), BridgeCallbacks(on_live_text=live), abort)
        after = await bridge.handle(message("memory"))

    assert result.run.aborted
    assert result.error_category is ErrorCategory.ABORTED
    assert result.payloads[0].text.startswith("1 2 3")
    assert result.payloads[-1].text == "Stopped."
    assert session_map
    assert "- slow" in after.payloads[0].text


async def test_an_agent_that_ignores_a_stop_is_ended(
    home: Home, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("remoteclaw.bridge.conduct.ABORT_S", 0.2)
    monkeypatch.setattr("remoteclaw.bridge.conduct.INTERRUPT_EVERY_S", 0.1)
    deaf = script(directory, "turn(); say(type='text', text=str(os.getpid())); time.sleep(600)")
    abort = asyncio.Event()

    def live(_index: int, _text: str) -> None:
        abort.set()

    async with demo_bridge(home, command=deaf) as (bridge, _, _):
        result = await bridge.handle(message("hello"), BridgeCallbacks(on_live_text=live), abort)

    assert result.error_category is ErrorCategory.ABORTED
    assert not is_alive(int(result.payloads[0].text))


async def test_an_agent_that_does_not_read_its_input_is_ended_by_a_stop(
    home: Home, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A message that fills the agent's pipe blocks forever, and so does the interrupt after it."""
    monkeypatch.setattr("remoteclaw.bridge.conduct.ABORT_S", 0.3)
    monkeypatch.setattr("remoteclaw.bridge.conduct.INTERRUPT_EVERY_S", 0.05)
    pid_file = directory / "pid"
    deaf = script(
        directory, f"open({str(pid_file)!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    )
    abort = asyncio.Event()

    async with demo_bridge(home, command=deaf) as (bridge, _, _):
        turn = asyncio.create_task(bridge.handle(message("x" * 400_000), abort=abort))
        await eventually(lambda: pid_file.exists() and pid_file.read_text())
        abort.set()
        async with asyncio.timeout(HANG_S):
            result = await turn

    assert result.error_category is ErrorCategory.ABORTED
    assert not is_alive(int(pid_file.read_text()))


async def test_a_stop_does_not_change_an_answer_that_is_already_complete(home: Home) -> None:
    abort = asyncio.Event()

    async def block(_payload: ReplyPayload) -> None:
        abort.set()

    async with demo_bridge(home) as (bridge, _, _):
        result = await bridge.handle(message("hello"), BridgeCallbacks(on_block_reply=block), abort)

    assert abort.is_set()
    assert result.error_category is None
    assert not result.run.aborted
    assert [payload.text for payload in result.payloads if "Stopped" in payload.text] == []


async def test_an_unexpected_exception_fails_the_turn_and_ends_the_agent(
    home: Home, caplog: pytest.LogCaptureFixture
) -> None:
    async def tool(event: ToolResultEvent) -> None:
        raise RuntimeError(event.output)

    async with demo_bridge(home) as (bridge, keeper, _):
        result = await bridge.handle(message("hello"), BridgeCallbacks(on_tool_result=tool))

        assert keeper.ready is None
        assert (await bridge.handle(message("memory"))).error is None
    assert result.error_category is ErrorCategory.FATAL
    assert result.payloads[-1].is_error
    assert "RuntimeError" in caplog.text
    assert "in tool" in caplog.text
    assert "an empty directory" not in caplog.text


async def test_a_lost_lease_is_raised_and_not_reported_as_a_failed_turn(home: Home) -> None:
    async def phase(_name: str, _detail: str) -> None:
        raise LeaseLost("another worker has it")

    async with demo_bridge(home) as (bridge, _, _):
        with pytest.raises(LeaseLost):
            await bridge.handle(message("hello"), BridgeCallbacks(on_phase=phase))


async def test_an_agent_with_damaged_output_is_not_used_again(home: Home, directory: Path) -> None:
    damaged = script(directory, 'turn(); print(\'{"type": "do\', flush=True); print(); turn()')

    async with demo_bridge(home, command=damaged) as (bridge, keeper, _):
        result = await bridge.handle(message("hello"))

        assert result.error_category is ErrorCategory.FATAL
        assert keeper.ready is None


async def test_a_stop_before_the_turn_does_not_ask_the_agent(home: Home) -> None:
    abort = asyncio.Event()
    abort.set()

    async with demo_bridge(home) as (bridge, _, _):
        result = await bridge.handle(message("hello"), abort=abort)

    assert [payload.text for payload in result.payloads] == ["Stopped."]


async def test_an_agent_that_is_not_installed_is_reported(home: Home) -> None:
    async with demo_bridge(home, command=("no-such-agent",)) as (bridge, _, _):
        result = await bridge.handle(message("hello"))

    assert result.error_category is ErrorCategory.NOT_INSTALLED
    assert "can't be started" in result.payloads[0].text
    assert "'no-such-agent' was not found" in (result.error or "")


async def test_a_missing_workspace_is_reported(home: Home) -> None:
    missing = f"{home.path}/missing"
    async with demo_bridge(home, workspace=missing) as (bridge, _, _):
        result = await bridge.handle(message("hello"))

    assert result.error_category is ErrorCategory.NOT_INSTALLED
    assert f"The workspace {missing} is not there" in (result.error or "")


async def test_a_conversation_that_the_agent_has_lost_is_removed_from_the_session_map(
    home: Home,
) -> None:
    async with demo_bridge(home) as (bridge, keeper, session_map):
        await bridge.handle(message("hello"))
        await keeper.discard()
        for file in (home.path / "work" / ".demo-agent").iterdir():
            file.unlink()
        result = await bridge.handle(message("memory"))

        assert result.error_category is ErrorCategory.SESSION_EXPIRED
        assert not session_map
        assert (await bridge.handle(message("hello"))).error is None


async def test_another_environment_restarts_the_agent_with_its_conversation(home: Home) -> None:
    hooks = Hooks()
    names = iter(["one", "two", "two"])
    hooks.register("before_runtime_spawn", lambda _: SpawnOverride(env={"NAME": next(names)}))

    async with demo_bridge(home, hooks=hooks) as (bridge, keeper, _):
        await bridge.handle(message("hello"))
        await bridge.handle(message("again"))
        assert keeper.description.startswith("new")
        result = await bridge.handle(message("memory"))
        assert keeper.description.startswith("warm")

    assert "- hello\n- again" in result.payloads[0].text


# -- hooks ----------------------------------------------------------------------------------------


async def test_hooks_receive_the_events_of_a_turn(home: Home) -> None:
    hooks, seen = Hooks(), []

    async def before(event: BeforeRuntimeSpawn) -> None:
        seen.append(event)

    hooks.register("before_runtime_spawn", before)
    hooks.register("after_runtime_exit", seen.append)
    hooks.register("agent_end", seen.append)

    async with demo_bridge(home, hooks=hooks) as (bridge, _, _):
        await bridge.handle(message("hello"))

    before_event, exit_event, end_event = seen
    assert before_event.runtime == "demo"
    assert isinstance(exit_event, AfterRuntimeExit)
    assert "demo agent" in exit_event.output
    assert isinstance(end_event, AgentEnd)
    assert end_event.success
    assert end_event.duration_ms >= 0


async def test_a_spawn_hook_runs_once_per_turn_so_the_agent_is_not_warmed_up(home: Home) -> None:
    """The hook may choose a directory, so only the turn starts the agent."""
    events: list[object] = []
    hooks = Hooks()
    hooks.register("before_runtime_spawn", events.append)
    sent = message("hello")
    turn = Turn(SessionKey.of(sent, agent="main"), (Entry("1-0", sent),))

    async with demo_bridge(home, hooks=hooks) as (bridge, keeper, _):
        await bridge.warm_up(turn)
        assert not events
        await bridge.handle(turn)
        assert keeper.description.startswith("new")

    assert len(events) == 1


async def test_a_hook_can_choose_another_directory(home: Home) -> None:
    (home.path / "elsewhere").mkdir()
    (home.path / "elsewhere" / "found.txt").touch()
    hooks = Hooks()
    override = SpawnOverride(workspace=str(home.path / "elsewhere"))
    hooks.register("before_runtime_spawn", lambda _: override)

    async with demo_bridge(home, hooks=hooks) as (bridge, _, _):
        result = await bridge.handle(message("hello"))

    assert "found.txt" in result.payloads[0].text


def test_a_hanging_hook_does_not_keep_the_process_from_exiting(home: Home) -> None:
    """The process would wait at its end for a thread of a pool."""
    hook = "import threading; wait = lambda event: threading.Event().wait()"
    main = (
        "import asyncio, remoteclaw.bridge.hooks as h; h.DEADLINE_S = 0.05; hooks = h.Hooks();"
        f"{hook}; hooks.register('agent_end', wait); asyncio.run(hooks.run('agent_end', None))"
    )
    subprocess.run([sys.executable, "-c", main], timeout=HANG_S, check=True, capture_output=True)


async def test_a_failing_or_hanging_hook_does_not_affect_the_turn(
    home: Home, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("remoteclaw.bridge.hooks.DEADLINE_S", 0.5)
    hooks, may_end = Hooks(), asyncio.Event()

    def fails(_event: object) -> None:
        raise RuntimeError("a mistake in the hook")

    async def hangs(_event: object) -> None:
        await asyncio.Event().wait()

    async def hangs_on(_event: object) -> None:
        while True:
            with contextlib.suppress(asyncio.CancelledError):
                await may_end.wait()
                return

    async def is_cancelled(_event: object) -> None:
        raise asyncio.CancelledError

    def exits(_event: object) -> None:
        sys.exit(3)

    for hook in (fails, hangs, hangs_on, is_cancelled, exits, lambda _: "nonsense"):
        hooks.register("before_runtime_spawn", hook)

    async with demo_bridge(home, hooks=hooks) as (bridge, _, _):
        result = await bridge.handle(message("hello"))
    may_end.set()

    assert result.error is None
    assert "fails failed" in caplog.text
    assert "hangs took more than" in caplog.text
    assert "hangs_on took more than" in caplog.text
    assert "is_cancelled was cancelled by its own code" in caplog.text
    assert "exits failed" in caplog.text
    assert "returned str" in caplog.text


@pytest.mark.parametrize(
    ("reference", "reason"),
    [
        ("no_such_module:f", "can't be imported"),
        ("json:no_such_function", "can't be imported"),
        ("json", "can't be imported"),
        ("json:__name__", "is not a function"),
    ],
)
def test_a_configured_hook_that_does_not_exist_is_an_error(reference: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        Hooks.load(HooksConfig(agent_end=(reference,)))


# -- side effects ---------------------------------------------------------------------------------


async def test_each_turn_reports_its_own_side_effects(home: Home, directory: Path) -> None:
    writer = script(
        directory,
        "import glob\n"
        "while True:\n"
        "    text = turn()['prompt'].split('\\n\\n')[-1]\n"
        "    [run] = glob.glob(os.environ['RUNS'] + '/*')\n"
        "    with open(run + '/side-effects.ndjson', 'a') as file:\n"
        "        record = dict(type='message_sent', tool='message_send', provider='slack')\n"
        "        print(json.dumps(record | dict(to='C1', text=text)), file=file)\n"
        "        print('{broken', file=file)\n"
        "        print(json.dumps(dict(type='cron_added', jobId='7')), file=file)\n"
        '        print(\'[1]\\n{"type":"unknown"}\', file=file)\n'
        "        print('{\"type\":\"cron_ad', end='', file=file)\n"
        "    say(type='done')\n",
    )
    env = {"PATH": "/bin", "RUNS": str(home.runs)}

    async with demo_bridge(home, command=writer, env=env) as (bridge, _, _):
        first = (await bridge.handle(message("one"))).mcp
        second = (await bridge.handle(message("two"))).mcp

    target = SentTarget("message_send", "slack", None, "C1")
    assert (first.sent_texts, first.sent_targets, first.cron_adds) == (("one",), (target,), 1)
    assert second.sent_texts == ("two",)


async def test_an_endless_answer_is_stopped(home: Home, directory: Path) -> None:
    """It would fill Redis, and no person would read it."""
    body = "turn()\nwhile True:\n    say(type='text', text='x' * 10_000 + chr(10))"
    async with demo_bridge(home, command=script(directory, body)) as (bridge, keeper, _):
        result = await bridge.handle(message("hello"))

        assert result.error_category is ErrorCategory.ANSWER_TOO_LONG
        assert "longer than a million characters" in result.payloads[-1].text
        assert sum(len(payload.text) for payload in result.payloads) < 1_100_000
        assert keeper.record() is None  # it is gone


# -- directives in an answer ----------------------------------------------------------------------

#: An agent that replies with its message, one character at a time.
ECHO = """
while True:
    text = turn()['prompt'].split('\\n\\n', 1)[1]
    for character in text:
        say(type='text', text=character)
    say(type='done')
"""


@pytest.mark.parametrize(
    ("tag", "quoted"),
    [
        ("[[reply_to_current]]", "m1"),
        ("[[reply_to:m0]]", "m0"),
        ("[[reply_to:m1]]", "m1"),
        ("[[reply_to:another-chats]]", None),
        ("", None),
    ],
)
async def test_a_reply_quotes_only_messages_that_the_agent_was_shown(
    home: Home, directory: Path, tag: str, quoted: str | None
) -> None:
    async with demo_bridge(home, command=script(directory, ECHO)) as (bridge, _, _):
        result = await bridge.handle(message(f"{tag} Hello.", id="m1", reply_to_id="m0"))

    (payload,) = result.payloads
    assert (payload.text.strip(), payload.reply_to_id) == ("Hello.", quoted)


async def test_no_reply_alone_is_silence_and_is_removed_from_an_answer(
    home: Home, directory: Path
) -> None:
    shown: list[str] = []
    callbacks = BridgeCallbacks(on_live_text=lambda _index, text: shown.append(text))
    async with demo_bridge(home, command=script(directory, ECHO)) as (bridge, _, _):
        silent = await bridge.handle(message("NO_REPLY"), callbacks)
        answer = await bridge.handle(message("All is done.\n\nNO_REPLY"))

    assert (silent.payloads, silent.is_silent, shown) == ((), True, [])
    assert [payload.text for payload in answer.payloads] == ["All is done."]
    assert not answer.is_silent


async def test_discarding_an_agent_whose_holder_was_just_killed_leaves_no_process(
    home: Home, directory: Path
) -> None:
    body = (
        "turn()\n"
        "os.spawnlp(os.P_NOWAIT, 'setsid', 'setsid', 'sleep', '1000')\n"
        "say(type='done')\n"
        "turn()\n"
    )
    async with demo_bridge(home, command=script(directory, body)) as (bridge, keeper, _):
        await bridge.handle(message("one"))
        processes = await eventually(lambda: len(found := marked_processes(home)) >= 3 and found)
        agent = int(keeper.description.rpartition(" ")[2])

        os.kill(parent(agent), signal.SIGKILL)
        await keeper.discard()  # before the keeper has noticed the kill

        assert [pid for pid in processes if not is_killed(pid)] == []
        await eventually(lambda: not marked_processes(home))


@pytest.mark.parametrize("how", ["park", "discard"])
async def test_an_unresponsive_holder_is_ended_with_its_agent(
    home: Home, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Otherwise its agent would run at the same time as the next one."""
    monkeypatch.setattr(client, "ANSWER_S", 0.2)
    monkeypatch.setattr(client, "END_S", 0.2)
    async with demo_bridge(home) as (bridge, keeper, _):
        await bridge.handle(message("hello"))
        agent = int(keeper.description.rpartition(" ")[2])
        os.kill(parent(agent), signal.SIGSTOP)

        await getattr(keeper, how)()

        await eventually(lambda: not marked_processes(home))
        assert keeper.record() is None


@pytest.mark.thorough("0")
@pytest.mark.parametrize("connections", [0, 30])  # 30 exceed the backlog of the holder's socket
async def test_a_parked_agent_with_an_unresponsive_holder_is_ended_before_the_next(
    home: Home, monkeypatch: pytest.MonkeyPatch, connections: int
) -> None:
    monkeypatch.setattr(client, "END_S", 0.2)
    async with demo_bridge(home) as (bridge, keeper, _):
        await bridge.handle(message("hello"))
        agent = int(keeper.description.rpartition(" ")[2])
        holder = parent(agent)
        await keeper.park()
        os.kill(holder, signal.SIGSTOP)
        for _ in range(connections):
            assert runs.has_holder(next(home.runs.iterdir()))

        result = await bridge.handle(message("hello"))

        assert result.error is None
        assert keeper.is_new
        assert not is_alive(holder)
        assert not is_alive(agent)
