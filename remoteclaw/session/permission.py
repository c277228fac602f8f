"""Permissions: asks people about the actions that an agent may not take alone, and awaits answers.

A request is a record in Redis (`fleet.request`). A waiting turn keeps its worker for at most
`hold_s`, or until other sessions need the last worker. Then the turn ends, and a later answer wakes
the session.
"""

import asyncio
import hashlib
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import Any

import orjson

from remoteclaw.bridge.permission_text import place_shown
from remoteclaw.config.model import Config
from remoteclaw.config.requests import can_be_asked, permission_holders, request_settings
from remoteclaw.events import Intent, PermissionEvent, Question
from remoteclaw.fleet.blobs import SessionFiles
from remoteclaw.fleet.requests.card import (
    ShownCard,
    file_note,
    make_card,
    other_chat_note,
    with_file,
)
from remoteclaw.fleet.requests.request import Request, RequestAnswer, new_id
from remoteclaw.fleet.requests.turn_requests import TurnRequests
from remoteclaw.fleet.turns.lease import Lease
from remoteclaw.host.terminal import fenced
from remoteclaw.messages import Entry, Turn, people_of, tool_label
from remoteclaw.protocols import Decision

#: After this many denials of a tool in a turn, further requests for it are denied without asking.
MAX_DENIALS = 3
#: How soon a turn checks again whether its worker is needed, after another turn has released its
#: own worker instead, in seconds.
CHECK_S = 0.25
#: A tool name that is shown to people: an agent may use any text as a tool's title.
_NAME = re.compile(r"[A-Za-z0-9_.:/-]{1,80}")

DENIED = "{name} denied this.{why}"
DENIED_OFTEN = (
    "{tool} was denied {count} times in this turn: do not try it again. Say what you need it for."
)
TOO_MANY = "Too many requests wait for an answer: go on without this, and say so."
RETRACTED = "The agent has withdrawn this request."
WAITING = (
    "I wait for an answer to request `{ids}` and continue when it arrives. Until then, my worker "
    "is free for other sessions. `remoteclaw requests show {first}` shows the request."
)
NO_ANSWER = "{name} does not answer this question: {question}{why}"
PLAN_ON = (
    "{name} does not approve this plan yet: stay in plan mode, end your turn, and wait for what "
    "they write."
)
CHANGE_PLAN = (
    "{name} does not approve this plan yet. Stay in plan mode, change the plan, and show it again. "
    "They say: {why}"
)
EARLIER = "These are answered:\n\n{before}"
#: How to answer a question, shown below it.
HOW_TO_ANSWER = "Reply to this message in your own words, or with `/answer {id} TEXT`."
#: How to have a plan changed, shown below it.
HOW_TO_CHANGE = "To have it changed, reply to this message with what should be different."
SEVERAL = " Several can be chosen: write their numbers, `1, 2`."


