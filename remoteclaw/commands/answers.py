"""Answers to what agents ask people for, through whichever door they come."""

import re
import time
from dataclasses import dataclass

from remoteclaw.clock import now_ms
from remoteclaw.commands.config_change import carry_out
from remoteclaw.config.approvals import OPERATOR, may_answer
from remoteclaw.config.home import Home
from remoteclaw.config.model import Config
from remoteclaw.fleet import Fleet
from remoteclaw.fleet.request import Answered, Request, State, Verdict
from remoteclaw.host.terminal import one_line

#: The numbers of choices, as a message.
NUMBERS = re.compile(r"[1-9](?:[\s,]+[1-9])*")
DONE = {
    "once": "Allowed once by {name} at {at}.",
    "conversation": "Allowed for this conversation by {name} at {at}.",
    "deny": "Denied by {name} at {at}.{why}",
    "words": "Answered by {name} at {at}:{why}",
}
#: The same of a plan.
DONE_WITH_PLAN = {
    "once": "Approved by {name} at {at}.",
    "edits": "Approved by {name} at {at}, with all changes of files in the workspace.",
    "deny": "Not approved by {name} at {at}.",
    "words": "To be changed, says {name} at {at}:{why}",
}
LEFT_OPEN = "Not answered, says {name} at {at}.{why}"
#: What the agent is told whose turn was over when the answer came.
GO_ON = (
    "The request {id} is answered: {name} has allowed what you asked for.\n\n{tool}: {what}\n\n"
    "Exactly that passes once, without another question, within an hour. Go on with it."
)
WOKEN = " The agent is told to go on."
#: The same for a question.
GO_ON_WITH = (
    "The question {id} is answered by {name}.\n\n{before}{what}\n→ {words}\n\n"
    "Go on with that; ask again only what is still open."
)
#: The same for a plan, and for one that is to be different.
GO_ON_WITH_PLAN = (
    "{name} has approved your plan (request {id}). Leave plan mode with it as it is, without "
    "another question, and go on. If plan mode is over already, just go on."
)
CHANGE_PLAN = (
    "{name} wants your plan (request {id}) to be different: {words}\n\nChange it in plan mode, and "
    "show it again."
)
IS_QUESTION = "That is a question: answer it with a number, or with `/answer {id} TEXT`."
IS_PLAN = "That is a plan: `/allow {id}` goes on with it, and `/deny {id} WHY` has it changed."
WITH_EDITS = " `/allow {id} edits` also allows changes of files."
IS_PERMISSION = "That asks for a permission: answer with `/allow {id}` or `/deny {id}`."
ENDED: dict[State, str] = {
    "void": "Nothing waits for that answer any more: the turn is over, or it was stopped.",
    "expired": "That answer comes too late: ask the agent again.",
}
IS_CHANGE = "That changes the configuration: answer with `/allow {id}` or `/deny {id}`."
FOR_OWNERS = "You may not answer that: owners of this installation decide about its configuration."
#: What is said of a change that is allowed, and that another process makes.
SOON = "{told} {host} makes the change in a moment."
NOT_YOURS = "You may not answer that: `[approvals] who` in the configuration says who does."
GONE = "There is no such request any more."
BEFORE = "It was answered before:"


@dataclass(frozen=True, slots=True)
class AnswerOutcome:
    """The outcome of an answer, for the person who gave it."""

    text: str
    counts: bool = False
    """Whether it is the answer that the request has."""
    is_shown: bool = False
    """Whether the message that showed the request says the same from now on."""


