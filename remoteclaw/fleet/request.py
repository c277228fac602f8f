"""A request to people: the record of what an agent may not do by itself, and of its answer."""

import hashlib
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, Self, cast

import orjson

from remoteclaw.messages import Attachment, ChatPlace, Deliver, SessionKey

#: An id is what people type: letters and digits that are not taken for each other.
ALPHABET, ID_LENGTH = "abcdefghjkmnpqrstuvwxyz23456789", 8

#: `once` and `conversation` allow it, `deny` doesn't; `words` answer a question, or say what is to
#: be different in a plan; `edits` approves one, and allows changes of files for the conversation.
Verdict = Literal["once", "conversation", "edits", "deny", "words"]
State = Literal[
    "open", "answered", "given", "lapsed", "granted", "used", "denied", "expired", "void", "gone"
]

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


def id_of(*parts: str) -> str:
    """Return the id of the request that has this name elsewhere: the same one each time."""
    digest = hashlib.sha256("\0".join(parts).encode()).digest()
    return "".join(ALPHABET[byte % len(ALPHABET)] for byte in digest[:ID_LENGTH])


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
