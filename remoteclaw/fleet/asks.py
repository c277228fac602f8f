"""Requests to people: what an agent may not do by itself, and what they answer.

A request is a record that outlives every process. The turn that asks waits for a while; later an
answer counts, too. `answer()` is for every door: chats, the gateway, the command line.
"""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Self, cast

import orjson

from remoteclaw.clock import boottime, now_ms
from remoteclaw.errors import NotFound
from remoteclaw.fleet import keys
from remoteclaw.fleet.blobs import Blobs
from remoteclaw.fleet.connection import Scripts
from remoteclaw.fleet.inbound import APPEND_S, encode_entry, entry_args, entry_keys
from remoteclaw.fleet.lua import Arguments, Keys
from remoteclaw.fleet.reply import reply_payload
from remoteclaw.fleet.wake import Waker
from remoteclaw.host.terminal import one_line
from remoteclaw.messages import Attachment, ChatPlace, Deliver, Entry, SessionKey, person
from remoteclaw.protocols import Card

if TYPE_CHECKING:
    from remoteclaw.fleet.lease import Lease

__all__ = [
    "Answered",
    "Asks",
    "Change",
    "Request",
    "Shown",
    "State",
    "TurnAsks",
    "Verdict",
    "new_id",
    "of_other_chat",
    "record_args",
    "shown_by",
]

#: How many requests of one session wait at once, and how many in all.
MOST_OF_SESSION, MOST_OF_ALL = 8, 1000
#: How long the other turns look on after one has let its worker go, in milliseconds.
LETTING_GO_MS = 1000
#: How long a request is kept at least, in milliseconds.
LEAST_KEPT_MS = 24 * 3600 * 1000
#: An id is what people type: letters and digits that are not taken for each other.
ALPHABET, ID_LENGTH = "abcdefghjkmnpqrstuvwxyz23456789", 8

#: `once` and `conversation` allow it, `deny` doesn't; `words` answer a question, or say what is to
#: be different in a plan; `edits` approves one, and allows changes of files for the conversation.
Verdict = Literal["once", "conversation", "edits", "deny", "words"]
State = Literal[
    "open", "answered", "given", "lapsed", "granted", "used", "denied", "expired", "void", "gone"
]

#: What stands in the message that shows a request where what became of it will; no agent knows it.
CLOSING = "%CLOSING-{id}%"

#: What a conversation is told whose requests go to another chat: nothing of what is asked for.
ELSEWHERE = {
    "told": "I have to ask a person elsewhere: request `{id}`.",
    "became": "Request `{id}`: {closing}",
    "unreached": (
        "The chat where that is asked can't be reached, so nobody was shown request `{id}`. Who "
        "may answer it can do so here, with its name: `/allow {id}`, `/deny {id}` or, to a "
        "question, `/answer {id} TEXT`. `remoteclaw asks show {id}` shows what it is about, and "
        "why that chat does not."
    ),
}

#: How many people are named for whom something is asked in another chat.
MOST_NAMED = 3

#: The answers to a request for a permission.
PERMISSION = (
    ("once", "Allow once"),
    ("conversation", "Allow for this conversation"),
    ("deny", "Deny"),
)
#: The answers to a plan, and what the second of them allows.
PLAN = (
    ("once", "Go on"),
    ("edits", "Go on, and change files unasked"),
    ("deny", "Keep planning"),
)
ALL_EDITS = {"tool": "Edit", "what": "all files of the workspace"}
#: Those to a request for a change of the configuration.
CHANGE = (PERMISSION[0], PERMISSION[2])
#: How long a change can be answered, in milliseconds.
CHANGE_MS = 3600 * 1000


def new_id() -> str:
    """Return the id of a request."""
    return "".join(secrets.choice(ALPHABET) for _ in range(ID_LENGTH))


