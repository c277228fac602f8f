"""The choice of a person on the card of a request, and reactions to an agent's messages."""

import asyncio
import logging
from dataclasses import dataclass
from typing import Literal

from remoteclaw.channels.access import Access
from remoteclaw.channels.report import Report
from remoteclaw.commands.answers import (
    GONE,
    NOT_YOURS,
    AnswerOutcome,
    answer_request,
    verdict_of_keys,
)
from remoteclaw.config.model import Config
from remoteclaw.errors import RemoteClawError
from remoteclaw.host.terminal import one_line
from remoteclaw.messages import ChatPlace, person
from remoteclaw.profiles import profile_of
from remoteclaw.protocols import Card, Choice, PressedAdapter

#: Time limit for confirming a button press to the person, in seconds.
PRESS_REPORT_S = 5.0
ELSEWHERE = "That request belongs to another chat: answer it there."

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Response(Report):
    """A report that a person has chosen an answer, or has reacted to a message."""

    async def take_reaction(self, access: Access, *, is_admitted: bool) -> None:
        """Take a reaction to a card as a choice, and record one to another message.

        The session's next message reports it.
        """
        if choice := await self._choice():
            outcome = await self._outcome(access, choice, is_admitted=is_admitted)
            if is_admitted or outcome.counts:  # anybody reacts to anything, and so do bots
                await self._report(outcome)
        elif is_admitted:
            await self._record_reaction(access.config)

    async def _choice(self) -> Choice | None:
        """Return the choice on a card that the reaction stands for; None if it stands for none."""
        context, incoming = self.context, self.incoming
        answers = getattr(self.source, "has_buttons", False) == "reactions"
        if not (answers and incoming.reaction and incoming.reply_to) or incoming.is_removed:
            return None
        place = ChatPlace(context.provider, context.account, incoming.chat, incoming.thread)
        if (id_ := await context.fleet.replies.card_at(place, incoming.reply_to)) is None:
            return None
        request = await context.fleet.requests.find(id_)
        card = Card(id_, tuple(request.offered) if request else ())
        verdict = card.verdict_of(incoming.reaction)
        return Choice(id_, verdict) if verdict else None

    async def _record_reaction(self, config: Config) -> None:
        fleet, message, emoji = self.context.fleet, self.message("-"), self.incoming.reaction
        if emoji is None or message.reply_to_id is None:
            return
        change: Literal["added", "removed"] | None = None
        if profile_of(self.context.provider).reactions == "differences":
            change = "removed" if self.incoming.is_removed else "added"
        place = message.provider, message.account, message.channel_id
        if origin := await fleet.replies.message_origin(*place, message.reply_to_id):
            keep_ms = config.record.history_ms
            await fleet.history.add_reaction(
                message,
                emoji,
                change=change,
                once=self.name,
                sid=origin.sid,
                keep_ms=keep_ms,
            )

    async def take_choice(self, access: Access, choice: Choice, *, is_admitted: bool) -> None:
        """Answer a request with the choice that was made on its card, and report the outcome."""
        await self._report(await self._outcome(access, choice, is_admitted=is_admitted))

    async def _outcome(self, access: Access, choice: Choice, *, is_admitted: bool) -> AnswerOutcome:
        """Answer a request. Return the outcome.

        A sender without access may answer only requests that `[requests] chat` sent to this chat.
        """
        context, incoming = self.context, self.incoming
        request = await context.fleet.requests.find(choice.request)
        if request is None:
            return AnswerOutcome(GONE)
        answer = verdict_of_keys(request, choice.verdict, words=choice.words)
        if answer is None:
            return AnswerOutcome(GONE)
        verdict, words = answer
        place = request.place
        here = context.provider, context.account, incoming.chat
        is_here = (place.provider, place.account, place.chat) == here
        if not is_admitted and not (is_here and request.chat):
            return AnswerOutcome(NOT_YOURS)
        if not is_here:
            return AnswerOutcome(ELSEWHERE)
        return await answer_request(
            context.fleet.requests,
            context.home,
            access.config,
            request,
            verdict,
            by=person(context.provider, incoming.sender),
            name=one_line(incoming.sender_name or incoming.sender, max_chars=60),
            is_owner=access.is_owner(incoming),
            words=words,
        )

    async def _report(self, outcome: AnswerOutcome) -> None:
        """Report the outcome to the person who chose; the request's own message also shows it."""
        if not isinstance(self.source, PressedAdapter):
            if not outcome.is_shown:
                # A person who reacts to the same card again is told nothing new.
                card, sender = self.incoming.reply_to or self.name, self.incoming.sender
                once = (f"{card} {sender}", "reacted")
                await self.reply(outcome.text, once=None if self.incoming.choice else once)
            return
        try:
            async with asyncio.timeout(PRESS_REPORT_S):
                await self.source.tell_pressed(
                    self.incoming, outcome.text, is_refused=not outcome.counts
                )
        except (RemoteClawError, TimeoutError) as error:
            log.info("the outcome of a button press was not reported: %s", error)
