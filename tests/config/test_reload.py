"""A running worker uses a changed configuration from its next turn, and never an invalid one."""

import asyncio
import os
import time
from pathlib import Path
from typing import Any

import pytest

from remoteclaw.bridge import Hooks
from remoteclaw.config.home import Home
from remoteclaw.config.load import load_config, read_file
from remoteclaw.config.model import Config
from remoteclaw.config.reload import CurrentConfig, load_and_keep
from remoteclaw.fleet import keys
from remoteclaw.host import packages
from remoteclaw.host.logs import frames_of
from remoteclaw.session.drain import Drain
from tests.support.bridges import claude_script, script
from tests.support.processes import is_alive
from tests.support.stack import Stack, message, said
from tests.support.up import remoteclaw, running
from tests.support.waiting import eventually


def configure(stack: Stack, directory: Path, mark: str, **more: Any) -> None:
    """Configure an agent that answers with its environment variable MARK."""
    body = "import os\nwhile True:\n turn()\n"
    body += " say(type='text', text=os.environ['MARK'])\n say(type='done')\n"
    command = list(script(directory, body))
    stack.configure({"runtime": "demo", "command": command, "env": {"MARK": mark}}, **more)


async def test_the_next_turn_uses_a_changed_configuration(stack: Stack, directory: Path) -> None:
    """Changes of agents, channels and the queue, and a new agent, without a restart."""
    configure(stack, directory, "one")
    worker = await stack.start_worker()
    before = await stack.ask("hello")
    configure(stack, directory, "two " * 60, channels={"test": {"chunk_limit": 200}})
    outcome = await stack.outcome(await stack.append("hello"))
    accepted = await stack.fleet.inbound.append(message("hello", from_="bob"), agent="fresh")
    refused = await stack.outcome(accepted)
    text = stack.home.config_file.read_text()
    stack.home.config_file.write_text(f'{text}\n[agents.fresh]\nruntime = "demo"\n')
    accepted = await stack.fleet.inbound.append(message("hello", from_="bob"), agent="fresh")
    answered = await stack.outcome(accepted)

    assert before == "one"
    assert len(outcome.reply) == 2
    assert "two two" in said(outcome)
    assert "There is no agent 'fresh'" in (refused.error or {})["detail"]
    assert "This is RemoteClaw's demo agent" in said(answered)
    assert worker.poll() is None


async def test_a_lingering_drain_with_an_old_configuration_leaves_the_next_turn(
    stack: Stack, directory: Path
) -> None:
    configure(stack, directory, "one", linger_s=30)
    await stack.start_worker()
    accepted = await stack.append("hello")
    await stack.outcome(accepted)
    view = await stack.fleet.sessions.view(accepted.session.sid)
    assert view is not None
    assert view.status == "running"  # it lingers
    configure(stack, directory, "two", linger_s=30)

    assert await stack.ask("hello") == "two"


async def test_a_drain_stops_after_a_turn_if_its_configuration_is_old(stack: Stack) -> None:
    accepted = [await stack.append(text) for text in ("one", "two")]
    config = load_config(stack.home.config_file, {})
    drain = Drain(stack.fleet, config, stack.home, Hooks(), config_has_changed=lambda: True)

    await drain.run(accepted[0].session.sid)

    first, second = [
        await stack.fleet.outcomes.read(each.session.sid, each.entry_id) for each in accepted
    ]
    assert first is not None
    assert second is not None
    assert (first.is_final, second.is_final) == (True, False)
    view = await stack.fleet.sessions.view(accepted[0].session.sid)
    assert view is not None
    assert view.status == "scheduled"
    assert await stack.fleet.workers.waiting() > 0


async def test_a_configuration_change_during_the_debounce_pause_counts_for_the_next_turn(
    stack: Stack,
) -> None:
    """A new drain answers messages that arrive during the pause, with the new configuration."""
    stack.configure(queue={"mode": "followup", "debounce_ms": 60_000, "cap": 2})
    first, second = [await stack.append(text) for text in ("one", "two")]
    config = load_config(stack.home.config_file, {})
    changed = asyncio.Event()
    drain = Drain(stack.fleet, config, stack.home, Hooks(), config_has_changed=changed.is_set)
    draining = asyncio.create_task(drain.run(first.session.sid))
    await stack.outcome(first)
    changed.set()
    await stack.append("three")  # the queue is full now, which ends the pause
    await draining

    outcome = await stack.fleet.outcomes.read(second.session.sid, second.entry_id)
    assert outcome is None or not outcome.is_final
    view = await stack.fleet.sessions.view(second.session.sid)
    assert view is not None
    assert view.status == "scheduled"