@dataclass(frozen=True, slots=True)
class Shown:
    """What shows a request, and says what became of it."""

    stream: str
    card: bytes
    """The message that shows it."""
    closing: bytes
    """What takes its place; in it stands where the words of what became of it will."""
    here: str | None = None
    """The conversation's stream, if the card is in another chat."""
    elsewhere: Mapping[str, bytes] = field(default_factory=dict)
    """What the conversation is then `told`, what `became` of it, and that it is `unreached`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """An answer to a request."""

    verdict: Verdict
    by: str
    """Who has given it, as CHANNEL:ID; `operator` for the command line."""
    name: str
    """What they are called."""
    at_ms: int
    words: str = ""
    """The reason of a denial, or the answer to a question."""

    @classmethod
    def decode(cls, text: bytes) -> Self:
        """Return an answer as Redis has it."""
        return cls(**orjson.loads(text))


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A change of the configuration, exactly as it would be made."""

    host: str
    """The host whose file it changes."""
    patch: Mapping[str, Any]
    """The change, as a JSON merge patch."""
    base: str
    after: str
    """The hashes of the file before and after it."""
    changed: Sequence[str]
    needs_restart: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What an agent asks people for."""

    id: str
    session: SessionKey
    turn: str
    tool: str
    what: str
    """What would be done, as people are shown it: without secrets, and with every character
    visible."""
    where: str
    """The directory that it would be done in."""
    file: Attachment | None = None
    """All of it, if its middle is left out there."""
    deliver: Deliver
    people: Sequence[str]
    """On whose behalf, each as CHANNEL:ID."""
    is_question: bool = False
    """Whether words answer it."""
    choices: Sequence[str] = ()
    """The answers that a question proposes."""
    is_multiple: bool = False
    """Whether several of them can be chosen."""
    chat: ChatPlace | None = None
    """Where people are asked instead of the conversation."""
    before: str = ""
    """The questions before it in the same call, with their answers."""
    is_plan: bool = False
    """Whether it is a plan that the agent wants to go on with."""
    offers_edits: bool = False
    """Whether changes of files can be allowed with it."""
    state: State = "open"
    asked_ms: int = 0
    shown: str = ""
    """The platform's id of the message that shows it."""
    unshown: str = ""
    """Why that chat does not show it."""
    until_ms: int = 0
    """Until when it can be answered, or what was granted passes, or the turn waits."""
    answer: Answered | None = None
    change: "Change | None" = None
    """The change of the configuration, if it is one that is asked for: no turn waits for that."""
    became: str = ""
    """What became of the change, in words."""
    message: str = ""
    """The platform's id of the message that has answered it, if one has."""
    waits_ms: int = 0
    """Since when the attempt waits that wants it."""
    ended_ms: int = 0
    """When it was answered or closed."""

    @classmethod
    def decode(cls, id_: str, fields: Mapping[bytes, bytes]) -> Self:
        """Return a request as Redis has it."""
        told: dict[str, Any] = orjson.loads(fields[b"request"])
        answer, file, chat = fields.get(b"answer"), told.get("file"), told.get("chat")
        change = told.pop("change", None)
        told["session"] = SessionKey.parse(told["session"])
        told["file"] = Attachment(**file) if file else None
        told["chat"] = ChatPlace(**chat) if chat else None
        return cls(
            **told,
            id=id_,
            state=cast(State, fields[b"state"].decode()),
            asked_ms=int(fields[b"asked_ms"]),
            until_ms=int(fields[b"until_ms"]),
            answer=Answered.decode(answer) if answer else None,
            shown=fields.get(b"shown", b"").decode(),
            change=Change(**change) if change else None,
            became=fields.get(b"became", b"").decode(),
            unshown=fields.get(b"unshown", b"").decode(),
            message=fields.get(b"message", b"").decode(),
            waits_ms=int(fields.get(b"waits_ms") or 0),
            ended_ms=int(fields.get(b"closed_ms") or fields.get(b"answered_ms") or 0),
        )

    def encode(self) -> bytes:
        """Return what is kept of it from the beginning on."""
        told = {name: getattr(self, name) for name in _KEPT}
        told["session"] = str(self.session)
        told["file"] = self.file.model_dump() if self.file else None
        if self.change:
            told["change"] = asdict(self.change)
        return orjson.dumps(told)  # a place is a table

    @property
    def offered(self) -> tuple[tuple[str, str], ...]:
        """The answers that can be chosen, each with its label: plain chats number them."""
        if self.is_plan:
            return tuple(each for each in PLAN if each[0] != "edits" or self.offers_edits)
        if self.change:
            return CHANGE
        if not self.is_question:
            return PERMISSION
        numbered = ((str(number), label) for number, label in enumerate(self.choices, 1))
        return (*numbered, ("deny", "No answer"))

    @property
    def place(self) -> ChatPlace:
        """Where it is shown."""
        return self.chat or self.session.place

    @property
    def is_waiting(self) -> bool:
        """Whether it can be answered."""
        return self.state in ("open", "lapsed")

    @property
    def can_pass(self) -> bool:
        """Whether it can be answered, or what was granted can still pass."""
        return self.is_waiting or self.state == "granted"


