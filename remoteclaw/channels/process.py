"""The process of the channels: runs the adapter of each account, under its claim.

Any number of such processes may run: one of them polls and sends for an account, and the others
stand by until its claim ends.
"""

import asyncio
import contextlib
import logging
import shlex
import sys
from collections.abc import Collection
from importlib import resources
from pkgutil import resolve_name
from typing import Literal, cast

from remoteclaw import commands
from remoteclaw.bridge.activity import shown_of_tools
from remoteclaw.channels.arrival import Door
from remoteclaw.channels.budget import Budget
from remoteclaw.channels.intake import Intake
from remoteclaw.channels.rate import Rate
from remoteclaw.channels.relay import relay
from remoteclaw.clock import boottime
from remoteclaw.config.home import Home
from remoteclaw.config.model import AccountConfig
from remoteclaw.config.reload import CurrentConfig
from remoteclaw.errors import (
    AccountRefused,
    ConfigError,
    RedisRefused,
    RedisUnavailable,
    RemoteClawError,
    first_of,
)
from remoteclaw.fleet import Fleet
from remoteclaw.fleet.reader import ReplyReader
from remoteclaw.host.logs import frames_of
from remoteclaw.messages import SessionKey
from remoteclaw.profiles import channel_of
from remoteclaw.protocols import PlatformAdapter

#: How often the configuration, and what keeps replies waiting, is looked at, in seconds.
LOOK_S = 1.0
#: How long an account that is refused is left alone, in seconds, and the longest pause of another.
AGAIN_S = 30.0
#: The first pause after an outage or a failure, which may be over, in seconds; they double.
AGAIN_SOON_S = 1.0
#: How long an account works until a failure counts as the first, in seconds.
STABLE_S = 60.0

log = logging.getLogger(__name__)

Key = tuple[str, str]
"""A channel, and the name of an account there."""


class LibraryMissing(ConfigError):
    """Raised when the library of a platform is not installed."""


class Channels:
    """The accounts that the configuration has, or some of them."""

    def __init__(
        self, fleet: Fleet, home: Home, config: CurrentConfig, names: Collection[str] = ()
    ) -> None:
        """`names` are channels, or accounts as CHANNEL/ACCOUNT; without any, it is all of them."""
        self._fleet = fleet
        self._home = home
        self._config = config
        self._names = names

    def wanted(self) -> dict[Key, AccountConfig]:
        """Return the accounts to run, with their settings."""
        return {
            (channel, name): settings
            for (channel, name), settings in self._config().accounts().items()
            if not self._names or {channel, f"{channel}/{name}"} & set(self._names)
        }

    async def run(self) -> None:
        """Run them until cancelled; one whose settings change begins again."""
        running: dict[Key, tuple[AccountConfig, asyncio.Task[None]]] = {}
        async with asyncio.TaskGroup() as tasks:
            while True:
                wanted = self.wanted()
                for key, (settings, task) in list(running.items()):
                    if wanted.get(key) != settings:
                        task.cancel()
                        await asyncio.wait((task,))
                        del running[key]
                for key, settings in wanted.items():
                    if key not in running:
                        account = _Account(self._fleet, self._home, self._config, key, settings)
                        running[key] = settings, tasks.create_task(account.run())
                await asyncio.sleep(LOOK_S)


