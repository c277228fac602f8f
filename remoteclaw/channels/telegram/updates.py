"""Updates of the Bot API, as they come, as messages of people.

They are read raw: the library fails a whole batch for one update of a shape that it doesn't know.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from remoteclaw.protocols import Choice, Incoming, IncomingFile

#: The kinds of updates that are asked for. Posts of channels are no messages of a person.
WANTED = ("message", "edited_message", "message_reaction", "callback_query")
#: How much of a quoted message is kept, in characters.
MAX_QUOTED = 1000

#: What stands before Telegram's id of a pressed button, in ours.
PRESSED = "pressed-"

_Raw = Mapping[str, Any]

#: The kinds of files, with the type and the ending of one that says neither.
_FILES = {
    "animation": ("video/mp4", ".mp4"),
    "audio": ("audio/mpeg", ".mp3"),
    "document": ("application/octet-stream", ""),
    "video": ("video/mp4", ".mp4"),
    "video_note": ("video/mp4", ".mp4"),
    "voice": ("audio/ogg", ".ogg"),
}


def incoming(updates: Iterable[_Raw], *, me: _Raw) -> list[Incoming]:
    """Return the messages of some updates, an album as one; `me` is the bot itself.

    What is no message of a person, such as a service message, is left out; what should be one and
    can't be read has a problem.
    """
    found: list[Incoming] = []
    albums: dict[str, int] = {}
    """Where they are."""
    for update in updates:
        kind = next((kind for kind in WANTED if kind in update), None)
        if kind is None:
            continue
        try:
            message = _told(update, kind, me)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            found.append(_unreadable(update, kind, error))
            continue
        if message is None:
            continue
        album = None if message.replaces else album_of(update)
        if album in albums:
            first = found[albums[album]]
            text = "\n".join(filter(None, (first.text, message.text)))
            found[albums[album]] = replace(first, text=text, files=first.files + message.files)
            continue
        if album is not None:
            albums[album] = len(found)
        found.append(message)
    return found


def album_of(update: _Raw) -> str | None:
    """Return the album that an update belongs to."""
    message = update.get("message")
    found = message.get("media_group_id") if isinstance(message, Mapping) else None
    return None if found is None else str(found)


def moved(chat: str, to: str) -> Incoming:
    """Return that a group has another id."""
    return Incoming(id=f"to {to}", chat=chat, is_group=True, sender=chat, at_ms=0, moved_to=to)


def _unreadable(update: _Raw, kind: str, error: Exception) -> Incoming:
    problem = f"its {kind} has a shape that is not known ({type(error).__name__})"
    name = f"update {update.get('update_id')}"
    return Incoming(id=name, chat="unknown", sender="unknown", at_ms=0, problem=problem)


def _told(update: _Raw, kind: str, me: _Raw) -> Incoming | None:
    number = int(update["update_id"])
    if kind == "message_reaction":
        return _reaction(update[kind], number)
    if kind == "callback_query":
        return _press(update[kind])
    return _message(update[kind], me, edit=number if kind == "edited_message" else 0)


def _reaction(raw: _Raw, number: int) -> Incoming | None:
    """Return how a person reacts to a message by now; None for a chat that does."""
    chat, sender = raw["chat"], raw.get("user")
    if chat["type"] == "channel" or sender is None:
        return None
    return Incoming(
        id=f"reaction-{number}",
        chat=str(chat["id"]),
        is_group=chat["type"] != "private",
        sender=str(sender["id"]),
        sender_name=_name(sender),
        is_bot=bool(sender.get("is_bot")),
        at_ms=int(raw["date"]) * 1000,
        reply_to=str(raw["message_id"]),
        reaction="".join(map(_emoji, raw["new_reaction"])),
    )


def _press(raw: _Raw) -> Incoming | None:
    """Return which button a person has pressed; None if it is below no message of a chat."""
    message, sender = raw.get("message"), raw["from"]
    if message is None:
        return None
    chat = message["chat"]
    request, _, verdict = str(raw.get("data", "")).partition(":")
    return Incoming(
        id=f"{PRESSED}{raw['id']}",
        chat=str(chat["id"]),
        thread=str(message["message_thread_id"]) if message.get("is_topic_message") else None,
        is_group=chat["type"] != "private",
        sender=str(sender["id"]),
        sender_name=_name(sender),
        is_bot=bool(sender.get("is_bot")),
        at_ms=int(message["date"]) * 1000,
        reply_to=str(message["message_id"]),
        choice=Choice(request, verdict),
    )


def _emoji(raw: _Raw) -> str:
    """Return a reaction; those of people's own making have a number in place of an emoji."""
    return str(raw["emoji"] if raw["type"] == "emoji" else f"({raw['type'].replace('_', ' ')})")


def _message(raw: _Raw, me: _Raw, *, edit: int) -> Incoming | None:
    """Return one message; None for an update that no person has sent."""
    chat, name = raw["chat"], str(raw["message_id"])
    if chat["type"] == "channel" or raw.get("is_automatic_forward") or "from" not in raw:
        return None
    sender, text, files = raw["from"], _text(raw, me), tuple(_files(raw))
    moved_to = raw.get("migrate_to_chat_id")
    if not text and not files and moved_to is None:
        return None
    answered = raw.get("reply_to_message") or {}
    if "forum_topic_created" in answered:  # so each message of a topic has it
        answered = {}
    quoted = (raw.get("quote") or {}).get("text") or answered.get("text") or answered.get("caption")
    is_group = chat["type"] != "private"
    return Incoming(
        id=f"{name}.{edit}" if edit else name,
        chat=str(chat["id"]),
        # Answers in a group without topics have the id of what they answer there.
        thread=str(raw["message_thread_id"]) if raw.get("is_topic_message") else None,
        is_group=is_group,
        sender=str(sender["id"]),
        sender_name=_name(sender),
        is_bot=bool(sender.get("is_bot")),
        at_ms=int(raw.get("edit_date") or raw["date"]) * 1000,
        text=text,
        files=files,
        reply_to=str(answered["message_id"]) if answered else None,
        quoted=(quoted or "")[:MAX_QUOTED],
        replaces=name if edit else None,
        is_for_us=not is_group or _is_for(me, raw, answered),
        moved_to=None if moved_to is None else str(moved_to),
    )


