"""The choice of a person on the card of a request, and reactions to an agent's messages."""

import asyncio
import logging
from dataclasses import dataclass

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
from remoteclaw.messages import person
from remoteclaw.protocols import Choice, PressedAdapter

#: Time limit for confirming a button press to the person, in seconds.
PRESS_REPORT_S = 5.0
ELSEWHERE = "That request belongs to another chat: answer it there."

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Response(Report):
    """A report that a person has chosen an answer, or has reacted to a message."""

    async def record_reaction(self, config: Config) -> None:
        """Record a reaction to an agent's message; the session's next message reports it."""
        fleet, message, emoji = self.context.fleet, self.message("-"), self.incoming.reaction
        if emoji is None or message.reply_to_id is None:
            return
        place = message.provider, message.account, message.channel_id
        if origin := await fleet.replies.message_origin(*place, message.reply_to_id):
            keep_ms = config.record.history_ms
            await fleet.history.add_reaction(
                message, emoji, once=self.name, sid=origin.sid, keep_ms=keep_ms
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
                await self.reply(outcome.text)
            return
        try:
            async with asyncio.timeout(PRESS_REPORT_S):
                await self.source.tell_pressed(
                    self.incoming, outcome.text, is_refused=not outcome.counts
                )
        except (RemoteClawError, TimeoutError) as error:
            log.info("the outcome of a button press was not reported: %s", error)
