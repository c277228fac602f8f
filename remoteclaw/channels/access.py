"""Access: who may write to an account. Without a setting or a pairing, nobody may."""

import logging
from dataclasses import dataclass
from enum import StrEnum

from remoteclaw.config.model import AccountConfig, Config
from remoteclaw.config.tool_lists import most_specific
from remoteclaw.config.tool_policy import Subject, is_owner
from remoteclaw.fleet import Fleet
from remoteclaw.protocols import Incoming

log = logging.getLogger(__name__)


class Verdict(StrEnum):
    """What becomes of a message."""

    ADMITTED = "admitted"
    IGNORED = "ignored"
    """It isn't for us, or from where nobody may write: nothing is said."""
    STRANGER = "stranger"
    """Its sender may ask to be let in."""
    NEW_GROUP = "new group"
    """An owner has written it in a group that was not let in."""


@dataclass(frozen=True, slots=True)
class Access:
    """The rules of one account, with the settings of the moment."""

    config: Config
    fleet: Fleet
    provider: str
    account: str

    @property
    def settings(self) -> AccountConfig | None:
        """The account's own; None once it is configured no more."""
        return self.config.account(self.provider, self.account)

    def is_owner(self, incoming: Incoming) -> bool:
        """Whether an owner has written it, by the platform's id alone."""
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
        """Return what becomes of a message. Raises `RedisUnavailable` and `RedisRefused`."""
        if incoming.is_bot or self.settings is None:
            return Verdict.IGNORED
        if incoming.is_group:
            return await self._in_group(incoming)
        may_write = (
            incoming.sender in self.settings.allow
            or self.is_owner(incoming)
            or await self._is_paired(incoming.sender)
        )
        return Verdict.ADMITTED if may_write else Verdict.STRANGER

    async def _in_group(self, incoming: Incoming) -> Verdict:
        """Groups are let in as a whole: what each person's message may do, their rights decide."""
        if not incoming.is_for_us and self._requires_mention(incoming.chat):
            return Verdict.IGNORED
        if await self._is_let_in(incoming.chat):
            return Verdict.ADMITTED
        if not incoming.is_for_us:
            return Verdict.IGNORED
        return Verdict.NEW_GROUP if self.is_owner(incoming) else Verdict.IGNORED

    def _requires_mention(self, group: str) -> bool:
        found = most_specific(self.config.channel(self.provider).groups, group)
        return found is None or found[1].require_mention

    async def move(self, incoming: Incoming) -> None:
        """Let in a group under the other id that its platform has given it."""
        first, now = incoming.chat, incoming.moved_to
        if now is None or not await self._is_let_in(first):
            return
        await self.fleet.accounts.move(self.provider, self.account, chat=first, to=now)
        log.warning(
            "the group %s of %s has the id %s now: here it goes on by its first one",
            first,
            self.provider,
            now,
        )

    async def first_id(self, incoming: Incoming) -> str:
        """Return the id that a message's chat had first: its conversation and rights go by that.

        A group that was let in by its new id, too, is another chat.
        """
        chat = incoming.chat
        if not incoming.is_group:
            return chat
        first = await self.fleet.accounts.first_id(self.provider, self.account, chat)
        return chat if first == chat or await self._is_let_in(chat) else first

    async def _is_let_in(self, group: str) -> bool:
        return group in self.config.channel(self.provider).groups or await self._is_paired(group)

    async def _is_paired(self, id_: str) -> bool:
        return await self.fleet.pairings.has(self.provider, self.account, id_)
