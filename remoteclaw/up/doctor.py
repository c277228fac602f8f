"""`remoteclaw doctor`: checks everything that RemoteClaw needs, and says what is missing.

It makes and changes nothing.
"""

import os
import re
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass

from remoteclaw.bridge import Hooks
from remoteclaw.clock import boot_id
from remoteclaw.config.home import Home
from remoteclaw.config.load import load_config, overrides
from remoteclaw.config.model import AgentConfig, Config, HooksConfig
from remoteclaw.errors import RemoteClawError
from remoteclaw.fleet import Fleet
from remoteclaw.fleet.fitness import check_fitness
from remoteclaw.fleet.keys import lane_on
from remoteclaw.fleet.replies import Unread
from remoteclaw.fleet.workers import WorkerView
from remoteclaw.gateway.address import listen, url_of
from remoteclaw.host.process import read_output
from remoteclaw.host.terminal import one_line
from remoteclaw.protocols import Capabilities
from remoteclaw.runtimes import CLIS, create_cli_runtime, detect_runtime
from remoteclaw.runtimes.gemini import trust_problem
from remoteclaw.runtimes.opencode import plugin_problem
from remoteclaw.up.embedded import find_server
from remoteclaw.up.sign_in import sign_in_problem
from remoteclaw.up.supervisor import running_pid

__all__ = [
    "Finding",
    "agent_problem",
    "describe_configuration",
    "examine",
    "goes_on",
    "hooks_problem",
    "installed_clis",
    "tools_problem",
]


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
        home = Home.default().check()
        state = f"sockets in {home.sockets}" if home.path.exists() else "made at the first start"
        yield Finding("state directory", True, f"{home.path}, private; {state}")
    except RemoteClawError as error:
        yield Finding("state directory", False, str(error))
        return
    try:
        config = load_config(home.config_file)
        yield Finding("configuration", True, describe_configuration(home))
    except RemoteClawError as error:
        yield Finding("configuration", False, f"{error}{goes_on(home)}")
        return
    if config.hooks != HooksConfig():
        problem = hooks_problem(config.hooks)
        yield Finding("hooks", problem is None, problem or "all can be imported")
    for name, agent in config.agents.items():
        yield _agent(home, name, agent)
        if agent.sees_sessions in ("agent", "all"):
            text = f'sees_sessions = "{agent.sees_sessions}" holds in turns of owners alone'
            yield Finding(f"agent {name}", True, text)
    async for finding in _running(home, config):
        yield finding


def describe_configuration(home: Home) -> str:
    """Return where the configuration comes from."""
    there = str(home.config_file) if home.config_file.exists() else "no file, all defaults"
    names = overrides()
    return f"{there}; overridden by {', '.join(names)}" if names else there


def goes_on(home: Home) -> str:
    """Return what is to be said behind a mistake in the file; nothing if nothing runs."""
    if running_pid(home) is None:
        return ""
    return " Running processes keep the configuration that they had."


def hooks_problem(hooks: HooksConfig) -> str | None:
    """Return why a worker that is started here could not import the hooks; None if it can."""
    if "." not in sys.path:
        sys.path.append(".")  # as `rq worker` does
    try:
        Hooks.load(hooks)
    except RemoteClawError as error:
        return str(error)
    return None


# -- agents ------------------------------------------------------------------------------------


def agent_problem(home: Home, name: str, settings: AgentConfig) -> str | None:
    """Return why an agent can't work here, and what to do; None if it can, as far as one sees."""
    runtime_name = settings.runtime or detect_runtime()[0]
    command, env = _command(runtime_name, settings)
    if create_cli_runtime(runtime_name).find(command, env.get("PATH")) is None:
        hint = f"install it, or set [agents.{name}] command"
        return f"{runtime_name}: {command!r} is not installed: {hint}."
    workspace = home.workspace_path(name, settings)
    if settings.workspace is not None and not workspace.is_dir():
        return f"its workspace {workspace} is not there: make it."
    if runtime_name == "opencode" and not settings.trust_workspace:
        return plugin_problem(str(workspace), env)
    return None


def tools_problem(home: Home, name: str, settings: AgentConfig) -> str | None:
    """Return why an agent that works has none of RemoteClaw's tools; None if it can have them."""
    runtime_name = settings.runtime or detect_runtime()[0]
    if runtime_name != "gemini" or settings.trust_workspace or settings.permissions == "deny":
        return None
    _, env = _command(runtime_name, settings)
    workspace = str(home.workspace_path(name, settings))
    return trust_problem(workspace, env, asks=settings.permissions == "ask")


def _command(runtime_name: str, settings: AgentConfig) -> tuple[str, Mapping[str, str]]:
    """Return an agent's program and environment, as the bridge has them."""
    runtime = create_cli_runtime(runtime_name)
    command = settings.command or runtime.command
    env = {**runtime.environment(os.environ), **settings.env}
    return runtime.find(command[0], env.get("PATH")) or command[0], env


def _agent(home: Home, name: str, settings: AgentConfig) -> Finding:
    subject = f"agent {name}"
    if problem := agent_problem(home, name, settings) or tools_problem(home, name, settings):
        return Finding(subject, False, problem)
    runtime_name, why = (settings.runtime, "configured") if settings.runtime else detect_runtime()
    assert runtime_name is not None, "it is configured or detected"
    program, env = _command(runtime_name, settings)
    arguments = (settings.command or create_cli_runtime(runtime_name).command)[1:]
    if problem := sign_in_problem(runtime_name, (program, *arguments), env):
        return Finding(subject, False, problem)
    version = "" if runtime_name == "demo" else version_of(program, env)
    works = f"works in {home.workspace_path(name, settings)}"
    about = " ".join(filter(None, (runtime_name, version, f"({why})")))
    untested = untested_version(runtime_name, version)
    return Finding(subject, True, "; ".join(filter(None, (f"{about}, {works}", untested))))