class Permissions:
    """The requests of one attempt at a turn."""

    def __init__(
        self,
        lease: Lease,
        turn: Turn,
        config: Config,
        files: SessionFiles,
        *,
        abort: asyncio.Event,
        joined: Callable[[], Sequence[Entry]],
        explains_denial: Callable[[], bool],
    ) -> None:
        """Setting `abort` stops the turn. `joined` returns the messages that have joined it.

        `explains_denial` returns whether the agent that works receives the reason together with a
        denial.
        """
        self._explains_denial = explains_denial
        self._lease = lease
        self._turn = turn
        self._joined = joined
        self._config = config
        self._files = files
        self._settings = request_settings(config, lease.session)
        self._abort = abort
        self._requests = TurnRequests(lease, turn.id)
        self._wake_ups: set[asyncio.Event] = set()
        """The events that wake the tasks which wait for an answer."""
        self._denied: Counter[str] = Counter()
        self._open: dict[str, str] = {}
        """The ids of the requests that the agent waits for, by the agent's own ids."""
        self._open_texts: dict[str, str] = {}
        """The texts of these requests, by the agent's own ids."""
        self._asking = asyncio.Lock()
        self.lapsed: tuple[str, ...] = ()
        """The ids of the open requests when the turn was ended to release its worker."""

    @property
    def can_ask(self) -> bool:
        """Whether people can be asked, in the chat that the turn replies to."""
        is_in_chat = self._turn.entries[-1].deliver == "channel"
        return is_in_chat and can_be_asked(self._config, self._lease.session, self._people)

    @property
    def _people(self) -> Sequence[str]:
        """The people for whom the turn works."""
        return people_of((*self._turn.entries, *self._joined()))

    @property
    def waiting_notice(self) -> str:
        """The notice that the turn has ended and waits for an answer to the `lapsed` requests."""
        return WAITING.format(ids="`, `".join(self.lapsed), first=self.lapsed[0])

    @property
    def open_requests(self) -> tuple[str, ...]:
        """The texts of the open requests."""
        return tuple(self._open_texts.values())

    def check_answers(self) -> None:
        """Have every waiting task check whether its request was answered."""
        for wake_up in self._wake_ups:
            wake_up.set()

    async def decide(self, event: PermissionEvent) -> Decision:
        """Ask people and return their decision.

        If the turn is ended to release its worker, this waits until it is cancelled.
        """
        tool = tool_of(event)
        if self._denied[tool] >= MAX_DENIALS:
            return Decision("deny", DENIED_OFTEN.format(tool=tool, count=MAX_DENIALS))
        if not event.questions:
            request = self._request(event, event.description)
            request = await with_file(request, event.full_description, self._files.stage)
            what = event.input if event.plan is None else event.plan
            digest = _digest(tool, what, *_place_of(event))
            answer = await self._answer_to(event, request, digest=digest, rule=rule_of(event))
            if isinstance(answer, Decision):
                return answer
            if request.is_plan:
                return self._plan_decision(tool, answer)
            return self._decision(tool, answer)
        answers: list[str] = []
        before = ""
        # Each question is a request of its own, so an answer is kept while later ones wait.
        for question in event.questions:
            text = _question_text(question)
            request = self._request(event, text, question=question, before=before)
            digest = _digest(tool, asdict(question))
            answer = await self._answer_to(event, request, digest=digest, rule=digest)
            if isinstance(answer, Decision):
                return answer
            if answer.verdict != "words":
                return self._question_denial(tool, question, answer, before)
            answers.append(answer.words)
            before += f"{question.text}\n→ {answer.words}\n\n"
        return Decision("allow", answers=tuple(answers))

    async def retract(self, event_id: str) -> None:
        """Close the request that the agent has withdrawn; `event_id` is the agent's own id."""
        async with self._asking:  # the request may be on its way to Redis
            name = self._open.get(event_id)
        if name:
            await self._requests.retract(name, RETRACTED)

    def _request(
        self,
        event: PermissionEvent,
        text: str,
        *,
        question: Question | None = None,
        before: str = "",
    ) -> Request:
        return Request(
            id=new_id(),
            session=self._lease.session,
            turn=self._turn.id,
            tool=tool_label(tool_of(event)),  # what was allowed is compared by the whole name
            what=text,
            where=place_shown(event.place),
            incomplete=event.incomplete,
            deliver=self._turn.entries[-1].deliver,
            here=self._turn.place,
            chat=self._settings.chat,
            people=self._people,
            is_question=question is not None,
            choices=[label for label, _ in question.choices] if question else (),
            is_multiple=question is not None and question.is_multiple,
            before=before,
            is_plan=event.plan is not None,
            offers_edits=event.plan is not None and event.awaits_edits,
        )

    async def _answer_to(
        self, event: PermissionEvent, request: Request, *, digest: str, rule: str
    ) -> RequestAnswer | Decision:
        """Ask and wait for the answer; return a decision if no answer is needed or possible."""
        while True:
            async with self._asking:
                is_edit = event.awaits_edits and not request.is_plan
                verdict, name = await self._ask(request, digest=digest, rule=rule, is_edit=is_edit)
                if verdict == "allowed":
                    return Decision("allow")
                if verdict == "full":
                    return Decision("deny", TOO_MANY)
                self._open[event.id] = name
                self._open_texts[event.id] = f"{request.tool}: {request.what}"
            try:
                if answer := await self._wait_for_answer(name, is_question=request.is_question):
                    return answer
            finally:
                self._open.pop(event.id, None)
                self._open_texts.pop(event.id, None)
            request = replace(request, id=new_id())

    async def _ask(
        self, request: Request, *, digest: str, rule: str, is_edit: bool
    ) -> tuple[str, str]:
        """Store the request; return the state and id that `TurnRequests.ask()` returns."""
        is_again = False
        while True:
            verdict, name = await self._requests.ask(
                request,
                holders=permission_holders(self._config, request.session, request.people),
                digest=digest,
                rule=rule,
                is_edit=is_edit,
                is_again=is_again,
                hold_ms=self._settings.hold_s * 1000,
                keep_ms=self._config.record.keep_ms,
                shown=self._card(request, is_again=is_again),
            )
            if verdict != "again":
                return verdict, name
            is_again = not is_again

    def _card(self, request: Request, *, is_again: bool) -> ShownCard:
        how = ""
        if request.is_question:
            several = SEVERAL if request.is_multiple else ""
            how = f"\n\n{HOW_TO_ANSWER.format(id=request.id)}{several}"
        if request.is_plan:
            how = f"\n\n{HOW_TO_CHANGE.format(id=request.id)}"
        return make_card(
            request,
            attempt=self._turn.attempt,
            text=request_text(
                request, about=other_chat_note(request, self._turn.entries), is_again=is_again
            ),
            how=how,
        )

    async def _wait_for_answer(self, name: str, *, is_question: bool) -> RequestAnswer | None:
        """Wait for the answer as long as the turn may wait; None if Redis has lost the request."""
        is_heard = is_question or self._explains_denial()
        wake_up = asyncio.Event()
        self._wake_ups.add(wake_up)
        needed = asyncio.create_task(self._lease.wait_until_needed())
        try:
            async with asyncio.timeout(self._settings.hold_s) as hold:
                while True:
                    wake_up.clear()
                    state, answer = await self._requests.take(name, is_heard=is_heard)
                    if answer and state == "given":
                        return answer
                    if state == "gone":
                        return None
                    if state == "lapsed":
                        break
                    waiting = asyncio.create_task(wake_up.wait())
                    try:
                        await asyncio.wait((waiting, needed), return_when="FIRST_COMPLETED")
                    finally:
                        waiting.cancel()
                    if needed.done():
                        needed.result()
                        if await self._requests.lapse(is_needed=True):
                            break
                        await asyncio.sleep(CHECK_S)
                        needed = asyncio.create_task(self._lease.wait_until_needed())
        except TimeoutError:
            if not hold.expired():
                raise
            await self._requests.lapse(is_needed=False)
            state, answer = await self._requests.take(name, is_heard=is_heard)
            if answer and state == "given":  # it arrived at the last moment
                return answer
        finally:
            self._wake_ups.discard(wake_up)
            needed.cancel()
        self.lapsed = tuple(dict.fromkeys((*self.lapsed, name, *self._open.values())))
        self._abort.set()
        return await asyncio.Future()  # the end of the turn cancels it

    def _decision(self, tool: str, answer: RequestAnswer) -> Decision:
        if answer.verdict != "deny":
            return Decision("allow")
        self._denied[tool] += 1
        return denial_by(answer)

    def _plan_decision(self, tool: str, answer: RequestAnswer) -> Decision:
        """Return the decision about a plan: go on with it, change it, or end the turn."""
        name = answer.name or "A person"
        match answer.verdict:
            case "words":
                return Decision("deny", CHANGE_PLAN.format(name=name, why=answer.words))
            case "deny":
                self._denied[tool] += 1
                return Decision("deny", PLAN_ON.format(name=name))
        return Decision("allow")

    def _question_denial(
        self, tool: str, question: Question, answer: RequestAnswer, before: str
    ) -> Decision:
        """Return the denial for a question that a person has declined to answer.

        It repeats the answers to the questions `before` it.
        """
        self._denied[tool] += 1
        name = answer.name or "A person"
        why = f"\n\nThey say: {answer.words}" if answer.words else ""
        declined = NO_ANSWER.format(name=name, question=question.text, why=why)
        earlier = EARLIER.format(before=before.strip()) if before else ""
        return Decision("deny", f"{declined}\n\n{earlier}".strip())


