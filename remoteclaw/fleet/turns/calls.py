"""Tool calls: each is performed once, only during its turn, and noted as a side effect of the turn.

Checking the turn and then writing would race with the end of the turn. So one script checks the
fence, stores the call's result, performs the call, and adds the side effect.
"""

import contextlib
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import orjson

from remoteclaw.config.tool_policy import SessionLimits
from remoteclaw.errors import CallRefused, LeaseLost, RedisUnavailable
from remoteclaw.fleet import keys
from remoteclaw.fleet.blobs import REPLY_MS
from remoteclaw.fleet.connection import Scripts
from remoteclaw.fleet.lua import Values
from remoteclaw.fleet.replies.reply import reply_payload
from remoteclaw.fleet.requests.request import CHANGE_MS
from remoteclaw.fleet.sessions.state import STATE_MS, Launch, SessionState, pairs
from remoteclaw.fleet.sessions.task_tree import Recipients
from remoteclaw.fleet.turns.caller import Caller, CallerTurn, Grant, call_name
from remoteclaw.fleet.turns.inbound import (
    FULL,
    NewerEntry,
    RawEntry,
    decode_entry,
    encode_entry,
    entry_args,
)
from remoteclaw.fleet.turns.outcomes import OUTCOME_MS
from remoteclaw.fleet.wake import Waker
from remoteclaw.messages import (
    ChannelMessage,
    ChatPlace,
    Entry,
    Provenance,
    SessionKey,
    has_read_web,
)
from remoteclaw.protocols import FORK_OF

#: The name of a task is this many hexadecimal digits of the name of the call that starts it.
TASK_DIGITS = 16
#: The result of a call is kept for this time, in milliseconds; a repeated call returns it.
CALL_MS = 24 * 3600 * 1000
#: The default maximum of unfinished sessions below the root of a tree of tasks.
MAX_BELOW = 100
NO_ROOM = (
    "Nothing was done: Redis, which keeps what is sent until it is delivered, has almost no memory "
    "left. That is not your fault. Don't repeat it: say so in your answer, which has room."
)


@dataclass(frozen=True, slots=True)
class ConversationCopy:
    """A copy of the parent's conversation, with which a task begins."""

    names: Sequence[str] = ()
    """The names, in the session map, of the conversations that their CLIs can copy."""
    launch_of: Launch | None = None
    """For a branch: the session whose launch its agents repeat. None for a task that is no
    branch."""


