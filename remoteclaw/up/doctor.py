"""`remoteclaw doctor`: checks everything that RemoteClaw needs, without changing anything."""

import asyncio
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import EntryPoint

from remoteclaw.bridge import Hooks
from remoteclaw.channels.process import adapter_class
from remoteclaw.clock import boot_id, now_ms
from remoteclaw.config.home import Home
from remoteclaw.config.identity import identity_problem
from remoteclaw.config.load import load_config, overrides
from remoteclaw.config.model import (
    ChannelConfig,
    Config,
    GatewayConfig,
    HooksConfig,
    TerminalsConfig,
    is_loopback,
)
from remoteclaw.config.reload import version_in_effect
from remoteclaw.config.requests import unasked_budget
from remoteclaw.errors import ConfigError, RedisRefused, RemoteClawError
from remoteclaw.extensions import Kind, by_package, load_runtime
from remoteclaw.fleet import Fleet
from remoteclaw.fleet.account_states import configured_accounts
from remoteclaw.fleet.drains import drain_problem
from remoteclaw.fleet.fitness import check_fitness
from remoteclaw.fleet.gateways import Gateways
from remoteclaw.fleet.pools import pool_problems
from remoteclaw.fleet.processes import version_problem
from remoteclaw.fleet.replies.replies import UnreadStream
from remoteclaw.fleet.tokens import Tokens
from remoteclaw.fleet.workers import NO_SWEEPER, WorkerView, no_worker_problem
from remoteclaw.gateway.address import listen, url_of
from remoteclaw.host.installation import EXTRAS, missing_packages
from remoteclaw.host.load import Overloaded, check_load
from remoteclaw.host.terminal import one_line
from remoteclaw.profiles import CHANNELS, channel_of
from remoteclaw.runtimes import RUNTIMES
from remoteclaw.tty import ghostty
from remoteclaw.up.agents import (
    agent_problem,
    call_tools,
    describe_agent,
    fallbacks_problem,
    openings_of,
    rules_problem,
    sign_in_problem_of,
    tools_problem,
)
from remoteclaw.up.embedded import find_server
from remoteclaw.up.lock import running_pid

#: The token of the doctor's calls is revoked after them, and expires after this time in ms.
CALL_TOKEN_MS = 60_000


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check."""

    subject: str
    ok: bool
    text: str
    """The result in words; for a problem, also what to do."""
    absent: bool = False
    """Whether something optional is not there, which is no problem."""


async def examine() -> AsyncIterator[Finding]:
    """Run the checks and yield their findings. A problem may make later checks impossible."""
    yield Finding("python", True, f"{sys.version.split()[0]} ({sys.executable})")
    try:
        home = Home.default().check()
        state = f"sockets in {home.sockets}" if home.path.exists() else "made at the first start"
        problem = home.room_problem()
        yield Finding("state directory", not problem, problem or f"{home.path}, private; {state}")
    except RemoteClawError as error:
        yield Finding("state directory", False, str(error))
        return
    try:
        config = load_config(home.config_file)
        yield Finding("configuration", True, _configuration(home))
    except RemoteClawError as error:
        yield Finding("configuration", False, f"{error}{effect_of_invalid_config(home)}")
        return
    for channel, problem in config.without_account().items():
        yield Finding(f"channel {channel}", False, problem)
    for channel in {channel for channel, _ in config.accounts()}:
        if problem := adapter_problem(channel):
            yield Finding(f"channel {channel}", False, problem)
    if config.hooks != HooksConfig():
        problem = hooks_problem(config.hooks)
        yield Finding("hooks", problem is None, problem or "all can be imported")
    for name in config.agents:
        yield _agent(home, config, name)
    for name, directory in config.projects.items():
        if not directory.expanduser().is_dir():
            problem = f"its directory {directory} does not exist: create it, or remove the project."
            yield Finding(f"project {name}", False, problem)
    for budget in config.budgets:
        if problem := unasked_budget(config, budget):
            yield Finding(f"budget of {budget.of}", False, f"{problem}.")
    yield _terminals(config.terminals)
    for package, added in by_package().items():
        yield _package(package, added)
    for extra in EXTRAS:
        if problem := missing_packages(extra):
            yield Finding(extra, True, problem, absent=True)
    pid = running_pid(home)
    if config.redis.url is None and pid is None:
        for finding in _not_running(home, config):
            yield finding
    else:
        async for finding in _running(home, config, pid):
            yield finding


def _terminals(settings: TerminalsConfig) -> Finding:
    """Return whether a terminal could be opened now."""
    if problem := ghostty.problem():
        return Finding("terminals", True, problem, absent=True)
    try:
        check_load(settings.max_load, settings.min_memory_mb)
    except Overloaded as problem:
        return Finding(
            "terminals", True, str(problem), absent=True
        )  # for now: no fault of the set-up
    return Finding("terminals", True, "can be opened")


def _package(package: str, added: Sequence[tuple[Kind, EntryPoint]]) -> Finding:
    """Return what another package adds, and the first reason why something of it can't be used."""
    names = ", ".join(f"{kind} {entry.name}" for kind, entry in added)
    try:
        for kind, entry in added:
            _check_extension(package, kind, entry.name)
    except RemoteClawError as error:
        return Finding("package", False, str(error))
    return Finding("package", True, f"{package}: {names}")


