"""A request to people: an action that an agent may not take without permission, and the answer."""

import hashlib
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, Self, cast

import orjson

from remoteclaw.messages import Attachment, ChatPlace, Deliver, SessionKey

#: The characters of an id, without those that look alike, since people type ids; and its length.
ALPHABET, ID_LENGTH = "abcdefghjkmnpqrstuvwxyz23456789", 8

#: The verdict of a person. `once` and `conversation` allow the action, and `deny` refuses it.
#: `words` is a text that answers a question, or says how a plan should change. `edits` approves a
#: plan, and allows changes of files for the conversation.
Verdict = Literal["once", "conversation", "edits", "deny", "words"]
#: The state of a request. `open`: a turn waits for the answer. `answered`: the turn has not taken
#: the answer yet. `given`: the turn has taken it. `lapsed`: no turn waits, but the request can
#: still be answered. `granted`: allowed after the turn's end, for one use. `used`: that use has
#: happened. `denied`: denied after the turn's end. `expired`: not answered in time. `void`: closed
#: without need for an answer. `gone`: no longer stored.
State = Literal[
    "open", "answered", "given", "lapsed", "granted", "used", "denied", "expired", "void", "gone"
]

#: The possible answers to a request for a permission: the verdict and its label.
PERMISSION = (
    ("once", "Allow once"),
    ("conversation", "Allow for this conversation"),
    ("deny", "Deny"),
)
#: The possible answers to a plan.
PLAN = (
    ("once", "Go on"),
    ("edits", "Go on, and change files unasked"),
    ("deny", "Keep planning"),
)
#: The possible answers to a change of the configuration.
CHANGE = (PERMISSION[0], PERMISSION[2])
#: The verdicts on a budget, in the order of the labels in `choices`.
BUDGET = ("once", "conversation", "deny")
#: A change of the configuration can be answered for this long, in milliseconds.
CHANGE_MS = 3600 * 1000


def new_id() -> str:
    """Return a new, random id of a request."""
    return "".join(secrets.choice(ALPHABET) for _ in range(ID_LENGTH))


def id_of(*parts: str) -> str:
    """Return the id of a request that is named by `parts`: the same id for the same parts."""
    digest = hashlib.sha256("\0".join(parts).encode()).digest()
    return "".join(ALPHABET[byte % len(ALPHABET)] for byte in digest[:ID_LENGTH])


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestAnswer:
    """An answer to a request."""

    verdict: Verdict
    by: str
    """The person who answered, as CHANNEL:ID; `operator` for the command line."""
    name: str
    """The person's name."""
    at_ms: int
    words: str = ""
    """The reason of a denial, or the answer to a question."""

    @classmethod
    def decode(cls, text: str | bytes) -> Self:
        """Return an answer from its stored form."""
        return cls(**orjson.loads(text))