async def test_a_warm_agent_survives_a_change_of_other_settings(stack: Stack) -> None:
    await stack.start_worker()
    first = await stack.append("hello")
    pid = int((await stack.reached(first, "spawned")).rpartition(" ")[2])
    await stack.until_idle(first)
    stack.configure(channels={"test": {"reactions": "minimal"}}, queue={"mode": "collect"})
    await stack.ask("hello", from_="bob")

    assert is_alive(pid)


async def test_an_invalid_file_is_logged_once_and_keeps_the_old_configuration(
    stack: Stack, directory: Path
) -> None:
    configure(stack, directory, "one")
    worker = await stack.start_worker()
    file = stack.home.config_file
    good = file.read_text()
    file.write_text(good + "\n[queue\n")
    answers = [await stack.ask("hello") for _ in range(3)]
    file.write_text(good + "\n[tools]\ndeny = ['mesage_send']\n")
    answers.append(await stack.ask("hello"))
    file.unlink()
    answers.append(await stack.ask("hello"))
    configure(stack, directory, "mended")
    mended = await stack.ask("hello")

    assert answers == ["one"] * 5
    assert mended == "mended"
    assert worker.poll() is None
    logs = stack.worker_logs()
    assert logs.count("the last valid configuration stays in effect: ") == 3
    assert "is not valid TOML" in logs
    assert "did you mean 'message_send'?" in logs
    assert "Traceback" not in logs


#: A claude that asks to run `git push` in each turn, after the file `hold` is gone.
PUSHES = """
while True:
    echo(heard())
    open(f'turn-{os.getpid()}', 'w').close()
    while os.path.exists('hold'): time.sleep(0.01)
    say(type='control_request', request_id='r', request=dict(subtype='can_use_tool',
        tool_name='Bash', input=dict(command='git push')))
    result(heard('control_response')['response']['response']['behavior'])
"""


async def test_an_invalid_file_makes_no_process_use_an_older_version(
    stack: Stack, directory: Path
) -> None:
    """Two workers have read a version, and one of them has read the next one; then a typo."""
    claude: dict[str, Any] = {
        "runtime": "claude",
        "command": list(claude_script(directory, PUSHES)),
    }
    workspace = directory / "work"
    workspace.mkdir()
    claude["workspace"] = str(workspace)
    stack.configure({**claude, "permissions": "auto"})
    hold, file = workspace / "hold", stack.home.config_file

    async def on_both_workers(agent: str, *people: str) -> list[str]:
        """Return the answers of an agent to two people at once."""
        hold.touch()
        accepted = [
            await stack.fleet.inbound.append(message("push", from_=person), agent=agent)
            for person in people
        ]
        earlier = len(list(workspace.glob("turn-*")))

        async def run_or_failed() -> bool:
            if len(list(workspace.glob("turn-*"))) == earlier + 2:
                return True
            return any([(await stack.outcome_so_far(each)).is_final for each in accepted])

        await eventually(run_or_failed)
        hold.unlink()
        return [said(await stack.outcome(each)) for each in accepted]

    await asyncio.gather(stack.start_worker(), stack.start_worker())
    before = await on_both_workers("main", "ada", "bob")
    stack.configure(
        {**claude, "permissions": "deny"}, agents={"added": {**claude, "permissions": "auto"}}
    )
    changed = said(await stack.outcome(await stack.append("push")))
    file.write_text(f"{file.read_text()}\n[projects\n")
    tightened = await on_both_workers("main", "cy", "dan")
    added = await on_both_workers("added", "ada", "bob")

    assert before == ["allow", "allow"]
    assert changed == "deny"
    assert tightened == ["deny", "deny"], "a worker used an older version, with wider permissions"
    assert added == ["allow", "allow"], "a worker didn't know the agent of the last valid version"


