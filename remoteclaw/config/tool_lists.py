"""The `tools` tables of the configuration: profiles, lists, and a check of their entries."""

import fnmatch
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from remoteclaw.config.model import Config, Profile, SenderConfig, ToolsConfig
from remoteclaw.config.model.section import most_specific
from remoteclaw.errors import ConfigError, did_you_mean
from remoteclaw.tools.base import Tool
from remoteclaw.tools.catalog import TOOLS

_T = TypeVar("_T")


#: The entries of each profile.
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
    """Raise `ConfigError` for an entry that matches no tool, with the most similar name.

    For instance, a misspelled denial would deny nothing.
    """
    approvable = [tool for tool in TOOLS.values() if tool.approvable]
    for table in _all_tables(config):
        for entry in table.tools.approve or ():
            if not any(_matches(entry, tool) for tool in approvable):
                names = ", ".join(tool.tool for tool in approvable)
                raise ConfigError(
                    f"{table.key}.approve has {entry!r}, which can't wait for it: {names} can."
                )
        for name, entries in table.lists():
            for entry in entries:
                if not any(_matches(entry, tool) for tool in TOOLS.values()):
                    known = sorted(frozenset().union(*(tool.names for tool in TOOLS.values())))
                    groups = ", ".join(name for name in known if name.startswith("group:"))
                    hint = did_you_mean(entry.lower(), known, otherwise=f"the groups are {groups}.")
                    raise ConfigError(f"{table.key}.{name} has {entry!r}, which no tool is; {hint}")


StepVerdict = tuple[bool, str]
"""Whether a step allows a tool, and by which rule."""


@dataclass(frozen=True, slots=True)
class ToolsTable:
    """A `tools` table, which is two steps of the policy: its profile and its lists."""

    key: str
    """The dotted key of the table, such as `agents.main.tools`."""
    tools: ToolsConfig

    def lists(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Yield the name and the entries of each list that names tools."""
        yield "allow", self.tools.allow
        yield "deny", self.tools.deny
        yield "also_allow", self.tools.also_allow

    def by_profile(self, tool: Tool) -> StepVerdict | None:
        """Return whether the profile, with `also_allow`, has a tool; None for the profile full."""
        profile = self.tools.profile
        if profile == "full":
            return None
        has_it = entry_for(PROFILES[profile], tool) is not None
        if not has_it and (added := self.added(tool)):
            return True, added
        return has_it, f"{self.key}.profile = {quoted(profile)}"

    def added(self, tool: Tool) -> str | None:
        """Return the rule of `also_allow` that adds a tool; None if it doesn't name the tool."""
        entry = entry_for(self.tools.also_allow, tool)
        return entry and f"{self.key}.also_allow has {quoted(entry)}"

    def by_lists(self, tool: Tool) -> StepVerdict | None:
        """Return whether `deny` and `allow` let a tool pass; None if neither list is about it."""
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
    """Yield the `tools` table of a sender, else that of `*`; nothing if there is neither."""
    if match := most_specific(senders, sender):
        name, settings = match
        yield ToolsTable(f"{key}.senders.{quoted(name)}.tools", settings.tools)


def _all_tables(config: Config) -> Iterator[ToolsTable]:
    """Yield each `tools` table of a configuration."""
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
    """Return a text as a quoted string of TOML."""
    return json.dumps(text, ensure_ascii=False)


def entry_for(entries: Iterable[str], tool: Tool) -> str | None:
    """Return the first entry that matches a tool, as it is written; None if none does."""
    return next((entry for entry in entries if _matches(entry, tool)), None)


def _matches(entry: str, tool: Tool) -> bool:
    # The configuration refuses all of fnmatch's special characters except *.
    return entry.lower() in tool.group_names or fnmatch.fnmatchcase(tool.tool, entry.lower())
