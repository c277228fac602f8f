"""The model of the configuration: every setting, with its type, default and meaning.

The file is `$REMOTECLAW_CONFIG`, else `remoteclaw.toml` in the state directory; it may be absent.
`REMOTECLAW__SECTION__KEY` overrides one value; names with a single underscore are not ours to read.
"""

import ipaddress
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import (
    ConfigDict,
    Field,
    field_validator,
    model_validator,
)

from remoteclaw.clock import named_zone
from remoteclaw.config.redis_url import redis_address
from remoteclaw.config.rights import BY_AGENTS, BY_PEOPLE, SECRET, by_people
from remoteclaw.described import DescribedModel
from remoteclaw.errors import ConfigError
from remoteclaw.messages import OWN_SERVER, McpServerConfig, channel_name
from remoteclaw.profiles import profile_of
from remoteclaw.protocols import Unit

__all__ = [
    "AgentConfig",
    "ChannelConfig",
    "ChatKind",
    "Config",
    "FleetConfig",
    "GatewayConfig",
    "GroupConfig",
    "HooksConfig",
    "McpServerSettings",
    "Profile",
    "QueueConfig",
    "QueueOverride",
    "RedisConfig",
    "ResetConfig",
    "SenderConfig",
    "SessionsConfig",
    "ToolsConfig",
    "is_loopback",
    "state_directory",
]

_T = TypeVar("_T")

# What a process reads once, at its start; all else is read anew before the next call or turn.
EVERYTHING = "everything: `remoteclaw up`, or each worker, gateway and sweeper"
AT_START = by_people(restart=EVERYTHING)
WITH_UP = by_people(restart="`remoteclaw up`")
WITH_SOCKET = by_people(restart="`remoteclaw up`, or a gateway that runs without it")
WITH_GATEWAY = by_people(restart="the gateway, for MCP; its other doors take it at once")
WITH_WORKERS = by_people(restart="the workers, and `remoteclaw up` where it has a console")

#: The settings of a channel that its profile decides where the file says nothing.
_OF_PROFILE = ("chunk_limit", "chunk_unit", "formatting", "attachment_mb", "attachment_types")

QueueMode = Literal["collect", "followup", "steer", "interrupt"]
DropPolicy = Literal["old", "new", "summarize"]
ChatKind = Literal["direct", "group", "thread"]
Profile = Literal["full", "limited", "messaging", "minimal"]
DebounceMs = Annotated[int, Field(ge=0, le=60_000)]
#: Numbers have bounds, all of them: JSON's have 64 bits, and larger ones could be shown to nobody.
MOST, MOST_S = 1_000_000_000, 366 * 24 * 3600
Cap = Annotated[int, Field(ge=0, le=MOST)]

#: The least that Redis may be told to keep, in bytes: when empty, it has one or two million.
LEAST_MEMORY = 16 * 1024 * 1024


def _zone_name(value: str) -> str:
    """Return an IANA time zone's name; raises ValueError for what is none."""
    if named_zone(value) is None:
        raise ValueError(f"must be a time zone such as Europe/Berlin, not {value!r}")
    return value


def _check_names(value: dict[str, _T]) -> dict[str, _T]:
    """Refuse names that could not be part of a path or of a tool's name."""
    for name in value:
        if not name.replace("-", "").replace("_", "").isalnum() or not name.isascii():
            raise ValueError(f"has the name {name!r}: use letters, digits, - and _")
    return value


def _check_ids(value: Iterable[str]) -> None:
    """Refuse what is no platform's id of a person or a chat."""
    for one in value:
        # What is pasted with an invisible sign would be nobody's id, and its denial nobody's.
        is_id = one.isprintable() and one != "" and " " not in one
        # "@ada:example.org" is an id, of Matrix; "@ada" is a name everywhere.
        if not is_id or (one.startswith("@") and ":" not in one):
            raise ValueError(
                f"has {one!r}, which is no id: write the one that the platform gave, "
                "because names change hands"
            )