def denial_by(answer: RequestAnswer) -> Decision:
    """Return a person's denial for the agent, with their reason."""
    why = f" They say: {answer.words}" if answer.words else ""
    return Decision("deny", DENIED.format(name=answer.name or "A person", why=why))


def request_text(request: Request, *, about: str, is_again: bool) -> str:
    """Return the Markdown text of a request: the agent, and its action or question, verbatim.

    `about` names the conversation if it is another chat. `is_again` adds that an earlier attempt
    may have done it already.
    """
    again = (
        "\n\nAn earlier try at this was cut off: it may have been done already." if is_again else ""
    )
    wants = f"asks to use {request.tool} in `{request.where}`"
    if request.is_question:
        wants = "asks"
    elif request.is_plan:
        wants = "asks to go on with this plan"
    block = fenced(request.what) + file_note(request)
    return f"**{request.session.agent}**{about} {wants}:\n\n{block}{again}"


def _question_text(question: Question) -> str:
    """Return a question with its numbered choices."""
    about = f"{question.header}: " if question.header else ""
    choices = [
        f"{number}. {label}" + (f" – {meaning}" if meaning else "")
        for number, (label, meaning) in enumerate(question.choices, 1)
    ]
    return "\n".join([f"{about}{question.text}", *choices])


def tool_of(event: PermissionEvent) -> str:
    """Return the name of a tool; `a tool` for one that could hide something."""
    name = event.intent.tool if event.intent else event.tool_name
    return name if _NAME.fullmatch(name) else "a tool"


def _digest(*parts: Any) -> str:
    return hashlib.sha256(orjson.dumps(parts, option=orjson.OPT_SORT_KEYS)).hexdigest()[:32]


def _place_of(event: PermissionEvent) -> tuple[str, ...]:
    """Return where an action happens; never the same for two commands in unknown directories."""
    is_unknown = event.intent is not None and event.intent.cwd is None
    # The agent's own ids begin again with each of its processes.
    return (event.place, new_id()) if is_unknown else (event.place,)


def rule_of(event: PermissionEvent) -> str:
    """Return a hash of what an answer "for the conversation" allows, the same for every CLI."""
    match event.intent:
        case Intent(tool="Bash", command=command) if command:
            is_outside = bool(event.input.get("dangerouslyDisableSandbox"))  # claude
            return _digest("Bash", command.strip(), *_place_of(event), is_outside)
        case Intent(tool="Edit" | "Read") as intent if intent.paths and all(intent.paths):
            return _digest(intent.tool, sorted(intent.paths), event.workspace)
        case Intent(url=url) if url:
            return _digest("WebFetch", url)
    return _digest(event.tool_name, event.input, event.workspace)
