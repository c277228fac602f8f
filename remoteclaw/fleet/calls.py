"""Calls of tools: each is done once, only in its turn, and noted with the turn.

A check followed by a write would be a race with the turn's end. So one script looks at the fence,
remembers the call, does what it asks for, and notes it in the turn's record.
"""

import contextlib
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import orjson

from remoteclaw.errors import CallRefused, LeaseLost, RedisUnavailable
from remoteclaw.fleet import keys
from remoteclaw.fleet.blobs import REPLY_MS
from remoteclaw.fleet.caller import Caller, Grant, RunningTurn, call_name
from remoteclaw.fleet.connection import Scripts
from remoteclaw.fleet.inbound import (
    FULL,
    NewerEntry,
    RawEntry,
    decode_entry,
    encode_entry,
    entry_args,
    entry_keys,
)
from remoteclaw.fleet.lua import Arguments, Keys
from remoteclaw.fleet.outcomes import OUTCOME_MS
from remoteclaw.fleet.reply import reply_payload
from remoteclaw.fleet.request import CHANGE_MS
from remoteclaw.fleet.state import STATE_MS, SessionState, pairs
from remoteclaw.fleet.task_tree import Recipients
from remoteclaw.fleet.wake import Waker
from remoteclaw.messages import ChannelMessage, ChatPlace, Entry, Provenance, SessionKey
from remoteclaw.protocols import FORK_OF

#: How many digits of a call's name are the name of the task that it starts.
TASK_DIGITS = 16
#: How long a call is remembered, so that asking for it again does nothing, in milliseconds.
CALL_MS = 24 * 3600 * 1000
#: How many unfinished sessions there may be below one, unless a caller says it.
MAX_BELOW = 100
NO_ROOM = (
    "Nothing was done: Redis, which keeps what is sent until it is delivered, has almost no memory "
    "left. That is not your fault. Don't repeat it: say so in your answer, which has room."
)


@dataclass(frozen=True, slots=True)
class Copied:
    """What a task begins with: a copy of the conversation of the session that starts it."""

    names: Sequence[str] = ()
    """The conversations that their CLIs can copy, by their names in the session map."""
    launch_of: tuple[SessionKey, int] | None = None
    """Of a branch: the session whose launch it has, and how many are above that."""


