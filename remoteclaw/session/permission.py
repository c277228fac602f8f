"""Permissions: asks people for what an agent may not do by itself, and waits for their answer.

The request is a record (`fleet.request`). While the turn waits it holds its worker, for `hold_s` at
most, and not the last one that other sessions wait for: then the turn ends, and a later answer
wakes the session.
"""

import asyncio
import hashlib
import re
from collections import Counter
from dataclasses import asdict, replace
from typing import Any

import orjson

from remoteclaw.config.approvals import approvals_of, can_be_asked
from remoteclaw.config.model import Config
from remoteclaw.errors import RedisRefused
from remoteclaw.events import Intent, PermissionEvent, Question
from remoteclaw.fleet.blobs import SessionFiles
from remoteclaw.fleet.lease import Lease
from remoteclaw.fleet.request import Answered, Request, new_id
from remoteclaw.fleet.request_card import Shown, of_other_chat, shown_by
from remoteclaw.fleet.turn_asks import TurnAsks
from remoteclaw.host.terminal import fenced
from remoteclaw.messages import Turn, people_of
from remoteclaw.protocols import Decision

#: After so many denials of a tool in a turn, nobody is asked for it again.
MAX_DENIALS = 3
#: How often a turn looks whether its worker is needed while another one has let its own go, in
#: seconds.
LOOK_S = 0.25
#: The names of tools that are shown: a title may be whatever an agent has written.
_NAME = re.compile(r"[A-Za-z0-9_.:/-]{1,80}")