class ToolCalls:
    """Performs calls of tools, each once."""

    def __init__(self, scripts: Scripts, waker: Waker) -> None:
        self._scripts = scripts
        self.waker = waker

    async def caller(self, sid: str) -> Caller | None:
        """Return a session as a caller, with its running turn; None for an unknown session."""
        found = await self._scripts.run("caller", sid=sid)
        if not found.state:
            return None
        state = SessionState.decode(pairs(found.state))
        running = None
        if state.status == "running" and state.turn:
            decoded = _decoded(found.entries)
            running = CallerTurn(
                id=state.turn,
                epoch=state.epoch,
                attempt=state.attempt,
                entries=decoded,
                is_whole=len(decoded) == len(found.entries) > 0,
                has_read_web=state.has_read_web or has_read_web(decoded),
            )
        grant = Grant.decode(state.grant) if state.grant else None
        return Caller(state, grant, running)

    async def note_listing(self, sid: str, digest: str) -> None:
        """Note that the agent whose token has this `digest` has asked for its tools."""
        await self._scripts.run("tools_listed", sid=sid, digest=digest)

    async def result_of(self, caller: Caller | None, call: str) -> dict[str, Any] | None:
        """Return the stored values of a call; None if the call was not performed."""
        result = await self._scripts.call(
            self._scripts.client.get, keys.call(call_name(caller, call))
        )
        return None if result is None else dict(orjson.loads(result))

    async def send_messages(
        self,
        caller: Caller | None,
        call: str,
        messages: Sequence[tuple[str, str, Mapping[str, Any]]],
        *,
        effect: Mapping[str, Any] | None,
        blobs: Sequence[str] = (),
        chat_note: Mapping[str, Any] | None = None,
        sessions: Sequence[SessionKey] = (),
    ) -> list[str]:
        """Put messages on reply streams; return the name of each: "STREAM ID".

        Each message is (provider, account, payload); `blobs` are the caller's files that the
        messages contain. The agents of the existing sessions among `sessions` receive `chat_note`
        with their next turn. Raises `CallRefused` if the turn is over, or a file is no longer
        stored.
        """
        streams = [keys.replies(provider, account) for provider, account, _ in messages]
        sid = caller.session.sid if caller else keys.OPERATOR
        status, sent = await self.perform(
            caller,
            call,
            effect,
            "call_send",
            blob_ms=REPLY_MS,
            chat_note=orjson.dumps(chat_note) if chat_note else None,
            payloads=[orjson.dumps(payload) for *_, payload in messages],
            replies=streams,
            blobs=[keys.blob(sid, blob) for blob in blobs],
            aside_notes=[keys.aside_notes(session.sid) for session in sessions],
            states=[keys.state(session.sid) for session in sessions],
        )
        if status == "incomplete":
            raise CallRefused("UNAVAILABLE", "The file is not stored any more: send it again.")
        return list(sent["names"])

    async def send_notice(
        self,
        place: ChatPlace,
        text: str,
        *,
        name: str,
        reply_to_id: str | None = None,
        is_silent: bool = False,
        asked_by: str | None = None,
        to_person: str | None = None,
    ) -> None:
        """Send a message of RemoteClaw itself to a chat, once for each `name`.

        `asked_by` is the id of the person who waits for it, `to_person` of the only one to see it.
        Raises `CallRefused` if Redis has no room for it.
        """
        payload = reply_payload(
            place,
            text,
            sid=keys.OPERATOR,
            reply_to_id=reply_to_id,
            call=call_name(None, name),
            is_silent=is_silent,
            asked_by=asked_by,
            to_person=to_person,
        )
        await self.send_messages(
            None, name, [(place.provider, place.account, payload)], effect=None
        )

    async def note_failure(self, caller: Caller, call: str) -> None:
        """Add a side effect which records that the messages of `call` were not delivered."""
        effect = {"type": "message_failed", "failedCallId": call}
        await self.perform(caller, f"{call}\0failed", effect, "call_note")

    async def put_entry(
        self,
        caller: Caller | None,
        call: str,
        target: SessionKey,
        message: ChannelMessage,
        *,
        effect: Mapping[str, Any] | None,
        provenance: Provenance | None,
        deliver: Literal["channel", "caller"] = "caller",
        people: Sequence[str] = (),
    ) -> tuple[str, bool]:
        """Put an entry on the stream of the session `target`; return its id, and whether it is new.

        A repeated call returns the same id. So does another call, even of another turn, with the
        same text to the same session, until the first one has its outcome. `deliver` says where the
        reply goes: to the `caller`, who waits for the outcome, or to the session's chat
        (`channel`).
        """
        entry = encode_entry(message, deliver, "session", provenance, people)
        _, put = await self.perform(
            caller,
            call,
            effect,
            "call_entry",
            lane="agents",
            sender=message.from_ if caller else None,
            text=message.text,
            **entry_args(target, entry),
        )
        await self.waker.accepted(target, put["entry_id"], put.get("queue"), by="a call")
        return put["entry_id"], "is_earlier" not in put

    async def spawn(
        self,
        caller: Caller | None,
        call: str,
        place: SessionKey,
        message: ChannelMessage,
        *,
        effect: Mapping[str, Any] | None,
        provenance: Provenance,
        parent: SessionKey,
        limits: SessionLimits,
        label: str | None,
        max_unfinished: int,
        root: SessionKey | None = None,
        max_below: int = MAX_BELOW,
        copied: ConversationCopy | None = None,
        people: Sequence[str] = (),
    ) -> tuple[SessionKey, str, str]:
        """Start a task in a new session.

        Return the session's key, the id of its first entry, and how its conversation begins: with
        the `conversation` of its parent, with `notes` of it, or with `nothing`.
        `place` is the new session's key without its task name, which is made from `call`. The
        `parent` may have `max_unfinished` unfinished tasks, and `max_below` unfinished sessions may
        exist below `root`, the head of the tree (by default the parent). The task has the rights of
        `people`. With `copied`, it begins with a copy of the parent's conversation.
        If an attempt at the turn is repeated, the same request returns the session that the earlier
        attempt started.
        Raises `CallRefused` if a limit is reached, or if another session has the `label`.
        """
        root = root or parent
        knows = "conversation" if copied else "nothing"
        asked = orjson.dumps([str(place), message.text, label, knows])
        copied = copied or ConversationCopy()
        branch_of, branch_limits = copied.launch_of or (None, None)
        digest = hashlib.sha256(asked).hexdigest()[:32]
        # Agent processes number their calls independently, so a call's name includes its process.
        asker = caller.grant.digest[:16] if caller and caller.grant else ""
        task = call_name(caller, f"{asker}\0{call}").rpartition(":")[2][:TASK_DIGITS]
        child = replace(place, task=task)
        entry = encode_entry(message, "parent", "session", provenance, people)
        status, made = await self.perform(
            caller,
            call,
            effect,
            "call_spawn",
            parent_sid=parent.sid,
            lane="background",
            parent=str(parent),
            max_children=max_unfinished,
            root=root.sid,
            max_below=max_below,
            limits=limits.model_dump_json(),
            label=label,
            known_ms=STATE_MS,
            digest=digest,
            asker=asker,
            knows=knows,
            branch_of=str(branch_of) if branch_of else None,
            branch_limits=branch_limits.model_dump_json() if branch_limits else None,
            mark=FORK_OF,
            keep_ms=STATE_MS,
            names=copied.names,
            labels=keys.labels(child.agent),
            caller_spawned=keys.spawned(caller.session.sid) if caller else keys.NO_KEY,
            **entry_args(child, entry),
            process=asker,
        )
        if status == "full":
            raise CallRefused(
                "UNAVAILABLE",
                f"{made['number']} of the sessions that this one has started have not ended yet, "
                "which is the most: wait for their results, or cancel one with subagents.",
            )
        if status == "too many":
            raise CallRefused(
                "UNAVAILABLE",
                f"{made['number']} sessions below this conversation have not ended yet, which is "
                "the most (max_tree in [sessions]): wait for their results, or cancel one with "
                "subagents.",
            )
        if status == "labelled":
            raise CallRefused(
                "INVALID_REQUEST", f"The label {label!r} is taken: choose another one."
            )
        started = SessionKey.parse(made["session_key"])
        await self.waker.accepted(started, made["entry_id"], made.get("queue"), by="a call")
        return started, made["entry_id"], made["begins_with"]

    async def record_change(
        self,
        caller: Caller | None,
        call: str,
        result: str,
        *,
        effect: Mapping[str, Any] | None,
        request_args: Values | None = None,
    ) -> None:
        """Record a call that changes RemoteClaw itself, and its result, before the change is made.

        With `request_args` (from `request_card.request_args()`), make a request to people for the
        change in the same step. Raises `CallRefused`, also if too many requests wait.
        """
        status, _ = await self.perform(
            caller,
            call,
            effect,
            "call_change",
            result=result,
            valid_ms=CHANGE_MS,
            **(request_args or {}),
        )
        if status == "full":
            raise CallRefused(
                "UNAVAILABLE",
                "Nothing was done: too many requests wait for an answer already.",
            )

    async def store_progress(
        self, caller: Caller, call: str, progress: str, *, above: Sequence[SessionKey]
    ) -> None:
        """Store the agent's own report of a task's progress, and announce it.

        `above` are the sessions that wait for the task, the nearest first.
        """
        recipients = Recipients.of(above)
        await self.perform(
            caller,
            call,
            None,
            "call_progress",
            progress=progress,
            above=recipients.above,
            hint=recipients.hint,
            live_of=recipients.account,
        )

    async def perform(
        self,
        caller: Caller | None,
        call: str,
        effect: Mapping[str, Any] | None,
        script: str,
        *,
        process: str = "",
        **values: Any,
    ) -> tuple[str, dict[str, Any]]:
        """Run the script of a call; return its status and its values.

        `call` is unique for its caller, or, with `process`, for that agent process in its session.
        The side `effect` is recorded with the turn.
        Raises `CallRefused` if the turn is over, or if the call can't be performed.
        """
        key = keys.call(call_name(caller, f"{process}\0{call}" if process else call))
        line = orjson.dumps({**effect, "callId": call}) if effect and caller else None
        try:
            status, json = await self._scripts.run(
                script,
                call=key,
                call_ms=CALL_MS,
                effect=line,
                effect_ms=OUTCOME_MS,
                **_caller_args(caller),
                **values,
            )
        except LeaseLost:
            raise CallRefused("TURN_OVER", "The turn of this call is over.") from None
        except RedisUnavailable as error:
            unknown = " Whether it was done is unknown: look before you repeat it."
            raise CallRefused(
                "UNAVAILABLE", f"{error}{unknown if error.may_have_run else ''}"
            ) from None
        made = orjson.loads(json or "{}")
        if status == "no room":
            raise CallRefused("UNAVAILABLE", NO_ROOM if caller else FULL)
        if status == "too much":
            raise CallRefused("UNAVAILABLE", _too_much(**made))
        return status, made


def _too_much(unit: str, number: int, max: int) -> str:
    return (
        f"Nothing was done: with this call, the turns of this chat would have sent {number:,} "
        f"{unit} within an hour, and {max:,} are the most. Each chat counts, and each part "
        "of a long text. Don't repeat it: put what matters into your answer."
    )


def _caller_args(caller: Caller | None) -> Values:
    """Return what identifies the calling turn for a script; nothing for an operator."""
    if caller is None:
        return {}
    if caller.turn is None:
        raise CallRefused("NO_TURN", "No turn is running for this agent: tools work in a turn.")
    return {
        "caller_sid": caller.session.sid,
        "sent": keys.sent(caller.session),
        "epoch": caller.turn.epoch,
        "turn": caller.turn.id,
    }


def _decoded(entries: Sequence[RawEntry]) -> tuple[Entry, ...]:
    decoded = []
    for entry_id, fields in entries:
        with contextlib.suppress(ValueError, NewerEntry):
            decoded.append(decode_entry(entry_id, fields))
    return tuple(decoded)
