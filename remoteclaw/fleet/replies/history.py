"""The history of each chat: the messages and reactions that passed through RemoteClaw.

Some platforms give bots no access to a chat's history; there, agents read this one. It is short. It
differs from the session's record, because tools and other sessions write to the chat as well.
"""

from collections.abc import Sequence
from typing import Any, Literal

import orjson

from remoteclaw.clock import boottime
from remoteclaw.fleet import keys
from remoteclaw.fleet.connection import Scripts
from remoteclaw.fleet.turns.inbound import APPEND_S
from remoteclaw.messages import ChannelMessage, ChatPlace, Reaction

#: The history of a chat has at most this many entries, the newest ones.
MAX_ENTRIES = 150
#: The text of an entry is cut to this length, in characters.
MAX_TEXT_CHARS = 1000
#: The `from` of messages that an agent or RemoteClaw has written.
OURS = "you"
#: At most this many entries are searched for reactions that the agent has not received yet.
MAX_SEARCHED_ENTRIES = 50


class History:
    """Writes and reads the histories of chats."""

    def __init__(self, scripts: Scripts) -> None:
        self._scripts = scripts

    async def add_message(
        self,
        message: ChannelMessage,
        text: str,
        files: Sequence[str],
        *,
        more_ids: Sequence[str] = (),
        once: str,
        sid: str | None,
        keep_ms: int,
    ) -> list[Reaction]:
        """Add a person's message, and return the reactions that the session has not received yet.

        `sid` is the session to which the message goes; None for a command. The returned reactions
        are those to this session's messages since the last message that went to it.
        `more_ids` are the ids of the messages that were joined to it.
        `once` is a name of the message: a second one with the same name is not added.
        The history expires `keep_ms` after the chat's last message; with 0, nothing is kept.
        """
        line = {
            "ids": [message.id, *more_ids],
            "sid": sid,
            "thread": message.thread_id,
            "text": shortened(text),
            "files": files,
            "at": message.timestamp,
            "replaces": message.replaces,
        }
        earlier_lines = await self._add(message, line, once, keep_ms)
        return _new_reactions(earlier_lines, sid) if sid else []

    async def add_reaction(
        self,
        message: ChannelMessage,
        emoji: str,
        *,
        change: Literal["added", "removed"] | None,
        once: str,
        sid: str,
        keep_ms: int,
    ) -> None:
        """Add a person's reaction to a message of the session `sid`, which `message` replies to.

        It replaces the person's earlier reactions to that message, and an empty `emoji` removes
        them; with a `change`, one emoji is added to them or removed from them.
        """
        line = {"of": message.reply_to_id, "emoji": shortened(emoji), "sid": sid, "change": change}
        await self._add(message, line, once, keep_ms)

    async def forget(self, place: ChatPlace, message_id: str) -> None:
        """Remove a message that its sender has deleted."""
        await self._scripts.run(
            "forget_message",
            id=message_id,
            history=keys.history(place.provider, place.account, place.chat),
            deadline=boottime() + APPEND_S,
        )

    async def _add(
        self, message: ChannelMessage, line: dict[str, Any], once: str, keep_ms: int
    ) -> list[dict[str, Any]]:
        """Add an entry to the chat's history; return the entries before it, newest first."""
        if not keep_ms:
            return []
        sender = {"from": message.from_, "name": message.user_name}
        earlier = await self._scripts.run(
            "add_history",
            name=once,
            line=orjson.dumps({**line, **sender}),
            max_entries=MAX_ENTRIES,
            keep_ms=keep_ms,
            max_searched=MAX_SEARCHED_ENTRIES,
            history=keys.history(message.provider, message.account, message.channel_id),
            deadline=boottime() + APPEND_S,
        )
        return [_line(entry_id, fields[3]) for entry_id, fields in earlier]

    async def read(
        self, provider: str, account: str, chat: str, *, thread: str | None, limit: int
    ) -> list[dict[str, Any]]:
        """Return the newest `limit` messages of a thread, oldest first.

        With `thread` None, return the messages of the whole chat.
        """
        history = keys.history(provider, account, chat)
        entries = await self._scripts.call(self._scripts.client.xrevrange, history)
        messages: list[dict[str, Any]] = []
        reactions: dict[str, dict[str, list[dict[str, Any]]]] = {}
        """The reactions of each person, newest first, by the id of the message."""
        for entry_id, fields in entries:
            line = _line(entry_id, fields[b"line"])
            if "of" in line:
                reactions.setdefault(line["of"], {}).setdefault(line["from"], []).append(line)
                continue
            # A group whose id has changed numbers its messages from 1 again. A reaction belongs to
            # the newest message with its number.
            by_person = [reactions.pop(id_, {}) for id_ in line["ids"]]
            if thread in (None, line["thread"]) and len(messages) < limit:
                current = [_current(each) for by in by_person for each in by.values()]
                messages.append(_message(line, current))
        return messages[::-1]

    async def find(
        self, provider: str, account: str, chat: str, message_id: str
    ) -> dict[str, Any] | None:
        """Return a message of a chat in the form of `read()`; None if it is not kept."""
        messages = await self.read(provider, account, chat, thread=None, limit=MAX_ENTRIES)
        known = (each for each in messages[::-1] if message_id in (each["id"], *each["moreIds"]))
        return next(known, None)