def _bytes(value: str) -> int:
    """Return a size as redis.conf has it, in bytes; raises ValueError for another one."""
    found = re.fullmatch(r"([1-9]\d{0,15})([kmg]?)(b?)", value.lower(), re.ASCII)
    if found is None:
        raise ValueError(f"must be a size such as 512mb or 2gb, and not {value!r}")
    base = 1024 if found[3] else 1000
    return int(found[1]) * int(base ** " kmg".index(found[2] or " "))


class _Section(DescribedModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class RedisConfig(_Section):
    """Where Redis is."""

    url: Annotated[str | None, by_people(restart=EVERYTHING, secret=True)] = None
    """Address of your own Redis or Valkey (redis://, rediss:// or unix://).
    Without it, RemoteClaw runs one itself in its state directory."""
    appendfsync: Annotated[Literal["everysec", "always"], AT_START] = "everysec"
    """How often that one has its file written to the disk. `always` loses nothing even in a power
    failure, and makes each step wait for the disk; `everysec` can lose the last second, or two."""
    maxmemory: Annotated[str | None, AT_START] = None
    """How much Redis may keep, as its own configuration has it: `512mb`, `2gb`. RemoteClaw's own
    server has this limit, 512mb by default. One of your own keeps its limit; if it has none, this
    one holds, or half of its machine's memory."""

    @property
    def memory_limit(self) -> int:
        """`maxmemory` in bytes; 0 if none is configured."""
        return _bytes(self.maxmemory) if self.maxmemory else 0

    @field_validator("maxmemory")
    @classmethod
    def _check_maxmemory(cls, value: str | None) -> str | None:
        if value is not None and _bytes(value) < LEAST_MEMORY:
            raise ValueError(f"must be 16mb or more, and not {value}")
        return value

    @field_validator("url")
    @classmethod
    def _check_url(cls, value: str | None) -> str | None:
        if value is not None:
            redis_address(value)
        return value


class GatewayConfig(_Section):
    """Where the gateway listens, and whom it answers."""

    host: Annotated[str, WITH_SOCKET] = "127.0.0.1"
    """The address it listens on, or `localhost`. Others than this computer's own are refused
    without `allow_remote`."""
    port: Annotated[int, WITH_SOCKET] = Field(default=18789, ge=0, le=65535)
    """The port; 0 for any that is free."""
    allow_remote: Annotated[bool, WITH_SOCKET] = False
    """Whether `host` may be an address that other computers reach. It speaks plain HTTP, so only
    with something in front of it that encrypts."""
    hosts: Annotated[tuple[str, ...], WITH_GATEWAY] = Field(default=(), max_length=50)
    """More names under which it may be asked, as they stand in the header Host: `claw.example.org`,
    or with a port. Its own address and this computer's are among them anyway."""
    origins: Annotated[tuple[str, ...], WITH_GATEWAY] = Field(default=(), max_length=50)
    """Web pages that may use it, by their origin: `https://claw.example.org`. Without any, no page
    may."""

    @field_validator("host")
    @classmethod
    def _check_host(cls, value: str) -> str:
        try:
            return value if value == "localhost" else str(ipaddress.ip_address(value))
        except ValueError:
            raise ValueError(f"must be an IP address or localhost, not {value!r}") from None

    @field_validator("hosts")
    @classmethod
    def _check_hosts(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for name in value:
            if not re.fullmatch(r"([A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?", name):
                raise ValueError(f"has {name!r}: write a name, or name:port")
        return tuple(name.lower() for name in value)

    @field_validator("origins")
    @classmethod
    def _check_origins(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for origin in value:
            if not re.fullmatch(r"https?://[A-Za-z0-9_.\[\]:-]+", origin):
                raise ValueError(f"has {origin!r}: write an origin, such as https://example.org")
        return tuple(origin.lower() for origin in value)

    @model_validator(mode="after")
    def _check_reach(self) -> Self:
        if not self.allow_remote and not is_loopback(self.host):
            raise ValueError(
                f"has host = {self.host!r}, which other computers reach: use 127.0.0.1, or set "
                "allow_remote = true behind something that encrypts"
            )
        return self


def is_loopback(address: str) -> bool:
    """Whether nobody but this computer reaches an address."""
    if address == "localhost":
        return True
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return False
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return (mapped or found).is_loopback


class FleetConfig(_Section):
    """How turns are run."""

    lease_s: Annotated[float, AT_START] = Field(default=30, ge=1, le=600)
    """Seconds for which a worker holds a session; after a crash it is taken over so much later."""
    workers: Annotated[int, WITH_UP] = Field(default=4, ge=1, le=64)
    """How many `rq worker` processes `remoteclaw up` starts: the number of turns at once."""
    linger_s: Annotated[float, BY_PEOPLE] = Field(default=2, ge=0, le=30)
    """Seconds for which a worker waits for the next message of a session after a turn.
    It leaves at once when another session waits for a worker."""
    max_agents: Annotated[int, BY_PEOPLE] = Field(default=12, ge=1, le=MOST)
    """How many agent processes a host keeps, at work and warm. For one more, the one that has
    waited longest is ended; those at work never are."""
    reserve_mb: Annotated[int, BY_PEOPLE] = Field(default=512, ge=0, le=MOST)
    """Megabytes of the host's memory that stay free: below, warm agents are ended likewise."""


class ToolsConfig(_Section):
    """Which of RemoteClaw's tools agents may use: everywhere, or where the table stands.

    A list has names of tools, groups such as `group:cron`, and `*` for any letters: `message_*`.
    """

    profile: Annotated[Profile, BY_PEOPLE] = "full"
    """What there is to choose from: `full` is everything, `minimal` the session's status alone."""
    allow: Annotated[tuple[str, ...], BY_PEOPLE] = ()
    """Nothing but these, if there is one; else everything that the profile has."""
    deny: Annotated[tuple[str, ...], BY_PEOPLE] = ()
    """None of these, whatever else is said."""
    also_allow: Annotated[tuple[str, ...], BY_PEOPLE] = ()
    """These besides the profile. What another table takes away stays away, but what subagents are
    denied anyway, an agent's own table gives back."""

    approve: Annotated[tuple[str, ...] | None, BY_PEOPLE] = None
    """What a person has to approve before it is done: `gateway_config_patch` and
    `gateway_config_apply` can wait for that. The narrowest table that has this decides; an empty
    list is nothing."""

    @field_validator("allow", "deny", "also_allow", "approve")
    @classmethod
    def _check_entries(cls, value: tuple[str, ...] | None) -> tuple[str, ...] | None:
        for entry in value or ():
            if not re.fullmatch(r"[A-Za-z0-9_:*-]+", entry):
                raise ValueError(f"has {entry!r}: write a tool, a group, or a name with *")
        return value


class McpServerSettings(_Section):
    """An MCP server that the agent gets: a program to start (stdio) or an address (HTTP)."""

    command: Annotated[str | None, BY_PEOPLE] = None
    """The program to start."""
    args: Annotated[tuple[str, ...], SECRET] = ()
    """Its arguments. Everybody on the machine can read them: no secrets here."""
    env: Annotated[dict[str, str], SECRET] = Field(default_factory=dict)
    """Variables added to its environment."""
    url: Annotated[str | None, SECRET] = None
    """The address of a server that runs already."""
    headers: Annotated[dict[str, str], SECRET] = Field(default_factory=dict)
    """Headers sent with every request, such as a token."""

    @field_validator("url")
    @classmethod
    def _check_url(cls, value: str | None) -> str | None:
        if value is not None and not value.startswith(("http://", "https://")):
            raise ValueError("must begin with http:// or https://")
        return value

    @model_validator(mode="after")
    def _check_kind(self) -> Self:
        self.server()  # refuses what is neither a program nor an address
        return self

    def server(self) -> McpServerConfig:
        """Return it as runtimes take it."""
        return McpServerConfig(
            command=self.command,
            args=self.args,
            env=self.env,
            url=self.url,
            headers=self.headers,
        )


class AgentConfig(_Section):
    """One agent: which CLI, where, and what it may do."""

    runtime: Annotated[
        Literal["claude", "codex", "gemini", "opencode", "acp", "demo"] | None, BY_PEOPLE
    ] = None
    """The CLI that runs it. Without it, the first one that is installed; the demo if none is.
    `acp` is any other agent that speaks the Agent Client Protocol: name its `command`."""
    command: Annotated[tuple[str, ...] | None, SECRET] = Field(default=None, min_length=1)
    """The program to run and its first arguments, if it isn't found on PATH by its usual name."""
    workspace: Annotated[Path | None, BY_PEOPLE] = None
    """The directory in which the agent works: absolute, or beginning with ~. It must not contain
    the state directory. Without it, one of its own in the state directory."""
    model: Annotated[str | None, BY_AGENTS] = None
    """The model to ask for; without it, the CLI's own choice."""
    env: Annotated[dict[str, str], SECRET] = Field(default_factory=dict)
    """Variables added to the agent's environment, which otherwise gets little of RemoteClaw's."""
    timezone: Annotated[str | None, BY_AGENTS] = None
    """The IANA time zone of the times that the agent is told, such as Europe/Berlin, where a
    channel doesn't know its user's. Without it, this computer's."""
    permissions: Annotated[Literal["ask", "auto", "deny"], BY_PEOPLE] = "ask"
    """Tools that the CLI asks permission for: `auto` allows them all, `deny` refuses them all and
    sends no files.
    `ask` refuses them too and says so, as long as there is nobody who can be asked."""
    trust_workspace: Annotated[bool, BY_PEOPLE] = False
    """Whether what the CLI finds in the workspace tells it what to do: its CLAUDE.md, its settings,
    and hooks and MCP servers, which run as you. Whoever can write there could then do that too."""
    inherit_mcp: Annotated[bool, BY_PEOPLE] = True
    """Whether the MCP servers of the CLI's own configuration stay available."""
    mcp_servers: Annotated[dict[str, McpServerSettings], BY_PEOPLE] = Field(default_factory=dict)
    """More MCP servers for this agent, by name. Their tools need no permission, because you chose
    them, except under `permissions = "deny"`."""
    sees_sessions: Annotated[Literal["self", "tree", "agent", "all"] | None, BY_PEOPLE] = None
    """Which conversations its tools can look at, and write to: its own alone, also the sessions
    that it has started (`tree`), all those of this agent, or those of every agent. `agent` and
    `all` hold in turns of owners alone, others have `tree` then. Without it, owners have `agent`
    and others `tree`."""
    sends_to: Annotated[tuple[str, ...], BY_PEOPLE] = Field(default=(), max_length=100)
    """The chats besides its own to which its tools may send for people who are no owners:
    `telegram:-100123` is a chat, `telegram:*` all of a channel, `*` all there are. What arrives
    there says from which chat it comes."""
    spawns: Annotated[tuple[str, ...], BY_PEOPLE] = ()
    """The agents, besides itself, that it may start sessions of, by name; `*` is every agent."""
    mcp_transport: Annotated[Literal["http", "stdio"], BY_PEOPLE] = "http"
    """How it gets RemoteClaw's tools: `stdio` starts a small connector with it, for an agent that
    speaks only that."""
    start_s: Annotated[float, BY_PEOPLE] = Field(default=90, ge=1, le=MOST_S)
    """Seconds that it may take to start, MCP servers included."""
    stall_s: Annotated[float, BY_PEOPLE] = Field(default=300, ge=1, le=MOST_S)
    """Seconds for which it may give no sign of life in a turn. While it uses a tool, or waits for a
    permission, it may take its time."""
    turn_s: Annotated[float, BY_PEOPLE] = Field(default=21_600, ge=1, le=MOST_S)
    """Seconds that one turn may take in all."""
    warm_s: Annotated[float, BY_AGENTS] = Field(default=600, ge=0, le=MOST_S)
    """Seconds for which an idle agent process is kept warm for the next message."""
    tools: ToolsConfig = Field(default_factory=ToolsConfig)
    """Which of RemoteClaw's tools it may use."""

    @field_validator("model")
    @classmethod
    def _check_model(cls, value: str | None) -> str | None:
        # Some CLIs get it as an argument, and agents may change it.
        if value is not None and not re.fullmatch(r"[\x21-\x2c\x2e-\x7e][\x21-\x7e]{0,199}", value):
            raise ValueError("must be a model's name: no space, no - at its beginning")
        return value

    @field_validator("workspace")
    @classmethod
    def _check_workspace(cls, value: Path | None) -> Path | None:
        try:
            if value is not None and not value.expanduser().is_absolute():
                raise ValueError("must begin with / or ~")
            state = state_directory()
        except RuntimeError:
            raise ValueError("must begin with /: its ~ leads nowhere") from None
        # Unlike resolve(), realpath() takes a link that leads to itself.
        if value is not None and Path(os.path.realpath(state)).is_relative_to(
            os.path.realpath(value.expanduser())
        ):
            raise ValueError(
                f"contains RemoteClaw's state directory {state}, where tokens and conversations "
                "are: name a directory of the agent's own, or set REMOTECLAW_HOME to a place "
                "outside of it and move the state directory there"
            )
        return value

    @field_validator("timezone")
    @classmethod
    def _check_zone(cls, value: str | None) -> str | None:
        return value and _zone_name(value)

    @field_validator("sends_to")
    @classmethod
    def _check_chats(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for entry in value:
            channel, colon, chat = entry.partition(":")
            if entry != "*" and not (channel and colon and chat):
                raise ValueError(f"has {entry!r}: write CHANNEL:CHAT, CHANNEL:* or *")
            if entry != "*":
                channel_name(channel)
        return value

    @model_validator(mode="after")
    def _check_command(self) -> Self:
        if self.runtime == "acp" and self.command is None:
            raise ValueError('has runtime = "acp" and no command: name the agent\'s program')
        return self

    @field_validator("mcp_servers")
    @classmethod
    def _check_servers(cls, value: dict[str, McpServerSettings]) -> dict[str, McpServerSettings]:
        if OWN_SERVER in value:
            raise ValueError(f"has {OWN_SERVER!r}, which is what RemoteClaw's own is called")
        return _check_names(value)

    def servers(self) -> dict[str, McpServerConfig]:
        """Return its MCP servers as runtimes take them."""
        return {name: settings.server() for name, settings in self.mcp_servers.items()}


class SenderConfig(_Section):
    """What differs for a sender, by their id on the platform; `*` is who has no table there."""

    tools: ToolsConfig = Field(default_factory=ToolsConfig)
    """Which tools the agent may use for them."""


class GroupConfig(_Section):
    """What differs in a group chat, by its id on the platform; `*` is each that has no table."""

    tools: ToolsConfig = Field(default_factory=ToolsConfig)
    """Which tools the agent may use there."""
    senders: Annotated[dict[str, SenderConfig], BY_PEOPLE] = Field(default_factory=dict)
    """What differs for senders there."""

    @field_validator("senders")
    @classmethod
    def _check_senders(cls, value: dict[str, SenderConfig]) -> dict[str, SenderConfig]:
        _check_ids(value)
        return value


class ResetConfig(_Section):
    """When the next message of a person begins a new conversation by itself: without a key, never.

    Of several such tables the most specific one holds, whole.
    """

    daily: Annotated[str | None, BY_PEOPLE] = None
    """The time of day that ends all conversations which are not at work then, such as 04:00."""
    idle_minutes: Annotated[int | None, BY_PEOPLE] = Field(default=None, ge=1, le=7 * 24 * 60)
    """Minutes after which a conversation ends in which nobody has said anything."""
    timezone: Annotated[str | None, BY_PEOPLE] = None
    """The IANA time zone of `daily`, such as Europe/Berlin; else that of the worker's computer."""

    @field_validator("daily")
    @classmethod
    def _check_time(cls, value: str | None) -> str | None:
        if value is not None and not re.fullmatch(r"([01][0-9]|2[0-3]):[0-5][0-9]", value):
            raise ValueError(f"must be a time of day such as 04:00, not {value!r}")
        return value

    @field_validator("timezone")
    @classmethod
    def _check_zone(cls, value: str | None) -> str | None:
        return value and _zone_name(value)


class ChannelConfig(_Section):
    """One channel."""

    instructions: Annotated[str | None, BY_PEOPLE] = Field(default=None, max_length=16_000)
    """What the agent is told of this channel, in its system prompt."""
    formatting: Annotated[tuple[str, ...], BY_PEOPLE] = Field(default=(), max_length=20)
    """How the channel shows messages, a sentence each, for the agent."""
    authorized_senders: Annotated[tuple[str, ...], BY_PEOPLE] = Field(default=(), max_length=100)
    """Who may write there, for the agent to know; it lets nobody in and keeps nobody out."""
    owners: Annotated[tuple[str, ...] | None, BY_PEOPLE] = None
    """The ids of those for whom agents may use the tools for owners: cron and the gateway's.
    Without it, a channel has none, except where everyone who writes is at this computer."""
    tools: ToolsConfig = Field(default_factory=ToolsConfig)
    """Which tools agents may use there."""
    senders: Annotated[dict[str, SenderConfig], BY_PEOPLE] = Field(default_factory=dict)
    """What differs for senders."""
    groups: Annotated[dict[str, GroupConfig], BY_PEOPLE] = Field(default_factory=dict)
    """What differs in group chats."""
    reactions: Annotated[Literal["minimal", "extensive"] | None, BY_AGENTS] = None
    """How often the agent should react to a message with an emoji."""
    chunk_limit: Annotated[int, BY_AGENTS] = Field(default=4000, ge=80, le=MOST)
    """How long one message of an answer may be; a longer answer comes in several."""
    chunk_unit: Annotated[Unit, BY_AGENTS] = "characters"
    """What `chunk_limit` counts: characters (code points), units of UTF-16, or bytes of UTF-8."""
    activity: Annotated[Literal["arguments", "names", "off"] | None, BY_PEOPLE] = None
    """What is shown of the tools that an agent uses, while it uses them: their names with a short
    argument, the names alone, or nothing. Without it, `arguments` in direct chats, else `names`."""
    reset: Annotated[ResetConfig | None, BY_PEOPLE] = None
    """When conversations end by themselves there; else as `[sessions]` says."""
    attachment_mb: Annotated[int, BY_PEOPLE] = Field(default=20, ge=0, le=20)
    """How large a file may be that somebody or an agent sends there, in megabytes; 0 for none."""
    attachment_types: Annotated[tuple[str, ...], BY_PEOPLE] = Field(default=("*",), max_length=50)
    """Which files may be sent there, by their MIME types: `image/*`, `application/pdf`."""

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
                "has '*', and then anybody could change the configuration: "
                "name each owner by the platform's id"
            )
        _check_ids(value or ())
        return value

    @field_validator("senders", "groups")
    @classmethod
    def _check_tables(cls, value: dict[str, _T]) -> dict[str, _T]:
        _check_ids(value)
        return value

    def named_ids(self) -> set[str]:
        """Return every id of a person or a chat that is named here."""
        groups = {sender for group in self.groups.values() for sender in group.senders}
        return {*(self.owners or ()), *self.senders, *self.groups, *groups} - {"*"}


class QueueOverride(_Section):
    """What differs for one channel, or one session, from `[queue]`; absent keys don't."""

    mode: Annotated[QueueMode | None, BY_AGENTS] = None
    debounce_ms: Annotated[DebounceMs | None, BY_AGENTS] = None
    cap: Annotated[Cap | None, BY_AGENTS] = None
    drop: Annotated[DropPolicy | None, BY_AGENTS] = None


class QueueConfig(_Section):
    """What becomes of a message that arrives while its session is busy.

    An idle session starts at once, whatever is configured here.
    """

    mode: Annotated[QueueMode, BY_AGENTS] = "collect"
    """`collect` answers all that waits in one turn, `followup` each message in its own.
    `steer` gives the new message to the agent while it works, and `interrupt` stops the running
    turn for it."""
    debounce_ms: Annotated[DebounceMs, BY_AGENTS] = 1000
    """How long it must have been quiet before the messages that waited are answered, in
    milliseconds: the person may still be typing."""
    cap: Annotated[Cap, BY_AGENTS] = 20
    """How many messages a busy session keeps waiting; 0 for any number."""
    drop: Annotated[DropPolicy, BY_AGENTS] = "summarize"
    """What goes beyond the cap: the `old` or the `new` messages, whose sender is told;
    `summarize` leaves out the old ones, but shows the agent how each of them began."""
    channels: Annotated[dict[str, QueueOverride], BY_AGENTS] = Field(default_factory=dict)
    """What differs for a channel, by its name."""

    @field_validator("channels")
    @classmethod
    def _check_channels(cls, value: dict[str, QueueOverride]) -> dict[str, QueueOverride]:
        for name in value:
            channel_name(name)
        return value

    def of(self, channel: str, session: QueueOverride | None = None) -> "QueueConfig":
        """Return what holds for a session: its own settings, else its channel's, else these."""
        changes: dict[str, Any] = {}
        for override in (self.channels.get(channel), session):
            changes |= override.model_dump(exclude_none=True) if override else {}
        return self.model_copy(update=changes)


class RecordConfig(_Section):
    """RemoteClaw's own record of each conversation: an agent that has lost its goes on from it."""

    keep_days: Annotated[int, BY_PEOPLE] = Field(default=30, ge=0, le=3650)
    """Days for which it is kept after the last message; 0 for no record."""
    max_kb: Annotated[int, BY_PEOPLE] = Field(default=256, ge=8, le=16_384)
    """Kilobytes that one conversation's record may have: beyond that its beginning goes."""

    @property
    def keep_ms(self) -> int:
        """The same in milliseconds."""
        return self.keep_days * 24 * 3600 * 1000


class SessionsConfig(_Section):
    """What sessions may set going among themselves, when a conversation ends and a new one begins,
    and what is kept of it."""

    max_depth: Annotated[int, BY_PEOPLE] = Field(default=1, ge=1, le=5)
    """How deep sessions may start sessions: with 1, those that people talk with may, and the ones
    that they start may not."""
    max_children: Annotated[int, BY_PEOPLE] = Field(default=5, ge=1, le=20)
    """How many unfinished sessions one session may have started."""
    max_hops: Annotated[int, BY_PEOPLE] = Field(default=30, ge=1, le=1000)
    """After how many turns in a row, each set going by the one before, agents can't set another one
    going: until a person, or the clock, writes something."""
    reset_triggers: Annotated[tuple[str, ...], BY_PEOPLE] = Field(
        default=("/new", "/reset"), max_length=20
    )
    """The words with which a person begins a new conversation, in any case: alone, or before the
    first message of it. None if there is none."""
    keep_archived: Annotated[int, BY_PEOPLE] = Field(default=10, ge=0, le=1000)
    """How many ended conversations of a session are kept, each for as long as a record is; the
    oldest go first."""
    reset: ResetConfig = ResetConfig()
    """When conversations end by themselves; `[channels.NAME.reset]` says it for a channel."""
    reset_by_kind: Annotated[dict[ChatKind, ResetConfig], BY_PEOPLE] = Field(default_factory=dict)
    """The same for a kind of chat: direct, group or thread."""

    @field_validator("reset_triggers")
    @classmethod
    def _check_triggers(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for trigger in value:
            # A plain word would end conversations by chance.
            if not re.fullmatch(r"[/!][^\W_][\w-]{0,30}", trigger):
                raise ValueError(f"has {trigger!r}: write / or ! and one word, such as /new")
            if trigger.casefold() == "/stop":
                raise ValueError(f"has {trigger!r}, which stops what runs")
        return value


class HooksConfig(_Section):
    """Python functions, as "module:function", to call at moments of a turn."""

    message_received: Annotated[tuple[str, ...], WITH_WORKERS] = ()
    """An agent is about to be given a message."""
    before_runtime_spawn: Annotated[tuple[str, ...], WITH_WORKERS] = ()
    """Before each turn; may return another working directory and more environment."""
    session_resumed: Annotated[tuple[str, ...], WITH_WORKERS] = ()
    """A new agent process goes on with a conversation of an earlier one."""
    after_runtime_exit: Annotated[tuple[str, ...], WITH_WORKERS] = ()
    """After each turn, with its bounded output and side effects."""
    agent_end: Annotated[tuple[str, ...], WITH_WORKERS] = ()
    """After each turn, with its id, success and duration."""
    message_sending: Annotated[tuple[str, ...], WITH_WORKERS] = ()
    """Before a message is delivered to a chat; may change or cancel it. While there is such a hook,
    answers are not shown before they are complete."""
    message_sent: Annotated[tuple[str, ...], WITH_WORKERS] = ()
    """After a message was delivered to a chat, or could not be."""


class Config(_Section):
    """Everything that can be configured."""

    redis: RedisConfig = RedisConfig()
    gateway: GatewayConfig = GatewayConfig()
    fleet: FleetConfig = FleetConfig()
    agents: Annotated[dict[str, AgentConfig], BY_PEOPLE] = Field(
        default_factory=lambda: {"main": AgentConfig()}
    )
    """The agents by name. Messages go to `main`, else to the only one there is."""
    channels: Annotated[dict[str, ChannelConfig], BY_AGENTS] = Field(default_factory=dict)
    """The channels by name."""
    tools: ToolsConfig = Field(default_factory=ToolsConfig)
    """Which of RemoteClaw's tools every agent may use."""
    queue: QueueConfig = QueueConfig()
    sessions: SessionsConfig = SessionsConfig()
    record: RecordConfig = RecordConfig()
    hooks: HooksConfig = HooksConfig()

    @field_validator("agents")
    @classmethod
    def _check_agents(cls, value: dict[str, AgentConfig]) -> dict[str, AgentConfig]:
        if not value:
            raise ValueError("is empty: leave it out, or name an agent")
        return _check_names(value)

    @field_validator("channels")
    @classmethod
    def _check_channels(cls, value: dict[str, ChannelConfig]) -> dict[str, ChannelConfig]:
        for name, channel in value.items():
            channel_name(name)
            form = profile_of(name).id_form
            for one in sorted(channel.named_ids()):
                if form and not re.fullmatch(form, one):
                    raise ValueError(
                        f"{name} has {one!r}, which is no id there: ids have the form {form}"
                    )
        return value

    def channel(self, name: str) -> ChannelConfig:
        """Return a channel's settings; what the file leaves out is as its profile says."""
        named, profile = self.channels.get(name, ChannelConfig()), profile_of(name)
        unset = {key for key in _OF_PROFILE if key not in named.model_fields_set}
        return named.model_copy(update={key: getattr(profile, key) for key in unset})

    def reset_of(self, channel: str, kind: ChatKind) -> ResetConfig:
        """Return when conversations of a kind end by themselves on a channel."""
        if (own := self.channel(channel).reset) is not None:
            return own
        return self.sessions.reset_by_kind.get(kind, self.sessions.reset)

    def agent(self, name: str | None) -> tuple[str, AgentConfig]:
        """Return an agent's name and configuration; `None` asks for the default one.

        Raises `ConfigError` for a name that isn't configured.
        """
        wanted = name or ("main" if "main" in self.agents or len(self.agents) > 1 else None)
        if wanted is None:
            return next(iter(self.agents.items()))
        if wanted not in self.agents:
            raise ConfigError(
                f"There is no agent {wanted!r}: the configuration has "
                f"{', '.join(map(repr, self.agents))}."
            )
        return wanted, self.agents[wanted]


def state_directory() -> Path:
    """Return `$REMOTECLAW_HOME`, else `~/.remoteclaw`; raises RuntimeError if its ~ is unknown."""
    return Path(os.environ.get("REMOTECLAW_HOME") or "~/.remoteclaw").expanduser().absolute()
