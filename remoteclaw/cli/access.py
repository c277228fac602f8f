"""Shared parts of commands: the configuration, and a fleet on a Redis that runs."""

import functools
import sys
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec

from remoteclaw.errors import ConfigError, RedisUnavailable
from remoteclaw.host.terminal import login_name

if TYPE_CHECKING:
    from remoteclaw.config.home import Home
    from remoteclaw.config.model import Config
    from remoteclaw.fleet import Fleet

P = ParamSpec("P")


def load() -> "tuple[Home, Config]":
    """Return the state directory, which need not be there yet, and the configuration.

    An error of its file says what it means for what runs.
    """
    from remoteclaw.config.home import Home
    from remoteclaw.config.load import load_config

    home = Home.default().check()
    try:
        return home, load_config(home.config_file)
    except ConfigError as error:
        from remoteclaw.up.doctor import goes_on

        raise ConfigError(f"{error}{goes_on(home)}") from None


def on_fleet(run: "Callable[[Fleet], Coroutine[Any, Any, Any]]") -> Any:
    """Run a command's coroutine with a fleet on a Redis that is there and fit."""
    import asyncio

    from remoteclaw.fleet import Fleet
    from remoteclaw.fleet.fitness import check_fitness

    home, config = load()
    require_running(home, config)

    async def go() -> Any:
        url, limit = home.redis_url(config), config.redis.memory_limit
        fleet = Fleet.open(url, memory_limit=limit)
        try:
            await check_fitness(fleet.scripts.client, url)
            return await run(fleet)
        finally:
            await fleet.aclose()

    return asyncio.run(go())


def with_fleet(
    command: "Callable[Concatenate[Fleet, P], Coroutine[Any, Any, int | None]]",
) -> Callable[P, None]:
    """Return a command that begins with a fleet, as `on_fleet()` has it.

    What it returns is the exit status.
    """

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        if status := on_fleet(lambda fleet: command(fleet, *args, **kwargs)):
            sys.exit(status)

    return run


def ask(method: str, **params: Any) -> Any:
    """Call a method of the gateway in this process, with the rights of an operator.

    No gateway needs to run. The types of what is returned are those of `remoteclaw.tools`.
    """
    from remoteclaw.gateway.dispatch import Dispatcher
    from remoteclaw.gateway.methods import HANDLERS
    from remoteclaw.gateway.principals import Operator

    home, config = load()
    operator = Operator(name=login_name(), scope="admin", credential="cli")

    async def run(fleet: "Fleet") -> Any:
        dispatcher = Dispatcher(fleet, home, lambda: config, HANDLERS)
        answer, _ = await dispatcher.call(operator, method, params)
        return answer

    return on_fleet(run)


def ask_gateway(method: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """Call a method of the gateway that runs here, once it is reached."""
    import asyncio

    from remoteclaw.cli.over_gateway import linked
    from remoteclaw.config.home import Home

    async def run() -> dict[str, Any]:
        async with linked(Home.default(), ("health", {})) as (link, _):
            return await link.ask(method, params)

    return asyncio.run(run())


def require_running(home: "Home", config: "Config") -> None:
    """Raise `RedisUnavailable` if the embedded server is needed and does not run."""
    from remoteclaw.up.lock import running_pid

    if config.redis.url is None and running_pid(home) is None:
        raise RedisUnavailable(
            f"RemoteClaw isn't running in {home.path}: start it with `remoteclaw up`, "
            "or set [redis] url to a Redis of your own."
        )
