"""Shared parts of commands: the configuration, a Redis that runs, a conversation's key."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from remoteclaw.errors import NotRunning
from remoteclaw.host.terminal import login_name

if TYPE_CHECKING:
    from remoteclaw.config.home import Home
    from remoteclaw.config.model import Config
    from remoteclaw.fleet import Fleet
    from remoteclaw.messages import SessionKey

__all__ = ["addressed", "clock", "load", "on_fleet", "require_running", "session_key"]


def load() -> "tuple[Home, Config]":
    """Return the state directory, which need not be there yet, and the configuration."""
    from remoteclaw.config.home import Home
    from remoteclaw.config.load import load_config

    home = Home.default().check()
    config = load_config(home.config_file)
    return home, config


def on_fleet(run: "Callable[[Fleet], Coroutine[Any, Any, Any]]") -> Any:
    """Run a command's coroutine with a fleet on a Redis that is there and fit."""
    home, config = load()
    require_running(home, config)

    async def go() -> Any:
        async with _fleet(home, config) as fleet:
            return await run(fleet)

    return asyncio.run(go())


def require_running(home: "Home", config: "Config") -> None:
    """Raise `NotRunning` if the embedded server is needed and does not run."""
    from remoteclaw.up.lock import running_pid

    if config.redis.url is None and running_pid(home) is None:
        raise NotRunning(
            f"RemoteClaw isn't running in {home.path}: start it with `remoteclaw up`, "
            "or set [redis] url to a Redis of your own."
        )


@contextlib.asynccontextmanager
async def _fleet(home: "Home", config: "Config") -> "AsyncIterator[Fleet]":
    from remoteclaw.fleet import Fleet
    from remoteclaw.fleet.fitness import check_fitness

    url = home.redis_url(config)
    fleet = Fleet.open(url, lease_s=config.fleet.lease_s, memory_limit=config.redis.memory_limit)
    try:
        await check_fitness(fleet.scripts.client, url)
        yield fleet
    finally:
        await fleet.aclose()


def addressed(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that say whose conversation is meant."""
    for option in reversed(
        (
            click.option("--channel", default="cli", show_default=True, help="Kind of channel."),
            click.option(
                "--from", "from_", default=None, help="Sender's id. [default: your login name]"
            ),
            click.option("--to", default=None, help="Chat's id. [default: the sender's]"),
            click.option("--thread", default=None, help="Thread of the chat."),
            click.option("--account", default="default", show_default=True, help="Bot or login."),
            click.option("--agent", default=None, help="Agent. [default: main, or the only one]"),
        )
    ):
        command = option(command)
    return command


def session_key(address: dict[str, Any]) -> "SessionKey":
    """Return the key of the conversation that `addressed` options name."""
    from remoteclaw.messages import SessionKey

    _, config = load()
    user = login_name() if address["from_"] is None else address["from_"]
    return SessionKey(
        agent=config.agent(address["agent"])[0],
        provider=address["channel"],
        account=address["account"],
        channel_id=user if address["to"] is None else address["to"],
        user=user,
        thread=address["thread"],
    )


def clock(at_ms: int, *, milliseconds: bool = False) -> str:
    """Return a time of Redis' clock as people here read it."""
    moment = datetime.fromtimestamp(at_ms / 1000).astimezone()
    fraction = f".{at_ms % 1000:03}" if milliseconds else ""
    return f"{moment:%Y-%m-%d %H:%M:%S}{fraction}"
