"""The commands `/allow`, `/deny` and `/answer`, and messages that answer a request without one."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from remoteclaw.clock import now_ms
from remoteclaw.commands.answers import GONE, NUMBERS, answer_request, numbered
from remoteclaw.commands.call import Answer, Asked
from remoteclaw.fleet.request import Request, Verdict
from remoteclaw.messages import person

#: How long after a request has ended an answer without an ID may be meant for it, in milliseconds.
UNCLEAR_MS = 3000
WHICH = "Say which: {there}."
NEEDS_ADMIN = "To answer that over the gateway needs a token with the scope admin."
TAKEN_BACK = "What was allowed for this conversation is asked for again."


async def allow(asked: Asked) -> Answer:
    """Allow what an agent asks for: once, or with `always` for the conversation.

    With `edits`, a plan is approved, and changes of files with it.
    With `none`, what was allowed for it is asked for again.
    """
    if asked.rest.lower() == "none":
        return await _take_back(asked)
    id_, rest = _split(asked.rest)
    meant: dict[str, Verdict] = {"always": "conversation", "edits": "edits"}
    verdict = meant.get(rest.lower(), "once")
    return await _answer(asked, id_, verdict)


async def _take_back(asked: Asked) -> Answer:
    if not asked.is_owner:
        return Answer("That is for owners of this installation.")
    count = await asked.fleet.asks.forget_rules(asked.session.sid)
    return Answer(TAKEN_BACK if count else "Nothing is allowed for this conversation.")


async def deny(asked: Asked) -> Answer:
    """Deny what an agent asks for; what follows is the reason."""
    id_, rest = await _named(asked)
    return await _answer(asked, id_, "deny", rest)


async def in_words(asked: Asked) -> Answer:
    """Answer a question, or a plan: with words, or with numbers of its choices."""
    id_, rest = await _named(asked)
    request = await _request(asked, id_)
    if isinstance(request, Answer):
        return request
    verdict, words = numbered(request, rest) or ("words", rest)
    return await _tell(asked, request, verdict, words)


async def in_passing(text: str, asked: Asked) -> Answer | None:
    """Take a message as an answer: a reply to a request, or the number of a choice.

    None if it is none. A number alone counts where one request waits alone; one of another
    conversation, while no agent has written below it: the number may be meant for that. In a reply
    to anything else, it is for that.
    """
    is_number = NUMBERS.fullmatch(text)
    if not text or not (is_number or asked.reply_to):
        return None
    here = await _Here.of(asked)
    if here.again:
        assert here.again.answer, "it has answered that"
        return await _tell(asked, here.again, here.again.answer.verdict, here.again.answer.words)
    about = await _replied(asked)
    for request in here.waiting:
        if request.id == about or (request.shown and request.shown == asked.reply_to):
            takes_words = request.is_question or request.is_plan
            meant = numbered(request, text) or (("words", text) if takes_words else None)
            if meant:
                return await _tell(asked, request, *meant)
    if asked.reply_to or len(here.waiting) != 1:
        return None
    (request,) = here.waiting
    if is_number and (meant := numbered(request, text)):
        if here.is_over:
            return None
        if here.is_unclear:
            return Answer(here.which)
        return await _tell(asked, request, *meant)
    return None


@dataclass(frozen=True, slots=True)
class _Here:
    """The requests that an answer without an ID may be about."""

    waiting: Sequence[Request]
    elsewhere: Sequence[Request]
    """Those of the conversation that another chat shows."""
    again: Request | None
    """The one that the message has answered already: it is read twice after a crash."""
    is_unclear: bool
    """Whether another one has just ended, and not by this person, or the agent has said more since:
    they may mean that."""
    is_over: bool
    """Whether a newer turn has begun, or an agent has written below what is another conversation's:
    a number is for that."""

    @classmethod
    async def of(cls, asked: Asked) -> "_Here":
        own = await asked.fleet.asks.newest(asked.session.sid)
        others, newest = await asked.fleet.asks.shown_in(asked.session.place)
        found = [*(one for one in own if one.chat is None), *others]
        who, since_ms = person(asked.session.provider, asked.sender), now_ms() - UNCLEAR_MS
        ended = [one for one in found if one.ended_ms > since_ms and not one.is_waiting]
        waiting = [one for one in found if one.is_waiting]
        is_said = is_over = False
        if len(waiting) == 1 and waiting[0].chat:
            is_said = is_over = waiting[0].id not in newest
        elif len(waiting) == 1:
            is_said, is_over = await asked.fleet.asks.said_since(waiting[0])
        name = _message(asked)
        return cls(
            waiting,
            [one for one in own if one.chat and one.is_waiting],
            next((one for one in (*own, *others) if name and one.message == name), None),
            is_said or any(one.answer is None or one.answer.by != who for one in ended),
            is_over,
        )

    @property
    def which(self) -> str:
        there = ", ".join(f"`{one.id}`" for one in self.waiting or self.elsewhere)
        return WHICH.format(there=there)


async def _replied(asked: Asked) -> str:
    """Return the request whose message, or the file below it, is replied to."""
    at = asked.session.place
    found = asked.reply_to and await asked.fleet.replies.said(
        at.provider, at.account, at.chat, asked.reply_to
    )
    return (found.call or "").removeprefix("ask:") if found else ""


def _message(asked: Asked) -> str:
    """Return a name of the message, which its id is in its own chat alone."""
    return f"{asked.session.place} {asked.id}" if asked.id else ""


async def _answer(asked: Asked, id_: str, verdict: Verdict, words: str = "") -> Answer:
    request = await _request(asked, id_)
    if isinstance(request, Answer):
        return request
    return await _tell(asked, request, verdict, words)


async def _request(asked: Asked, id_: str) -> Request | Answer:
    """Return a request by its id, or the one that waits here; an answer if there is none."""
    if id_:
        return await asked.fleet.asks.find(id_) or Answer(GONE)
    here = await _Here.of(asked)
    if here.again:
        return here.again
    if len(here.waiting) == 1 and not here.is_unclear:
        return here.waiting[0]
    is_any = here.waiting or here.elsewhere
    return Answer(here.which if is_any else "Nothing waits for an answer here.")


async def _tell(asked: Asked, request: Request, verdict: Verdict, words: str) -> Answer:
    if not asked.can_answer:
        return Answer(NEEDS_ADMIN)
    told = await answer_request(
        asked.fleet,
        asked.home,
        asked.config,
        request,
        verdict,
        by=person(asked.session.provider, asked.sender),
        name=asked.sender_name or asked.sender,
        is_owner=asked.is_owner,
        words=words,
        message=_message(asked),
    )
    is_here = request.session == asked.session or request.chat == asked.session.place
    return Answer("" if is_here and told.is_shown else told.text)


def _split(rest: str) -> tuple[str, str]:
    """Return the id of a request, if the first word is one, and what follows."""
    first, _, more = rest.partition(" ")
    return (first, more.strip()) if re.fullmatch("[a-z2-9]{8}", first) else ("", rest)


async def _named(asked: Asked) -> tuple[str, str]:
    """Return the id of a request and the words behind it, of which the first may look like one."""
    id_, rest = _split(asked.rest)
    if id_.isalpha() and not await asked.fleet.asks.find(id_):
        return "", asked.rest
    return id_, rest
