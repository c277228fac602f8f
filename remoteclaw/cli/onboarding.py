"""Adds an account on a chat platform to the configuration: its secrets, library and owner."""

import contextlib
import os
import shlex
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, cast

import click
from pydantic import ValidationError

from remoteclaw.channels.process import (
    LibraryMissing,
    adapter_class,
    create_adapter,
    library_command,
)
from remoteclaw.cli.account_options import AccountOptions, fields_of
from remoteclaw.cli.account_owner import find_owner
from remoteclaw.cli.memory_state import MemoryState
from remoteclaw.cli.output import echo
from remoteclaw.cli.person import Person
from remoteclaw.config.edit import ConfigFile
from remoteclaw.config.home import Home
from remoteclaw.config.model import ChannelConfig, Config, SecretsConfig
from remoteclaw.errors import AccountRefused, ConfigError, RemoteClawError
from remoteclaw.fleet.kept_state import KeptState
from remoteclaw.host.locks import lock, replace_file
from remoteclaw.host.process import spawn
from remoteclaw.host.terminal import one_line
from remoteclaw.profiles import CHANNELS, Channel, channel_of
from remoteclaw.protocols import PlatformAdapter, SignedIn, SignIn, StatefulAdapter
from remoteclaw.up.lock import running_pid


class Onboarding:
    """Adds one account to the configuration, step by step."""

    def __init__(
        self,
        home: Home,
        config: Config,
        channel: str,
        options: AccountOptions,
        *,
        recovers: bool,
        hiding: contextlib.ExitStack,
    ) -> None:
        """`hiding` is closed once the secrets are known: until then the terminal shows no input."""
        self._home = home
        self._config = config
        self._channel = channel
        self._options = options
        self._recovers = recovers
        self._hiding = hiding
        self._account = options.values.get("account") or "default"
        self._lost: Mapping[str, str] = {}
        """The secrets that a configured account lacks, each with the reason."""
        self._is_again = False
        """Whether a configured account is signed in to again."""
        self._file = ConfigFile(home.config_file)

    async def run(self) -> None:
        """Add the account, or give one new secrets. If a step fails, change nothing."""
        known = channel_of(self._channel)
        model = ChannelConfig.named(self._channel)
        if known is None or not known.sign_up or not issubclass(model, SecretsConfig):
            if known and known.adapter:
                raise ConfigError(
                    f"`remoteclaw channel add` can't add an account of {self._channel!r}: write "
                    f"[channels.{self._channel}] in {self._home.config_file}."
                )
            addable = [name for name, each in CHANNELS.items() if each.sign_up]
            raise ConfigError(
                f"No account of {self._channel!r} can be added: `remoteclaw channel add` supports "
                f"{', '.join(addable)}."
            )
        if known.sign_in:
            await self._sign_in(model, known)
            return
        if self._recovers:
            raise ConfigError(f"An account of {self._channel!r} has no recovery key.")
        if why := await self._refusal():
            settings = self._refused(model, why)
        else:
            settings, self._lost = self._without_secrets(self._config)
        for name, problem in ({} if self._is_again else self._lost).items():
            echo(f"{self._channel}/{self._account} gets a new {model.label_of(name)}: {problem}")
        table, secrets = self._options.table(model, known.sign_up, self._lost)
        self._hiding.close()
        await self._add(model, table, secrets, settings)

    def _without_secrets(self, config: Config) -> tuple[dict[str, Any], Mapping[str, str]]:
        """Return what is known of an account that lacks secrets, and why it lacks each.

        The file of such a secret can't be read, or no file is named. Nothing is known of an account
        that is not configured. Raises `ConfigError` for one that has its secrets.
        """
        settings = config.accounts().get((self._channel, self._account))
        if settings is None:
            return {}, {}
        lost = {}
        if isinstance(settings, SecretsConfig):
            for name in settings.secrets:
                try:
                    settings.read_secret(name)
                except ConfigError as error:
                    own = [getattr(settings, field) for field in fields_of(name)]
                    if own[-1] or not any(own):
                        lost[name] = str(error)
            if lost:
                gone = {field for name in lost for field in fields_of(name)}
                return settings.model_dump(exclude=gone, exclude_unset=True), lost
        raise ConfigError(
            f"{self._channel}/{self._account} is in {self._home.config_file} already: change "
            "it there, or name another account with --account."
        )

    async def _refusal(self) -> str:
        """Return why the platform refuses a configured account; empty if it doesn't."""
        settings = self._config.accounts().get((self._channel, self._account))
        if settings is None:
            return ""
        try:
            adapter = create_adapter(self._channel, settings)
        except ConfigError:  # a secret is lost, or the library is missing
            return ""
        try:
            if isinstance(adapter, StatefulAdapter):
                await adapter.use_state(MemoryState())
            await adapter.connect()
        except AccountRefused as refusal:
            return str(refusal)
        except RemoteClawError:
            return ""
        finally:
            await adapter.aclose()
        return ""

    def _refused(self, model: type[SecretsConfig], why: str) -> dict[str, Any]:
        """Return what is known of a refused account, which gets all of its secrets anew."""
        echo(f"{self._channel}/{self._account} is refused: {why}")
        if self._options.may_ask and not any(self._options.places.values()):
            nouns = " and a new ".join(map(model.label_of, model.secrets))
            click.confirm(f"Give it a new {nouns}?", default=True, abort=True)
            echo("")  # the terminal has not shown Enter either
        self._is_again, self._lost = True, dict.fromkeys(model.secrets, why)
        gone = {field for name in model.secrets for field in fields_of(name)}
        settings = self._config.accounts()[self._channel, self._account]
        return settings.model_dump(exclude=gone, exclude_unset=True)

    async def _add(
        self,
        model: type[SecretsConfig],
        table: Mapping[str, Any],
        secrets: Mapping[str, str],
        known: Mapping[str, Any],
    ) -> None:
        """Check the account with its `secrets`, which were typed, and write it.

        `known` are the settings that an account which gets new secrets has already.
        """
        await self._install_library()
        settings = self._settings(model, {**known, **table, **secrets})
        adapter = create_adapter(self._channel, settings)
        with contextlib.ExitStack() as keeping:
            try:
                if isinstance(adapter, StatefulAdapter):
                    state: MemoryState | KeptState = MemoryState()
                    if not self._lost:
                        state = keeping.enter_context(self._keeping())
                        state.clear()
                    await adapter.use_state(state)
                identity = await adapter.connect()
                what = "The token is that" if len(model.secrets) == 1 else "The tokens are those"
                echo(f"{what} of {identity.name}.")
                if identity.problem:
                    echo(identity.problem)
                owner = self._options.values.get("owner")
                if not (owner or (self._lost and self._owners)):
                    reach = model.reach.format(name=one_line(identity.name))
                    owner = await self._owner(adapter, reach)
            finally:
                await adapter.aclose()
            await self._write(table, secrets, owner)
        self._print_next_steps(identity.name, owner, table)

    # -- signing in ----------------------------------------------------------------------------

    async def _sign_in(self, model: type[SecretsConfig], channel: Channel) -> None:
        """Sign in to a new account, or again to a configured one, and write it."""
        settings = self._config.accounts().get((self._channel, self._account))
        table = self._options.given(list(model.secrets))
        places = {field for name in model.secrets for field in fields_of(name)}
        gone = places if places & table.keys() else set()
        known = {} if settings is None else settings.model_dump(exclude_unset=True, exclude=gone)
        if settings is not None:
            self._is_again, self._lost = True, dict.fromkeys(model.secrets, "")
        await self._install_library()
        self._hiding.close()
        if settings is None and self._options.may_ask:
            echo(channel.sign_up)
        with self._keeping() as kept:
            done, owner = await self._signed_in(channel, {**known, **table}, kept, model)
            await self._write({**table, **done.settings}, done.secrets, owner)
        self._print_next_steps(done.name, owner, table)

    async def _signed_in(
        self,
        channel: Channel,
        known: Mapping[str, Any],
        kept: KeptState,
        model: type[SecretsConfig],
    ) -> tuple[SignedIn, str | None]:
        """Return the account and its owner's id, if that is not in the configuration yet."""
        sign_in = cast(SignIn, resolve_name(channel.sign_in))
        memory = MemoryState()
        done = await sign_in(
            Person(is_there=self._options.may_ask),
            known,
            memory if self._is_again else kept,
            is_configured=self._is_again,
            recovers=self._recovers,
        )
        echo(f"It is signed in as {one_line(done.name)}.")
        owner = self._options.values.get("owner")
        if self._is_again:
            await memory.copy_to(kept)  # the account's process takes it over now
        elif not owner:
            adapter = create_adapter(
                self._channel, self._settings(model, {**known, **done.settings, **done.secrets})
            )
            try:
                if isinstance(adapter, StatefulAdapter):
                    await adapter.use_state(kept)
                await adapter.connect()
                owner = await self._owner(adapter, done.reach)
            finally:
                await adapter.aclose()
        return done, owner

    @contextlib.contextmanager
    def _keeping(self) -> Iterator[KeptState]:
        """Return what the adapter keeps until the account's first process takes it over."""
        file = self._home.kept_state(self._channel, self._account)
        file.parent.mkdir(mode=0o700, exist_ok=True)
        held = lock(file.with_name(f".{file.name}.lock"))
        if held is None:
            raise ConfigError(
                f"Another `remoteclaw channel add` of {self._channel}/{self._account} runs: end it "
                "first."
            )
        try:
            yield KeptState(file, self._home.adapter_state_key)
        finally:
            os.close(held)

    def _file_of(self, name: str) -> Path:
        """Return the file for a secret; no name of an account contains a dot."""
        more = "" if name == "token" else f".{name}"
        return self._home.path / "tokens" / f"{self._channel}-{self._account}{more}"

    def _settings(self, model: type[SecretsConfig], table: Mapping[str, Any]) -> SecretsConfig:
        try:
            return model.model_validate(table)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            why = first["msg"].removeprefix("Value error, ")
            raise ConfigError(f"{where} is not valid: {why}.") from None

    # -- the library ---------------------------------------------------------------------------

    async def _install_library(self) -> None:
        """Install the channel's library if it is missing and the user agrees."""
        channel = channel_of(self._channel)
        assert channel is not None, "checked at the start"
        try:
            adapter_class(self._channel, channel)
        except LibraryMissing:
            command = library_command(self._channel)
            if not self._options.may_ask:
                raise
            echo(f"The library of {self._channel} is missing. This installs it, with its hashes:")
            echo(f"  {shlex.join(command)}")
            click.confirm("Install it?", default=True, abort=True)
        else:
            return
        log = self._home.logs / "install.log"
        process = await spawn(command, env=os.environ, log=log, death_signal=signal.SIGTERM)
        if await process.wait():
            raise ConfigError(f"The library was not installed: the reason is in {log}.")

    async def _owner(self, adapter: PlatformAdapter, reach: str) -> str | None:
        """Return the id of the owner; None if the user may not be asked."""
        return await find_owner(adapter, self._channel, reach) if self._options.may_ask else None

    # -- the configuration ---------------------------------------------------------------------

    @property
    def _owners(self) -> tuple[str, ...]:
        return tuple(self._config.channel(self._channel).owners or ())

    async def _write(
        self, table: Mapping[str, Any], secrets: Mapping[str, str], owner: str | None
    ) -> None:
        """Store typed secrets in files that only this user can read, and write the settings.

        They are stored under the configuration's lock, and only if no other process has added the
        account meanwhile: the files are then that process's.
        """
        renewed = [
            name
            for name in self._lost
            if name in secrets or {f"{name}_file", f"{name}_env"} & table.keys()
        ]
        account = {field: None for name in renewed for field in fields_of(name)} | dict(table)
        account |= {f"{name}_file": str(self._file_of(name)) for name in secrets}
        is_default = self._account == "default"
        section: dict[str, Any] = account if is_default else {"accounts": {self._account: account}}
        if owner is not None:
            section["owners"] = list(dict.fromkeys((*self._owners, owner)))
        async with self._file.locked():
            content = self._file.read()
            if not self._is_again and (current := self._file.config_or_none(content)):
                self._without_secrets(current)
            plan = self._file.plan_patch(content, {"channels": {self._channel: section}})
            for name, secret in secrets.items():
                self._file_of(name).parent.mkdir(mode=0o700, exist_ok=True)
                replace_file(self._file_of(name), f"{secret}\n".encode())
            try:
                await self._file.write(plan)
            except BaseException:
                for name in secrets.keys() - self._lost.keys():
                    self._file_of(name).unlink(missing_ok=True)
                raise

    def _print_next_steps(self, name: str, owner: str | None, table: Mapping[str, Any]) -> None:
        echo(f"{self._channel}/{self._account} is in {self._home.config_file} now.")
        variables = " and ".join(value for key, value in table.items() if key.endswith("_env"))
        answers = f"{one_line(name)} answers"
        if running_pid(self._home) is None:
            where = f", with {variables} in its environment" if variables else ""
            echo(f"Start `remoteclaw up`{where}: then {answers}.")
        elif variables:
            echo(f"Set {variables} where `remoteclaw up` runs, and restart it: then {answers}.")
        else:
            echo(f"`remoteclaw up` starts it now: {answers}.")
        if owner is None and not self._owners:
            echo(
                "It has no owner yet: write to it, and `remoteclaw pairing approve CODE` gives you "
                f"access; add your id to channels.{self._channel}.owners to become its owner."
            )
        else:
            echo("Others who write to it get a code: `/pair CODE` in your chat gives them access.")
