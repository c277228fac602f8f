"""Access for commands: the configuration, the fleet, and the methods of the gateway."""

import functools
import sys
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec

from remoteclaw.errors import ConfigError, RedisUnavailable

if TYPE_CHECKING:
    from remoteclaw.config.home import Home
    from remoteclaw.config.model import Config
    from remoteclaw.fleet import Fleet

P = ParamSpec("P")


def load() -> "tuple[Home, Config]":
    """Return the state directory, which may not exist yet, and the configuration.

    Raises `ConfigError` if the file is not valid; the error also says what this means for a
    running `up`.
    """
    from remoteclaw.config.home import Home
    from remoteclaw.config.reload import load_and_keep

    home = Home.default().check()
    try:
        return home, load_and_keep(home)
    except ConfigError as error:
        from remoteclaw.up.doctor import effect_of_invalid_config

        raise ConfigError(f"{error}{effect_of_invalid_config(home)}") from None


def on_fleet(run: "Callable[[Fleet], Coroutine[Any, Any, Any]]") -> Any:
    """Call `run` with a fleet and return its result.

    Raises `RedisUnavailable` if the fleet's Redis can't be reached, and the other errors of
    `check_fitness()` if it can't be used.
    """
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
    """Turn a coroutine function that takes a fleet into a command's callback.

    The callback opens the fleet as `on_fleet()` does. The coroutine's result is the exit status;
    None stands for 0.
    """

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        if status := on_fleet(lambda fleet: command(fleet, *args, **kwargs)):
            sys.exit(status)

    return run


def call_method(method: str, **params: Any) -> dict[str, Any]:
    """Call a method as this computer's operator, and return its result as JSON data.

    The state directory's gateway runs the method; if none answers, this process does, which takes
    three times the processor time, since it imports pydantic, redis and rq.
    Raises `RemoteClawError`; a refused call has a `code`.
    """
    import asyncio

    from remoteclaw.client.link import GatewayMissing
    from remoteclaw.client.own import call_own_gateway
    from remoteclaw.config.home import Home

    try:
        return asyncio.run(call_own_gateway(Home.default(), method, params))
    except GatewayMissing:
        return _run_method(method, params)


def _run_method(method: str, params: Mapping[str, Any]) -> dict[str, Any]:
    import orjson

    from remoteclaw.channels.web.settings import own_name
    from remoteclaw.gateway.auth.principals import Operator
    from remoteclaw.gateway.dispatch import Dispatcher
    from remoteclaw.gateway.doors.frames import encoded
    from remoteclaw.gateway.methods import HANDLERS

    home, config = load()
    operator = Operator(name=own_name(config), scope="admin", credential="cli")

    async def run(fleet: "Fleet") -> dict[str, Any]:
        dispatcher = Dispatcher(fleet, home, lambda: config, HANDLERS)
        result, _ = await dispatcher.call(operator, method, params)
        data: dict[str, Any] = orjson.loads(encoded(result))
        return data

    result: dict[str, Any] = on_fleet(run)
    return result


def require_running(home: "Home", config: "Config") -> None:
    """Raise `RedisUnavailable` if the configuration needs the embedded server and it is down."""
    from remoteclaw.up.lock import running_pid

    if config.redis.url is None and running_pid(home) is None:
        raise RedisUnavailable(
            f"RemoteClaw isn't running in {home.path}: start it with `remoteclaw up`, "
            "or set [redis] url to a Redis of your own."
        )
