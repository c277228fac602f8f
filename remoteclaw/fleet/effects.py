"""Calls of tools: each is done once, only in its turn, and noted with the turn.

A check followed by a write would be a race with the turn's end. So one script looks at the fence,
remembers the call, does what it asks for, and notes it in the turn's record.
"""

import contextlib
import functools
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import orjson

from remoteclaw.clock import boottime
from remoteclaw.errors import CallRefused, LeaseLost, RedisRefused, RedisUnavailable
from remoteclaw.fleet import keys
from remoteclaw.fleet.blobs import REPLY_MS
from remoteclaw.fleet.connection import Scripts
from remoteclaw.fleet.inbound import FULL, GRACE_MS, NewerEntry, decode_entry, encode_entry
from remoteclaw.fleet.keys import Lane
from remoteclaw.fleet.lease import OUTCOME_MS, STATE_MS, RawEntry
from remoteclaw.fleet.state import SessionState, pairs
from remoteclaw.fleet.wake import Waker
from remoteclaw.messages import ChannelMessage, Entry, Provenance, SessionKey, hops_of, via_of

__all__ = ["CALL_MS", "Caller", "Effects", "Grant", "RunningTurn", "call_name"]

#: How many digits of a call's name are the name of the task that it starts.
TASK_DIGITS = 16
#: How long a call is tried while Redis is away, in seconds.
CALL_S = 5.0
#: How long a call is remembered, so that asking for it again does nothing, in milliseconds.
CALL_MS = 24 * 3600 * 1000
#: How many changes may wait to be confirmed.
MOST_PENDING = 100
NO_ROOM = (
    "Nothing was done: Redis, which keeps what is sent until it is delivered, has almost no memory "
    "left. That is not your fault. Don't repeat it: say so in your answer, which has room."
)


@dataclass(frozen=True, slots=True)
class Grant:
    """Which agent process may call tools for a session, and which tools."""

    digest: str
    """SHA-256 of its token."""
    tools: frozenset[str]

    @classmethod
    def decode(cls, text: str) -> Self:
        """Return the grant that a session's state keeps as JSON."""
        data = orjson.loads(text)
        return cls(data["digest"], frozenset(data["names"]))


@dataclass(frozen=True, slots=True)
class RunningTurn:
    """The turn that an agent works on."""

    id: str
    epoch: str
    attempt: int
    entries: tuple[Entry, ...]
    """What it answers; what can't be read is left out."""
    is_whole: bool
    """Whether every entry could be read."""

    @property
    def via(self) -> tuple[str, ...]:
        """The ids of the sessions that wait for this turn, or get its result."""
        return via_of(self.entries)

    @property
    def hops(self) -> int:
        """How many turns there were since a person, or the clock, wrote something."""
        return hops_of(self.entries)


@dataclass(frozen=True, slots=True)
class Caller:
    """A session as one that calls tools."""

    session: SessionKey
    grant: Grant | None
    turn: RunningTurn | None
    """None between turns."""
    parent: SessionKey | None = None
    """The session that has started it; None for one that people talk with."""
    depth: int = 0
    """How many sessions are above it."""


@dataclass(frozen=True, slots=True)
class _Asked:
    """Who asks for an effect, and under which name."""

    state: str
    epoch: str
    turn: str
    call: str
    effects: str
    hour: str