_KEPT = (
    *("turn", "tool", "what", "where", "deliver", "people"),
    *("is_question", "choices", "is_multiple", "before", "is_plan", "offers_edits", "chat"),
)


def shown_by(request: Request, *, attempt: int, text: str, how: str = "") -> Shown:
    """Return what shows a request; `how` says how it is answered, as long as it can be."""

    def payload(
        place: ChatPlace, part: str, text: str, card: Card | None = None, *files: Attachment
    ) -> bytes:
        said = reply_payload(
            sid=request.session.sid,
            turn=request.turn,
            attempt=attempt,
            index=0,
            channel_id=place.chat,
            thread_id=place.thread,
            text=text,
            attachments=files,
            call=f"ask:{request.id}{part}",
            card=card,
        )
        return orjson.dumps(said)

    at, here = request.place, request.session.place
    closing = CLOSING.format(id=request.id)
    told = {}
    if request.chat:
        told = {
            name: payload(here, f":{name}", words.format(id=request.id, closing=closing))
            for name, words in ELSEWHERE.items()
        }
    card, files = Card(request.id, tuple(request.offered)), [request.file] if request.file else []
    return Shown(
        keys.reply_stream(at.provider, at.account),
        payload(at, "", f"{text}{how}", card, *files),
        payload(at, ":closed", f"{text}\n\n{closing}", Card(request.id, ())),
        here=keys.reply_stream(here.provider, here.account) if told else None,
        elsewhere=told,
    )


def of_other_chat(request: Request, entries: Sequence[Entry]) -> str:
    """Return for whom it is, and where, if another chat than that shows it."""
    if request.chat is None:
        return ""
    messages = [entry.message for entry in entries]
    names = {person(one.provider, one.from_): one.user_name for one in messages}
    people = [
        _code(one) + (f" ({_code(name)})" if (name := names.get(one)) else "")
        for one in request.people
    ]
    if more := len(people[MOST_NAMED:]):
        people[MOST_NAMED:] = [f"{more} more"]
    told = f" for {', '.join(people)}" if people else ""
    return f",{told} in {_code(str(request.session.place))},"


def _code(text: str) -> str:
    """Return words of other people as Markdown that says nothing more."""
    return f"`{one_line(text, most=120).replace('`', chr(39))}`"