def shortened(text: str) -> str:
    """Return a text cut to `MAX_TEXT_CHARS`."""
    text = text[: MAX_TEXT_CHARS + 1].encode(errors="replace").decode()
    return text if len(text) <= MAX_TEXT_CHARS else text[: MAX_TEXT_CHARS - 1] + "…"


def _line(entry_id: bytes, line: bytes) -> dict[str, Any]:
    """Return the stored data of an entry, with its time as `at` unless the data has one."""
    return {"at": int(entry_id.partition(b"-")[0]), **orjson.loads(line)}


def _message(line: dict[str, Any], reactions: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return a message in the form in which adapters return messages that they read."""
    first_id, *more_ids = line["ids"] or [None]
    fields = ("name", "text", "at", "thread", "files", "replaces")
    message = {name: line.get(name) for name in fields}
    message |= {"id": first_id, "moreIds": more_ids, "from": line.get("from", OURS)}
    names = ("from", "name", "emoji")
    return message | {
        "reactions": [{name: each[name] for name in names} for each in reactions if each["emoji"]]
    }


def _current(reactions: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the newest of a person's reactions to a message, with all emoji that remain."""
    emoji: list[str] = []
    for line in reversed(reactions):
        if line.get("change") is None:
            emoji = [line["emoji"]]
        else:
            emoji = [each for each in emoji if each != line["emoji"]]
            emoji += [line["emoji"]] * (line["change"] == "added")
    return {**reactions[0], "emoji": "".join(emoji)}


def _new_reactions(lines: Sequence[dict[str, Any]], sid: str) -> list[Reaction]:
    """Return the reactions to a session's messages since the last message that went to the session.

    `lines` are the chat's entries, newest first.
    """
    reactions: dict[tuple[str, str], list[dict[str, Any]]] = {}
    """The reactions, newest first, by the ids of their message and of their person."""
    texts: dict[str, str] = {}
    is_older = False
    """Whether the entry is older than the last message that went to the session."""
    for line in lines:
        if "of" in line:
            if line["sid"] == sid and not is_older:
                reactions.setdefault((line["of"], line["from"]), []).append(line)
            elif earlier := reactions.get((line["of"], line["from"])):
                earlier.append(line)
            continue
        texts.update({id_: line["text"] for id_ in line["ids"] if id_ not in texts})
        is_older = is_older or (line["sid"] == sid and "from" in line)
    return [
        Reaction(
            from_=line["from"],
            user_name=line["name"],
            emoji=line["emoji"],
            message_id=line["of"],
            text=texts.get(line["of"]),
        )
        for line in map(_current, reversed(reactions.values()))
        if line["emoji"]
    ]
