"""Runs the adapters of the configured accounts, each under the account's claim.

Any number of these processes may run. For each account, the one with the claim polls and sends; the
others stand by until the claim ends.
"""

import asyncio
import contextlib
import logging
import shlex
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from importlib import resources
from pkgutil import resolve_name
from typing import Any, Literal, cast

from remoteclaw import commands
from remoteclaw.bridge.activity import shown_of_tools
from remoteclaw.channels.budget import Budget
from remoteclaw.channels.intake import Intake
from remoteclaw.channels.rate import RateLimiter
from remoteclaw.channels.relay import relay
from remoteclaw.channels.report import InboundContext
from remoteclaw.channels.signs import StateSigns
from remoteclaw.channels.unreached import notice_of
from remoteclaw.clock import boottime
from remoteclaw.config.home import Home
from remoteclaw.config.model import AccountConfig, SecretsConfig
from remoteclaw.config.reload import CurrentConfig
from remoteclaw.errors import (
    AccountRefused,
    ConfigError,
    RedisRefused,
    RedisUnavailable,
    RemoteClawError,
    first_of,
)
from remoteclaw.extensions import cant_load
from remoteclaw.fleet import Fleet
from remoteclaw.fleet.kept_state import KeptState, stamp
from remoteclaw.fleet.replies.reader import DeliveryFailure, ReplyReader
from remoteclaw.host.installation import installer
from remoteclaw.host.logs import frames_of
from remoteclaw.host.packages import is_import_error, package_hint
from remoteclaw.messages import ChatPlace, SessionKey
from remoteclaw.profiles import Channel, channel_of, profile_of
from remoteclaw.protocols import OperatingAdapter, PlatformAdapter, Reply, StatefulAdapter

#: The interval between checks of the configuration, and of why replies wait, in seconds.
CHECK_S = 1.0
#: The pause after an account was refused, and the longest pause after another failure, in seconds.
MAX_PAUSE_S = 30.0
#: The first pause after a failure, in seconds. Pauses double after each failure.
FIRST_PAUSE_S = 1.0
#: After an account has worked this long, the next failure counts as the first again, in seconds.
STABLE_S = 60.0

log = logging.getLogger(__name__)

AccountKey = tuple[str, str]
"""The name of a channel and the name of an account on it."""
Stamps = list[int | None]
"""When each of several files was written; None for one that is absent."""


class LibraryMissing(ConfigError):
    """Raised when the library of a platform is not installed."""


class Channels:
    """Runs the accounts of the configuration, or a selection of them."""

    def __init__(
        self, fleet: Fleet, home: Home, config: CurrentConfig, names: Collection[str] = ()
    ) -> None:
        """Select accounts by `names`: channels or CHANNEL/ACCOUNT. Without names, select all."""
        self._fleet = fleet
        self._home = home
        self._config = config
        self._names = names

    def selected(self) -> dict[AccountKey, AccountConfig]:
        """Return the accounts to run, with their current settings."""
        return {
            (channel, name): settings
            for (channel, name), settings in self._config().accounts().items()
            if not self._names or {channel, f"{channel}/{name}"} & set(self._names)
        }

    async def run(self) -> None:
        """Run the selected accounts until cancelled. Restart an account whose settings change.

        An account also starts again to take over what `channel add` has kept for it, and after the
        file of a secret has changed.
        """
        await self._fleet.restores.wait_while_paused("the channels")
        running: dict[AccountKey, tuple[AccountConfig, Stamps, asyncio.Task[None]]] = {}
        async with asyncio.TaskGroup() as tasks:
            while True:
                selected = self.selected()
                for key, (settings, before, task) in list(running.items()):
                    stamps = zip(self._stamps(key, settings), before, strict=True)
                    is_new = any(now not in (None, then) for now, then in stamps)
                    if selected.get(key) != settings or is_new:
                        task.cancel()
                        await asyncio.wait((task,))
                        del running[key]
                for key, settings in selected.items():
                    if key not in running:
                        account = _Account(self._fleet, self._home, self._config, key, settings)
                        stamps_now = self._stamps(key, settings)
                        running[key] = settings, stamps_now, tasks.create_task(account.run())
                await asyncio.sleep(CHECK_S)

    def _stamps(self, key: AccountKey, settings: AccountConfig) -> Stamps:
        """Return when the files with which an account starts were written."""
        files = settings.secret_files() if isinstance(settings, SecretsConfig) else []
        return [stamp(file) for file in (self._home.kept_state(*key), *files)]


