"""Access control of an account: by default nobody may write; settings and pairings grant access."""

import logging
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from remoteclaw import commands
from remoteclaw.config.chats import NO_FACTS, ChatFacts
from remoteclaw.config.model import AccountConfig, Config, GroupConfig, Threads
from remoteclaw.config.tool_policy import Subject, is_owner
from remoteclaw.fleet.accounts import Accounts
from remoteclaw.fleet.pairings import Pairings
from remoteclaw.profiles import profile_of
from remoteclaw.protocols import Incoming

log = logging.getLogger(__name__)


class Verdict(StrEnum):
    """The access decision about an incoming message."""

    ADMITTED = "admitted"
    IGNORED = "ignored"
    """The message is not from a person, or its group has no access: no reply is sent."""
    NOT_FOR_US = "not for us"
    """The message does not address the agent, in a group that has access: no reply is sent."""
    STRANGER = "stranger"
    """The sender has no access and is offered a pairing code."""
    NEW_GROUP = "new group"
    """An owner wrote the message in a group that has no access yet."""


@dataclass(frozen=True, slots=True)
class Access:
    """The access rules of one account under the current configuration."""

    config: Config
    accounts: Accounts
    pairings: Pairings
    provider: str
    account: str
    facts: ChatFacts = NO_FACTS
    """What is known of the chat of the report whose access is decided."""

    @property
    def settings(self) -> AccountConfig | None:
        """The account's settings; None once the account is removed from the configuration."""
        return self.config.account(self.provider, self.account)

    def is_owner(self, incoming: Incoming) -> bool:
        """Whether an owner sent `incoming`. Only the platform's user id counts, never a name."""
        agent, _ = self.config.agent(None)
        subject = Subject(
            agent=agent,
            channel=self.provider,
            chat_id=incoming.chat,
            is_group=incoming.is_group,
            senders=(incoming.sender,),
        )
        return is_owner(self.config, subject)

    async def verdict(self, incoming: Incoming) -> Verdict:
        """Return the decision about `incoming`. Raises `RedisUnavailable` and `RedisRefused`."""
        if incoming.is_bot or self.settings is None:
            return Verdict.IGNORED
        if incoming.is_group:
            return await self._in_group(incoming)
        may_write = (
            self.settings.admits(incoming.sender)
            or self.is_owner(incoming)
            or await self._is_paired(incoming.sender)
        )
        return Verdict.ADMITTED if may_write else Verdict.STRANGER

    async def _in_group(self, incoming: Incoming) -> Verdict:
        """Return the decision about a group message.

        A group gets access as a whole. The rights of each sender decide what a message may do.
        """
        if await self.has_access(incoming.chat):
            is_overheard = not incoming.is_for_us and self.requires_mention(incoming) is not False
            return Verdict.NOT_FOR_US if is_overheard else Verdict.ADMITTED
        if not incoming.is_for_us:
            return Verdict.IGNORED
        return Verdict.NEW_GROUP if self.is_owner(incoming) else Verdict.IGNORED

    def requires_mention(self, incoming: Incoming) -> bool | Literal["start"]:
        """Return whether the agent gets only messages to it in the group of `incoming`.

        "start": also all messages of threads in which it has a session.
        """
        return self._group(incoming).require_mention

    def threads(self, incoming: Incoming) -> Threads:
        """Return which threads have a session of their own in the chat of `incoming`."""
        assert self.settings is not None, "the access check requires the account's settings"
        group = self._group(incoming)
        chosen = (group.threads if incoming.is_group else None) or self.settings.threads
        if chosen is None and group.require_mention is not False:
            chosen = "auto"
        can_open = profile_of(self.provider).opens_threads
        return "platform" if chosen is None or (chosen == "auto" and not can_open) else chosen

    def may_follow(self, incoming: Incoming) -> bool:
        """Whether a message is in a thread in which a session makes it one to the agent.

        An edit without the mention of the message that has opened a thread takes that back.
        """
        opened_by = incoming.id, incoming.replaces
        is_in_thread = incoming.is_group and incoming.thread not in (None, *opened_by)
        has_session = is_in_thread and self.threads(incoming) != "off"
        return has_session and self.requires_mention(incoming) == "start"

    async def opens_thread(self, incoming: Incoming) -> bool:
        """Whether a message of a group opens a thread of its own.

        Commands don't, except `/new` with a text: they are about what the chat has already.
        """
        if incoming.thread is not None or not (incoming.is_group and incoming.is_message):
            return False
        if self.threads(incoming) != "auto" or not await self.has_access(incoming.chat):
            return False
        command = commands.parse(incoming.text) if incoming.is_for_us else None
        if command is None or command.known is None:
            return True
        return command.known == "new" and bool(command.arguments)

    def _group(self, incoming: Incoming) -> GroupConfig:
        match = self.config.channel(self.provider).group_of(incoming.chat)
        return match[1] if match else GroupConfig()

    async def move(self, incoming: Incoming) -> None:
        """Record the new id that a platform gave to a group, so that the group keeps its access."""
        first_id, new_id = incoming.chat, incoming.moved_to
        if new_id is None or not await self.has_access(first_id):
            return
        await self.accounts.move(self.provider, self.account, chat=first_id, to=new_id)
        log.warning(
            "the group %s of %s now has the id %s; RemoteClaw keeps using the first id",
            first_id,
            self.provider,
            new_id,
        )

    async def first_id(self, incoming: Incoming) -> str:
        """Return the first id of the message's chat, which its session and rights are stored under.

        A group that was granted access under its new id as well counts as a separate chat.
        """
        chat = incoming.chat
        if not incoming.is_group:
            return chat
        first_id = await self.accounts.first_id(self.provider, self.account, chat)
        return chat if first_id == chat or await self.has_access(chat) else first_id

    async def has_access(self, group: str) -> bool:
        """Whether a group, or what contains it, is in the settings or was given access."""
        tables = self.config.channel(self.provider).groups
        is_named = any(each in tables for each in (group, *self.facts.within))
        return is_named or await self._is_paired(group)

    async def _is_paired(self, id_: str) -> bool:
        return await self.pairings.has(self.provider, self.account, id_)
