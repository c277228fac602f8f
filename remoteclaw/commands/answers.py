"""Answers people's requests: checks who may answer, records the answer, and tells the agent."""

import re
import time
from dataclasses import dataclass

from remoteclaw.bridge.visible import without_marks
from remoteclaw.clock import now_ms
from remoteclaw.commands.config_change import carry_out
from remoteclaw.config.home import Home
from remoteclaw.config.model import Config
from remoteclaw.config.requests import OPERATOR, may_answer, new_holders, request_settings
from remoteclaw.fleet.requests.request import Request, RequestAnswer, State, Verdict
from remoteclaw.fleet.requests.requests import Requests
from remoteclaw.host.terminal import one_line

#: A message that only has numbers of choices.
NUMBERS = re.compile(r"[1-9](?:[\s,]+[1-9])*")
#: Reports of an answer by its verdict, for people.
DONE = {
    "once": "Allowed once by {name} at {at}.",
    "conversation": "Allowed for this conversation by {name} at {at}.",
    "deny": "Denied by {name} at {at}.{why}",
    "words": "Answered by {name} at {at}:{why}",
}
#: The same for a plan.
DONE_WITH_PLAN = {
    "once": "Approved by {name} at {at}.",
    "edits": "Approved by {name} at {at}, with all changes of files in the workspace.",
    "deny": "Not approved by {name} at {at}.",
    "words": "Changes requested by {name} at {at}:{why}",
}
#: The same for a budget.
DONE_WITH_BUDGET = {
    "once": "Half as much again allowed by {name} at {at}. What waited begins.",
    "conversation": "Limit lifted by {name} at {at}. What waited begins.",
    "deny": "Stopped by {name} at {at}: messages are refused now.{why}",
}
LEFT_OPEN = "Not answered, says {name} at {at}.{why}"
#: The message to the agent if its turn was over when a permission was given.
GO_ON = (
    "The request {id} is answered: {name} has allowed what you asked for.\n\n{tool}: {what}\n\n"
    "You may do exactly that once within an hour without asking again. Go on with it."
)
WOKEN = " The agent continues."
#: The same for the answer to a question.
GO_ON_WITH = (
    "The question {id} is answered by {name}.\n\n{before}{what}\n→ {words}\n\n"
    "Go on with that; ask again only what is still open."
)
#: The same for a plan that is approved, and for one that is to be changed.
GO_ON_WITH_PLAN = (
    "{name} has approved your plan (request {id}). Leave plan mode with it as it is, without "
    "another question, and go on. If plan mode is over already, just go on."
)
CHANGE_PLAN = (
    "{name} wants your plan (request {id}) to be different: {words}\n\nChange it in plan mode, and "
    "show it again."
)
IS_QUESTION = "That is a question: answer it with a number, or with `/answer {id} TEXT`."
IS_PLAN = "That is a plan: approve it with `/allow {id}`, or have it changed with `/deny {id} WHY`."
WITH_EDITS = " `/allow {id} edits` also allows changes of files."
IS_PERMISSION = "That asks for a permission: answer with `/allow {id}` or `/deny {id}`."
ONLY_DENY = "Deny it with `/deny {id} WHY`."
ENDED: dict[State, str] = {
    "void": "Nothing waits for that answer any more: the turn is over, or it was stopped.",
    "expired": "That answer comes too late: ask the agent again.",
}
IS_CHANGE = "That changes {what}: answer with `/allow {id}` or `/deny {id}`."
FOR_OWNERS = (
    "You may not answer that: owners of this installation decide about its configuration and its "
    "budgets."
)
IS_BUDGET = (
    "That is about a budget: answer with `/allow {id}`, `/allow {id} always` or `/deny {id}`."
)
#: The report of an allowed configuration change that another host has to make.
SOON = "{answer} {host} makes the change in a moment."
NOT_YOURS = "You may not answer that: `[requests] who` in the configuration says who may."
NOT_ALONE = (
    "You may not answer that: the turn also answers other people, so an owner decides for all of "
    "you. Send your message again to be asked alone."
)
GONE = "There is no such request any more."
ANSWERED_BEFORE = "It was answered before:"


@dataclass(frozen=True, slots=True)
class AnswerOutcome:
    """The outcome of an attempt to answer a request."""

    text: str
    """A report for the person who answered."""
    counts: bool = False
    """Whether this answer is the one that the request now has."""
    is_shown: bool = False
    """Whether the message that showed the request is updated with the same report."""


