"""`remoteclaw doctor`: checks everything that RemoteClaw needs, and changes nothing."""

import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass

from remoteclaw.bridge import Hooks
from remoteclaw.clock import boot_id
from remoteclaw.config.home import Home
from remoteclaw.config.load import load_config, overrides
from remoteclaw.config.model import AgentConfig, Config, GatewayConfig, HooksConfig, is_loopback
from remoteclaw.errors import RemoteClawError
from remoteclaw.fleet import Fleet
from remoteclaw.fleet.adapters import accounts_here
from remoteclaw.fleet.fitness import check_fitness
from remoteclaw.fleet.keys import lane_on
from remoteclaw.fleet.replies import Unread
from remoteclaw.fleet.workers import NO_SWEEPER, NO_WORKER, WorkerView
from remoteclaw.gateway.address import listen, url_of
from remoteclaw.host.terminal import one_line
from remoteclaw.tty import ghostty
from remoteclaw.up.agents import (
    agent_problem,
    describe_agent,
    rules_problem,
    sign_in_problem_of,
    tools_problem,
)
from remoteclaw.up.embedded import find_server
from remoteclaw.up.lock import running_pid


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check."""

    subject: str
    ok: bool
    text: str
    """What was found; if it isn't right, also what to do."""


async def examine() -> AsyncIterator[Finding]:
    """Yield one finding after another, as far as the earlier ones allow."""
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
        yield Finding("configuration", True, _configuration(home))
    except RemoteClawError as error:
        yield Finding("configuration", False, f"{error}{goes_on(home)}")
        return
    if config.hooks != HooksConfig():
        problem = hooks_problem(config.hooks)
        yield Finding("hooks", problem is None, problem or "all can be imported")
    for name, agent in config.agents.items():
        yield _agent(home, name, agent)
    yield Finding("terminals", True, ghostty.problem() or "can be opened")
    pid = running_pid(home)
    if config.redis.url is None and pid is None:
        for finding in _not_running(home, config):
            yield finding
    else:
        async for finding in _running(home, config, pid):
            yield finding


def _configuration(home: Home) -> str:
    """Return where the configuration comes from."""
    there = str(home.config_file) if home.config_file.exists() else "no file, all defaults"
    names = overrides()
    return f"{there}; overridden by {', '.join(names)}" if names else there


def goes_on(home: Home) -> str:
    """Return what follows a mistake in the file while `up` runs; empty if it doesn't."""
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


def _agent(home: Home, name: str, settings: AgentConfig) -> Finding:
    problem = (
        agent_problem(home, name, settings)
        or tools_problem(home, name, settings)
        or rules_problem(settings)
        or sign_in_problem_of(settings)
    )
    text = problem or describe_agent(home, name, settings)
    return Finding(f"agent {name}", problem is None, text)


# -- what runs ---------------------------------------------------------------------------------


def _not_running(home: Home, config: Config) -> Iterator[Finding]:
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
    url = home.redis_url(config)
    fleet = Fleet.open(url, memory_limit=config.redis.memory_limit)
    try:
        await check_fitness(fleet.scripts.client, url)
        memory = await fleet.scripts.memory()
        yield Finding("redis", not memory.is_full, memory.problem or f"reachable and fit, {memory}")
        if not memory.own_limit:
            told = "it has no maxmemory, so RemoteClaw stops there by itself: set one"
            yield Finding("redis", True, told)
        for finding in _workers(home, await fleet.workers.list()):
            yield finding
        yield await _gateway(fleet, home, config, pid)
        if page := _page(config.gateway):
            yield page
        has_sweeper = await fleet.workers.have_sweeper()
        yield Finding("sweeper", has_sweeper, "runs" if has_sweeper else NO_SWEEPER)
        for account in await accounts_here(fleet, config):
            yield Finding(f"channel {account.account}", not account.problem, account.line)
        for unread in await fleet.replies.unread():
            yield Finding("replies", True, _unread(unread))
    except RemoteClawError as error:
        yield Finding("redis", False, str(error))
    finally:
        await fleet.aclose()
    yield Finding("running", True, f"`remoteclaw up` is process {pid}" if pid else "without `up`")


def _workers(home: Home, found: Sequence[WorkerView]) -> Iterator[Finding]:
    workers = [view for view in found if view.is_ours]
    text = f"{len(workers)} rq {'worker' if len(workers) == 1 else 'workers'}"
    yield Finding("workers", bool(workers), text if workers else NO_WORKER)
    for view in found:
        if view.problem:
            yield Finding("workers", False, view.problem)
    if problem := _shared_host_problem(home, workers):
        yield Finding("host id", False, problem)


def _shared_host_problem(home: Home, workers: Sequence[WorkerView]) -> str | None:
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


async def _gateway(fleet: Fleet, home: Home, config: Config, pid: int | None) -> Finding:
    address = await fleet.gateways.address(home.host_id)
    port = _port(config) if address is None and pid is None else None
    if port is not None and not port.ok:
        return port
    absent = "none on this host, so its agents have no tools: run `remoteclaw gateway`."
    return Finding("gateway", address is not None, address or absent)


def _page(config: GatewayConfig) -> Finding | None:
    """Return what a browser on another computer meets; None on loopback, where it meets nothing."""
    if is_loopback(config.host):
        return None
    if config.host in ("0.0.0.0", "::") and not config.hosts:  # noqa: S104 - it is only compared
        return Finding(
            "page",
            False,
            f"[gateway] host is {config.host}, any address, and hosts is empty: other computers "
            "are refused. Name in hosts under which name or address they ask.",
        )
    return Finding(
        "page",
        True,
        "over http:// from another computer, logins and messages can be read on the way: let "
        "browsers in through something that encrypts, under a name in [gateway] hosts",
    )


def _port(config: Config) -> Finding:
    """Return whether a gateway could listen at its address, where none does."""
    try:
        with listen(config.gateway) as listening:
            return Finding("gateway", True, f"would be at {url_of(listening)}")
    except RemoteClawError as error:
        return Finding("gateway", False, str(error))


def _unread(unread: Unread) -> str:
    hours = unread.age_s / 3600
    age = f"{hours / 24:.0f} days" if hours >= 48 else f"{hours:.0f} hours"
    return (
        f"no adapter reads {unread.provider}/{unread.account}: {unread.count} wait there, the "
        f"oldest for {age}. Each is given up after 3 days; `remoteclaw replies` shows and drops "
        "them."
    )
