"""A request to people: what an agent may not do by itself, and the message that shows it."""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, Self, cast

import orjson

from remoteclaw.fleet import keys
from remoteclaw.fleet.lua import Arguments, Keys
from remoteclaw.fleet.reply import reply_payload
from remoteclaw.host.terminal import one_line
from remoteclaw.messages import Attachment, ChatPlace, Deliver, Entry, SessionKey, person
from remoteclaw.protocols import Card

__all__ = [
    "Answered",
    "Change",
    "Request",
    "Shown",
    "State",
    "Verdict",
    "new_id",
    "of_other_chat",
    "record_args",
    "shown_by",
]

#: How many requests of one session wait at once, and how many in all.
MOST_OF_SESSION, MOST_OF_ALL = 8, 1000
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

#: The placeholder in a request's message for what became of it; no agent knows it.
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
#: The answers to a plan.
PLAN = (
    ("once", "Go on"),
    ("edits", "Go on, and change files unasked"),
    ("deny", "Keep planning"),
)
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
    """The message that takes its place; it has a placeholder for what became of the request."""
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
    is_again: bool = False
    """Whether it may have been done already, by an attempt that was cut off."""
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
    """The change of the configuration that is asked for, if it is one: no turn waits for it."""
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
    def kind(self) -> Literal["tool", "question", "plan", "change"]:
        """What is asked for."""
        if self.change:
            return "change"
        return "plan" if self.is_plan else "question" if self.is_question else "tool"

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
    "is_again",
)


def shown_by(request: Request, *, attempt: int, text: str, how: str = "") -> Shown:
    """Return what shows a request; `how` says how it is answered, as long as it can be."""

    def payload(
        place: ChatPlace, part: str, text: str, card: Card | None = None, *files: Attachment
    ) -> bytes:
        said = reply_payload(
            place,
            text,
            sid=request.session.sid,
            turn=request.turn,
            attempt=attempt,
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