def _name(sender: _Raw) -> str:
    """Return what a person calls themselves; anyone may choose any name."""
    whole = " ".join(filter(None, (sender.get("first_name"), sender.get("last_name"))))
    return f"{whole} (@{sender['username']})" if sender.get("username") else whole


def _is_for(me: _Raw, raw: _Raw, answered: _Raw) -> bool:
    """Whether a message of a group mentions the bot, answers it, or is a command for it."""
    if answered.get("from", {}).get("id") == me["id"]:
        return True
    at_me = f"@{me['username']}".lower()
    for mark, words in _marks(raw):
        match mark["type"]:
            case "mention" if words.lower() == at_me:
                return True
            case "text_mention" if mark["user"]["id"] == me["id"]:
                return True
            case "bot_command" if "@" not in words or words.lower().endswith(at_me):
                return True
    return False


def _text(raw: _Raw, me: _Raw) -> str:
    """Return what a message says: code and links as Markdown, the bot's own name left out."""
    whole, pieces, at = _units(raw), [], 0
    for mark, words in _marks(raw):
        begin, end = 2 * mark["offset"], 2 * (mark["offset"] + mark["length"])
        if begin < at:  # inside of another one
            continue
        shown = _shown(mark, words, me, is_first=not whole[:begin].strip(b" \n\0"))
        pieces += [whole[at:begin].decode("utf-16-le", "replace"), shown]
        at = end
    text = "".join([*pieces, whole[at:].decode("utf-16-le", "replace")]).strip()
    origin = raw.get("forward_origin")
    head = f"(Forwarded from {_origin(origin)}:)\n" if origin and text else ""
    return head + (text or _described(raw))


def _marks(raw: _Raw) -> Iterator[tuple[_Raw, str]]:
    """Yield the entities of a text with their words, in order."""
    marks = raw.get("entities") or raw.get("caption_entities") or ()
    whole = _units(raw)
    for mark in sorted(marks, key=lambda mark: (mark["offset"], -mark["length"])):
        begin, end = 2 * mark["offset"], 2 * (mark["offset"] + mark["length"])
        yield mark, whole[begin:end].decode("utf-16-le", "replace")


def _units(raw: _Raw) -> bytes:
    text: str = raw.get("text") or raw.get("caption") or ""
    return text.encode("utf-16-le", "surrogatepass")


def _shown(mark: _Raw, words: str, me: _Raw, *, is_first: bool) -> str:
    at_me = f"@{me['username']}".lower()
    match mark["type"]:
        case "pre":
            return f"```{mark.get('language', '')}\n{words}\n```"
        case "code":
            return f"`{words}`"
        case "text_link" if mark["url"] != words:
            return f"[{words}]({mark['url']})"
        case "bot_command" if words.lower().endswith(at_me):
            return words[: -len(at_me)]
        case "mention" if is_first and words.lower() == at_me:
            return ""
    return words


def _origin(origin: _Raw) -> str:
    user, chat = origin.get("sender_user"), origin.get("sender_chat") or origin.get("chat")
    if user:
        return _name(user)
    return str(origin.get("sender_user_name") or (chat or {}).get("title") or "elsewhere")


def _described(raw: _Raw) -> str:
    """Return words for what is neither text nor file; nothing for service messages."""
    match raw:
        case {"sticker": sticker}:
            return f"(a sticker: {sticker.get('emoji', 'no emoji')})"
        case {"venue": {"title": title, "address": address}}:
            return f"(a place: {title}, {address})"
        case {"location": {"latitude": latitude, "longitude": longitude}}:
            return f"(a place: {latitude}, {longitude})"
        case {"contact": {"phone_number": number} as contact}:
            return f"(a contact: {_name(contact)}, {number})"
        case {"poll": {"question": question, "options": options}}:
            return f"(a poll: {question} {' / '.join(option['text'] for option in options)})"
        case {"dice": {"emoji": emoji, "value": value}}:
            return f"({emoji} {value})"
    return ""


def _files(raw: _Raw) -> Iterator[IncomingFile]:
    if sizes := raw.get("photo"):
        best = max(sizes, key=lambda size: size["width"] * size["height"])
        yield _file(best, f"photo-{raw['message_id']}.jpg", "image/jpeg")
    for kind, (mime_type, ending) in _FILES.items():
        if kind in raw and not (kind == "document" and "animation" in raw):  # the same file twice
            named = f"{kind}-{raw['message_id']}{ending}"
            yield _file(raw[kind], named, mime_type)


def _file(raw: _Raw, name: str, mime_type: str) -> IncomingFile:
    return IncomingFile(
        id=raw["file_id"],
        name=raw.get("file_name") or name,
        mime_type=raw.get("mime_type") or mime_type,
        size=raw.get("file_size"),
    )
