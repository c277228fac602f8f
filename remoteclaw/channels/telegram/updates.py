"""Converts updates of the Bot API to messages.

Updates are parsed here because the library fails a whole batch for one update of an unknown form.
"""

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Literal

from remoteclaw.channels.telegram.writer import MAX_UNITS
from remoteclaw.protocols import Choice, Incoming, IncomingFile

#: The kinds of updates to request. Posts of channels are left out: no person is their sender.
UPDATE_KINDS = (
    "message",
    "edited_message",
    "message_reaction",
    "callback_query",
    "my_chat_member",
)
#: An app cuts a text that is longer than Telegram's limit, at a blank shortly before the limit if
#: there is one. So a text of this length may continue, in units of UTF-16.
LONG_UNITS = 4000
#: The messages of one act have times that differ by this much at most, in seconds.
ONE_ACT_S = 1
#: The part of a quoted message that is kept, in characters.
MAX_QUOTED_CHARS = 1000

#: Descriptions of a quoted message, for the agent.
IN_ALBUM = "(One of several files that were sent together: Telegram passes on no other one.)"
UNKNOWN_KIND = "(A message of a kind that bots can't read.)"

#: The fields of messages that report an event of a chat, to which no person expects an answer.
SERVICE_KINDS = frozenset(
    (
        "boost_added channel_chat_created chat_background_set chat_owner_changed chat_owner_left "
        "chat_shared checklist_tasks_added checklist_tasks_done community_chat_added "
        "community_chat_joined community_chat_removed connected_website delete_chat_photo "
        "direct_message_price_changed forum_topic_closed forum_topic_created forum_topic_edited "
        "forum_topic_reopened general_forum_topic_hidden general_forum_topic_unhidden "
        "gift_upgrade_sent giveaway_completed giveaway_created group_chat_created left_chat_member "
        "managed_bot_created message_auto_delete_timer_changed migrate_from_chat_id "
        "new_chat_members new_chat_photo new_chat_title paid_message_price_changed pinned_message "
        "poll_option_added poll_option_deleted proximity_alert_triggered refunded_payment "
        "successful_payment suggested_post_approval_failed suggested_post_approved "
        "suggested_post_declined suggested_post_paid suggested_post_refunded "
        "supergroup_chat_created users_shared video_chat_ended "
        "video_chat_participants_invited video_chat_scheduled video_chat_started web_app_data "
        "write_access_allowed"
    ).split()
)
#: The fields of messages besides their content that may occur in messages without text and file.
ENVELOPE = frozenset(
    (
        "author_signature chat date effect_id external_reply forward_origin from "
        "has_protected_content is_from_offline is_topic_message media_group_id message_id "
        "message_thread_id quote reply_to_message reply_to_story sender_boost_count sender_chat "
        "sender_tag via_bot"
    ).split()
)

#: The fields of messages with a text from elsewhere, such as that of an inline bot.
FROM_ELSEWHERE = frozenset(("external_reply", "forward_origin", "reply_to_story", "via_bot"))

#: The prefix of a button press's message id, before Telegram's id of the callback query.
PRESSED = "pressed-"

_Raw = Mapping[str, Any]

#: The kinds of files, with the default MIME type and file extension of each.
_FILES = {
    "animation": ("video/mp4", ".mp4"),
    "audio": ("audio/mpeg", ".mp3"),
    "document": ("application/octet-stream", ""),
    "video": ("video/mp4", ".mp4"),
    "video_note": ("video/mp4", ".mp4"),
    "voice": ("audio/ogg", ".ogg"),
}


def incoming(updates: Iterable[_Raw], *, me: _Raw) -> list[Incoming]:
    """Return the messages of `updates`. `me` is the bot's user.

    An update that is no message of a person, such as a service message, becomes an `Incoming` that
    is `left_out`, and a message of an unknown form or kind one with a `problem`.
    """
    messages: list[Incoming] = []
    previous: dict[int, _Raw] = {}
    """The newest message of each chat."""
    for update in updates:
        kind = next((kind for kind in UPDATE_KINDS if kind in update), None)
        if kind is None:
            kinds = ", ".join(sorted(map(str, update.keys() - {"update_id"})))
            messages.append(_left_out(update, f"an update of the kind {kinds}"))
            continue
        try:
            message = _parse(update, kind, me)
            if message and kind == "message":
                raw = update[kind]
                before = previous.get(raw["chat"]["id"])
                message = replace(message, continues=_gap(before, raw) if before else None)
                previous[raw["chat"]["id"]] = raw
        except _LeftOut as why:
            messages.append(_left_out(update, str(why)))
            continue
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            messages.append(_unreadable(update, kind, error))
            continue
        if message is not None:
            messages.append(message)
    return messages


