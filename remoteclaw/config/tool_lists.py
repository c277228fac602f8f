"""The `tools` tables of the configuration: profiles, lists, and a check of their entries."""

import fnmatch
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from remoteclaw.config.model import Config, Profile, SenderConfig, ToolsConfig
from remoteclaw.errors import ConfigError, did_you_mean
from remoteclaw.tools.base import Tool
from remoteclaw.tools.catalog import TOOLS

_T = TypeVar("_T")


#: What each profile has.
PROFILES: Mapping[Profile, tuple[str, ...]] = {
    "full": ("*",),
    "messaging": (
        "group:messaging",
        "sessions_list",
        "sessions_history",
        "sessions_send",
        "session_status",
    ),
    "limited": (
        "session_status",
        "agents_list",
        "sessions_list",
        "sessions_history",
        "message_reply",
        "message_thread_reply",
        "message_react",
        "message_read",
    ),
    "minimal": ("session_status",),
}


def check_tools(config: Config) -> None:
    """Raise `ConfigError` for an entry of a list that names no tool, with the nearest that does.

    Such a denial would deny nothing.
    """
    approvable = [tool for tool in TOOLS.values() if tool.approvable]
    for table in _all_tables(config):
        for entry in table.tools.approve or ():
            if not any(_means(entry, tool) for tool in approvable):
                names = ", ".join(tool.tool for tool in approvable)
                raise ConfigError(
                    f"{table.key}.approve has {entry!r}, which can't wait for it: {names} can."
                )
        for name, entries in table.lists():
            for entry in entries:
                if not any(_means(entry, tool) for tool in TOOLS.values()):
                    known = sorted(frozenset().union(*(tool.names for tool in TOOLS.values())))
                    groups = ", ".join(one for one in known if one.startswith("group:"))
                    hint = did_you_mean(entry.lower(), known, otherwise=f"the groups are {groups}.")
                    raise ConfigError(f"{table.key}.{name} has {entry!r}, which no tool is; {hint}")


Verdict = tuple[bool, str]


@dataclass(frozen=True, slots=True)
class ToolsTable:
    """A `tools` table, which makes two steps."""

    key: str
    tools: ToolsConfig

    def lists(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Yield each list with its name."""
        yield "allow", self.tools.allow
        yield "deny", self.tools.deny
        yield "also_allow", self.tools.also_allow

    def by_profile(self, tool: Tool) -> Verdict | None:
        """Say whether the profile has a tool, or `also_allow` adds it."""
        profile = self.tools.profile
        if profile == "full":
            return None
        has_it = entry_for(PROFILES[profile], tool) is not None
        if not has_it and (added := self.added(tool)):
            return True, added
        return has_it, f"{self.key}.profile = {quoted(profile)}"

    def added(self, tool: Tool) -> str | None:
        """Return the rule that adds a tool here; None if there is none."""
        entry = entry_for(self.tools.also_allow, tool)
        return entry and f"{self.key}.also_allow has {quoted(entry)}"

    def by_lists(self, tool: Tool) -> Verdict | None:
        """Say whether a tool is denied, or allowed by name, or not among those that are."""
        if entry := entry_for(self.tools.deny, tool):
            return False, f"{self.key}.deny has {quoted(entry)}"
        if not self.tools.allow:
            return None
        if entry := entry_for(self.tools.allow, tool):
            return True, f"{self.key}.allow has {quoted(entry)}"
        return False, f"{self.key}.allow doesn't have it"


def sender_table(
    key: str, senders: Mapping[str, SenderConfig], sender: str | None
) -> Iterator[ToolsTable]:
    """Yield the table of a sender, or the one of `*`."""
    if found := most_specific(senders, sender):
        name, settings = found
        yield ToolsTable(f"{key}.senders.{quoted(name)}.tools", settings.tools)


def most_specific(tables: Mapping[str, _T], wanted: str | None) -> tuple[str, _T] | None:
    """Return the table of an id, else the table of `*`; None if there is neither."""
    name = wanted if wanted is not None and wanted in tables else "*"
    return (name, tables[name]) if name in tables else None


def _all_tables(config: Config) -> Iterator[ToolsTable]:
    """Yield every `tools` table there is."""
    yield ToolsTable("tools", config.tools)
    for agent, settings in config.agents.items():
        yield ToolsTable(f"agents.{agent}.tools", settings.tools)
    for name, channel in config.channels.items():
        key = f"channels.{name}"
        yield ToolsTable(f"{key}.tools", channel.tools)
        for sender in channel.senders:
            yield from sender_table(key, channel.senders, sender)
        for chat, group in channel.groups.items():
            group_key = f"{key}.groups.{quoted(chat)}"
            yield ToolsTable(f"{group_key}.tools", group.tools)
            for sender in group.senders:
                yield from sender_table(group_key, group.senders, sender)


def quoted(text: str) -> str:
    """Return a text as TOML has it."""
    return json.dumps(text, ensure_ascii=False)


def entry_for(entries: Iterable[str], tool: Tool) -> str | None:
    """Return the first entry that means a tool, as it is written."""
    return next((entry for entry in entries if _means(entry, tool)), None)


def _means(entry: str, tool: Tool) -> bool:
    # The configuration lets no other sign of a pattern in than *.
    return entry.lower() in tool.group_names or fnmatch.fnmatchcase(tool.tool, entry.lower())
