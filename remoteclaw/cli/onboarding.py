"""Adds an account on a chat platform to the configuration: its token, library and owner."""

import asyncio
import contextlib
import os
import shlex
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
from pydantic import ValidationError

from remoteclaw.channels.process import LibraryMissing, create_adapter, library_command
from remoteclaw.cli.output import echo
from remoteclaw.config.edit import ConfigFile
from remoteclaw.config.home import Home
from remoteclaw.config.model import ChannelConfig, Config, TokenConfig
from remoteclaw.errors import ConfigError, PlatformBusy
from remoteclaw.host.locks import replace_file
from remoteclaw.host.process import spawn
from remoteclaw.host.terminal import one_line
from remoteclaw.profiles import CHANNELS, channel_of, profile_of
from remoteclaw.protocols import PlatformAdapter, PollResult
from remoteclaw.up.lock import running_pid

#: The pause between two polls for the owner's first message, in seconds.
POLL_S = 1.0


class Onboarding:
    """Adds one account to the configuration, step by step."""

    def __init__(
        self,
        home: Home,
        config: Config,
        channel: str,
        options: Mapping[str, str | None],
        *,
        may_ask: bool,
        hiding: contextlib.ExitStack,
    ) -> None:
        """`hiding` is closed once the token is known: until then the terminal shows no input."""
        self._home = home
        self._config = config
        self._channel = channel
        self._options = options
        self._may_ask = may_ask
        self._hiding = hiding
        self._account = options.get("account") or "default"
        self._renews = False
        """Whether the account is configured already, with a token file that can't be read."""
        self._file = ConfigFile(home.config_file)

    async def run(self) -> None:
        """Add the account, or give one a new token. If a step fails, change nothing."""
        known = channel_of(self._channel)
        model = ChannelConfig.named(self._channel)
        if known is None or not known.sign_up or not issubclass(model, TokenConfig):
            addable = [name for name, each in CHANNELS.items() if each.sign_up]
            raise ConfigError(
                f"No account of {self._channel!r} can be added: `remoteclaw channel add` supports "
                f"{', '.join(addable)}."
            )
        if lost := self._without_token(self._config):
            self._renews = True
            echo(f"{self._channel}/{self._account} gets a new token: {lost[1]}")
        table = self._table(model, known.sign_up)
        await self._add(model, table, lost[0] if lost else {})

    def _without_token(self, config: Config) -> tuple[dict[str, Any], str] | None:
        """Return the API's address of an account whose token file can't be read, and why it can't.

        Return None if the account is not configured. Raises `ConfigError` if it has its token.
        """
        settings = config.accounts().get((self._channel, self._account))
        if settings is None:
            return None
        if isinstance(settings, TokenConfig) and settings.token_file:
            try:
                settings.read_token()
            except ConfigError as error:
                return settings.model_dump(include={"api_url"}), str(error)
        raise ConfigError(
            f"{self._channel}/{self._account} is in {self._home.config_file} already: change "
            "it there, or name another account with --account."
        )

    async def _add(
        self, model: type[TokenConfig], table: Mapping[str, Any], known: Mapping[str, Any]
    ) -> None:
        adapter = await self._adapter(self._settings(model, {**known, **table}))
        try:
            identity = await adapter.connect()
            echo(f"The token is that of {identity.name}.")
            if identity.problem:
                echo(identity.problem)
            owner = self._options.get("owner")
            if not (owner or (self._renews and self._owners)):
                owner = await self._owner(adapter, identity.name)
        finally:
            await adapter.aclose()
        await self._write(table, owner)
        self._print_next_steps(identity.name, owner)

    # -- the token -----------------------------------------------------------------------------

    def _table(self, model: type[TokenConfig], sign_up: str) -> dict[str, Any]:
        """Return the account's settings. Ask for the token if no option names it."""
        names = ("token_file", "token_env", "api_url", "agent")
        table: dict[str, Any] = {
            name: value for name in names if (value := self._options.get(name)) is not None
        }
        if "token_file" in table or "token_env" in table:
            return table
        if not self._may_ask:
            raise ConfigError("Say where the token is: --token-file FILE, or --token-env NAME.")
        echo(sign_up)
        return {"token": self._asked_token(model), **table}

    def _asked_token(self, model: type[TokenConfig]) -> str:
        """Return the token that the user types or pastes, until it has the form of a token."""
        while True:
            token = click.prompt("Token (it is not shown)").strip()
            echo("")  # the terminal has not shown Enter either
            if not (problem := model.problem_of(token)):
                self._hiding.close()
                return token
            if not sys.stdin.isatty():
                raise ConfigError(f"This is not {problem}.")
            echo(f"This is not {problem}.")

    @property
    def _token_file(self) -> Path:
        return self._home.path / "tokens" / f"{self._channel}-{self._account}"

    def _settings(self, model: type[TokenConfig], table: Mapping[str, Any]) -> TokenConfig:
        try:
            return model.model_validate(table)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            why = first["msg"].removeprefix("Value error, ")
            raise ConfigError(f"{where} is not valid: {why}.") from None

    # -- the library ---------------------------------------------------------------------------

    async def _adapter(self, settings: TokenConfig) -> PlatformAdapter:
        try:
            return create_adapter(self._channel, settings)
        except LibraryMissing:
            command = library_command(self._channel)
            if not self._may_ask:
                raise
            echo(f"The library of {self._channel} is missing. This installs it, with its hashes:")
            echo(f"  {shlex.join(command)}")
            click.confirm("Install it?", default=True, abort=True)
        log = self._home.logs / "install.log"
        process = await spawn(command, env=os.environ, log=log, death_signal=signal.SIGTERM)
        if await process.wait():
            raise ConfigError(f"The library was not installed: the reason is in {log}.")
        return create_adapter(self._channel, settings)

    # -- the owner -----------------------------------------------------------------------------

    async def _owner(self, adapter: PlatformAdapter, name: str) -> str | None:
        """Return the id of the first sender whom the user confirms as the owner.

        Return None if the user may not be asked. No message is acknowledged, so all are answered
        once the account runs.
        """
        if not self._may_ask:
            return None
        echo(f"Now write something to {one_line(name)}, so that it learns who you are.")
        asked: set[str] = set()
        cursors: dict[str, str] = {}
        while True:
            found = await self._poll(adapter, cursors)
            if profile_of(self._channel).reads_history:  # from now on: the first poll says when
                moved = {source: at for source, at in found.cursors.items() if at is not None}
                cursors = {**moved, **cursors}
            for incoming in found.incoming:
                if incoming.is_group or incoming.is_bot or incoming.problem:
                    continue
                if incoming.sender in asked:
                    continue
                asked.add(incoming.sender)
                who = one_line(f"{incoming.sender_name or 'no name'}, id {incoming.sender}")
                if click.confirm(f"{who} has written. Is that you?", default=True):
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

    async def _write(self, table: Mapping[str, Any], owner: str | None) -> None:
        """Store a typed token in a file that only this user can read, and write the settings.

        The token is stored under the configuration's lock, and only if no other process has added
        the account meanwhile: the file is then that process's.
        """
        token = table.get("token")
        account = {**table, "token_file": str(self._token_file)} if token else dict(table)
        account.pop("token", None)
        if self._renews:
            account = {"token_file": None, **account}
        is_default = self._account == "default"
        section: dict[str, Any] = account if is_default else {"accounts": {self._account: account}}
        if owner is not None:
            section["owners"] = list(dict.fromkeys((*self._owners, owner)))
        async with self._file.locked():
            content = self._file.read()
            if current := self._file.config_or_none(content):
                self._without_token(current)
            plan = self._file.plan_patch(content, {"channels": {self._channel: section}})
            if token:
                self._token_file.parent.mkdir(mode=0o700, exist_ok=True)
                replace_file(self._token_file, f"{token}\n".encode())
            try:
                await self._file.write(plan)
            except BaseException:
                if token and not self._renews:
                    self._token_file.unlink(missing_ok=True)
                raise

    def _print_next_steps(self, name: str, owner: str | None) -> None:
        echo(f"{self._channel}/{self._account} is in {self._home.config_file} now.")
        variable = self._options.get("token_env")
        if running_pid(self._home) is None:
            where = f", with {variable} in its environment" if variable else ""
            echo(f"Start `remoteclaw up`{where}: then {one_line(name)} answers.")
        elif variable:
            echo(
                f"Set {variable} where `remoteclaw up` runs, and restart it: then {one_line(name)} "
                "answers."
            )
        else:
            echo(f"`remoteclaw up` starts it now: {one_line(name)} answers.")
        if owner is None and not self._owners:
            echo(
                "It has no owner yet: write to it, and `remoteclaw pairing approve CODE` gives you "
                f"access; add your id to channels.{self._channel}.owners to become its owner."
            )
        else:
            echo("Others who write to it get a code: `/pair CODE` in your chat gives them access.")