class _Account:
    def __init__(
        self,
        fleet: Fleet,
        home: Home,
        config: CurrentConfig,
        key: AccountKey,
        settings: AccountConfig,
    ) -> None:
        self._fleet = fleet
        self._settings = settings
        self._provider, self._account = key
        self._name = "/".join(key)
        self._context = InboundContext(
            fleet=fleet,
            home=home,
            config=config,
            provider=self._provider,
            account=self._account,
            rate=RateLimiter(),
        )

    async def run(self) -> None:
        """Run the account until cancelled, and restart it after each failure."""
        reader = self._fleet.replies.reader(self._provider, self._account)
        logged, failures = "", 0
        try:
            while True:
                since = boottime()
                error = await self._serve(reader)
                failures = 0 if boottime() - since > STABLE_S else failures + 1
                pause = min(FIRST_PAUSE_S * 2 ** min(failures, 5), MAX_PAUSE_S)
                is_foreseen = isinstance(error, RemoteClawError)
                failed = f"It failed ({type(error).__name__}); its log says where."
                problem = str(error) if is_foreseen else failed
                if not is_foreseen or is_import_error(error):
                    problem += package_hint()
                is_refused = isinstance(error, AccountRefused | ConfigError)
                if is_refused:  # a person has to fix this
                    pause = MAX_PAUSE_S
                await self._leave(reader)
                if problem != logged:  # once, and not after each pause
                    log.error("%s: %s", self._name, problem)
                    logged = problem
                await self._report(problem=problem, is_refused=is_refused)
                await asyncio.sleep(pause)
        finally:
            await self._leave(reader)

    async def _serve(self, reader: ReplyReader) -> Exception:
        """Poll and send for the account until an error ends that; return the error."""
        ended: Exception | None = None
        try:
            await reader.wait_for_claim()
            adapter = create_adapter(self._provider, self._settings)
            try:
                if isinstance(adapter, StatefulAdapter):
                    key_file = self._context.home.adapter_state_key
                    state = self._fleet.accounts.state(reader, key_file)
                    file = self._context.home.kept_state(self._provider, self._account)
                    await KeptState(file, key_file).move_to(state)
                    await adapter.use_state(state)
                identity = await adapter.connect()
                log.info("%s is %s", self._name, identity.name)
                await self._report(name=identity.name, problem=identity.problem)
                await adapter.set_commands(
                    [
                        (spec.name, spec.help)
                        for spec in commands.COMMANDS.values()
                        if spec.is_everywhere
                    ]
                )
                budget = Budget(self._name, profile_of(self._provider))
                signs = self._signs(reader, adapter, budget)
                async with asyncio.TaskGroup() as tasks:
                    relaying = relay(
                        reader,
                        adapter,
                        budget,
                        history_ms=self._history_ms,
                        shows_work=self._shows_work,
                        notice_of=self._notice_of,
                        signs=signs,
                    )
                    tasks.create_task(relaying)
                    context = replace(self._context, signs=signs)
                    intake = Intake(context, reader, adapter)
                    tasks.create_task(intake.run())
                    reporting = self._report_waiting(budget, intake, otherwise=identity.problem)
                    tasks.create_task(reporting)
            finally:
                await adapter.aclose()
        except* RemoteClawError as errors:
            ended = first_of(errors)
        except* Exception as errors:  # noqa: BLE001 - one account must not end the others
            ended = first_of(errors)
            log.error("%s: %s", self._name, frames_of(ended))
        assert ended is not None, "the tasks only end with an error"
        return ended

    def _signs(
        self, reader: ReplyReader, adapter: PlatformAdapter, budget: Budget
    ) -> StateSigns | None:
        emoji = profile_of(self._provider).state_emoji
        if not emoji or not isinstance(adapter, OperatingAdapter):
            return None
        return StateSigns(self._fleet.signs, reader, adapter, budget, emoji)

    async def _notice_of(
        self, reply: Reply, failure: DeliveryFailure
    ) -> tuple[ChatPlace, Mapping[str, Any]] | None:
        place = ChatPlace(self._provider, self._account, reply.channel_id, reply.thread_id)
        facts = await self._fleet.chats.facts(place, is_group=reply.asked_by != place.chat)
        return notice_of(self._context.config(), facts, place, reply, failure)

    def _history_ms(self) -> int:
        return self._context.config().record.history_ms

    def _shows_work(self, session: SessionKey) -> Literal["arguments", "names", "off"] | None:
        channel = self._context.config().channel(self._provider)
        return shown_of_tools(channel, session) if channel.shows_work else None

    async def _report_waiting(self, budget: Budget, intake: Intake, *, otherwise: str) -> None:
        """Report why replies wait or no messages arrive, else the problem `otherwise`."""
        reported = otherwise
        while True:
            await asyncio.sleep(CHECK_S)
            if (problem := budget.problem or intake.problem or otherwise) != reported:
                await self._report(problem=problem)
                reported = problem

    async def _report(self, *, name: str = "", problem: str = "", is_refused: bool = False) -> None:
        try:
            await self._fleet.accounts.report(
                self._provider, self._account, name=name, problem=problem, is_refused=is_refused
            )
        except (RedisUnavailable, RedisRefused) as error:
            log.warning("%s: its state is not stored: %s", self._name, error)

    async def _leave(self, reader: ReplyReader) -> None:
        with contextlib.suppress(RedisUnavailable, RedisRefused):  # the claim then expires
            await self._fleet.accounts.leave(reader)