def record_args(request: Request, shown: Shown | None, *, keep_ms: int) -> tuple[Keys, Arguments]:
    """Return the keys and arguments of a script that makes a request."""
    sid, elsewhere = request.session.sid, shown.elsewhere if shown else {}
    names: Keys = {
        "replies": shown.stream if shown else None,
        "here": shown.here if shown else None,
        "ask": keys.ask(request.id),
        "asks": keys.ASKS,
        "asked": keys.asked(sid),
        "file": keys.blob(sid, request.file.blob) if request.file else None,
    }
    return names, {
        "id": request.id,
        "sid": sid,
        "request": request.encode(),
        "keep_ms": max(keep_ms, LEAST_KEPT_MS),
        "most": MOST_OF_SESSION,
        "most_of_all": MOST_OF_ALL,
        "card": shown.card if shown else None,
        "closing": shown.closing if shown else None,
        "told": elsewhere.get("told"),
        "here_closing": elsewhere.get("became"),
        "unreached": elsewhere.get("unreached"),
    }


class Asks:
    """The requests, from the side of people."""

    def __init__(self, scripts: Scripts, waker: Waker, blobs: Blobs) -> None:
        self._scripts = scripts
        self._waker = waker
        self._blobs = blobs

    async def whole(self, request: Request) -> str:
        """Return what would be done with its middle, also where the request leaves that out."""
        file = request.file
        content = await self._blobs.get(request.session.sid, file) if file else None
        return content.decode() if content else request.what

    async def find(self, id_: str) -> Request | None:
        """Return a request; None if there is none."""
        client = self._scripts.client
        found = await self._scripts.call(client.hgetall, keys.ask(id_))
        return Request.decode(id_, found) if found else None

    async def named(self, name: str) -> Request:
        """Return a request by its id, or the one that waits if there is one alone.

        Raises `NotFound`.
        """
        if name and (found := await self.find(name)):
            return found
        waiting = await self.waiting()
        if not name and len(waiting) == 1:
            return waiting[0]
        there = ", ".join(one.id for one in waiting)
        which = f"those that wait are {there}" if there else "none waits"
        raise NotFound(f"There is no request {name!r}: {which}.")

    async def waiting(self) -> list[Request]:
        """Return the requests that can be answered, oldest first."""
        client = self._scripts.client
        ids = await self._scripts.call(client.zrange, keys.ASKS, 0, -1)
        return [one for one in await self._read(ids) if one.is_waiting]

    async def all(self) -> list[Request]:
        """Return every request that is kept, oldest first."""
        client = self._scripts.client

        async def scan() -> list[bytes]:
            return [name async for name in client.scan_iter(match=keys.ask("*"), count=1000)]

        names = await self._scripts.call(scan)
        return await self._read([name.removeprefix(keys.ask("").encode()) for name in names])

    async def of_session(self, sid: str) -> list[Request]:
        """Return a session's requests that can be answered, oldest first."""
        return [one for one in await self.newest(sid) if one.is_waiting]

    async def newest(self, sid: str) -> list[Request]:
        """Return those, and what was asked for in the session's newest turn, oldest first."""
        client = self._scripts.client
        return await self._read(await self._scripts.call(client.zrange, keys.asked(sid), 0, -1))

    async def said_since(self, request: Request) -> tuple[bool, bool]:
        """Return whether the agent has said more since, and whether a newer turn has begun."""
        name, fields = keys.state(request.session.sid), ("turn", "finished_turn", "said_ms")
        client = self._scripts.client
        turn, finished, said_ms = await self._scripts.call(client.hmget, name, fields)
        is_over = (turn or finished or b"").decode() != request.turn
        return int(said_ms or 0) > request.waits_ms, is_over

    async def shown_in(self, place: ChatPlace) -> tuple[list[Request], set[str]]:
        """Return the requests of other conversations that a chat shows or has shown, oldest first.

        With them the ids of those below which no agent has written.
        """
        client = self._scripts.client
        ids = await self._scripts.call(client.zrange, keys.asked_in(place), 0, -1)
        below = ids[ids.index(b"") + 1 :] if b"" in ids else ids
        return await self._read(ids), {id_.decode() for id_ in below}

    async def _read(self, ids: Sequence[bytes]) -> list[Request]:
        client = self._scripts.client

        async def look() -> list[Any]:
            pipeline = client.pipeline(transaction=False)
            for id_ in ids:
                pipeline.hgetall(keys.ask(id_.decode()))
            return list(await pipeline.execute())

        found = await self._scripts.call(look) if ids else []
        requests = [
            Request.decode(id_.decode(), fields)
            for id_, fields in zip(ids, found, strict=True)
            if fields
        ]
        return sorted(requests, key=lambda one: one.asked_ms)

    async def answer(
        self,
        request: Request,
        answered: Answered,
        *,
        words: str,
        going_on: str,
        message: str = "",
    ) -> tuple[bool, State, Answered | None]:
        """Answer a request; return whether it counts, and what is true now.

        The messages that show it say `words` from then on. If no turn waits any more, the session
        is told to go on, by an entry that says `going_on` on behalf of those who asked.
        A change is only answered by that: `made()` says what became of it.
        Whether they may answer is for the caller to know. Repeating it is harmless.
        `message` is the platform's id of the message that answers, if one does.
        """
        session = request.session
        text = orjson.dumps(asdict(answered))
        what = {"tool": request.tool, "what": request.what}
        remembered = (ALL_EDITS if answered.verdict == "edits" else what) | {
            "name": answered.name,
            "at_ms": answered.at_ms,
        }
        told, state, answer, queue = await self._scripts.run(
            "answer",
            keys={
                "ask": keys.ask(request.id),
                "asks": keys.ASKS,
                "changes": keys.CHANGES,
                "rules": keys.rules(session.sid),
                "grants": keys.grants(session.sid),
                "unheard": keys.unheard(session.sid),
                **entry_keys(session),
            },
            args={
                "id": request.id,
                "answer": text,
                "by": f"{answered.by} {answered.verdict} {answered.words}",
                "message": message,
                "verdict": answered.verdict,
                "remembered": orjson.dumps(remembered),
                "words": words,
                "bell": keys.bell(session.sid),
                **_waking(request, going_on),
            },
            deadline=boottime() + APPEND_S,
        )
        await self._waker.try_hint(session, queue.decode())
        return told == b"done", state.decode(), Answered.decode(answer) if answer else None

    async def made(
        self, request: Request, became: Literal["used", "denied", "void"], *, words: str, told: str
    ) -> None:
        """Say what became of a change that is answered, and have its session told so.

        The first one who says it is believed: whoever does a change holds the lock of its file.
        """
        session = request.session
        queue = await self._scripts.run(
            "made",
            keys={
                "ask": keys.ask(request.id),
                "changes": keys.CHANGES,
                **entry_keys(session),
            },
            args={
                "id": request.id,
                "became": became,
                "words": words,
                "is_told": request.deliver == "channel",
                **_waking(request, told),
            },
            deadline=boottime() + APPEND_S,
        )
        await self._waker.try_hint(session, queue.decode())

    async def changes(self) -> list[Request]:
        """Return the changes that are answered, and of which nothing became yet."""
        client = self._scripts.client
        found: set[bytes] = await self._scripts.call(client.smembers, keys.CHANGES)
        return [one for one in await self._read(list(found)) if one.state == "answered"]

    async def rules(self, sid: str) -> list[Mapping[str, Any]]:
        """Return what is allowed for a session's conversation: `tool`, `what`, `name`, `at_ms`."""
        found = await self._scripts.call(self._scripts.client.hvals, keys.rules(sid))
        return [orjson.loads(text) for text in found]

    async def forget_rules(self, sid: str) -> int:
        """Take back what is allowed for a session's conversation; return how much that was."""
        client = self._scripts.client
        count = await self._scripts.call(client.hlen, keys.rules(sid))
        await self._scripts.call(client.delete, keys.rules(sid))
        return int(count)

    async def let_lapse(self) -> int:
        """Have requests lapse and expire whose time has come; return how many."""
        return int(await self._scripts.run("overdue", keys={"asks": keys.ASKS}, args={"most": 100}))