def _gap(before: _Raw, raw: _Raw) -> str | None:
    """Return the text between two messages of one act; None if they are two acts.

    `before` is the previous message of the chat. An act is an album, a long text that the person's
    app has split, or forwarded messages with a comment before them.
    """
    if before["from"]["id"] != raw["from"]["id"] or _thread(before) != _thread(raw):
        return None
    if (album := raw.get("media_group_id")) is not None and before.get("media_group_id") == album:
        return "\n"
    if raw["date"] - before["date"] > ONE_ACT_S:
        return None
    if is_long(before) and "forward_origin" not in raw and "text" in raw:
        # The app cuts at a blank if it can, and drops it.
        return "" if _units(before) >= MAX_UNITS else "\n"
    is_comment = "text" in before and not before["text"].startswith("/")
    if "forward_origin" in raw and ("forward_origin" in before or is_comment):
        return "\n\n"
    return None


def may_continue(update: _Raw) -> Literal["album", "text", "comment"] | None:
    """Return why the next update may belong to the same act as this one; None if it can't."""
    raw = update.get("message")
    if not isinstance(raw, Mapping):
        return None
    if raw.get("media_group_id") is not None:
        return "album"
    if is_long(raw):
        return "text"
    return "comment" if "text" in raw or "forward_origin" in raw else None


def is_long(raw: _Raw) -> bool:
    """Whether a message may be the beginning of a longer text that the person's app has split."""
    return "forward_origin" not in raw and _units(raw) >= LONG_UNITS


def _units(raw: _Raw) -> int:
    """Return the length of a message's text in Telegram's units."""
    text = raw.get("text")
    return len(_encoded(raw)) // 2 if isinstance(text, str) else 0


def id_change(chat: str, to: str) -> Incoming:
    """Return a message that reports the new id `to` of a group."""
    return Incoming(id=f"to {to}", chat=chat, is_group=True, sender=chat, at_ms=0, moved_to=to)


class _LeftOut(Exception):
    """Raised for an update that is no message of a person; its text is the reason."""


def _left_out(update: _Raw, why: str) -> Incoming:
    name = f"update {update.get('update_id')}"
    return Incoming(id=name, chat="unknown", sender="unknown", at_ms=0, left_out=why)


def _unreadable(update: _Raw, kind: str, error: Exception) -> Incoming:
    problem = f"it has a shape that is not known here ({kind}: {type(error).__name__})"
    if kind == "message":
        with contextlib.suppress(KeyError, TypeError, ValueError, AttributeError, _LeftOut):
            return replace(_envelope(update[kind]), problem=problem)
    return replace(_left_out(update, ""), problem=problem, is_for_us=False)


def _parse(update: _Raw, kind: str, me: _Raw) -> Incoming | None:
    """Return the message of an update; None if it changes nothing. Raises `_LeftOut`."""
    number = int(update["update_id"])
    if kind == "message_reaction":
        return _reaction(update[kind], number)
    if kind == "callback_query":
        return _press(update[kind])
    if kind == "my_chat_member":
        return _removal(update[kind], number)
    return _message(update[kind], me, edit=number if kind == "edited_message" else 0)


def _reaction(raw: _Raw, number: int) -> Incoming:
    """Return a person's current reaction to a message. Raises `_LeftOut` for those of chats."""
    chat, sender = raw["chat"], raw.get("user")
    if chat["type"] == "channel" or sender is None:
        raise _LeftOut("a reaction of a chat")
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


def _press(raw: _Raw) -> Incoming:
    """Return the press of a button. Raises `_LeftOut` if its message is in no chat."""
    message, sender = raw.get("message"), raw["from"]
    if message is None:
        raise _LeftOut("a press of a button whose message is in no chat")
    chat = message["chat"]
    request, _, verdict = str(raw.get("data", "")).partition(":")
    return Incoming(
        id=f"{PRESSED}{raw['id']}",
        chat=str(chat["id"]),
        thread=_thread(message),
        is_group=chat["type"] != "private",
        sender=str(sender["id"]),
        sender_name=_name(sender),
        is_bot=bool(sender.get("is_bot")),
        at_ms=int(message["date"]) * 1000,
        reply_to=str(message["message_id"]),
        choice=Choice(request, verdict),
    )


def _removal(raw: _Raw, number: int) -> Incoming:
    """Return the removal of the bot from a group. Raises `_LeftOut` for any other change.

    Nothing is reported for a group that becomes a supergroup, which the bot does not leave.
    """
    chat, sender, now = raw["chat"], raw["from"], raw["new_chat_member"]
    is_gone = now["status"] in ("left", "kicked") or now.get("is_member") is False
    if not is_gone or chat["type"] not in ("group", "supergroup"):
        raise _LeftOut(f"a change of the bot's membership ({chat['type']}, {now['status']})")
    return Incoming(
        id=f"member-{number}",
        chat=str(chat["id"]),
        is_group=True,
        sender=str(sender["id"]),
        sender_name=_name(sender),
        is_bot=bool(sender.get("is_bot")),
        at_ms=int(raw["date"]) * 1000,
        invitation="removed",
    )


