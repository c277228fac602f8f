"""Adds an account on a chat platform to the configuration: its secrets, library and owner."""

import asyncio
import contextlib
import os
import shlex
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
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
from remoteclaw.cli.output import echo
from remoteclaw.config.edit import ConfigFile
from remoteclaw.config.home import Home
from remoteclaw.config.model import ChannelConfig, Config, SecretsConfig
from remoteclaw.errors import AccountRefused, ConfigError, PlatformBusy, RemoteClawError
from remoteclaw.fleet.kept_state import KeptState
from remoteclaw.host.hidden_input import drop_input, hidden_input
from remoteclaw.host.locks import lock, replace_file
from remoteclaw.host.process import spawn
from remoteclaw.host.terminal import one_line
from remoteclaw.profiles import CHANNELS, Channel, channel_of, profile_of
from remoteclaw.protocols import (
    AdapterState,
    PlatformAdapter,
    PollResult,
    SignedIn,
    SignIn,
    StatefulAdapter,
)
from remoteclaw.up.lock import running_pid

#: The pause between two polls for the owner's first message, in seconds.
POLL_S = 1.0


class _Memory:
    """What an adapter keeps while an account gets new secrets: its own state is in Redis."""

    def __init__(self) -> None:
        self._values: dict[str, tuple[bytes, bool]] = {}

    async def read(self, name: str) -> bytes | None:
        """Return a value."""
        return self._values.get(name, (None, False))[0]

    async def write(self, name: str, value: bytes | None, *, is_secret: bool = False) -> None:
        """Keep a value until the end."""
        self._values.pop(name, None)
        if value is not None:
            self._values[name] = value, is_secret

    async def settle(self) -> None:
        """Do nothing: there is no Redis."""

    async def copy_to(self, state: AdapterState) -> None:
        """Store all values in `state`."""
        for name, (value, is_secret) in self._values.items():
            await state.write(name, value, is_secret=is_secret)


class _Person:
    """The person at the terminal."""

    def __init__(self, *, is_there: bool) -> None:
        self.is_there = is_there

    def say(self, text: str) -> None:
        """Show a line."""
        echo(text)

    def ask(self, question: str) -> str:
        """Return the answer to a question, without spaces around it."""
        self._check(question)
        return str(click.prompt(one_line(question))).strip()

    def ask_hidden(self, question: str) -> str:
        """Return the answer to a question, which the terminal doesn't show; it may be empty."""
        self._check(question)
        with hidden_input():
            answer = str(click.prompt(one_line(question), default="", show_default=False))
        echo("")  # the terminal has not shown Enter either
        return answer

    def confirms(self, question: str) -> bool:
        """Return the answer to a question with yes or no; without one, no."""
        self._check(question)
        return click.confirm(one_line(question), default=False)

    def _check(self, question: str) -> None:
        if not self.is_there:
            raise ConfigError(f"Without --no-input, this asks: {question}.")


