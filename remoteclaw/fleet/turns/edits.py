"""Edits: what becomes of a message that its sender changes or deletes, or that is reported again.

Platforms report a message again for other reasons than an edit, such as its first reaction. So what
is known of each message for 7 days includes a digest of its content, and only another content is an
edit. An edit never makes a message run a second time.
"""

import hashlib
from collections.abc import Sequence
from typing import Literal, NamedTuple

import orjson

from remoteclaw.clock import boottime
from remoteclaw.errors import MessageRefused, RedisRefused
from remoteclaw.fleet import keys
from remoteclaw.fleet.connection import Scripts
from remoteclaw.fleet.turns.inbound import (
    APPEND_S,
    CROWDED,
    DEDUPE_MS,
    FULL,
    INCOMPLETE,
    Known,
    encode_entry,
    entry_args,
)
from remoteclaw.fleet.turns.outcomes import OUTCOME_MS
from remoteclaw.fleet.wake import Waker
from remoteclaw.messages import ChannelMessage, SessionKey

#: What became of an edit. `accepted`: the message was not for the agent before, and now it is.
#: `replaced`: the message waits, and has the new content. `noted`: it waits, was joined from
#: several messages, and its turn brings the agent a note of the edit. `late`: the message was taken
#: up before, and the agent's next turn brings the note. `command`: the new text is a command, and
#: was not taken. `refused`: the message never went to the agent, and its edit doesn't either.
#: `same`: nothing has changed. `unknown`: nothing is known of the message.
EditVerdict = Literal[
    "accepted", "replaced", "noted", "late", "command", "refused", "same", "unknown"
]
#: What a message became that is on no stream: `-`: something else than an entry, such as a command;
#: `~`: nothing, because it was not for the agent.
WithoutEntry = Literal["-", "~"]
WITHDRAWN = {"category": "withdrawn", "detail": "Its sender has withdrawn the message."}


class Handled(NamedTuple):
    """What is known of a handled message."""

    became: str
    """The id of its entry, or a value of `WithoutEntry`; for an edit, its verdict."""
    digest: str
    """The digest of its content; for an edit, the id of the message's entry."""


def content_digest(text: str, marks: Sequence[str]) -> str:
    """Return the digest of a message's content: its text, and `marks` such as ids of its files."""
    return hashlib.sha256("\0".join((text, *marks)).encode(errors="replace")).hexdigest()[:16]


class Edits:
    """Edits and deletions of messages, and the messages of which nothing is on a stream."""

    def __init__(self, scripts: Scripts, waker: Waker) -> None:
        self._scripts = scripts
        self._waker = waker

    async def known(self, session: SessionKey, names: Sequence[str]) -> list[Handled | None]:
        """Return what is known of the messages `names` of a session; None for an unknown one."""
        values = await self._scripts.run_pipeline(
            lambda pipeline: [pipeline.get(keys.known(session, name)) for name in names]
        )
        return [Handled(*value.decode().split()[:2]) if value else None for value in values]

    async def note_handled(
        self, session: SessionKey, messages: Sequence[Known], became: WithoutEntry
    ) -> list[bool]:
        """Note that messages have been handled without an entry, unless they are known already.

        From then on, `Inbound.append()` does not accept them. Return for each whether it is noted
        so now, also by an earlier call.
        """
        await self._scripts.run_pipeline(
            lambda pipeline: [
                pipeline.set(
                    keys.known(session, each.name), f"{became} {each.digest}", nx=True, px=DEDUPE_MS
                )
                for each in messages
            ]
        )
        known = await self.known(session, [each.name for each in messages])
        return [each is not None and each.became == became for each in known]

    async def edit(
        self,
        message: ChannelMessage,
        original: Known,
        *,
        name: str,
        agent: str,
        is_shared: bool,
        of_thread: bool = True,
        is_command: bool,
    ) -> EditVerdict:
        """Accept an edit, and return what became of it. Repeating the call is harmless.

        `message` is the message with its new content and the id of the original. `original` has the
        name of the original and the digest of the new content, and `name` is a name of this edit.
        `is_command` says that the new text is a command, which no edit brings.
        Raises `RedisUnavailable`, `RedisRefused` or `MessageRefused` if it was not accepted.
        """
        session = SessionKey.of(message, agent=agent, is_shared=is_shared, of_thread=of_thread)
        sid = session.sid
        note = {
            "at": message.timestamp,
            "from": message.user_name or message.from_,
            "edited": message.text,
            "id": message.id,
        }
        edited = await self._scripts.run(
            "edit",
            dedupe_ms=DEDUPE_MS,
            lane="agents",
            digest=original.digest,
            is_command=is_command,
            note=orjson.dumps(note),
            original=keys.known(session, original.name),
            edit=keys.known(session, name),
            blobs=[keys.blob(sid, attachment.blob) for attachment in message.attachments],
            **entry_args(session, encode_entry(message, "channel", is_command=False)),
            deadline=boottime() + APPEND_S,
        )
        if edited.verdict == "full":
            raise RedisRefused(FULL)
        if edited.verdict in ("crowded", "incomplete"):
            raise MessageRefused(CROWDED if edited.verdict == "crowded" else INCOMPLETE)
        if edited.verdict == "accepted":
            by = f"{message.provider}/{message.account}, edited"
            await self._waker.accepted(session, edited.entry_id, edited.queue, by=by)
        else:
            await self._waker.try_hint(session, edited.queue)
        verdict: EditVerdict = edited.verdict
        return verdict

    async def withdraw(
        self, session: SessionKey, name: str
    ) -> Literal["withdrawn", "running", "gone"]:
        """Drop a message that waits, because its sender has deleted it.

        Return "running" if the running turn answers it, and "gone" if it doesn't wait, or is only a
        part of a message. Repeating the call is harmless.
        """
        verdict: Literal["withdrawn", "running", "gone"] = await self._scripts.run(
            "withdraw",
            sid=session.sid,
            outcome_ms=OUTCOME_MS,
            error=orjson.dumps(WITHDRAWN),
            original=keys.known(session, name),
            deadline=boottime() + APPEND_S,
        )
        return verdict