def _check_extension(package: str, kind: Kind, name: str) -> None:
    """Import what another package adds. Raises `ConfigError` if it can't be used."""
    if name in (CHANNELS if kind == "channel" else RUNTIMES):
        raise ConfigError(
            f"The {kind} {name!r} of {package} is never used, because RemoteClaw has one of that "
            "name: uninstall the package."
        )
    if kind == "runtime":
        load_runtime(name)
    elif channel := channel_of(name):
        ChannelConfig.named(name)
        if channel.adapter:
            adapter_class(name, channel)


def _configuration(home: Home) -> str:
    """Return the sources of the configuration."""
    file = str(home.config_file) if home.config_file.exists() else "no file, all defaults"
    names = overrides()
    return f"{file}; overridden by {', '.join(names)}" if names else file


def effect_of_invalid_config(home: Home) -> str:
    """Return a sentence about processes that run with the configuration; empty if `up` does not."""
    if running_pid(home) is None:
        return ""
    return f" {version_in_effect(home)}"


def adapter_problem(name: str) -> str | None:
    """Return why accounts of a channel can't run on this host; None if they can."""
    channel = channel_of(name)
    try:
        if channel and channel.adapter:
            adapter_class(name, channel)
    except RemoteClawError as error:
        return str(error)
    return None


def hooks_problem(hooks: HooksConfig) -> str | None:
    """Return why a worker started here can't import the hooks; None if it can."""
    if "." not in sys.path:
        sys.path.append(".")  # as `rq worker` does
    try:
        Hooks.load(hooks)
    except RemoteClawError as error:
        return str(error)
    return None


def _agent(home: Home, config: Config, name: str) -> Finding:
    settings = config.agents[name]
    problem = (
        agent_problem(home, name, settings)
        or identity_problem(home, name, settings)
        or tools_problem(home, name, settings)
        or rules_problem(settings)
        or fallbacks_problem(home, config, name)
        or sign_in_problem_of(settings)
    )
    openings = openings_of(home, name, settings)
    text = problem or "; ".join(filter(None, (describe_agent(home, name, settings), openings)))
    return Finding(f"agent {name}", problem is None, text)


# -- running processes -------------------------------------------------------------------------


def _not_running(home: Home, config: Config) -> Iterator[Finding]:
    """Yield the findings for a machine on which nothing runs."""
    try:
        server = find_server(home.redis_data)
        yield Finding("redis", True, f"{server.name} would be started ({server.path})")
    except RemoteClawError as error:
        yield Finding("redis", False, str(error))
    yield _port(config)
    if page := _page(config.gateway):
        yield page
    yield Finding("running", True, "no: start everything with `remoteclaw up`")


async def _running(home: Home, config: Config, pid: int | None) -> AsyncIterator[Finding]:
    """Yield the findings of a running installation. `pid` is that of `up`, if it runs."""
    url = home.redis_url(config)
    fleet = Fleet.open(url, memory_limit=config.redis.memory_limit)
    try:
        await check_fitness(fleet.scripts.client, url)
        memory = await fleet.scripts.memory()
        yield Finding("redis", not memory.is_full, memory.problem or f"reachable and fit, {memory}")
        if not memory.own_limit:
            advice = "it has no maxmemory, so RemoteClaw applies a limit of its own: set maxmemory"
            yield Finding("redis", True, advice)
        workers = await fleet.workers.list()
        drained = drain_problem(await fleet.drains.hosts(), home.host_id)
        for finding in _workers(home, workers, drained):
            yield finding
        for agent, text in pool_problems(config, workers).items():
            yield Finding(f"agent {agent}", False, text)
        for failing in await fleet.failed_turns.by_agent():
            if problem := failing.problem(now_ms()):
                yield Finding(f"turns of {failing.agent}", False, problem)
        if problem := version_problem(await fleet.processes.list(), home.host_id):
            yield Finding("versions", False, problem)
        if problem := zone_problem(config, workers):
            yield Finding("time zone", False, problem)
        yield await _gateway(fleet.gateways, home, config, pid)
        async for finding in _tools(fleet.gateways, fleet.tokens, home, config):
            yield finding
        if page := _page(config.gateway):
            yield page
        has_sweeper = await fleet.workers.has_sweeper()
        yield Finding("sweeper", has_sweeper, "runs" if has_sweeper else NO_SWEEPER)
        for account in await configured_accounts(fleet, config):
            yield Finding(f"channel {account.account}", not account.problem, account.summary)
        for unread in await fleet.replies.unread():
            yield Finding("replies", True, _unread(unread))
    except RemoteClawError as error:
        yield Finding("redis", False, str(error))
    finally:
        await fleet.aclose()
    yield Finding("running", True, f"`remoteclaw up` is process {pid}" if pid else "without `up`")