def _emoji(raw: _Raw) -> str:
    """Return the emoji of a reaction; for any other reaction, such as a custom one, its type."""
    return str(raw["emoji"] if raw["type"] == "emoji" else f"({raw['type'].replace('_', ' ')})")


def _message(raw: _Raw, me: _Raw, *, edit: int) -> Incoming | None:
    """Return a message, or the edit of one if `edit` is not 0; None if the edit changes nothing.

    `edit` is the id of the update, which makes the ids of a message's edits unique. Raises
    `_LeftOut` if no person sent the message.
    """
    envelope, text, files = _envelope(raw), _text(raw, me), tuple(_files(raw))
    if edit and not files and "text" not in raw:
        return None  # for example a live location, which Telegram edits every few seconds
    moved_to = raw.get("migrate_to_chat_id")
    if service := ", ".join(sorted(SERVICE_KINDS & raw.keys())):
        raise _LeftOut(f"a service message ({service})")
    answered = raw.get("reply_to_message") or {}
    if "forum_topic_created" in answered:  # each message of a topic formally answers its creation
        answered = {}
    problem = ""
    if not text and not files and moved_to is None:
        kinds = ", ".join(sorted(map(str, raw.keys() - ENVELOPE))) or "empty"
        problem = f"it is of a kind that can't be read here ({kinds})"
    return replace(
        envelope,
        id=f"{envelope.id}.{edit}" if edit else envelope.id,
        text=text,
        problem=problem,
        files=files,
        reply_to=str(answered["message_id"]) if answered else None,
        quoted=_quoted(raw, answered)[:MAX_QUOTED_CHARS],
        quoted_files=tuple(_files(answered or raw.get("external_reply") or {})),
        is_forwarded=bool(FROM_ELSEWHERE & raw.keys()),
        replaces=envelope.id if edit else None,
        is_for_us=not envelope.is_group or _is_for(me, raw, answered),
        moved_to=None if moved_to is None else str(moved_to),
    )


def _envelope(raw: _Raw) -> Incoming:
    """Return a message without its content. Raises `_LeftOut` if no person sent it."""
    chat = raw["chat"]
    if chat["type"] == "channel" or raw.get("is_automatic_forward"):
        raise _LeftOut("a post of a channel")
    if "from" not in raw:
        raise _LeftOut("a message without a sender")
    sender, as_chat = raw["from"], raw.get("sender_chat")
    if as_chat is not None:  # then the sender is one of Telegram's own bots
        title = [as_chat.get("title"), raw.get("author_signature")]
        if as_chat["id"] == chat["id"]:
            title[0], as_chat = "an anonymous administrator", sender
        sender = {"id": as_chat["id"], "first_name": ", ".join(filter(None, title))}
    return Incoming(
        id=str(raw["message_id"]),
        chat=str(chat["id"]),
        thread=_thread(raw),
        is_group=chat["type"] != "private",
        sender=str(sender["id"]),
        sender_name=_name(sender),
        is_bot=bool(sender.get("is_bot")),
        is_anonymous="sender_chat" in raw,
        is_for_us=chat["type"] == "private",
        at_ms=int(raw.get("edit_date") or raw["date"]) * 1000,
    )


def _thread(raw: _Raw) -> str | None:
    """Return the topic of a message; None if it is in none."""
    # Without topics, `message_thread_id` is the id of the message that is answered.
    return str(raw["message_thread_id"]) if raw.get("is_topic_message") else None


def _quoted(raw: _Raw, answered: _Raw) -> str:
    """Return the text of the message that is `answered`, or a description of one without text.

    The message may also be in another chat, or be a story. The passage that the sender has chosen
    takes precedence over the whole text.
    """
    elsewhere = raw.get("external_reply") or {}
    if "reply_to_story" in raw:
        elsewhere = {"story": raw["reply_to_story"]}
    about = answered or elsewhere
    if not about:
        return ""
    text = (raw.get("quote") or {}).get("text") or about.get("text") or about.get("caption")
    head = f"(From {_origin(about['origin'])}, in another chat:)" if "origin" in about else ""
    album = IN_ALBUM if "media_group_id" in about else ""
    text = text or _description(about) or ("" if any(_files(about)) else UNKNOWN_KIND)
    return "\n".join(filter(None, (head, album, text)))


def _name(sender: _Raw) -> str:
    """Return a person's display name, which is chosen freely and identifies nobody."""
    name = " ".join(filter(None, (sender.get("first_name"), sender.get("last_name"))))
    return f"{name} (@{sender['username']})" if sender.get("username") else name