class _Account:
    def __init__(
        self, fleet: Fleet, home: Home, config: CurrentConfig, key: Key, settings: AccountConfig
    ) -> None:
        self._fleet = fleet
        self._settings = settings
        self._provider, self._account = key
        self._name = "/".join(key)
        self._door = Door(
            fleet=fleet,
            home=home,
            config=config,
            provider=self._provider,
            account=self._account,
            rate=Rate(),
        )

    async def run(self) -> None:
        """Run it until cancelled, whatever happens to it."""
        reader = self._fleet.replies.reader(self._provider, self._account)
        problem, failures = "", 0
        try:
            while True:
                since = boottime()
                error = await self._work(reader)
                failures = 0 if boottime() - since > STABLE_S else failures + 1
                pause = min(AGAIN_SOON_S * 2 ** min(failures, 5), AGAIN_S)
                if isinstance(error, RemoteClawError):
                    told = str(error)
                else:
                    told = f"It failed ({type(error).__name__}); its log says where."
                if isinstance(error, AccountRefused | ConfigError):  # a person has to do something
                    pause = AGAIN_S
                await self._leave(reader)
                if told != problem:  # said once, not every 30 s
                    log.error("%s: %s", self._name, told)
                    problem = told
                await self._tell(problem=told)
                await asyncio.sleep(pause)
        finally:
            await self._leave(reader)

    async def _work(self, reader: ReplyReader) -> Exception:
        """Do its work until something ends it; return what that was."""
        ended: Exception | None = None
        try:
            await reader.claimed()
            adapter = create_adapter(self._provider, self._settings)
            try:
                identity = await adapter.connect()
                log.info("%s is %s", self._name, identity.name)
                await self._tell(name=identity.name, problem=identity.problem)
                await adapter.set_commands(
                    [(spec.name, spec.help) for spec in commands.COMMANDS.values()]
                )
                budget = Budget(self._name)
                async with asyncio.TaskGroup() as tasks:
                    relaying = relay(
                        reader,
                        adapter,
                        budget,
                        history_ms=self._history_ms,
                        shows_work=self._shows_work,
                    )
                    tasks.create_task(relaying)
                    tasks.create_task(Intake(self._door, reader, adapter).run())
                    tasks.create_task(self._tell_of(budget, otherwise=identity.problem))
            finally:
                await adapter.aclose()
        except* RemoteClawError as errors:
            ended = first_of(errors)
        except* Exception as errors:  # noqa: BLE001 - the edge of an account: others go on
            ended = first_of(errors)
            log.error("%s: %s", self._name, frames_of(ended))
        assert ended is not None, "neither side ends by itself"
        return ended

    def _history_ms(self) -> int:
        return self._door.config().record.history_ms

    def _shows_work(self, session: SessionKey) -> Literal["arguments", "names", "off"] | None:
        channel = self._door.config().channel(self._provider)
        return shown_of_tools(channel, session) if channel.shows_work else None

    async def _tell_of(self, budget: Budget, *, otherwise: str) -> None:
        """Note why replies wait, for as long as they do."""
        told = otherwise
        while True:
            await asyncio.sleep(LOOK_S)
            if (problem := budget.problem or otherwise) != told:
                await self._tell(problem=problem)
                told = problem

    async def _tell(self, *, name: str = "", problem: str = "") -> None:
        try:
            await self._fleet.accounts.tell(
                self._provider, self._account, name=name, problem=problem
            )
        except (RedisUnavailable, RedisRefused) as error:
            log.warning("%s: its state is not noted: %s", self._name, error)

    async def _leave(self, reader: ReplyReader) -> None:
        with contextlib.suppress(RedisUnavailable, RedisRefused):  # else it ends by itself
            await self._fleet.accounts.leave(reader)


def create_adapter(provider: str, settings: AccountConfig) -> PlatformAdapter:
    """Return the adapter of an account. Raises `ConfigError` if it can't be loaded."""
    channel = channel_of(provider)
    if channel is None or not channel.adapter:
        raise ConfigError(f"The channel {provider!r} has no adapter.")
    try:
        make = resolve_name(channel.adapter)
    except ModuleNotFoundError as error:
        if not channel.extra:
            raise
        raise LibraryMissing(
            f"The library of {provider} is not installed ({error.name}): `remoteclaw channel add "
            f"{provider}` installs it, or `{shlex.join(install_command(provider))}`."
        ) from None
    return cast(PlatformAdapter, make(settings))


def install_command(provider: str) -> list[str]:
    """Return the command that installs the library of a channel, as its hashes say."""
    channel = channel_of(provider)
    assert channel is not None, "its adapter was looked for"
    package = channel.adapter.partition(":")[0].rpartition(".")[0]
    wanted = str(resources.files(package) / "requirements.txt")
    return [sys.executable, "-m", "pip", "install", "--require-hashes", "-r", wanted]