def create_adapter(provider: str, settings: AccountConfig) -> PlatformAdapter:
    """Return the adapter of an account of the channel `provider`.

    Raises `ConfigError` if the channel has no adapter, or one without all calls, and
    `LibraryMissing` if its library is not installed.
    """
    channel = channel_of(provider)
    if channel is None or not channel.adapter:
        raise ConfigError(f"The channel {provider!r} has no adapter.")
    adapter = adapter_class(provider, channel)(settings)
    calls = (name for name in dir(PlatformAdapter) if not name.startswith("_"))
    if missing := [name for name in calls if not hasattr(adapter, name)]:
        raise ConfigError(f"The adapter of the channel {provider!r} lacks {', '.join(missing)}.")
    return adapter


def adapter_class(provider: str, channel: Channel) -> Callable[[AccountConfig], PlatformAdapter]:
    """Import the class of a channel's adapter. Raises as `create_adapter()` does."""
    try:
        return cast(Callable[[AccountConfig], PlatformAdapter], resolve_name(channel.adapter))
    except Exception as error:  # noqa: BLE001 - the code can be another package's
        if channel.extra and isinstance(error, ModuleNotFoundError):
            raise LibraryMissing(
                f"The library of {provider} is not installed ({error.name}): `remoteclaw channel "
                f"add {provider}` installs it, or `{shlex.join(library_command(provider))}`."
            ) from None
        about = f"The adapter of the channel {provider!r}"
        raise ConfigError(f"{about} {cant_load(channel.adapter, error)}") from None


def library_command(provider: str) -> list[str]:
    """Return the command that installs the library of a channel, pinned by hashes."""
    channel = channel_of(provider)
    assert channel is not None, "only called for channels with a library"
    package = channel.adapter.partition(":")[0].rpartition(".")[0]
    requirements = str(resources.files(package) / "requirements.txt")
    return [*installer(), "--require-hashes", "-r", requirements]
