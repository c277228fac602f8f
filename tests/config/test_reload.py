"""A running worker uses a changed configuration from its next turn, and never an invalid one."""

import asyncio
import os
import time
from pathlib import Path
from typing import Any

import pytest

from remoteclaw.bridge import Hooks
from remoteclaw.config.home import Home
from remoteclaw.config.load import load_config
from remoteclaw.config.model import Config
from remoteclaw.config.reload import CurrentConfig
from remoteclaw.fleet import keys
from remoteclaw.host.logs import frames_of
from remoteclaw.session.drain import Drain
from tests.support.bridges import script
from tests.support.processes import is_alive
from tests.support.stack import Stack, message, said
from tests.support.up import remoteclaw, running


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
    assert logs.count("the configuration stays as it was: ") == 3
    assert "is not valid TOML" in logs
    assert "did you mean 'message_send'?" in logs
    assert "Traceback" not in logs


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
    with running(home):
        home.config_file.write_text("[queue\n")
        status, doctor = remoteclaw(home, "status"), remoteclaw(home, "doctor")
        home.config_file.write_text("")
        sent = remoteclaw(home, "send", "hello")

    for text in (status.stdout, doctor.stdout):
        assert "is not valid TOML" in text
    assert "Running processes keep the configuration that they had" in doctor.stdout
    assert "RemoteClaw's demo agent" in sent.stdout
