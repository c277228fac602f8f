"""The history of a chat, as far as RemoteClaw saw it: messages of both sides, reactions to ours.

Some platforms give bots no history: then this is what an agent reads. It is short, and it is not
the session's record: tools and other sessions write to a chat, too.
"""

from collections.abc import Sequence
from typing import Any

import orjson

from remoteclaw.clock import boottime
from remoteclaw.fleet import keys
from remoteclaw.fleet.connection import Scripts
from remoteclaw.fleet.inbound import APPEND_S
from remoteclaw.messages import ChannelMessage, Reaction

#: How many entries of a chat are kept, and the longest text of one, in characters.
MOST, LONGEST = 150, 1000
#: Who has written what is ours.
OURS = "you"
#: How many entries are searched for reactions that the agent was not told of.
LOOK_BACK = 50


class History:
    """What passed through chats."""

    def __init__(self, scripts: Scripts) -> None:
        self._scripts = scripts

    async def add_message(
        self,
        message: ChannelMessage,
        text: str,
        files: Sequence[str],
        *,
        once: str,
        sid: str | None,
        keep_ms: int,
    ) -> list[Reaction]:
        """Note what a person has written, `once`: a message that goes to a session, or a command.

        It is kept for so long behind the last of the chat, for 0 not at all. Return the reactions
        to that session's messages since the last one that went there.
        """
        line = {
            "ids": [message.id],
            "sid": sid,
            "thread": message.thread_id,
            "text": shortened(text),
            "files": files,
            "at": message.timestamp,
            "replaces": message.replaces,
        }
        before = await self._add(message, line, once, keep_ms)
        return _untold(before, sid) if sid else []

    async def add_reaction(
        self, message: ChannelMessage, emoji: str, *, once: str, sid: str, keep_ms: int
    ) -> None:
        """Note how a person reacts by now to a message of a session, that it is a reply to."""
        line = {"of": message.reply_to_id, "emoji": shortened(emoji), "sid": sid}
        await self._add(message, line, once, keep_ms)

    async def _add(
        self, message: ChannelMessage, line: dict[str, Any], once: str, keep_ms: int
    ) -> list[dict[str, Any]]:
        if not keep_ms:
            return []
        by = {"from": message.from_, "name": message.user_name}
        before = await self._scripts.run(
            "pass",
            keys={"history": keys.history(message.provider, message.account, message.channel_id)},
            args={
                "name": once,
                "line": orjson.dumps({**line, **by}),
                "most": MOST,
                "keep_ms": keep_ms,
                "look_back": LOOK_BACK,
            },
            deadline=boottime() + APPEND_S,
        )
        return [_line(entry_id, fields[3]) for entry_id, fields in before]

    async def read(
        self, provider: str, account: str, chat: str, *, thread: str | None, limit: int
    ) -> list[dict[str, Any]]:
        """Return the newest messages of a thread, or of a whole chat, oldest first."""
        history = keys.history(provider, account, chat)
        entries = await self._scripts.call(self._scripts.client.xrevrange, history)
        found: list[dict[str, Any]] = []
        reactions: dict[str, dict[str, dict[str, Any]]] = {}
        for entry_id, fields in entries:
            line = _line(entry_id, fields[b"line"])
            if "of" in line:
                reactions.setdefault(line["of"], {}).setdefault(line["from"], line)
                continue
            # A group that has moved reuses numbers: the newest message of a number is meant.
            to_it = [reactions.pop(id_, {}) for id_ in line["ids"]]
            if thread in (None, line["thread"]) and len(found) < limit:
                found.append(_message(line, [one for by in to_it for one in by.values()]))
        return found[::-1]


def shortened(text: str) -> str:
    """Return as much of a text as is kept."""
    text = text[: LONGEST + 1].encode(errors="replace").decode()
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def _line(entry_id: bytes, line: bytes) -> dict[str, Any]:
    """Return an entry as it was noted, with its time."""
    return {"at": int(entry_id.partition(b"-")[0]), **orjson.loads(line)}


def _message(line: dict[str, Any], reactions: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return a message as an adapter tells it that has read it."""
    first, *more = line["ids"] or [None]
    told = {name: line.get(name) for name in ("name", "text", "at", "thread", "files", "replaces")}
    told |= {"id": first, "moreIds": more, "from": line.get("from", OURS)}
    standing = (one for one in reactions if one["emoji"])
    names = ("from", "name", "emoji")
    return told | {"reactions": [{name: one[name] for name in names} for one in standing]}


def _untold(before: Sequence[dict[str, Any]], sid: str) -> list[Reaction]:
    """Return the reactions behind the last message to a session; `before` is newest first."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    texts: dict[str, str] = {}
    is_told = False
    for line in before:
        if "of" in line:
            if line["sid"] == sid and not is_told:
                found.setdefault((line["of"], line["from"]), line)
            continue
        texts.update({id_: line["text"] for id_ in line["ids"] if id_ not in texts})
        is_told = is_told or (line["sid"] == sid and "from" in line)
    return [
        Reaction(
            from_=line["from"],
            user_name=line["name"],
            emoji=line["emoji"],
            message_id=line["of"],
            text=texts.get(line["of"]),
        )
        for line in reversed(found.values())
        if line["emoji"]
    ]