class Effects:
    """Does what calls ask for."""

    def __init__(self, scripts: Scripts, waker: Waker) -> None:
        self._scripts = scripts
        self._waker = waker

    async def caller(self, sid: str) -> Caller | None:
        """Return who a session's agent speaks for at this moment; None if there is no session."""
        fields, entries = await self._scripts.run(
            "caller", [keys.state(sid), keys.inbound(sid)], [], deadline=boottime() + CALL_S
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
        return Caller(state.key, grant, running, state.parent, state.depth)

    async def made(self, caller: Caller | None, call: str) -> list[str] | None:
        """Return what came of a call; None if nothing was done for it yet."""
        read = functools.partial(self._scripts.client.get, keys.call(call_name(caller, call)))
        made = await self._scripts.call(read, deadline=boottime() + CALL_S)
        return None if made is None else made.decode().split("\n")

    async def noted(self, caller: Caller) -> list[dict[str, Any]]:
        """Return what the tools of the caller's running turn did so far, oldest first."""
        name = keys.effects(caller.session.sid)
        read = functools.partial(self._scripts.client.lrange, name, 0, -1)
        lines = await self._scripts.call(read, deadline=boottime() + CALL_S)
        return [orjson.loads(line) for line in lines]

    async def messages(
        self,
        caller: Caller | None,
        call: str,
        messages: Sequence[tuple[str, str, Mapping[str, Any]]],
        *,
        note: Mapping[str, Any] | None,
        blobs: Sequence[str] = (),
    ) -> list[str]:
        """Put messages on reply streams; return the name of each: "STREAM ID".

        Each is (provider, account, payload); `blobs` are the caller's files that go with them.
        Raises `CallRefused` if the turn is over, or a file is not there any more.
        """
        streams = [keys.reply_stream(provider, account) for provider, account, _ in messages]
        sid = caller.session.sid if caller else keys.OPERATOR
        status, made = await self.perform(
            caller,
            call,
            note,
            [*streams, *(keys.blob(sid, blob) for blob in blobs)],
            ["messages", len(messages), REPLY_MS, *(orjson.dumps(data) for *_, data in messages)],
        )
        if status == "incomplete":
            raise CallRefused("UNAVAILABLE", "The file is not stored any more: send it again.")
        return made

    async def failed(self, caller: Caller, call: str) -> None:
        """Note with the turn that what a call sent did not arrive."""
        note = {"type": "message_failed", "failedCallId": call}
        await self.perform(caller, f"{call}\0failed", note, [], ["note"])

    async def entry(
        self,
        caller: Caller | None,
        call: str,
        target: SessionKey,
        message: ChannelMessage,
        *,
        note: Mapping[str, Any] | None,
        provenance: Provenance | None,
    ) -> str:
        """Put an entry on a session's stream; return its id, also if it was put there before.

        Its reply is for whoever waits for the outcome.
        """
        entry = encode_entry(message, "caller", "session", provenance)
        _, (entry_id, queue) = await self.perform(
            caller, call, note, *_entry("entry", target, entry, "agents")
        )
        await self.hint(target, queue)
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
        most: int,
        people: Sequence[str] = (),
    ) -> tuple[SessionKey, str]:
        """Start a session for a task at a place; return its key and the id of its first entry.

        A process that begins a turn anew, and asks for the same again, gets the session that the
        one before has started. `most` is how many unfinished ones the `parent` may have;
        the task is done, and its result answered, on behalf of `people`.
        Raises `CallRefused` if there are as many, or another session has the label.
        """
        asked = orjson.dumps([str(place), message.text, label])
        digest = hashlib.sha256(asked).hexdigest()[:32]
        # Another process' calls are others, whatever they are called.
        asker = caller.grant.digest[:16] if caller and caller.grant else ""
        task = call_name(caller, f"{asker}\0{call}").rpartition(":")[2][:TASK_DIGITS]
        child = replace(place, task=task)
        names, arguments = _entry(
            "spawn",
            child,
            encode_entry(message, "parent", "session", provenance, people),
            "background",
        )
        status, made = await self.perform(
            caller,
            call,
            note,
            [
                *names,
                keys.children(parent.sid),
                keys.labels(child.agent),
                keys.spawned(caller.session.sid) if caller else keys.NOBODY,
            ],
            [*arguments, str(parent), most, depth, label or "", STATE_MS, digest, asker],
            asker=asker,
        )
        if status == "full":
            raise CallRefused(
                "UNAVAILABLE",
                f"{made[0]} of the sessions that this one has started have not ended yet, which is "
                "the most: wait for their results, or cancel one with subagents.",
            )
        if status == "labelled":
            raise CallRefused(
                "INVALID_REQUEST", f"The label {label!r} is taken: choose another one."
            )
        key, entry_id, queue = made
        started = SessionKey.parse(key)
        await self.hint(started, queue)
        return started, entry_id

    async def hint(self, session: SessionKey, queue: str) -> None:
        """Hint that a session has an entry, where the script says that one is due."""
        if queue:
            # Its entry is safe by now: without this hint, the sweeper's comes.
            with contextlib.suppress(RedisUnavailable, RedisRefused):
                await self._waker.hint(session.sid, str(session), queue=queue)

    async def change(
        self,
        caller: Caller | None,
        call: str,
        made: str,
        *,
        who: str,
        most: int,
        within_ms: int,
        note: Mapping[str, Any] | None,
        pending: tuple[str, bytes, int] | None = None,
    ) -> None:
        """Remember that a call changes RemoteClaw itself, before it does, and what comes of it.

        `who` makes at most so many changes within so long. A `pending` one is kept to be confirmed:
        its id, what it is, and for how long (ms). Raises `CallRefused`.
        """
        waiting_id, waiting, valid_ms = pending or ("", b"", 0)
        status, (told, *_) = await self.perform(
            caller,
            call,
            note,
            [keys.config_changes(who), keys.CONFIG_PENDING],
            ["change", most, within_ms, made, waiting_id, waiting, valid_ms, MOST_PENDING],
        )
        if status == "limited":
            wait_s = -(-int(told) // 1000)
            often = f"{most} times" if most > 1 else "once"
            raise CallRefused(
                "UNAVAILABLE",
                f"Nothing was done: this can be asked for {often} in {within_ms // 1000} s. "
                f"Ask again in {wait_s} s.",
            )
        if status == "taken":
            raise CallRefused("UNAVAILABLE", "Nothing was done: its id was taken. Ask again.")
        if status == "full":
            raise CallRefused(
                "UNAVAILABLE",
                f"Nothing was done: {MOST_PENDING} changes wait to be confirmed already.",
            )

    async def perform(
        self,
        caller: Caller | None,
        call: str,
        note: Mapping[str, Any] | None,
        names: Sequence[str],
        arguments: Sequence[str | bytes | int],
        *,
        asker: str = "",
    ) -> tuple[str, list[str]]:
        """Run the script; `call` is unique for its caller, or for the `asker` in its session."""
        asked = _asked(caller, f"{asker}\0{call}" if asker else call)
        line = orjson.dumps({**note, "callId": call}) if note and caller else b""
        try:
            status, made = await self._scripts.run(
                "effect",
                [asked.state, asked.call, asked.effects, *names, asked.hour],
                [asked.epoch, asked.turn, CALL_MS, line, OUTCOME_MS, *arguments],
                deadline=boottime() + CALL_S,
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


def _too_much(scope: str, what: str, number: str, most: str) -> str:
    whose = "the tools of this turn" if scope == "turn" else "the turns of this chat within an hour"
    return (
        f"Nothing was done: with this call, {whose} would have sent {int(number):,} {what}, and "
        f"{int(most):,} are the most. Each chat counts, and each part of a long text. Don't repeat "
        "it: put what matters into your answer."
    )


def _entry(
    kind: str, target: SessionKey, entry: bytes, lane: Lane
) -> tuple[list[str], list[str | bytes | int]]:
    """Return what the script needs to put an entry on a session's stream: keys and arguments."""
    sid = target.sid
    names = [keys.inbound(sid), keys.state(sid), keys.ACTIVE, keys.SESSIONS]
    return names, [kind, sid, entry, GRACE_MS, keys.outcome_prefix(sid), str(target), lane]


def call_name(caller: Caller | None, call: str) -> str:
    """Return a call's name among all: in each turn of a session, agents have names of their own."""
    scope = f"{caller.turn.id}\0" if caller and caller.turn else ""
    digest = hashlib.sha256(f"{scope}{call}".encode()).hexdigest()[:32]
    return f"{{{caller.session.sid if caller else keys.OPERATOR}}}:{digest}"


def _asked(caller: Caller | None, call: str) -> _Asked:
    name = keys.call(call_name(caller, call))
    if caller is None:
        return _Asked(keys.NOBODY, "", "", name, keys.NOBODY, keys.NOBODY)
    if caller.turn is None:
        raise CallRefused("NO_TURN", "No turn is running for this agent: tools work in a turn.")
    sid = caller.session.sid
    hour = keys.sent(caller.session)
    return _Asked(keys.state(sid), caller.turn.epoch, caller.turn.id, name, keys.effects(sid), hour)


def _decoded(entries: Sequence[RawEntry]) -> tuple[Entry, ...]:
    decoded = []
    for entry_id, fields in entries:
        with contextlib.suppress(ValueError, NewerEntry):
            decoded.append(decode_entry(entry_id, fields))
    return tuple(decoded)