def version_of(program: str, env: Mapping[str, str]) -> str:
    """Return what a CLI says of its version; nothing if it says none."""
    output = read_output([program, "--version"], env=env, timeout_s=20)
    found = re.search(r"\d+(\.\d+)+[\w.+-]*", output or "")
    return one_line(found[0], most=40) if found else ""


def untested_version(runtime_name: str, version: str) -> str:
    """Return a warning about a version that differs in its first two numbers; else nothing.

    Of some agents no version was tested.
    """
    tested = create_cli_runtime(runtime_name).capabilities.tested
    if not version or not tested or version.split(".")[:2] == tested.split(".")[:2]:
        return ""
    return f"tested with {tested}, so look at what it does first"


@dataclass(frozen=True, slots=True)
class InstalledCli:
    """An agent CLI that is installed here."""

    name: str
    version: str
    program: str
    capabilities: Capabilities
    warning: str
    """What is to be known of this version; nothing if it was tested."""


def installed_clis(config: Config) -> list[InstalledCli]:
    """Return the agent CLIs that are found on PATH, and those that only the configuration knows."""
    found = [_installed(name, name, AgentConfig()) for name in CLIS]
    for name, settings in config.agents.items():
        if settings.runtime == "acp":
            found.append(_installed(f"{name} (acp)", "acp", settings))
    return [cli for cli in found if cli is not None]


def _installed(name: str, runtime_name: str, settings: AgentConfig) -> InstalledCli | None:
    """Return what is to be said of an agent CLI; None if it is not there."""
    runtime = create_cli_runtime(runtime_name)
    program, env = _command(runtime_name, settings)
    if runtime.find(program, env.get("PATH")) is None:
        return None
    version = version_of(program, env)
    warning = untested_version(runtime_name, version)
    return InstalledCli(name, version, program, runtime.capabilities, warning)


def _unread(unread: Unread) -> str:
    """Return what is to be known of replies that nobody gets."""
    hours = unread.age_s / 3600
    age = f"{hours / 24:.0f} days" if hours >= 48 else f"{hours:.0f} hours"
    return (
        f"no adapter reads {unread.provider}/{unread.account}: {unread.count} wait there, the "
        f"oldest for {age}. Each is given up after 3 days; `remoteclaw replies` shows and drops "
        "them."
    )


def shared_host_problem(home: Home, workers: Sequence[WorkerView]) -> str | None:
    """Return that another machine has this one's host id, and what to do; None if none has."""
    queue = lane_on("agents", home.host_id)
    for view in workers:
        if queue in view.queues and view.boot != boot_id():
            return (
                f"another machine has this one's, {home.host_id} (rq worker {view.pid} on "
                f"{one_line(view.host)}): conversations lose their context as they move between "
                f"them. Delete {home.path / 'host-id'} on one of them and start RemoteClaw there "
                "again; if they share that directory, give each a REMOTECLAW_HOME of its own."
            )
    return None


# -- what runs ---------------------------------------------------------------------------------


async def _running(home: Home, config: Config) -> AsyncIterator[Finding]:
    pid = running_pid(home)
    url = home.redis_url(config)
    if config.redis.url is None and pid is None:
        try:
            server = find_server(home.redis_data)
            yield Finding("redis", True, f"{server.name} would be started ({server.path})")
        except RemoteClawError as error:
            yield Finding("redis", False, str(error))
        yield _port(config)
        yield Finding("running", True, "no: start everything with `remoteclaw up`")
        return
    fleet = Fleet.open(url, lease_s=config.fleet.lease_s, memory_limit=config.redis.memory_limit)
    try:
        await check_fitness(fleet.scripts.client, url)
        memory = await fleet.scripts.memory()
        yield Finding("redis", not memory.is_full, memory.problem or f"reachable and fit, {memory}")
        if not memory.own_limit:
            told = "it has no maxmemory, so RemoteClaw stops there by itself: set one"
            yield Finding("redis", True, told)
        found = await fleet.workers.list()
        workers = [view for view in found if view.is_ours]
        text = f"{len(workers)} rq {'worker' if len(workers) == 1 else 'workers'}"
        if not workers:
            text = "no rq worker serves the queue: start some with `remoteclaw worker`."
        yield Finding("workers", bool(workers), text)
        for view in found:
            if not view.is_ours:
                why = "was not started as `remoteclaw worker`: it would run any job. End it."
                yield Finding("workers", False, f"process {view.pid} on {view.host} {why}")
        if problem := shared_host_problem(home, workers):
            yield Finding("host id", False, problem)
        address = await fleet.gateways.address(home.host_id)
        absent = "none on this host, so its agents have no tools: run `remoteclaw gateway`."
        port = _port(config) if address is None and pid is None else None
        if port is not None and not port.ok:
            yield port
        else:
            yield Finding("gateway", address is not None, address or absent)
        has_sweeper = await fleet.workers.have_sweeper()
        missing = "none looks for lost hints: run `remoteclaw sweep`."
        yield Finding("sweeper", has_sweeper, "runs" if has_sweeper else missing)
        for unread in await fleet.replies.unread():
            yield Finding("replies", True, _unread(unread))
    except RemoteClawError as error:
        yield Finding("redis", False, str(error))
    finally:
        await fleet.aclose()
    yield Finding("running", True, f"`remoteclaw up` is process {pid}" if pid else "without `up`")


def _port(config: Config) -> Finding:
    """Return whether a gateway could listen where it is to; none of ours does."""
    try:
        with listen(config.gateway) as listening:
            return Finding("gateway", True, f"would be at {url_of(listening)}")
    except RemoteClawError as error:
        return Finding("gateway", False, str(error))