@dataclass(frozen=True, slots=True)
class MemoryLine:
    """A line that an agent wants to write to its memory (`Memories.write_line`)."""

    agent: str
    line: str
    replaces: str
    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A change of the configuration, or of an agent's memory, that an agent requests."""

    host: str = ""
    """The host whose configuration file is to change; empty for a memory, which is on all."""
    patch: Mapping[str, Any] = field(default_factory=dict)
    """The change, as a JSON merge patch."""
    base: str = ""
    """The hash of the file before the change."""
    after: str = ""
    """The hash of the file after the change."""
    changed: Sequence[str]
    """The keys that change."""
    needs_restart: Sequence[str] = ()
    """The keys whose change needs a restart."""
    memory: MemoryLine | None = None
    """The line for an agent's memory; None for a change of the configuration."""

    @classmethod
    def decode(cls, stored: Mapping[str, Any]) -> Self:
        """Return a change from its stored form."""
        memory = stored.get("memory")
        return cls(**{**stored, "memory": MemoryLine(**memory) if memory else None})


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request of an agent to people: for a permission, an answer, or approval of a plan."""

    id: str
    session: SessionKey
    turn: str
    tool: str
    what: str
    """The action, as people see it (`bridge.visible`): no secrets, every character visible."""
    where: str
    """The directory in which the action would take place."""
    file: Attachment | None = None
    """The complete text of the action, if `what` leaves out its middle."""
    incomplete: str = ""
    """Why people can't see the whole action, and can only deny it; empty if they can."""
    deliver: Deliver
    people: Sequence[str]
    """The people on whose behalf the agent asks, each as CHANNEL:ID."""
    is_question: bool = False
    """Whether the request is a question, which a text answers."""
    choices: Sequence[str] = ()
    """The answers that a question proposes, or the labels of those about a budget."""
    is_multiple: bool = False
    """Whether several of the `choices` can be chosen."""
    here: ChatPlace
    """The chat of the turn."""
    chat: ChatPlace | None = None
    """The chat in which people are asked, if it is not the conversation's own."""
    before: str = ""
    """The earlier questions of the same tool call, with their answers."""
    is_plan: bool = False
    """Whether the request is for the approval of a plan."""
    offers_edits: bool = False
    """Whether changes of files can be allowed together with the plan."""
    is_again: bool = False
    """Whether an earlier attempt, which was cut off, may already have taken the action."""
    state: State = "open"
    asked_ms: int = 0
    """The time of the request, in milliseconds on Redis' clock, as the other times."""
    shown: str = ""
    """The platform's id of the message that shows the request; empty if none does."""
    unshown: str = ""
    """The reason why the chat does not show the request."""
    until_ms: int = 0
    """The end of the time in which the turn waits, the request can be answered, or a grant can be
    used, depending on `state`."""
    answer: RequestAnswer | None = None
    change: "Change | None" = None
    """The requested change of the configuration; None for other requests. No turn waits for the
    answer to a change."""
    budget: str = ""
    """The id of the budget whose limit is reached; empty for other requests. No turn waits for the
    answer: the request belongs to the session that was the first to reach the limit."""
    became: str = ""
    """The result of the change, as a sentence."""
    message: str = ""
    """The platform's id of the message that answered the request; empty if none did."""
    waits_ms: int = 0
    """The time since which the current attempt at the turn waits."""
    ended_ms: int = 0
    """The time at which the request was answered or closed; 0 before."""

    @classmethod
    def decode(cls, id_: str, fields: Mapping[bytes, bytes]) -> Self:
        """Return a request from its hash in Redis."""
        values: dict[str, Any] = orjson.loads(fields[b"request"])
        answer, file, chat = fields.get(b"answer"), values.get("file"), values.get("chat")
        change = values.pop("change", None)
        values["session"] = SessionKey.parse(values["session"])
        values["file"] = Attachment(**file) if file else None
        values["chat"] = ChatPlace(**chat) if chat else None
        values["here"] = ChatPlace(**values["here"])
        return cls(
            **values,
            id=id_,
            state=cast(State, fields[b"state"].decode()),
            asked_ms=int(fields[b"asked_ms"]),
            until_ms=int(fields[b"until_ms"]),
            answer=RequestAnswer.decode(answer) if answer else None,
            shown=fields.get(b"shown", b"").decode(),
            change=Change.decode(change) if change else None,
            became=fields.get(b"became", b"").decode(),
            unshown=fields.get(b"unshown", b"").decode(),
            message=fields.get(b"message", b"").decode(),
            waits_ms=int(fields.get(b"waits_ms") or 0),
            ended_ms=int(fields.get(b"closed_ms") or fields.get(b"answered_ms") or 0),
        )

    def encode(self) -> bytes:
        """Return the part of the request that never changes, as JSON."""
        values = {name: getattr(self, name) for name in _CONSTANT_FIELDS}
        values["session"] = str(self.session)
        values["file"] = self.file.model_dump() if self.file else None
        if self.change:
            values["change"] = asdict(self.change)
        return orjson.dumps(values)

    @property
    def kind(self) -> Literal["tool", "question", "plan", "change", "budget"]:
        """The kind of the request."""
        if self.budget:
            return "budget"
        if self.change:
            return "change"
        return "plan" if self.is_plan else "question" if self.is_question else "tool"

    @property
    def offered(self) -> tuple[tuple[str, str], ...]:
        """The possible answers, each with its label, in the order in which chats number them."""
        if self.incomplete:
            return tuple(each for each in self._answers if each[0] == "deny")
        return self._answers

    @property
    def _answers(self) -> tuple[tuple[str, str], ...]:
        if self.is_plan:
            return tuple(each for each in PLAN if each[0] != "edits" or self.offers_edits)
        if self.change:
            return CHANGE
        if self.budget:
            return tuple(zip(BUDGET, self.choices, strict=True))
        if not self.is_question:
            return PERMISSION
        numbered = ((str(number), label) for number, label in enumerate(self.choices, 1))
        return (*numbered, ("deny", "No answer"))

    @property
    def place(self) -> ChatPlace:
        """The chat in which the request is shown."""
        return self.chat or self.here

    @property
    def is_waiting(self) -> bool:
        """Whether the request can be answered."""
        return self.state in ("open", "lapsed")

    @property
    def can_pass(self) -> bool:
        """Whether the request can be answered, or its grant can still be used."""
        return self.is_waiting or self.state == "granted"


#: The fields that are stored as they are when the request is made.
_CONSTANT_FIELDS = (
    *("turn", "tool", "what", "where", "deliver", "people"),
    *("is_question", "choices", "is_multiple", "before", "is_plan", "offers_edits", "here", "chat"),
    *("is_again", "incomplete", "budget"),
)