class Onboarding:
    """Adds one account to the configuration, step by step."""

    def __init__(
        self,
        home: Home,
        config: Config,
        channel: str,
        options: Mapping[str, str | None],
        places: Mapping[str, Sequence[str]],
        *,
        may_ask: bool,
        recovers: bool,
        hiding: contextlib.ExitStack,
    ) -> None:
        """`places` are the options that say where secrets are: `file` and `env`, each NAME=PLACE,
        or PLACE for an account with one secret. `hiding` is closed once the secrets are known:
        until then the terminal shows no input.
        """
        self._home = home
        self._config = config
        self._channel = channel
        self._options = options
        self._places = places
        self._may_ask = may_ask
        self._recovers = recovers
        self._hiding = hiding
        self._account = options.get("account") or "default"
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
        table, secrets = self._table(model, known.sign_up)
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
                    own = [getattr(settings, field) for field in _fields_of(name)]
                    if own[-1] or not any(own):
                        lost[name] = str(error)
            if lost:
                gone = {field for name in lost for field in _fields_of(name)}
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
                await adapter.use_state(_Memory())
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
        if self._may_ask and not any(self._places.values()):
            nouns = " and a new ".join(map(model.label_of, model.secrets))
            click.confirm(f"Give it a new {nouns}?", default=True, abort=True)
            echo("")  # the terminal has not shown Enter either
        self._is_again, self._lost = True, dict.fromkeys(model.secrets, why)
        gone = {field for name in model.secrets for field in _fields_of(name)}
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
                    state: _Memory | KeptState = _Memory()
                    if not self._lost:
                        state = keeping.enter_context(self._keeping())
                        state.clear()
                    await adapter.use_state(state)
                identity = await adapter.connect()
                what = "The token is that" if len(model.secrets) == 1 else "The tokens are those"
                echo(f"{what} of {identity.name}.")
                if identity.problem:
                    echo(identity.problem)
                owner = self._options.get("owner")
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
        table = self._given(list(model.secrets))
        places = {field for name in model.secrets for field in _fields_of(name)}
        gone = places if places & table.keys() else set()
        known = {} if settings is None else settings.model_dump(exclude_unset=True, exclude=gone)
        if settings is not None:
            self._is_again, self._lost = True, dict.fromkeys(model.secrets, "")
        await self._install_library()
        self._hiding.close()
        if settings is None and self._may_ask:
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
        memory = _Memory()
        done = await sign_in(
            _Person(is_there=self._may_ask),
            known,
            memory if self._is_again else kept,
            is_configured=self._is_again,
            recovers=self._recovers,
        )
        echo(f"It is signed in as {one_line(done.name)}.")
        owner = self._options.get("owner")
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

    # -- the secrets ---------------------------------------------------------------------------

    def _table(
        self, model: type[SecretsConfig], sign_up: str
    ) -> tuple[dict[str, Any], dict[str, str]]:
        """Return the account's settings without secrets, and the secrets that were typed.

        A secret is asked for if no option says where it is.
        """
        names = [name for name in model.secrets if name in (self._lost or model.secrets)]
        table = self._given(names)
        missing = [name for name in names if not {f"{name}_file", f"{name}_env"} & table.keys()]
        if missing and not self._may_ask:
            named = f"{missing[0]}=" if len(model.secrets) > 1 else ""
            raise ConfigError(
                f"Say where the {model.label_of(missing[0])} is: --token-file {named}FILE, or "
                f"--token-env {named}NAME."
            )
        if missing:
            echo(sign_up)
            for line in model.making if not self._lost else ():
                echo(line)
        return table, {name: self._asked(model, name) for name in missing}

    def _given(self, names: Sequence[str]) -> dict[str, Any]:
        """Return the settings that the options name, with the places of the secrets `names`."""
        options = ("api_url", "agent")
        table: dict[str, Any] = {
            name: value for name in options if (value := self._options.get(name)) is not None
        }
        for kind, given in self._places.items():
            for each in given:
                name, place = self._named(each, names, kind)
                # `up` may run in another directory.
                is_file = kind == "file"
                table[f"{name}_{kind}"] = (
                    str(Path(place).expanduser().absolute()) if is_file else place
                )
        return table

    def _named(self, option: str, names: Sequence[str], kind: str) -> tuple[str, str]:
        """Return the secret and the place that an option names."""
        name, equals, place = option.partition("=")
        if equals and name in names:
            return name, place
        if len(names) == 1:
            return names[0], option
        raise ConfigError(
            f"--token-{kind} {option}: write NAME=PLACE, with the NAME {' or '.join(names)}."
        )

    def _asked(self, model: type[SecretsConfig], name: str) -> str:
        """Return the secret that the user types or pastes, until it has the right form."""
        if how := model.secrets[name].how:
            echo(how)
        question = f"{model.label_of(name).capitalize()} (it is not shown)"
        while True:
            secret = str(click.prompt(question, default="", show_default=False)).strip(" \t'\"")
            echo("")  # the terminal has not shown Enter either
            if not (problem := model.problem_of(name, secret)):
                return secret
            if not sys.stdin.isatty():
                raise ConfigError(f"This is not {problem}.")
            echo(f"This is not {problem}.")

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
            if not self._may_ask:
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

    # -- the owner -----------------------------------------------------------------------------

    async def _owner(self, adapter: PlatformAdapter, reach: str) -> str | None:
        """Return the id of the first sender whom the user confirms as the owner.

        `reach` says how to write to the account. An invitation is accepted once the account runs.

        Return None if the user may not be asked. No message is acknowledged, so all are answered
        once the account runs.
        """
        if not self._may_ask:
            return None
        echo(reach)
        asked: set[str] = set()
        cursors: dict[str, str] = {}
        while True:
            found = await self._poll(adapter, cursors)
            if profile_of(self._channel).reads_history:  # from now on: the first poll says when
                moved = {source: at for source, at in found.cursors.items() if at is not None}
                cursors = {**moved, **cursors}
            for incoming in found.incoming:
                invites = incoming.invitation == "invited"
                if (incoming.is_group and not invites) or incoming.is_bot or incoming.problem:
                    continue
                if incoming.sender in asked:
                    continue
                asked.add(incoming.sender)
                who = incoming.sender_name or "Somebody"
                who = one_line(f"{who} with the id {incoming.sender}")
                did = "has invited it" if invites else "has written"
                drop_input()  # one Enter too many must make nobody an owner
                if click.confirm(f"{who} {did}. Is that you?", default=True):
                    return incoming.sender
            await asyncio.sleep(POLL_S)

    async def _poll(self, adapter: PlatformAdapter, cursors: Mapping[str, str]) -> PollResult:
        try:
            return await adapter.poll(cursors)
        except PlatformBusy as busy:
            await asyncio.sleep(busy.after_s)
            return PollResult()

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
        account = {field: None for name in renewed for field in _fields_of(name)} | dict(table)
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


def _fields_of(name: str) -> tuple[str, str, str]:
    """Return the fields of a secret."""
    return name, f"{name}_env", f"{name}_file"