async def answer_request(
    fleet: Fleet,
    home: Home,
    config: Config,
    request: Request,
    verdict: Verdict,
    *,
    by: str,
    name: str,
    is_owner: bool,
    words: str = "",
    message: str = "",
) -> AnswerOutcome:
    """Answer a request on behalf of a person (CHANNEL:ID), and return what they are told.

    The first answer counts; every other one is told who has decided what, and when.
    `message` is the platform's id of the message that answers, if one does.
    """
    if request.is_plan and verdict == "deny" and words:
        verdict = "words"  # a late one wakes the agent: it has something to do
    if not may_answer(config, request.session, by, request.people, is_owner=is_owner):
        return AnswerOutcome(NOT_YOURS)
    if request.change and not (is_owner or by == OPERATOR):
        return AnswerOutcome(FOR_OWNERS)
    if unfit := _unfit(request, verdict, words):
        return AnswerOutcome(unfit.format(id=request.id))
    answered = Answered(verdict=verdict, by=by, name=name, at_ms=now_ms(), words=words)
    about = {"id": request.id, "name": name, "what": request.what, "words": words}
    go_on = GO_ON_WITH if request.is_question else GO_ON
    if request.is_plan:
        go_on = CHANGE_PLAN if verdict == "words" else GO_ON_WITH_PLAN
    going_on = go_on.format(**about, tool=request.tool, before=request.before)
    is_done, state, answer = await fleet.asks.answer(
        request,
        answered,
        words=_words(request, answered),
        going_on=going_on,
        message=message,
    )
    if request.change and answer:
        return await _of_change(fleet, home, request, _words(request, answer), is_first=is_done)
    if answer is None or state == "void":
        return AnswerOutcome(ENDED.get(state, GONE))
    told = _words(request, answer)
    if not is_done:
        return AnswerOutcome(f"{BEFORE} {told}")
    if state in ("granted", "used"):
        return AnswerOutcome(f"{told}{WOKEN}", counts=True)
    return AnswerOutcome(told, counts=True, is_shown=True)


def _unfit(request: Request, verdict: Verdict, words: str) -> str | None:
    """Return how a request is answered, if this is no answer to it."""
    if request.change and verdict not in ("once", "deny"):
        return IS_CHANGE
    if request.is_question and (
        verdict in ("once", "conversation") or not (words or verdict == "deny")
    ):
        return IS_QUESTION
    if request.is_plan:
        if not words if verdict == "words" else verdict not in dict(request.offered):
            return IS_PLAN + (WITH_EDITS if request.offers_edits else "")
    elif verdict == "edits" or (verdict == "words" and not request.is_question):
        return IS_PERMISSION
    return None


async def _of_change(
    fleet: Fleet, home: Home, request: Request, told: str, *, is_first: bool
) -> AnswerOutcome:
    """Carry out a change that is decided, and return what became of it."""
    now = await fleet.asks.find(request.id)
    if now and now.state == "answered":
        await carry_out(fleet, home, now, told)
        now = await fleet.asks.find(request.id)
    if now is None or now.change is None:
        return AnswerOutcome(GONE)
    became = now.became or SOON.format(told=told, host=now.change.host)
    if not is_first:
        return AnswerOutcome(f"{BEFORE} {became}")
    is_shown = bool(now.became) and now.deliver == "channel"
    return AnswerOutcome(became, counts=now.state != "void", is_shown=is_shown)


async def carry_out_changes(fleet: Fleet, home: Home) -> None:
    """Carry out changes that were decided elsewhere, or by a process that was killed."""
    for request in await fleet.asks.changes():
        if request.answer:
            await carry_out(fleet, home, request, _words(request, request.answer))


def chosen(request: Request, *keys: str, words: str = "") -> tuple[Verdict, str] | None:
    """Return the verdict and the words that choices of a card stand for, by their keys.

    `words` are a reason, or an answer of one's own under the key `words`. None if it has no such
    choice, or does not take several.
    """
    if keys == ("words",):
        return "words", words
    labels = dict(request.offered)
    if not labels.keys() >= set(keys):
        return None
    match keys:
        case ("once" | "conversation" | "edits" | "deny" as verdict,):
            return verdict, words
    if len(keys) > 1 and not (request.is_multiple and all(map(str.isdigit, keys))):
        return None
    return "words", ", ".join(labels[key] for key in dict.fromkeys(keys))


def numbered(request: Request, text: str) -> tuple[Verdict, str] | None:
    """Return what numbers of choices stand for; None if the text is something else."""
    if not NUMBERS.fullmatch(text):
        return None
    keys = dict(enumerate((key for key, _ in request.offered), 1))
    return chosen(request, *(keys.get(int(number), "") for number in re.findall("[1-9]", text)))


def _words(request: Request, answer: Answered) -> str:
    at = time.strftime("%H:%M", time.localtime(answer.at_ms / 1000))
    why = f" “{one_line(answer.words, most=300)}”" if answer.words else ""
    done = (DONE_WITH_PLAN if request.is_plan else DONE)[answer.verdict]
    if request.is_question and answer.verdict == "deny":
        done = LEFT_OPEN
    return done.format(name=answer.name, at=at, why=why)
