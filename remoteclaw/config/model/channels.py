"""The sections `[channels.NAME]`."""

import functools
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from pkgutil import resolve_name
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar

from pydantic import Field, PrivateAttr, field_validator, model_validator

from remoteclaw.config.model.requests import AskingSection, RequestsConfig
from remoteclaw.config.model.section import (
    MAX_NUMBER,
    Section,
    check_ids,
    check_names,
    most_specific,
)
from remoteclaw.config.model.sessions import ResetConfig
from remoteclaw.config.model.tools import GroupConfig, SenderConfig, Threads, ToolsConfig
from remoteclaw.config.rights import BY_AGENTS, BY_PEOPLE, SECRET, declared, fields
from remoteclaw.errors import ConfigError
from remoteclaw.extensions import cant_load
from remoteclaw.messages import DEFAULT_ACCOUNT, ChatKind
from remoteclaw.profiles import channel_of
from remoteclaw.protocols import Unit

_T = TypeVar("_T")


class ChannelConfig(AskingSection):
    """A channel.

    `chunk_limit`, `chunk_unit`, `formatting`, `attachment_mb` and `attachment_types` have other
    defaults on channels that declare them, such as telegram.
    """

    instructions: Annotated[str | None, BY_PEOPLE] = Field(default=None, max_length=16_000)
    """Text about this channel for the agent's system prompt."""
    formatting: Annotated[tuple[str, ...], BY_PEOPLE] = Field(default=(), max_length=20)
    """Sentences for the agent about how the channel displays messages, such as which markup it
    supports."""
    authorized_senders: Annotated[tuple[str, ...], BY_PEOPLE] = Field(default=(), max_length=100)
    """Names or ids of the people who may write on the channel, as information for the agent only.
    It grants nobody access and excludes nobody: the `allow` of an account does."""
    owners: Annotated[tuple[str, ...] | None, BY_PEOPLE] = None
    """The ids of the owners: people on whose behalf agents may use the owner-only tools, `cron_*`
    and `gateway_*`. Without it, the channel has no owners, except a channel on which only users of
    this computer write."""
    tools: ToolsConfig = Field(default_factory=ToolsConfig)
    """Which of RemoteClaw's tools agents may use on the channel."""
    requests: RequestsConfig = Field(default_factory=RequestsConfig)
    """Who answers agents' requests on the channel."""
    commands: Annotated[Literal["owners", "everyone"], BY_PEOPLE] = "owners"
    """Who may use `/new` and `/stop` on the messages of others, in a conversation that several
    people share. Where a channel has no owners, everyone may."""
    senders: Annotated[dict[str, SenderConfig], BY_PEOPLE] = Field(default_factory=dict)
    """Settings for senders, by the sender's id."""
    groups: Annotated[dict[str, GroupConfig], BY_PEOPLE] = Field(default_factory=dict)
    """Settings for group chats, by the chat's id."""
    reactions: Annotated[Literal["minimal", "extensive"] | None, BY_AGENTS] = None
    """How often the agent's system prompt asks it to react to messages with an emoji. Without it,
    the prompt doesn't mention reactions."""
    chunk_limit: Annotated[int, BY_AGENTS] = Field(default=4000, ge=80, le=MAX_NUMBER)
    """The maximum length of a message, in units of `chunk_unit`. A longer answer is split into
    several messages."""
    chunk_unit: Annotated[Unit, BY_AGENTS] = "characters"
    """The unit of `chunk_limit`: `characters` are Unicode code points, `utf16` are UTF-16 code
    units, `bytes` are bytes of UTF-8."""
    code_file_lines: Annotated[int, BY_AGENTS] = Field(default=60, ge=0, le=MAX_NUMBER)
    """A code block with more lines is shown as its first 10 lines and sent as a file; 0 for none.
    On channels whose adapter makes such files, if all types of files are allowed."""
    activity: Annotated[Literal["arguments", "names", "off"] | None, BY_PEOPLE] = None
    """What the chat shows of a running tool: its name and main argument (`arguments`), its name
    (`names`), or nothing (`off`). Without it, `arguments` in direct chats and `names` elsewhere."""
    shows_work: Annotated[bool, BY_PEOPLE] = True
    """Whether the chat has a silent message that lists the running tasks and branches of the
    conversation. It needs a platform on which messages can be edited."""
    shows_state: Annotated[bool | None, BY_PEOPLE] = None
    """Whether a person's message to the agent shows its state as a reaction: received, works, needs
    you, done or failed. It needs a platform with reactions. Without it, this is so in groups and
    threads, and not in direct chats."""
    reset: Annotated[ResetConfig | None, BY_PEOPLE] = None
    """When conversations on the channel end by time. Without it, `[sessions]` decides."""
    attachment_mb: Annotated[int, BY_PEOPLE] = Field(default=20, ge=0, le=20)
    """The maximum size of a file that people and agents can send, in megabytes; 0 for no files."""
    attachment_types: Annotated[tuple[str, ...], BY_PEOPLE] = Field(default=("*",), max_length=50)
    """The MIME types of files that people and agents can send, such as `image/*` or
    `application/pdf`; `*` is any type."""
    transcribe: Annotated[tuple[str, ...] | None, SECRET] = Field(default=None, min_length=1)
    """The program that transcribes audio files that people send, and its first arguments, on
    channels with an adapter. It gets a file's path as its last argument and prints the text."""

    @staticmethod
    def named(name: str) -> "type[ChannelConfig]":
        """Return the model of a channel's settings; raises `ConfigError` if it can't be loaded."""
        return _settings_model(name)

    _within: dict[str, tuple[str, ...]] = PrivateAttr(default_factory=dict)
    """What contains chats, narrowest first, by the chat's id: facts, which are in no file."""

    def knowing(self, chat: str, within: tuple[str, ...]) -> Self:
        """Return the settings with the ids of what contains a chat, narrowest first."""
        known = self.model_copy()
        known._within = {**self._within, chat: within}
        return known

    def group_of(self, chat: str) -> tuple[str, GroupConfig] | None:
        """Return the name and the table that apply to a group chat; None if there is none."""
        return most_specific(self.groups, chat, *self._within.get(chat, ()))

    @field_validator("attachment_types")
    @classmethod
    def _check_types(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for kind in value:
            if kind != "*" and not re.fullmatch(r"[a-z0-9.+*-]+/[a-z0-9.+*-]+", kind):
                raise ValueError(f"has {kind!r}: write MIME types, such as image/* or text/plain")
        return value

    @field_validator("owners")
    @classmethod
    def _check_owners(cls, value: tuple[str, ...] | None) -> tuple[str, ...] | None:
        if "*" in (value or ()):
            raise ValueError(
                "has '*', and then every sender could change the configuration: "
                "name each owner by the platform's id"
            )
        check_ids(value or ())
        return value

    @field_validator("senders", "groups")
    @classmethod
    def _check_tables(cls, value: dict[str, _T]) -> dict[str, _T]:
        check_ids(value)
        return value

    def shows_state_in(self, kind: ChatKind) -> bool:
        """Whether messages in a chat of that kind show their state."""
        return kind != "direct" if self.shows_state is None else self.shows_state

    def named_ids(self) -> set[str]:
        """Return all ids of people and chats in these settings."""
        in_groups = {sender for group in self.groups.values() for sender in group.senders}
        allowed = {sender for account in accounts_of(self).values() for sender in account.allow}
        return {*(self.owners or ()), *self.senders, *self.groups, *in_groups, *allowed} - {"*"}


class AccountConfig(Section):
    """An account of a channel: the agent that answers there, and the people who may write."""

    agent: Annotated[str | None, BY_PEOPLE] = None
    """The name of the agent that answers. Without it, `main`, or the first agent if there is no
    `main`."""
    sessions: Annotated[Literal["person", "chat"] | None, BY_PEOPLE] = None
    """Who shares a conversation in a chat: `person` gives each person their own, `chat` gives all
    people of the chat one. Without it, `person` in direct chats and `chat` in groups."""
    threads: Annotated[Threads | None, BY_PEOPLE] = None
    """Which threads or topics have a conversation of their own. `platform`: those that people open.
    `auto`: also each message in a group that is for the agent and in no thread; it opens one, on
    platforms on which a message can. `off`: none; they belong to the conversation of their chat.
    Without it, `auto` on such platforms in groups in which the agent has to be mentioned, and
    `platform` elsewhere."""
    allow: Annotated[tuple[str, ...], BY_PEOPLE] = Field(default=(), max_length=1000)
    """The ids of people who may write in direct chats, besides the owners and the people who were
    paired with `/pair`."""

    catch_up_h: Annotated[int, BY_PEOPLE] = Field(default=24, ge=1, le=MAX_NUMBER)
    """The maximum age of messages that are answered after RemoteClaw was away, in hours, on a
    platform whose history it reads. Older ones are only kept as the chat's history."""

    @property
    def is_account(self) -> bool:
        """Whether these settings define an account; a channel's own table may define none."""
        return True

    def admits(self, sender: str) -> bool:
        """Whether the settings let a person write, by the platform's id."""
        return sender in self.allow

    @field_validator("allow")
    @classmethod
    def _check_allow(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if "*" in value:
            raise ValueError("has '*': name each person by the platform's id")
        check_ids(value)
        return value

    @model_validator(mode="after")
    def _check_accounts(self) -> "AccountConfig":
        accounts = getattr(self, "accounts", {})
        check_names(accounts)
        if DEFAULT_ACCOUNT in accounts:
            raise ValueError("has accounts.default, which is the account of the table itself")
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class Secret:
    """What a secret of an account looks like, and where its user finds it."""

    form: str = r"[!-~]+"
    """The regular expression of such secrets."""
    kind: str = "a token: a token is printable ASCII, without spaces"
    """What the secret is, and how it looks."""
    how: str = ""
    """How to get one, in a sentence; empty if the channel's `sign_up` says it."""
    label: str = ""
    """What people call it; empty if its field has that name."""


class SecretsConfig(AccountConfig):
    """An account that signs in with secrets, each of which is in exactly one of three places.

    A subclass names them in `secrets`, and has three fields for each: `NAME` is the secret itself,
    `NAME_env` the environment variable that contains it, and `NAME_file` the file that contains it
    and nothing else.
    """

    secrets: ClassVar[Mapping[str, Secret]] = {}
    """The secrets, by name, in the order in which `channel add` asks for them."""
    making: ClassVar[Sequence[str]] = ()
    """How to make a new account, in lines; empty if the channel's `sign_up` says it."""
    reach: ClassVar[str] = "Now write a message to {name}, so that it learns who you are."
    """How its owner writes to the account for the first time."""

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        """Refuse a class without the fields of its secrets."""
        for name in cls.secrets:
            if missing := {name, f"{name}_env", f"{name}_file"} - cls.model_fields.keys():
                raise TypeError(f"{cls.__name__} lacks the fields {', '.join(sorted(missing))}")

    @property
    def is_account(self) -> bool:
        """Whether these settings say where a secret is."""
        return any(any(self._places_of(name)) for name in self.secrets)

    def _places_of(self, name: str) -> tuple[str | None, str | None, str | None]:
        return getattr(self, name), getattr(self, f"{name}_env"), getattr(self, f"{name}_file")

    @model_validator(mode="after")
    def _check_secrets(self) -> "SecretsConfig":
        for name in self.secrets:
            if len([place for place in self._places_of(name) if place]) > 1:
                raise ValueError(
                    f"has more than one of {name}, {name}_env and {name}_file: keep one"
                )
        return self

    def read_secret(self, name: str, environment: Mapping[str, str] = os.environ) -> str:
        """Return a secret; raises `ConfigError` if it is missing, unreadable or malformed."""
        itself, variable, file = self._places_of(name)
        if file:
            path = Path(file).expanduser()
            try:
                secret = path.read_text().strip()
            except (OSError, UnicodeDecodeError) as error:
                why = getattr(error, "strerror", None) or "it is no text"
                raise ConfigError(
                    f"{name}_file {path} can't be read: {why}. Write the {name} into it, with mode "
                    "600."
                ) from None
            where = f"{name}_file {path}"
        elif variable:
            secret, where = environment.get(variable, "").strip(), f"${variable}"
        elif itself:
            secret, where = itself.strip(), name
        else:
            raise ConfigError(f"There is no {name}: set {name}_file or {name}_env.")
        if not secret:
            raise ConfigError(f"There is no {name}: {where} is empty.")
        if problem := self.problem_of(name, secret):
            raise ConfigError(f"{where} doesn't contain {problem}.")
        return secret

    def secret_files(self) -> list[Path]:
        """Return the files that contain secrets."""
        named = (self._places_of(name)[-1] for name in self.secrets)
        return [Path(file).expanduser() for file in named if file]

    @classmethod
    def label_of(cls, name: str) -> str:
        """Return what people call a secret."""
        return cls.secrets[name].label or name.replace("_", " ")

    @classmethod
    def problem_of(cls, name: str, text: str) -> str:
        """Return what a text is not, because it has another form; empty if it can be the secret."""
        return "" if re.fullmatch(cls.secrets[name].form, text) else cls.secrets[name].kind


class TokenConfig(SecretsConfig):
    """An account whose only secret is a token."""

    secrets: ClassVar[Mapping[str, Secret]] = {"token": Secret()}

    token: Annotated[str | None, SECRET] = None
    """The token itself. Prefer `token_env` or `token_file`, which keep it out of this file."""
    token_env: Annotated[str | None, BY_PEOPLE] = None
    """The name of the environment variable that contains the token."""
    token_file: Annotated[str | None, BY_PEOPLE] = None
    """The path of the file that contains the token and nothing else."""


def accounts_of(channel: ChannelConfig) -> dict[str, AccountConfig]:
    """Return the accounts of a channel, by name; a channel without an adapter has none."""
    if not isinstance(channel, AccountConfig):
        return {}
    own: dict[str, Any] = {DEFAULT_ACCOUNT: channel} if channel.is_account else {}
    return own | getattr(channel, "accounts", {})


def _settings_model(name: str) -> type[ChannelConfig]:
    channel = channel_of(name)
    if channel is None or not (channel.settings or channel.adapter):
        return ChannelConfig
    if not channel.settings:
        raise ConfigError(f"The channel {name!r} has an adapter and no class of settings.")
    try:
        return _checked_model(channel.settings, has_adapter=bool(channel.adapter))
    except Exception as error:  # noqa: BLE001 - the code is another package's
        about = f"The class of settings of the channel {name!r}"
        raise ConfigError(f"{about} {cant_load(channel.settings, error)}") from None


@functools.cache
def _checked_model(path: str, *, has_adapter: bool) -> type[ChannelConfig]:
    """Import a class of settings. Raises `TypeError` if it is no complete one."""
    model = resolve_name(path)
    if not (isinstance(model, type) and issubclass(model, ChannelConfig)):
        raise TypeError("it is no subclass of ChannelConfig")
    if has_adapter and not issubclass(model, AccountConfig):
        raise TypeError("it is no subclass of AccountConfig")
    for setting, field in fields(model):
        if declared(field) is None:
            raise TypeError(
                f"{'.'.join(setting)} does not declare who may change it: BY_PEOPLE, BY_AGENTS or "
                "SECRET"
            )
    return model