DENIED = "{name} denied this.{why}"
DENIED_OFTEN = (
    "{tool} was denied {count} times in this turn: do not try it again. Say what you need it for."
)
TOO_MANY = "Too many requests wait for an answer: go on without this, and say so."
RETRACTED = "The agent does not want it any more."
WAITING = (
    "I wait for an answer to request `{ids}`, and go on when it comes: until then, others have my "
    "worker. `remoteclaw asks show {first}` shows what it is about."
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
#: How a question is answered, under what it asks.
HOW = "Reply to this message in your own words, or with `/answer {id} TEXT`."
#: How a plan is changed, under it.
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
        explains_denial: bool,
    ) -> None:
        """`abort` stops the turn.

        An agent that `explains_denial` hears why it was denied a tool.
        """
        self._explains_denial = explains_denial
        self._lease = lease
        self._turn = turn
        self._config = config
        self._files = files
        self._approvals = approvals_of(config, lease.session)
        self._abort = abort
        self._asks = TurnAsks(lease, turn.id)
        self._news: set[asyncio.Event] = set()
        self._denied: Counter[str] = Counter()
        self._open: dict[str, str] = {}
        """The requests that the agent waits for: their ids, by the agent's own."""
        self._wanted: dict[str, str] = {}
        """What those requests are for, by the agent's own ids."""
        self._asking = asyncio.Lock()
        self.lapsed: tuple[str, ...] = ()
        """The requests for which the turn was ended, because nobody has answered."""

    @property
    def can_ask(self) -> bool:
        """Whether there is somebody to ask, and a chat to do it in."""
        is_in_chat = self._turn.entries[-1].deliver == "channel"
        return is_in_chat and can_be_asked(self._config, self._lease.session)

    @property
    def words(self) -> str:
        """What the person is told whom the turn waits for."""
        return WAITING.format(ids="`, `".join(self.lapsed), first=self.lapsed[0])

    @property
    def open_requests(self) -> tuple[str, ...]:
        """What people are asked for now, in words."""
        return tuple(self._wanted.values())

    def look(self) -> None:
        """Check each request: there may be an answer."""
        for news in self._news:
            news.set()

    async def decide(self, event: PermissionEvent) -> Decision:
        """Ask a person, and return their decision; never, once the turn ends without an answer."""
        tool = tool_of(event)
        if self._denied[tool] >= MAX_DENIALS:
            return Decision("deny", DENIED_OFTEN.format(tool=tool, count=MAX_DENIALS))
        if not event.questions:
            request = await self._with_file(self._request(event, event.shown), event.whole)
            what = event.input if event.plan is None else event.plan
            digest = _digest(tool, what, event.where)
            told = await self._told(event, request, digest=digest, rule=rule_of(event))
            if isinstance(told, Decision):
                return told
            return self._on_plan(tool, told) if request.is_plan else self._decision(tool, told)
        answers: list[str] = []
        before = ""
        for question in event.questions:  # each is a record: an answer outlives a later one's wait
            request = self._request(event, _asked(question), question=question, before=before)
            digest = _digest(tool, asdict(question))
            told = await self._told(event, request, digest=digest, rule=digest)
            if isinstance(told, Decision):
                return told
            if told.verdict != "words":
                return self._no_answer(tool, question, told, before)
            answers.append(told.words)
            before += f"{question.text}\n→ {told.words}\n\n"
        return Decision("allow", answers=tuple(answers))

    async def retract(self, event_id: str) -> None:
        """Close what the agent does not wait for any more."""
        async with self._asking:  # it may be on its way to Redis
            name = self._open.get(event_id)
        if name:
            await self._asks.retract(name, RETRACTED)

    async def _with_file(self, request: Request, whole: str) -> Request:
        """Return a request with all of it in a file, if its middle is left out."""
        if not whole:
            return request
        try:
            file = await self._files.offer(f"request-{request.id}.txt", whole.encode())
        except RedisRefused:  # there is no room: the ends of it are shown
            return request
        return replace(request, file=file)

    def _request(
        self,
        event: PermissionEvent,
        what: str,
        *,
        question: Question | None = None,
        before: str = "",
    ) -> Request:
        return Request(
            id=new_id(),
            session=self._lease.session,
            turn=self._turn.id,
            tool=tool_of(event),
            what=what,
            where=event.where,
            deliver=self._turn.entries[-1].deliver,
            chat=self._approvals.chat,
            people=people_of(self._turn.entries),
            is_question=question is not None,
            choices=[label for label, _ in question.choices] if question else (),
            is_multiple=question is not None and question.is_multiple,
            before=before,
            is_plan=event.plan is not None,
            offers_edits=event.plan is not None and event.awaits_edits,
        )

    async def _told(
        self, event: PermissionEvent, request: Request, *, digest: str, rule: str
    ) -> Answered | Decision:
        """Ask, and wait for the answer; a decision where nobody has to be waited for."""
        while True:
            async with self._asking:
                is_edit = event.awaits_edits and not request.is_plan
                verdict, name = await self._ask(request, digest=digest, rule=rule, is_edit=is_edit)
                if verdict == "allowed":
                    return Decision("allow")
                if verdict == "full":
                    return Decision("deny", TOO_MANY)
                self._open[event.id] = name
                self._wanted[event.id] = f"{request.tool}: {request.what}"
            try:
                if answer := await self._answer(name, is_question=request.is_question):
                    return answer
            finally:
                self._open.pop(event.id, None)
                self._wanted.pop(event.id, None)
            request = replace(request, id=new_id())

    async def _ask(
        self, request: Request, *, digest: str, rule: str, is_edit: bool
    ) -> tuple[str, str]:
        """Make the record; return what came of it, as `TurnAsks.ask()` does."""
        is_again = False
        while True:
            told, name = await self._asks.ask(
                request,
                digest=digest,
                rule=rule,
                is_edit=is_edit,
                is_again=is_again,
                hold_ms=self._approvals.hold_s * 1000,
                keep_ms=self._config.record.keep_ms,
                shown=self._shown(request, is_again=is_again),
            )
            if told != "again":
                return told, name
            is_again = not is_again

    def _shown(self, request: Request, *, is_again: bool) -> Shown:
        how = ""
        if request.is_question:
            several = SEVERAL if request.is_multiple else ""
            how = f"\n\n{HOW.format(id=request.id)}{several}"
        if request.is_plan:
            how = f"\n\n{HOW_TO_CHANGE.format(id=request.id)}"
        return shown_by(
            request,
            attempt=self._turn.attempt,
            text=words_of(
                request, about=of_other_chat(request, self._turn.entries), is_again=is_again
            ),
            how=how,
        )

    async def _answer(self, name: str, *, is_question: bool) -> Answered | None:
        """Wait for the answer, as long as the turn may wait; None if Redis has lost the request."""
        is_heard = is_question or self._explains_denial
        news = asyncio.Event()
        self._news.add(news)
        needed = asyncio.create_task(self._lease.needed())
        try:
            async with asyncio.timeout(self._approvals.hold_s) as hold:
                while True:
                    news.clear()
                    state, answer = await self._asks.take(name, is_heard=is_heard)
                    if answer and state == "given":
                        return answer
                    if state == "gone":
                        return None
                    if state == "lapsed":
                        break
                    waiting = asyncio.create_task(news.wait())
                    try:
                        await asyncio.wait((waiting, needed), return_when="FIRST_COMPLETED")
                    finally:
                        waiting.cancel()
                    if needed.done():
                        needed.result()
                        if await self._asks.lapse(is_needed=True):
                            break
                        await asyncio.sleep(LOOK_S)
                        needed = asyncio.create_task(self._lease.needed())
        except TimeoutError:
            if not hold.expired():
                raise
            await self._asks.lapse(is_needed=False)
            state, answer = await self._asks.take(name, is_heard=is_heard)
            if answer and state == "given":  # it came in the last moment
                return answer
        finally:
            self._news.discard(news)
            needed.cancel()
        self.lapsed = tuple(dict.fromkeys((*self.lapsed, name, *self._open.values())))
        self._abort.set()
        return await asyncio.Future()  # the end of the turn cancels it

    def _decision(self, tool: str, answer: Answered) -> Decision:
        if answer.verdict != "deny":
            return Decision("allow")
        self._denied[tool] += 1
        return denial_by(answer)

    def _on_plan(self, tool: str, answer: Answered) -> Decision:
        """Have claude go on with its plan, change it, or plan on without another word."""
        name = answer.name or "A person"
        match answer.verdict:
            case "words":
                return Decision("deny", CHANGE_PLAN.format(name=name, why=answer.words))
            case "deny":
                self._denied[tool] += 1
                return Decision("deny", PLAN_ON.format(name=name))
        return Decision("allow")

    def _no_answer(self, tool: str, question: Question, answer: Answered, before: str) -> Decision:
        self._denied[tool] += 1
        name = answer.name or "A person"
        why = f"\n\nThey say: {answer.words}" if answer.words else ""
        told = NO_ANSWER.format(name=name, question=question.text, why=why)
        earlier = EARLIER.format(before=before.strip()) if before else ""
        return Decision("deny", f"{told}\n\n{earlier}".strip())


