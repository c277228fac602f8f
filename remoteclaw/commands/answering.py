"""Answers to what agents ask people for: by /allow and /deny in chats, and by every other door."""

import re
import time

from remoteclaw.clock import now_ms
from remoteclaw.commands.asked import Answer, Asked
from remoteclaw.config.approvals import OPERATOR, may_answer
from remoteclaw.config.model import Config
from remoteclaw.fleet import Fleet
from remoteclaw.fleet.asks import Answered, Request, State, Verdict
from remoteclaw.messages import person

__all__ = [
    "GONE",
    "TAKEN_BACK",
    "VERDICTS",
    "allow",
    "answer_as_operator",
    "answer_request",
    "by_number",
    "deny",
    "is_refusal",
    "is_shown",
]

#: What a number in a plain chat means, in the order of the card's choices.
VERDICTS: tuple[Verdict, ...] = ("once", "conversation", "deny")
DONE = {
    "once": "Allowed once by {name} at {at}.",
    "conversation": "Allowed for this conversation by {name} at {at}.",
    "deny": "Denied by {name} at {at}.{why}",
    "words": "Answered by {name} at {at}: {why}",
}
#: What the agent is told whose turn was over when the answer came.
GO_ON = (
    "The request {id} is answered: {name} has allowed what you asked for.\n\n{tool}: {what}\n\n"
    "Exactly that passes once, without another question, within an hour. Go on with it."
)
WOKEN = " The agent is told to go on."
#: How answers begin that the message which showed the request says as well.
SAID_HERE = ("Allowed", "Denied", "Answered")
ENDED: dict[State, str] = {
    "void": "Nothing waits for that answer any more: the turn is over, or it was stopped.",
    "expired": "That answer comes too late: ask the agent again.",
}
NOT_YOURS = "You may not answer that: `[approvals] who` in the configuration says who does."
TAKEN_BACK = "What was allowed for this conversation is asked for again."
GONE = "There is no such request any more."
BEFORE = "It was answered before:"


async def answer_request(
    fleet: Fleet,
    config: Config,
    request: Request,
    verdict: Verdict,
    *,
    by: str,
    name: str,
    is_owner: bool,
    words: str = "",
) -> str:
    """Answer a request on behalf of somebody (CHANNEL:ID), and return what they are told.

    The first answer counts; every other one is told who has decided what, and when.
    """
    if not may_answer(config, by, request.people, is_owner=is_owner):
        return NOT_YOURS
    answered = Answered(verdict=verdict, by=by, name=name, at_ms=now_ms(), words=words)
    going_on = GO_ON.format(id=request.id, name=name, tool=request.tool, what=request.what)
    is_done, state, answer = await fleet.asks.answer(
        request, answered, words=_words(answered), going_on=going_on
    )
    if answer is None or state == "void":
        return ENDED.get(state, GONE)
    told = _words(answer)
    if not is_done:
        return f"{BEFORE} {told}"
    if state == "granted":
        return f"{told}{WOKEN}"
    return told


def is_refusal(told: str) -> bool:
    """Whether an answer didn't count, by what `answer_request()` has returned for it."""
    return told in (NOT_YOURS, GONE, *ENDED.values()) or told.startswith(BEFORE)


def is_shown(told: str) -> bool:
    """Whether the message that showed the request says what `answer_request()` has returned."""
    return told.startswith(SAID_HERE) and not told.endswith(WOKEN)


async def answer_as_operator(
    fleet: Fleet, config: Config, id_: str, verdict: Verdict, words: str
) -> tuple[bool, str]:
    """Answer a request on behalf of who runs the installation; return whether it counts, and what
    they are told.

    Raises `NotFound`.
    """
    told = await answer_request(
        fleet,
        config,
        await fleet.asks.named(id_),
        verdict,
        by=OPERATOR,
        name="the operator",
        is_owner=True,
        words=words,
    )
    return not is_refusal(told), told


async def allow(asked: Asked) -> Answer:
    """Allow what an agent asks for: once, or with `always` for the conversation.

    With `none`, what was allowed for it is asked for again.
    """
    if asked.rest.lower() == "none":
        return await _take_back(asked)
    id_, rest = _split(asked.rest)
    verdict: Verdict = "conversation" if rest.lower() == "always" else "once"
    return await _answer(asked, id_, verdict)


async def _take_back(asked: Asked) -> Answer:
    if not asked.is_owner:
        return Answer("That is for owners of this installation.")
    count = await asked.fleet.asks.forget_rules(asked.session.sid)
    return Answer(TAKEN_BACK if count else "Nothing is allowed for this conversation.")


async def deny(asked: Asked) -> Answer:
    """Deny what an agent asks for; what follows is the reason."""
    id_, rest = _split(asked.rest)
    return await _answer(asked, id_, "deny", rest)


async def by_number(number: str, asked: Asked) -> Answer | None:
    """Answer the one request of a conversation by the number of a choice; None if none waits."""
    waiting = await asked.fleet.asks.of_session(asked.session.sid)
    if len(waiting) != 1:
        return None
    return await _answer(asked, waiting[0].id, VERDICTS[int(number) - 1])


async def _answer(asked: Asked, id_: str, verdict: Verdict, words: str = "") -> Answer:
    """Answer a request by its id, or the one of this conversation that waits."""
    asks = asked.fleet.asks
    if not id_:
        waiting = await asks.of_session(asked.session.sid)
        if len(waiting) != 1:
            there = ", ".join(f"`{one.id}`" for one in waiting)
            return Answer(f"Say which: {there}." if there else "Nothing waits for an answer here.")
        request: Request | None = waiting[0]
    else:
        request = await asks.find(id_)
    if request is None:
        return Answer(GONE)
    by = person(asked.session.provider, asked.sender)
    name = asked.sender_name or asked.sender
    told = await answer_request(
        asked.fleet,
        asked.config,
        request,
        verdict,
        by=by,
        name=name,
        is_owner=asked.is_owner,
        words=words,
    )
    is_here = request.session == asked.session
    return Answer("" if is_here and is_shown(told) else told)


def _split(rest: str) -> tuple[str, str]:
    """Return the id of a request, if the first word is one, and what follows."""
    first, _, more = rest.partition(" ")
    return (first, more.strip()) if re.fullmatch("[a-z2-9]{8}", first) else ("", rest)


def _words(answer: Answered) -> str:
    name = "the operator" if answer.by == OPERATOR else answer.name
    at = time.strftime("%H:%M", time.localtime(answer.at_ms / 1000))
    why = f" “{answer.words}”" if answer.words else ""
    return DONE[answer.verdict].format(name=name, at=at, why=why)