class ToolCalls:
    """Performs calls of tools, each once."""

    def __init__(self, scripts: Scripts, waker: Waker) -> None:
        self._scripts = scripts
        self.waker = waker

    async def caller(self, sid: str) -> Caller | None:
        """Return a session as a caller, with its running turn; None if there is no session."""
        fields, entries = await self._scripts.run(
            "caller",
            keys={"state": keys.state(sid), "inbound": keys.inbound(sid)},
        )
        if not fields:
            return None
        state = SessionState.decode(pairs(fields))
        running = None
        if state.status == "running" and state.turn:
            decoded = _decoded(entries)
            running = RunningTurn(
                id=state.turn,
                epoch=state.epoch,
                attempt=state.attempt,
                entries=decoded,
                is_whole=len(decoded) == len(entries) > 0,
            )
        grant = Grant.decode(state.grant) if state.grant else None
        return Caller(state.key, grant, running, state.parent, state.launch_of, state.is_branch)

    async def made(self, caller: Caller | None, call: str) -> list[str] | None:
        """Return the result of a call; None if it was not performed."""
        made = await self._scripts.call(
            self._scripts.client.get, keys.call(call_name(caller, call))
        )
        return None if made is None else made.decode().split("\n")

    async def side_effects(self, caller: Caller) -> list[dict[str, Any]]:
        """Return what the tools of the caller's running turn did so far, oldest first."""
        name = keys.side_effects(caller.session.sid)
        lines = await self._scripts.call(self._scripts.client.lrange, name, 0, -1)
        return [orjson.loads(line) for line in lines]

    async def messages(
        self,
        caller: Caller | None,
        call: str,
        messages: Sequence[tuple[str, str, Mapping[str, Any]]],
        *,
        note: Mapping[str, Any] | None,
        blobs: Sequence[str] = (),
        said: Mapping[str, Any] | None = None,
        sessions: Sequence[SessionKey] = (),
    ) -> list[str]:
        """Put messages on reply streams; return the name of each: "STREAM ID".

        Each is (provider, account, payload); `blobs` are the caller's files that go with them.
        Those of the `sessions` that there are hear with their next turn what was `said`.
        Raises `CallRefused` if the turn is over, or a file is not there any more.
        """
        streams = [keys.reply_stream(provider, account) for provider, account, _ in messages]
        sid = caller.session.sid if caller else keys.OPERATOR
        status, made = await self.perform(
            caller,
            call,
            note,
            "call_send",
            {
                "replies": streams,
                "blobs": [keys.blob(sid, blob) for blob in blobs],
                "besides": [keys.beside(session.sid) for session in sessions],
                "states": [keys.state(session.sid) for session in sessions],
            },
            {
                "blob_ms": REPLY_MS,
                "said": orjson.dumps(said) if said else None,
                "payloads": [orjson.dumps(payload) for *_, payload in messages],
            },
        )
        if status == "incomplete":
            raise CallRefused("UNAVAILABLE", "The file is not stored any more: send it again.")
        return made

    async def say(
        self,
        place: ChatPlace,
        text: str,
        *,
        name: str,
        reply_to_id: str | None = None,
        is_silent: bool = False,
    ) -> None:
        """Say something of RemoteClaw's own in a chat, once for its name.

        Raises `CallRefused` if Redis takes nothing more.
        """
        payload = reply_payload(
            place,
            text,
            sid=keys.OPERATOR,
            reply_to_id=reply_to_id,
            call=call_name(None, name),
            is_silent=is_silent,
        )
        await self.messages(None, name, [(place.provider, place.account, payload)], note=None)

    async def failed(self, caller: Caller, call: str) -> None:
        """Note with the turn that what a call sent did not arrive."""
        note = {"type": "message_failed", "failedCallId": call}
        await self.perform(caller, f"{call}\0failed", note, "call_note", {}, {})

    async def entry(
        self,
        caller: Caller | None,
        call: str,
        target: SessionKey,
        message: ChannelMessage,
        *,
        note: Mapping[str, Any] | None,
        provenance: Provenance | None,
        deliver: Literal["channel", "caller"] = "caller",
        people: Sequence[str] = (),
    ) -> str:
        """Put an entry on a session's stream; return its id, also if it was put there before.

        Its reply is for the caller, who waits for the outcome, or for the session's chat.
        """
        entry = encode_entry(message, deliver, "session", provenance, people)
        _, (entry_id, queue) = await self.perform(
            caller,
            call,
            note,
            "call_entry",
            entry_keys(target),
            {**entry_args(target, entry), "lane": "agents"},
        )
        await self.waker.try_hint(target, queue)
        return entry_id

    async def spawn(
        self,
        caller: Caller | None,
        call: str,
        place: SessionKey,
        message: ChannelMessage,
        *,
        note: Mapping[str, Any] | None,
        provenance: Provenance,
        parent: SessionKey,
        depth: int,
        label: str | None,
        max_unfinished: int,
        root: SessionKey | None = None,
        max_below: int = MAX_BELOW,
        copied: Copied | None = None,
        people: Sequence[str] = (),
    ) -> tuple[SessionKey, str, str]:
        """Start a session for a task at a place; return its key and the id of its first entry.

        A process that begins a turn again, and asks for the same, gets the session that the
        process before has started. The `parent` may have `max_unfinished` unfinished tasks, and
        the `root` of the tree `max_below` below it; the task is done, and its result answered, on
        behalf of `people`. With `copied`, it begins with a copy of its parent's conversation; the
        last string is what it begins with: `conversation`, `notes` of it or `nothing`.
        Raises `CallRefused` if there are as many, or another session has the label.
        """
        root = root or parent
        knows = "conversation" if copied else "nothing"
        asked = orjson.dumps([str(place), message.text, label, knows])
        copied = copied or Copied()
        launch_of, depth_of_launch = copied.launch_of or (None, 0)
        digest = hashlib.sha256(asked).hexdigest()[:32]
        # Another process' calls are others, whatever they are called.
        asker = caller.grant.digest[:16] if caller and caller.grant else ""
        task = call_name(caller, f"{asker}\0{call}").rpartition(":")[2][:TASK_DIGITS]
        child = replace(place, task=task)
        entry = encode_entry(message, "parent", "session", provenance, people)
        status, made = await self.perform(
            caller,
            call,
            note,
            "call_spawn",
            {
                **entry_keys(child),
                "children": keys.children(parent.sid),
                "labels": keys.labels(child.agent),
                "spawned": keys.spawned(caller.session.sid) if caller else keys.NO_KEY,
                "parent_state": keys.state(parent.sid),
                "parent_map": keys.session_map(parent.sid),
                "parent_record": keys.record(parent.sid),
                "session_map": keys.session_map(child.sid),
                "record": keys.record(child.sid),
            },
            {
                **entry_args(child, entry),
                "lane": "background",
                "parent": str(parent),
                "most": max_unfinished,
                "root": root.sid,
                "most_below": max_below,
                "depth": depth,
                "label": label,
                "known_ms": STATE_MS,
                "digest": digest,
                "asker": asker,
                "knows": knows,
                "branch_of": str(launch_of) if launch_of else None,
                "branch_depth": depth_of_launch,
                "mark": FORK_OF,
                "keep_ms": STATE_MS,
                "names": copied.names,
            },
            asker=asker,
        )
        if status == "full":
            raise CallRefused(
                "UNAVAILABLE",
                f"{made[0]} of the sessions that this one has started have not ended yet, which is "
                "the most: wait for their results, or cancel one with subagents.",
            )
        if status == "too many":
            raise CallRefused(
                "UNAVAILABLE",
                f"{made[0]} sessions below this conversation have not ended yet, which is the most "
                "(max_tree in [sessions]): wait for their results, or cancel one with subagents.",
            )
        if status == "labelled":
            raise CallRefused(
                "INVALID_REQUEST", f"The label {label!r} is taken: choose another one."
            )
        key, entry_id, queue, begins_with = made
        started = SessionKey.parse(key)
        await self.waker.try_hint(started, queue)
        return started, entry_id, begins_with

    async def change(
        self,
        caller: Caller | None,
        call: str,
        made: str,
        *,
        note: Mapping[str, Any] | None,
        asked: tuple[Keys, Arguments] | None = None,
    ) -> None:
        """Remember that a call changes RemoteClaw itself, before it does, and what comes of it.

        With `asked` (`request_card.record_args()`), people are asked for it instead.
        Raises `CallRefused`.
        """
        names, args = asked or ({}, {})
        status, _ = await self.perform(
            caller,
            call,
            note,
            "call_change",
            names,
            {"made": made, "valid_ms": CHANGE_MS, **args},
        )
        if status == "full":
            raise CallRefused(
                "UNAVAILABLE",
                "Nothing was done: too many requests wait for an answer already.",
            )

    async def progress(
        self, caller: Caller, call: str, progress: str, *, above: Sequence[SessionKey]
    ) -> None:
        """Keep how far a turn is that is done for the sessions `above`, the nearest first."""
        told = Recipients.of(above)
        await self.perform(
            caller,
            call,
            None,
            "call_progress",
            {"account": told.account},
            {"progress": progress, "above": told.above, "hint": told.hint},
        )

    async def perform(
        self,
        caller: Caller | None,
        call: str,
        note: Mapping[str, Any] | None,
        script: str,
        names: Keys,
        args: Arguments,
        *,
        asker: str = "",
    ) -> tuple[str, list[str]]:
        """Run a script; `call` is unique for its caller, or for the `asker` in its session."""
        key = keys.call(call_name(caller, f"{asker}\0{call}" if asker else call))
        by_keys, by_args = _caller(caller)
        line = orjson.dumps({**note, "callId": call}) if note and caller else None
        try:
            status, made = await self._scripts.run(
                script,
                keys={**by_keys, "call": key, **names},
                args={
                    **by_args,
                    "call_ms": CALL_MS,
                    "note": line,
                    "note_ms": OUTCOME_MS,
                    **args,
                },
            )
        except LeaseLost:
            raise CallRefused("TURN_OVER", "The turn of this call is over.") from None
        except RedisUnavailable as error:
            told = " Whether it was done is unknown: look before you repeat it."
            raise CallRefused(
                "UNAVAILABLE", f"{error}{told if error.may_have_run else ''}"
            ) from None
        if status == b"no room":
            raise CallRefused("UNAVAILABLE", NO_ROOM if caller else FULL)
        if status == b"too much":
            raise CallRefused("UNAVAILABLE", _too_much(*made.decode().split("\n")))
        return status.decode(), made.decode().split("\n")


def _too_much(what: str, number: str, most: str) -> str:
    return (
        f"Nothing was done: with this call, the turns of this chat would have sent {int(number):,} "
        f"{what} within an hour, and {int(most):,} are the most. Each chat counts, and each part "
        "of a long text. Don't repeat it: put what matters into your answer."
    )


def _caller(caller: Caller | None) -> tuple[Keys, Arguments]:
    """Return keys and arguments that say whose turn asks; none of an operator."""
    if caller is None:
        return {}, {}
    if caller.turn is None:
        raise CallRefused("NO_TURN", "No turn is running for this agent: tools work in a turn.")
    sid = caller.session.sid
    names = {
        "caller": keys.state(sid),
        "side_effects": keys.side_effects(sid),
        "sent": keys.sent(caller.session),
    }
    return names, {"epoch": caller.turn.epoch, "turn": caller.turn.id}


def _decoded(entries: Sequence[RawEntry]) -> tuple[Entry, ...]:
    decoded = []
    for entry_id, fields in entries:
        with contextlib.suppress(ValueError, NewerEntry):
            decoded.append(decode_entry(entry_id, fields))
    return tuple(decoded)
