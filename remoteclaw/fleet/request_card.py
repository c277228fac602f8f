"""The card of a request: the message that shows it, and what takes its place."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import orjson

from remoteclaw.fleet import keys
from remoteclaw.fleet.lua import Arguments, Keys
from remoteclaw.fleet.reply import reply_payload
from remoteclaw.fleet.request import Request
from remoteclaw.host.terminal import one_line
from remoteclaw.messages import Attachment, ChatPlace, Entry, person
from remoteclaw.protocols import Card

#: How many requests of one session wait at once, and how many in all.
MAX_OF_SESSION, MAX_OF_ALL = 8, 1000
#: How long a request is kept at least, in milliseconds.
LEAST_KEPT_MS = 24 * 3600 * 1000
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
MAX_NAMED = 3


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
    if more := len(people[MAX_NAMED:]):
        people[MAX_NAMED:] = [f"{more} more"]
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
        "most": MAX_OF_SESSION,
        "most_of_all": MAX_OF_ALL,
        "card": shown.card if shown else None,
        "closing": shown.closing if shown else None,
        "told": elsewhere.get("told"),
        "here_closing": elsewhere.get("became"),
        "unreached": elsewhere.get("unreached"),
    }
