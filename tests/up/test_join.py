"""`remoteclaw join`: a second host learns what is missing before it takes a message."""

import asyncio
from pathlib import Path

import pytest

from remoteclaw.config.home import Home
from remoteclaw.config.load import load_config
from remoteclaw.up.join import examine_join
from tests.support.command import run_command
from tests.support.stack import Stack, message, said
from tests.support.terminal import env
from tests.support.up import running
from tests.support.waiting import eventually

CONFIG = '# shared\n[agents.main]\nruntime = "demo"\n{more}'


async def join(home: Home, url: str, *options: str, stdin: bytes = b"") -> tuple[int, str]:
    """Run the command; return its exit status and what it has printed."""
    arguments = ("join", url, *options)
    ended = await asyncio.to_thread(run_command, *arguments, env=env(home), stdin=stdin)
    return ended.returncode, ended.stdout + ended.stderr


@pytest.fixture
def host(directory: Path) -> Home:
    """The state directory of the second host."""
    home = Home(directory / "host").create()
    home.config_file.write_text(CONFIG.format(more=""))
    return home


async def test_a_host_joins_with_one_command_and_answers(stack: Stack, host: Home) -> None:
    await stack.start_worker()
    assert await stack.ask("hello")
    client = stack.fleet.scripts.client
    await client.config_set("requirepass", "p@ss/word")

    url = stack.redis.url
    status, printed = await join(host, url, stdin=b"p@ss/word\n")

    assert status == 0, printed
    assert "p@ss" not in printed
    for line in ("ok  redis", "ok  version", "ok  clock", "ok  agent main"):
        assert line in printed
    labelled = await join(host, url, "--label", "gpu", stdin=b"p@ss/word\n")
    assert "--  agent main       runs on workers without a label, not here" in labelled[1]
    assert host.config_file.read_text().startswith("# shared\n")
    assert "p%40ss%2Fword" in host.config_file.read_text()
    await client.config_set("requirepass", "")
    await stack.end_processes()
    with running(host):
        accepted = await stack.append("are you the second?", from_="bob")
        assert said(await stack.outcome(accepted))
        status, printed = await join(host, url)
        assert status == 1
        assert "end it, and join again" in printed


async def test_what_is_missing_is_named_and_nothing_is_saved(
    stack: Stack, host: Home, directory: Path
) -> None:
    await stack.fleet.inbound.append(message("hello"), agent="clerk")
    host.config_file.write_text(
        CONFIG.format(
            more=f'workspace = "{directory}/nowhere"\n'
            '[agents.painter]\nruns_on = "gpu"\ncommand = ["no-such-cli"]\nruntime = "claude"\n'
        )
    )
    before = host.config_file.read_text()

    status, printed = await join(host, stack.redis.url)

    assert status == 1
    assert "NO  agent clerk" in printed
    assert f"its workspace {directory}/nowhere does not exist" in printed
    assert "--  agent painter" in printed
    assert "nothing was saved" in printed
    status, printed = await join(host, stack.redis.url, "--label", "gpu")
    assert "'no-such-cli' is not installed" in printed
    assert host.config_file.read_text() == before
    host.config_file.unlink()
    status, printed = await join(host, stack.redis.url)
    assert (status, "NO  configuration" in printed) == (1, True)
    assert not host.config_file.exists()
    await stack.fleet.scripts.client.config_set("maxmemory-policy", "allkeys-lru")
    status, printed = await join(host, stack.redis.url)
    assert (status, "loses messages" in printed) == (1, True)


async def test_another_version_and_another_clock_are_named(
    stack: Stack, host: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with stack.fleet.processes.announced("worker", "other-1", "other"):
        monkeypatch.setattr("remoteclaw.up.join.VERSION", "0.0.1")
        monkeypatch.setattr("remoteclaw.up.join.now_ms", lambda: 1_000_000_000_000)
        await eventually(stack.fleet.processes.list)
        config = load_config(host.config_file)
        found = {
            finding.subject: finding
            async for finding in examine_join(stack.fleet, host, config, "")
        }

    assert found["hosts"].text == "other"
    assert "0.0.1 here" in found["version"].text
    assert "behind Redis" in found["clock"].text
    assert not found["version"].ok
    assert not found["clock"].ok
