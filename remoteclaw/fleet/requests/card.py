"""The card of a request: the message that shows it, and the message that replaces the card."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import orjson

from remoteclaw.errors import RedisRefused
from remoteclaw.fleet import keys
from remoteclaw.fleet.lua import Values
from remoteclaw.fleet.replies.reply import reply_payload
from remoteclaw.fleet.requests.request import Request
from remoteclaw.host.terminal import one_line, with_note
from remoteclaw.messages import Attachment, ChatPlace, Entry, person
from remoteclaw.protocols import Card

#: The maximum number of open requests of one session, and of all sessions.
MAX_OF_SESSION, MAX_OF_ALL = 8, 1000
#: A request is kept for at least this long, in milliseconds.
MIN_KEEP_MS = 24 * 3600 * 1000
#: The placeholder for a request's result in the message that replaces the card. It contains the
#: request's id, which the agent doesn't know, so that the agent can't write the placeholder.
CLOSING = "%CLOSING-{id}%"

#: The message to the conversation whose request another chat shows, or can't show. It doesn't name
#: the action. The keys are parts of the messages' call names.
ELSEWHERE = {
    "shown_elsewhere": (
        "I have asked a person elsewhere (request `{id}`), and continue if they answer within a "
        "day."
    ),
    "unreached": (
        "Request `{id}` could not be shown, because the chat for requests can't be reached. A "
        "person who may answer it can do so here: `/allow {id}`, `/deny {id}` or, to a question, "
        "`/answer {id} TEXT`. `remoteclaw requests show {id}` shows the request, and why it could "
        "not be shown."
    ),
}

#: How the card refers to the file with the complete text.
ALL_OF_IT = "\n\nAll of it is in the file {name}."
#: Why a request without that file can only be denied.
NO_FILE = (
    "There is no room for a file with its complete text now, so it can only be denied: have the "
    "agent do it in smaller steps, or ask again later."
)

#: A card in another chat names at most this many of the people on whose behalf the agent asks.
MAX_NAMED = 3


@dataclass(frozen=True, slots=True)
class ShownCard:
    """The card of a request with the messages that follow it, each as the JSON of a reply."""

    stream: str
    """The reply stream of the chat that shows the card."""
    card: bytes
    """The card."""
    closing: bytes
    """The message that replaces the card, with a placeholder for the result of the request."""
    here: str | None = None
    """The reply stream of the conversation, if another chat shows the card."""
    elsewhere: Mapping[str, bytes] = field(default_factory=dict)
    """The messages to the conversation, by their keys in `ELSEWHERE`, if another chat shows the
    card."""


def make_card(
    request: Request, *, attempt: int, text: str, how: str = "", is_told: bool = False
) -> ShownCard:
    """Return the card of a request with `text`; `how` tells people how to answer it.

    If `is_told`, the conversation knows already that another chat shows the card.
    """

    def payload(
        place: ChatPlace, part: str, text: str, card: Card | None = None, *files: Attachment
    ) -> bytes:
        message = reply_payload(
            place,
            text,
            sid=request.session.sid,
            turn=request.turn,
            attempt=attempt,
            attachments=files,
            call=f"request:{request.id}{part}",
            card=card,
        )
        return orjson.dumps(message)

    at, here = request.place, request.here
    closing = CLOSING.format(id=request.id)
    elsewhere = {}
    if request.chat:
        elsewhere = {
            name: payload(here, f":{name}", template.format(id=request.id))
            for name, template in ELSEWHERE.items()
            if not (is_told and name == "shown_elsewhere")
        }
    card, files = Card(request.id, tuple(request.offered)), [request.file] if request.file else []
    return ShownCard(
        keys.replies(at.provider, at.account),
        payload(at, "", f"{text}{how}", card, *files),
        payload(at, ":closed", f"{text}\n\n{closing}", Card(request.id, ())),
        here=keys.replies(here.provider, here.account) if elsewhere else None,
        elsewhere=elsewhere,
    )


async def with_file(
    request: Request, full_text: str, store: Callable[[str, bytes], Awaitable[Attachment]]
) -> Request:
    """Return the request with `full_text` as a file; an empty one means that it needs none.

    `store` stores a file with a name and a content. If it raises `RedisRefused`, people can't see
    the whole action, so they can only deny it.
    """
    if not full_text:
        return request
    try:
        file = await store(f"request-{request.id}.txt", full_text.encode())
    except RedisRefused:
        return replace(request, what=with_note(request.what, NO_FILE), incomplete=NO_FILE)
    return replace(request, file=file)


def file_note(request: Request) -> str:
    """Return the sentence of a card about the file with its complete text, if there is one."""
    if request.file is None or request.incomplete:
        return ""
    return ALL_OF_IT.format(name=request.file.name)


def other_chat_note(request: Request, entries: Sequence[Entry]) -> str:
    """Return the people and the chat of a request that another chat shows, as Markdown; else "".

    `entries` are those of the turn; the people's names are taken from them.
    """
    if request.chat is None:
        return ""
    messages = [entry.message for entry in entries]
    names = {person(message.provider, message.from_): message.user_name for message in messages}
    people = [
        _code(each) + (f" ({_code(name)})" if (name := names.get(each)) else "")
        for each in request.people
    ]
    if more := len(people[MAX_NAMED:]):
        people[MAX_NAMED:] = [f"{more} more"]
    for_people = f" for {', '.join(people)}" if people else ""
    return f",{for_people} in {_code(str(request.here))},"


def _code(text: str) -> str:
    """Return untrusted text as inline code, without Markdown of its own."""
    return f"`{one_line(text, max_chars=120).replace('`', chr(39))}`"


def request_args(request: Request, shown: ShownCard | None, *, keep_ms: int) -> Values:
    """Return what a script needs to store a request and to send its card."""
    elsewhere = shown.elsewhere if shown else {}
    return {
        "replies": shown.stream if shown else None,
        "here": shown.here if shown else None,
        "file": keys.blob(request.session.sid, request.file.blob) if request.file else None,
        "request_id": request.id,
        "sid": request.session.sid,
        "request": request.encode(),
        "keep_ms": max(keep_ms, MIN_KEEP_MS),
        "max_open": MAX_OF_SESSION,
        "max_total": MAX_OF_ALL,
        "card": shown.card if shown else None,
        "closing": shown.closing if shown else None,
        "shown_elsewhere": elsewhere.get("shown_elsewhere"),
        "unreached": elsewhere.get("unreached"),
    }