async def answer_request(
    requests: Requests,
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
    """Answer `request` on behalf of the person `by` (CHANNEL:ID), and return the outcome.

    The first answer counts. A later one gets a report of who decided what, and when. `message`
    names the chat message that is the answer; it is empty if the answer was not a message.
    """
    if request.is_plan and verdict == "deny" and words:
        verdict = "words"  # the agent has to change the plan, so even a late answer starts a turn
    config = await requests.chats.config_of(config, request.session)
    if not may_answer(config, request.session, by, request.people, is_owner=is_owner):
        is_one_of_many = request_settings(config, request.session).who == "sender" and (
            by in request.people
        )
        return AnswerOutcome(NOT_ALONE if is_one_of_many else NOT_YOURS)
    if (request.change or request.budget) and not (is_owner or by == OPERATOR):
        return AnswerOutcome(FOR_OWNERS)
    if instructions := _instructions(request, verdict, words):
        return AnswerOutcome(instructions.format(id=request.id))
    answered = RequestAnswer(verdict=verdict, by=by, name=name, at_ms=now_ms(), words=words)
    what = without_marks(request.what)
    about = {"id": request.id, "name": name, "what": what, "words": words}
    go_on = GO_ON_WITH if request.is_question else GO_ON
    if request.is_plan:
        go_on = CHANGE_PLAN if verdict == "words" else GO_ON_WITH_PLAN
    message_to_agent = go_on.format(**about, tool=request.tool, before=request.before)
    is_done, state, answer = await requests.answer(
        request,
        answered,
        holders=new_holders(request.session, request.people, is_owner=is_owner or by == OPERATOR),
        closing_text=_report(request, answered),
        entry_text=message_to_agent,
        message_id=message,
    )
    if request.change and answer:
        return await _apply_change(
            requests, home, request, _report(request, answer), is_first=is_done
        )
    if answer is None or state == "void":
        return AnswerOutcome(ENDED.get(state, GONE))
    report = _report(request, answer)
    if not is_done:
        return AnswerOutcome(f"{ANSWERED_BEFORE} {report}")
    if state in ("granted", "used") and not request.budget:
        return AnswerOutcome(f"{report}{WOKEN}", counts=True)
    return AnswerOutcome(report, counts=True, is_shown=True)


def _instructions(request: Request, verdict: Verdict, words: str) -> str | None:
    """Return how to answer a request of this kind, if `verdict` and `words` do not answer it."""
    if request.incomplete and verdict not in ("deny", "words"):
        return f"{request.incomplete} {ONLY_DENY}"
    if request.change and verdict not in ("once", "deny"):
        what = "the agent's memory" if request.change.memory else "the configuration"
        return IS_CHANGE.format(what=what, id=request.id)
    if request.budget:
        return None if verdict in dict(request.offered) else IS_BUDGET
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


async def _apply_change(
    requests: Requests, home: Home, request: Request, answer: str, *, is_first: bool
) -> AnswerOutcome:
    """Carry out a configuration change that was answered, and return the outcome."""
    current = await requests.find(request.id)
    if current and current.state == "answered":
        await carry_out(requests, home, current, answer)
        current = await requests.find(request.id)
    if current is None or current.change is None:
        return AnswerOutcome(GONE)
    result = current.became or SOON.format(answer=answer, host=current.change.host)
    if not is_first:
        return AnswerOutcome(f"{ANSWERED_BEFORE} {result}")
    is_shown = bool(current.became) and current.deliver == "channel"
    return AnswerOutcome(result, counts=current.state != "void", is_shown=is_shown)


async def carry_out_changes(requests: Requests, home: Home) -> None:
    """Carry out changes that were answered on another host, or by a process that was killed."""
    for request in await requests.answered_changes():
        if request.answer:
            await carry_out(requests, home, request, _report(request, request.answer))


def verdict_of_keys(request: Request, *keys: str, words: str = "") -> tuple[Verdict, str] | None:
    """Return the verdict and the text that the choices `keys` of a card stand for.

    `words` are the reason of a denial, or free text with the key `words`. Return None if the card
    does not offer a key, or does not allow several.
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


def verdict_of_numbers(request: Request, text: str) -> tuple[Verdict, str] | None:
    """Return the verdict and the text for numbers of choices; None if `text` has other content."""
    if not NUMBERS.fullmatch(text):
        return None
    keys = dict(enumerate((key for key, _ in request.offered), 1))
    numbers = map(int, re.findall("[1-9]", text))
    return verdict_of_keys(request, *(keys.get(number, "") for number in numbers))


def _report(request: Request, answer: RequestAnswer) -> str:
    """Return a sentence that says who answered what, and when."""
    at = time.strftime("%H:%M", time.localtime(answer.at_ms / 1000))
    why = f" “{one_line(answer.words, max_chars=300)}”" if answer.words else ""
    by_kind = {"plan": DONE_WITH_PLAN, "budget": DONE_WITH_BUDGET}
    done = by_kind.get(request.kind, DONE)[answer.verdict]
    if request.is_question and answer.verdict == "deny":
        done = LEFT_OPEN
    return done.format(name=answer.name, at=at, why=why)
