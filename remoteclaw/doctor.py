"""`remoteclaw doctor`: looks at everything that RemoteClaw needs here and says what is missing."""

import os
import shutil
import sys
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass

from remoteclaw.config import AgentConfig, Config, Home, load_config
from remoteclaw.errors import RemoteClawError
from remoteclaw.fleet import Fleet
from remoteclaw.fleet.connection import check_fitness
from remoteclaw.fleet.embedded import find_server
from remoteclaw.process import read_output
from remoteclaw.runtimes import create_runtime, detect_runtime
from remoteclaw.supervisor import running_pid

__all__ = ["Finding", "examine"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    subject: str
    ok: bool
    text: str
    """What was found; if it isn't right, also what to do."""


async def examine() -> AsyncIterator[Finding]:
    """Look at one thing after another, as far as the earlier ones allow."""
    yield Finding("python", True, f"{sys.version.split()[0]} ({sys.executable})")
    try:
        home = Home.default().create()
        yield Finding("state directory", True, f"{home.path}, private; sockets in {home.sockets}")
    except RemoteClawError as error:
        yield Finding("state directory", False, str(error))
        return
    try:
        config = load_config(home)
        there = home.config_file if home.config_file.exists() else "no file, all defaults"
        yield Finding("configuration", True, str(there))
    except RemoteClawError as error:
        yield Finding("configuration", False, str(error))
        return
    for name, agent in config.agents.items():
        yield _agent(home, name, agent)
    async for finding in _running(home, config):
        yield finding


def _agent(home: Home, name: str, settings: AgentConfig) -> Finding:
    subject = f"agent {name}"
    runtime_name, why = (settings.runtime, "configured") if settings.runtime else detect_runtime()
    assert runtime_name is not None, "it is configured or detected"
    runtime = create_runtime(runtime_name)
    command = settings.command or runtime.command
    program = shutil.which(command[0])
    if program is None:
        text = f"{command[0]!r} is not installed: install it, or set [agents.{name}] command."
        return Finding(subject, False, f"{runtime_name}: {text}")
    try:
        workspace = home.workspace(name, settings)
    except RemoteClawError as error:
        return Finding(subject, False, str(error))
    if not workspace.is_dir():
        return Finding(subject, False, f"its workspace {workspace} is not there: make it.")
    version = _version(program, runtime.environment(os.environ)) if runtime_name != "demo" else ""
    return Finding(subject, True, f"{runtime_name} {version}({why}), works in {workspace}")


def _version(program: str, env: Mapping[str, str]) -> str:
    output = read_output([program, "--version"], env=env, timeout_s=10)
    return f"{output.split()[0]} " if output else ""


async def _running(home: Home, config: Config) -> AsyncIterator[Finding]:
    pid = running_pid(home)
    url = home.redis_url(config)
    if config.redis.url is None and pid is None:
        try:
            server = find_server(home.redis_data)
            yield Finding("redis", True, f"{server.name} would be started ({server.path})")
        except RemoteClawError as error:
            yield Finding("redis", False, str(error))
        yield Finding("running", True, "no: start everything with `remoteclaw up`")
        return
    fleet = Fleet.open(url, lease_s=config.fleet.lease_s)
    try:
        await check_fitness(fleet.scripts.client, url)
        yield Finding("redis", True, "reachable and fit")
        workers = await fleet.workers.list()
        text = f"{len(workers)} rq workers"
        if not workers:
            text = "no rq worker serves the queue: start some with `remoteclaw worker`."
        yield Finding("workers", bool(workers), text)
    except RemoteClawError as error:
        yield Finding("redis", False, str(error))
    finally:
        await fleet.aclose()
    yield Finding("running", True, f"`remoteclaw up` is process {pid}" if pid else "without `up`")