def test_the_last_valid_version_is_that_of_the_host(home: Home) -> None:
    """It is kept by whoever reads it first, in a private file, and never replaced by an older."""
    home.create()
    file = home.config_file
    file.write_text('[queue]\nmode = "collect"\n')
    first, second = (CurrentConfig(home, load_config(file)) for _ in range(2))
    assert first().queue.mode == second().queue.mode == "collect"

    file.write_text('[queue]\nmode = "steer"\n')
    assert first().queue.mode == "steer"
    file.write_text("[queue\n")
    assert second().queue.mode == "steer"
    assert second() is second(), "a drain would end after each turn"
    assert second.problem is not None
    assert f"use the last valid version, of {time.strftime('%Y-')}" in second.problem
    assert home.valid_config_file.stat().st_mode & 0o777 == 0o600

    assert remoteclaw(home, "config", "validate").returncode == 1
    file.write_text('[queue]\nmode = "followup"\n')
    assert remoteclaw(home, "config", "set", "queue.cap", "7").returncode == 0
    file.unlink()
    assert [(each().queue.mode, each().queue.cap) for each in (first, second)] == [
        ("followup", 7),
        ("followup", 7),
    ]
    started = CurrentConfig(home, load_and_keep(home))
    assert started().queue.cap == 7, "what a process that starts meanwhile must not allow"

    draft = home.path / "draft.toml"
    draft.write_text('[queue]\nmode = "steer"\n')
    checked = remoteclaw(home, "config", "validate", REMOTECLAW_CONFIG=str(draft))
    assert checked.returncode == 0
    assert second().queue.mode == "followup"


def test_a_version_that_was_replaced_during_its_reading_is_not_kept(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.create()
    file = home.config_file
    file.write_text('[queue]\nmode = "collect"\n')
    slow, quick = (CurrentConfig(home, load_config(file)) for _ in range(2))

    def read_slowly(*arguments: Any) -> bytes:
        content = read_file(*arguments)
        monkeypatch.undo()
        file.write_text('[queue]\nmode = "steer"\n')
        quick()
        file.write_text("[queue\n")
        return content

    monkeypatch.setattr("remoteclaw.config.reload.read_file", read_slowly)
    slow()

    assert slow().queue.mode == "steer"
    assert 'mode = "steer"' in home.valid_config_file.read_text()


async def test_settings_read_at_the_start_keep_their_values(stack: Stack) -> None:
    """A worker keeps the Redis and the length of leases that it has started with."""
    await stack.start_worker()
    text = stack.home.config_file.read_text()
    url = f"unix://{stack.home.path / 'nowhere.sock'}"
    text = text.replace(f"lease_s = {stack.lease_s}", "lease_s = 1").replace(stack.redis.url, url)
    stack.home.config_file.write_text(text)
    accepted = await stack.append("slow")
    await stack.reached(accepted, "output")
    client = stack.fleet.scripts.client
    state = keys.state(accepted.session.sid)
    expires = int(await client.zscore(keys.ACTIVE, accepted.session.sid) or 0)
    now = int((await client.time())[0]) * 1000

    assert load_config(stack.home.config_file, {}).fleet.lease_s == 1
    assert expires - now > 10_000, await client.hgetall(state)
    await stack.fleet.sessions.stop(accepted.session.sid)
    await stack.until_idle(accepted)


def test_packages_that_were_installed_under_a_running_process_are_named(
    home: Home, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the package, the settings of its channel are unknown, and this is remembered."""
    monkeypatch.syspath_prepend(str(directory))
    monkeypatch.setattr(packages, "_LOADED_S", time.time())  # `scripts/check` may install some
    home.config_file.write_text('[channels.folder]\ndirectory = "/tmp"\n')
    current = CurrentConfig(home, Config())
    current()
    assert current.problem is not None
    assert "directory" in current.problem
    assert "restart" not in current.problem

    info = directory / "folder_channel-1.2.dist-info"
    info.mkdir()
    soon = time.time() + 1  # the clock of files is coarser
    os.utime(info, (soon, soon))

    assert current.problem.endswith(
        "After this process had started, packages were installed: folder_channel 1.2. If they are "
        "the reason, restart `remoteclaw up`, or the workers, the gateway and `remoteclaw channel "
        "run` if you run them yourself."
    )
    assert "folder_channel 1.2" in frames_of(ValueError("x")).splitlines()[0]


def test_an_invalid_file_is_reported_while_running_processes_continue(home: Home) -> None:
    home.config_file.write_text("[queue]\ncap = 7\n")
    with running(home):
        home.config_file.write_text("[queue\n")
        status, doctor = remoteclaw(home, "status"), remoteclaw(home, "doctor")
        home.config_file.write_text("")
        sent = remoteclaw(home, "send", "hello")

    for text in (status.stdout, doctor.stdout):
        assert "is not valid TOML" in text
        assert "Running processes use the last valid version, of 2" in text
    assert "RemoteClaw's demo agent" in sent.stdout