def _is_for(me: _Raw, raw: _Raw, answered: _Raw) -> bool:
    """Whether a group message mentions the bot, answers one of its messages, or is a command."""
    if answered.get("from", {}).get("id") == me["id"]:
        return True
    mention = f"@{me['username']}".lower()
    for entity, text in _entities(raw):
        match entity["type"]:
            case "mention" if text.lower() == mention:
                return True
            case "text_mention" if entity["user"]["id"] == me["id"]:
                return True
            case "bot_command" if "@" not in text or text.lower().endswith(mention):
                return True
    return False


def _text(raw: _Raw, me: _Raw) -> str:
    """Return a message's text, with code and links as Markdown and without the bot's own name.

    A message without text, such as a sticker, is described.
    """
    encoded, pieces, position = _encoded(raw), [], 0
    for entity, text in _entities(raw):
        begin, end = 2 * entity["offset"], 2 * (entity["offset"] + entity["length"])
        if begin < position:  # nested in the previous entity
            continue
        is_first = not encoded[:begin].strip(b" \n\0")
        pieces.append(encoded[position:begin].decode("utf-16-le", "replace"))
        pieces.append(_markdown(entity, text, me, is_first=is_first))
        position = end
    text = "".join([*pieces, encoded[position:].decode("utf-16-le", "replace")]).strip()
    text, origin = text or _description(raw), raw.get("forward_origin")
    return f"(Forwarded from {_origin(origin)}:)\n{text}" if origin and text else text


def _entities(raw: _Raw) -> Iterator[tuple[_Raw, str]]:
    """Yield the entities of a message's text in order, each with its part of the text."""
    entities = raw.get("entities") or raw.get("caption_entities") or ()
    encoded = _encoded(raw)
    for entity in sorted(entities, key=lambda entity: (entity["offset"], -entity["length"])):
        begin, end = 2 * entity["offset"], 2 * (entity["offset"] + entity["length"])
        yield entity, encoded[begin:end].decode("utf-16-le", "replace")


def _encoded(raw: _Raw) -> bytes:
    """Return a message's text in UTF-16, whose units the offsets of entities count."""
    text: str = raw.get("text") or raw.get("caption") or ""
    return text.encode("utf-16-le", "surrogatepass")


def _markdown(entity: _Raw, text: str, me: _Raw, *, is_first: bool) -> str:
    """Return an entity's part of the text as Markdown. `is_first` means that it begins the text."""
    mention = f"@{me['username']}".lower()
    match entity["type"]:
        case "pre":
            return f"```{entity.get('language', '')}\n{text}\n```"
        case "code":
            return f"`{text}`"
        case "text_link" if entity["url"] != text:
            return f"[{text}]({entity['url']})"
        case "bot_command" if text.lower().endswith(mention):
            return text[: -len(mention)]
        case "mention" if is_first and text.lower() == mention:
            return ""
    return text


def _origin(origin: _Raw) -> str:
    """Return the name of the person or chat that a message is forwarded from."""
    user, chat = origin.get("sender_user"), origin.get("sender_chat") or origin.get("chat")
    if user:
        return _name(user)
    return str(origin.get("sender_user_name") or (chat or {}).get("title") or "elsewhere")


def _description(raw: _Raw) -> str:
    """Return a description of a sticker, place, contact, poll, checklist, game, story or dice.

    Return an empty text for anything else.
    """
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
        case {"checklist": {"title": title, "tasks": tasks}}:
            return f"(a checklist: {title} {' / '.join(task['text'] for task in tasks)})"
        case {"game": {"title": title, "description": description}}:
            return f"(a game: {title}, {description})"
        case {"story": _}:
            return "(a story, which bots can't see)"
        case {"dice": {"emoji": emoji, "value": value}}:
            return f"({emoji} {value})"
    return ""


def _files(raw: _Raw) -> Iterator[IncomingFile]:
    name = raw.get("message_id", "elsewhere")  # a message of another chat may have no id
    if sizes := raw.get("photo") or raw.get("live_photo", {}).get("photo"):
        best = max(sizes, key=lambda size: size["width"] * size["height"])
        yield _file(best, f"photo-{name}.jpg", "image/jpeg")
    for kind, (mime_type, extension) in _FILES.items():
        # An animation is also listed as a document, with the same file.
        if kind in raw and not (kind == "document" and "animation" in raw):
            default_name = f"{kind}-{name}{extension}"
            yield _file(raw[kind], default_name, mime_type)


def _file(raw: _Raw, name: str, mime_type: str) -> IncomingFile:
    """Return a file; `name` and `mime_type` are used if Telegram gives none."""
    return IncomingFile(
        id=raw["file_id"],
        name=raw.get("file_name") or name,
        mime_type=raw.get("mime_type") or mime_type,
        size=raw.get("file_size"),
        lasting_id=raw.get("file_unique_id", ""),
    )