def denial_by(answer: Answered) -> Decision:
    """Return a person's denial as the agent is told it, with their reason."""
    why = f" They say: {answer.words}" if answer.words else ""
    return Decision("deny", DENIED.format(name=answer.name or "A person", why=why))


def words_of(request: Request, *, about: str, is_again: bool) -> str:
    """Return a request as a message shows it: what would be done comes first, as it is."""
    again = (
        "\n\nAn earlier try at this was cut off: it may have been done already." if is_again else ""
    )
    wants = f"asks to use {request.tool} in `{request.where}`"
    if request.is_question:
        wants = "asks"
    elif request.is_plan:
        wants = "asks to go on with this plan"
    whole = f"\n\nAll of it is in the file {request.file.name}." if request.file else ""
    return f"**{request.session.agent}**{about} {wants}:\n\n{fenced(request.what)}{whole}{again}"


def _asked(question: Question) -> str:
    """Return a question with its choices, numbered as they are answered."""
    about = f"{question.header}: " if question.header else ""
    choices = [
        f"{number}. {label}" + (f" – {meaning}" if meaning else "")
        for number, (label, meaning) in enumerate(question.choices, 1)
    ]
    return "\n".join([f"{about}{question.text}", *choices])


def tool_of(event: PermissionEvent) -> str:
    """Return what a tool is called before people."""
    name = event.intent.tool if event.intent else event.tool_name
    return name if _NAME.fullmatch(name) else "a tool"


def _digest(*parts: Any) -> str:
    return hashlib.sha256(orjson.dumps(parts, option=orjson.OPT_SORT_KEYS)).hexdigest()[:32]


def rule_of(event: PermissionEvent) -> str:
    """Return what is allowed with it for the conversation, in the words of no single CLI."""
    match event.intent:
        case Intent(tool="Bash", command=command) as intent if command:
            is_outside = bool(event.input.get("dangerouslyDisableSandbox"))  # claude
            return _digest("Bash", command.strip(), intent.cwd or event.where, is_outside)
        case Intent(tool="Edit" | "Read") as intent if intent.paths and all(intent.paths):
            return _digest(intent.tool, sorted(intent.paths), event.where)
        case Intent(url=url) if url:
            return _digest("WebFetch", url)
    return _digest(event.tool_name, event.input, event.where)