def _workers(home: Home, views: Sequence[WorkerView], drained: str | None) -> Iterator[Finding]:
    workers = [view for view in views if view.is_ours]
    text = f"{len(workers)} rq {'worker' if len(workers) == 1 else 'workers'}"
    yield Finding("workers", bool(workers), text if workers else no_worker_problem(drained))
    for view in views:
        if view.problem:
            yield Finding("workers", False, view.problem)
    if problem := shared_host_problem(home, workers):
        yield Finding("host id", False, problem)


def zone_problem(config: Config, workers: Sequence[WorkerView]) -> str | None:
    """Return that the days of budgets differ between hosts, and what to do; None if they don't."""
    by_id = {view.host_id or view.host: view.host for view in workers if view.is_ours}
    hosts = sorted(map(one_line, by_id.values()))
    if config.fleet.timezone or not config.budgets or len(hosts) < 2:
        return None
    return (
        f"{', '.join(hosts)} each begin the days of budgets in their own time zone: set the same "
        "one on all of them, [fleet] timezone."
    )


def shared_host_problem(home: Home, workers: Sequence[WorkerView]) -> str | None:
    """Return that another machine has this host id, and what to do; None if none has."""
    for view in workers:
        if view.host_id == home.host_id and view.boot != boot_id():
            return (
                f"another machine has the same one, {home.host_id} (rq worker {view.pid} on "
                f"{one_line(view.host)}): conversations lose their context when they move between "
                f"the two. Delete {home.path / 'host-id'} on one of them and start RemoteClaw "
                "there again; if they share that directory, give each its own REMOTECLAW_HOME."
            )
    return None


async def _gateway(gateways: Gateways, home: Home, config: Config, pid: int | None) -> Finding:
    address = await gateways.address(home.host_id)
    port = _port(config) if address is None and pid is None else None
    if port is not None and not port.ok:
        return port
    absent = "none on this host, so its agents have no tools: run `remoteclaw gateway`."
    return Finding("gateway", address is not None, address or absent)


async def _tools(
    gateways: Gateways, tokens: Tokens, home: Home, config: Config
) -> AsyncIterator[Finding]:
    """Yield whether RemoteClaw's tools answer a call from the environment of each agent."""
    address = await gateways.address(home.host_id)
    agents = {name: each for name, each in config.agents.items() if each.runtime != "demo"}
    if address is None or not agents:
        return
    try:
        token, view = await tokens.create("doctor", "read", CALL_TOKEN_MS)
    except RedisRefused:  # it is full, which has been reported
        return
    try:
        for name, settings in agents.items():
            answer = await asyncio.to_thread(call_tools, settings, f"{address}/mcp", token)
            is_ok = answer.isdigit()
            text = f"{answer} answer" if is_ok else f"{address} can't be called: {answer}."
            yield Finding(f"tools of {name}", is_ok, text)
    finally:
        await tokens.revoke(view.id)


def _page(config: GatewayConfig) -> Finding | None:
    """Return whether browsers on other computers can use the page; None if it is on loopback."""
    if is_loopback(config.host):
        return None
    if config.host in ("0.0.0.0", "::") and not config.hosts:  # noqa: S104 - it is only compared
        return Finding(
            "page",
            False,
            f"[gateway] host is {config.host}, any address, and hosts is empty: other computers "
            "are refused. Add to hosts the name or address that they use.",
        )
    return Finding(
        "page",
        True,
        "over http:// from another computer, logins and messages can be read on the way: put a "
        "proxy with TLS in front of the gateway, under a name in [gateway] hosts",
    )


def _port(config: Config) -> Finding:
    """Return whether a gateway could listen at its configured address."""
    try:
        with listen(config.gateway) as listening:
            return Finding("gateway", True, f"would be at {url_of(listening)}")
    except RemoteClawError as error:
        return Finding("gateway", False, str(error))


def _unread(unread: UnreadStream) -> str:
    """Return a warning about replies that no adapter reads."""
    hours = unread.age_s / 3600
    age = f"{hours / 24:.0f} days" if hours >= 48 else f"{hours:.0f} hours"
    return (
        f"no adapter reads {unread.provider}/{unread.account}: {unread.count} replies wait there, "
        f"the oldest for {age}. Each expires after 3 days; `remoteclaw replies` shows and drops "
        "them."
    )