def _waking(request: Request, text: str) -> Arguments:
    """Return the arguments of the entry that wakes the session of a request."""
    message = request.session.message(
        id=f"ask-{request.id}", text=text, from_="operator", timestamp=now_ms()
    )
    entry = encode_entry(message, request.deliver, "verdict", people=request.people)
    return {"lane": "agents", **entry_args(request.session, entry)}


class TurnAsks:
    """The requests of the turn that runs under a lease.

    Every method raises `LeaseLost` once another worker has the session.
    """

    def __init__(self, lease: "Lease", turn: str) -> None:
        self._lease = lease
        self._turn = turn

    async def ask(
        self,
        request: Request,
        *,
        digest: str,
        rule: str,
        is_edit: bool = False,
        is_again: bool,
        hold_ms: int,
        keep_ms: int,
        shown: Shown | None,
    ) -> tuple[Literal["open", "allowed", "again", "full"], str]:
        """Ask people, with a message that shows it.

        `digest` names exactly what would be done, and `rule` what is allowed with it for the
        conversation, as `is_edit` is with a plan. Return "open" and the request's id, which may be
        that of an earlier attempt; "allowed", by an earlier answer as JSON; "again" if the message
        has to say that it may have been done before; and "full" if too many wait.
        """
        sid = self._lease.sid
        names, args = record_args(request, shown, keep_ms=keep_ms)
        told, name = await self._lease.run_fenced(
            "ask",
            {**names, "rules": keys.rules(sid), "grants": keys.grants(sid)},
            {
                **args,
                "turn": self._turn,
                "digest": digest,
                "rule": rule,
                "is_edit": is_edit,
                "is_harmless": request.is_question or request.is_plan,
                "is_again": is_again,
                "hold_ms": hold_ms,
            },
        )
        return told.decode(), name.decode()

    async def take(self, id_: str, *, is_heard: bool) -> tuple[State, Answered | None]:
        """Take the answer, if there is one: from then on the agent may have heard it.

        `is_heard` says that it hears the reason of a denial as well.
        """
        state, answer = await self._lease.run_fenced(
            "take",
            {"ask": keys.ask(id_), "unheard": keys.unheard(self._lease.sid)},
            {"turn": self._turn, "id": id_, "is_heard": is_heard},
        )
        return state.decode(), Answered.decode(answer) if answer else None

    async def unheard(self) -> list[dict[str, str]]:
        """Return the denials of which the agent has yet to hear the reason, oldest first.

        They are told in this turn, and in no later one.
        """
        name = {"unheard": keys.unheard(self._lease.sid)}
        found = await self._lease.run_fenced("unheard", name, {"turn": self._turn})
        pairs = [(orjson.loads(asked), Answered.decode(answer)) for asked, answer in found]
        pairs.sort(key=lambda pair: pair[1].at_ms)
        return [
            {"tool": asked["tool"], "what": asked["what"], "by": answer.name, "why": answer.words}
            for asked, answer in pairs
        ]

    async def lapse(self, *, is_needed: bool) -> bool:
        """Wait no longer for answers; False if the turn goes on.

        `is_needed` says that other sessions wait for a worker: another turn may let its own go
        instead, and an answer may have come.
        """
        done = await self._lease.run_fenced(
            "lapse",
            {"letting_go": keys.LETTING_GO},
            {
                "turn": self._turn,
                "sid": self._lease.sid,
                "is_needed": is_needed,
                "pause_ms": LETTING_GO_MS,
            },
        )
        return bool(done)

    async def retract(self, id_: str, words: str) -> None:
        """Close a request that the agent has taken back."""
        await self._lease.run_fenced(
            "retract", {"ask": keys.ask(id_)}, {"turn": self._turn, "id": id_, "words": words}
        )
