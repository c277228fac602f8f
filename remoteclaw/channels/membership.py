"""The membership of the account in a chat: accepts invitations, and ends access after a removal."""

import asyncio
import logging
from dataclasses import dataclass, replace

from remoteclaw.channels.access import Access
from remoteclaw.channels.report import Report
from remoteclaw.errors import PlatformAway, PlatformBusy, RemoteClawError
from remoteclaw.messages import ChatPlace
from remoteclaw.protocols import InvitedAdapter

#: Time limit for answering an invitation, in seconds: to join a large room takes a while.
ANSWER_S = 60.0
#: The pause before an invitation is answered again, in seconds.
AGAIN_S = 1.0

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Membership(Report):
    """A report that a person has invited the account to a chat, or removed it from there."""

    async def take(self, access: Access, *, is_admitted: bool) -> None:
        """Answer the invitation, or end the access of the group. `is_admitted` is the sender's."""
        if access.settings is None:
            return
        if self.incoming.invitation == "invited":
            await self._answer(access, is_admitted=is_admitted)
        elif self.incoming.is_group:
            await self._close(access)

    async def _answer(self, access: Access, *, is_admitted: bool) -> None:
        """Join a group that has access, any chat of an owner, and a direct chat of whom may write.

        Anybody can invite an account anywhere, so everything else is declined.
        """
        if not isinstance(self.source, InvitedAdapter):
            return
        incoming, name = self.incoming, f"{self.context.provider}/{self.context.account}"
        is_known = await access.has_access(incoming.chat) if incoming.is_group else is_admitted
        joins = is_known or access.is_owner(incoming)
        does = "accepts" if joins else "declines"
        log.info("%s %s the invitation of %s to %s", name, does, incoming.sender, incoming.chat)
        try:
            async with asyncio.timeout(ANSWER_S):
                await self._answered(self.source, joins=joins)
        except (RemoteClawError, TimeoutError) as error:
            log.warning("the invitation to %s is not answered: %s", incoming.chat, error)

    async def _answered(self, source: InvitedAdapter, *, joins: bool) -> None:
        """Answer the invitation, again while the platform is busy or away: it comes only once."""
        while True:
            try:
                return await source.answer_invitation(self.incoming, joins=joins)
            except PlatformBusy as busy:
                await asyncio.sleep(busy.after_s)
            except PlatformAway:
                await asyncio.sleep(AGAIN_S)

    async def _close(self, access: Access) -> None:
        """End the access that an owner gave the group with `/pair`, unless the report is repeated.

        It may be repeated after an owner has paired the group again.
        """
        context, incoming = self.context, self.incoming
        agent, _ = access.config.agent(None)  # the group's own agent ends with its access
        session = replace(self.session_of(access, incoming), agent=agent)
        if (await context.fleet.edits.known(session, [self.name]))[0]:
            return
        account = {"provider": context.provider, "account": context.account}
        removed = await context.fleet.pairings.remove(incoming.chat, **account)
        await context.fleet.chats.note_within(ChatPlace(**account, chat=incoming.chat), ())
        log.warning(
            "%s removed %s/%s from the group %s%s",
            incoming.sender,
            context.provider,
            context.account,
            incoming.chat,
            ": it has no access any more, until an owner uses /pair there" if removed else "",
        )
        await self.note_handled(session, "-")
