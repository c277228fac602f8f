"""What agents do through tools: each call is done once, only in its turn, and noted as it is done.

A check followed by a write would be a race with the turn's end. So one script looks at the fence,
remembers the call, does what it asks for, and notes it in the turn's record.
"""

import contextlib
import functools
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import orjson

from remoteclaw.clock import boottime
from remoteclaw.errors import CallRefused, LeaseLost, RedisRefused, RedisUnavailable
from remoteclaw.fleet import keys
from remoteclaw.fleet.blobs import REPLY_MS
from remoteclaw.fleet.connection import Scripts
from remoteclaw.fleet.inbound import GRACE_MS, NewerEntry, decode_entry, encode_entry
from remoteclaw.fleet.keys import Lane
from remoteclaw.fleet.lease import OUTCOME_MS, RawEntry
from remoteclaw.fleet.wake import Waker
from remoteclaw.messages import ChannelMessage, Entry, SessionKey

__all__ = ["CALL_MS", "Caller", "Effects", "Grant", "RunningTurn", "call_name"]

#: How long a call is tried while Redis is away, in seconds.
CALL_S = 5.0
#: How long a call is remembered, so that asking for it again does nothing, in milliseconds.
CALL_MS = 24 * 3600 * 1000
#: How many cron jobs there may be.
MOST_JOBS = 1000


@dataclass(frozen=True, slots=True)
class Grant:
    """Which agent process may call tools for a session, and which tools."""

    digest: str
    """SHA-256 of its token."""
    tools: frozenset[str]


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


@dataclass(frozen=True, slots=True)
class Caller:
    """A session as one that calls tools."""

    session: SessionKey
    grant: Grant | None
    turn: RunningTurn | None
    """None between turns."""


@dataclass(frozen=True, slots=True)
class _Asked:
    """Who asks for an effect, and under which name."""

    state: str
    epoch: str
    turn: str
    call: str
    effects: str


class Effects:
    """Does what calls ask for."""

    def __init__(self, scripts: Scripts, waker: Waker) -> None:
        self._scripts = scripts
        self._waker = waker

    async def caller(self, sid: str) -> Caller | None:
        """Return who a session's agent speaks for at this moment; None if there is no session."""
        key, state, turn, epoch, attempt, tools, entries = await self._scripts.run(
            "caller", [keys.state(sid), keys.inbound(sid)], [], deadline=boottime() + CALL_S
        )
        if not key:
            return None
        running = None
        if state == b"running" and turn:
            decoded = _decoded(entries)
            running = RunningTurn(
                id=turn.decode(),
                epoch=epoch.decode(),
                attempt=int(attempt),
                entries=decoded,
                is_whole=len(decoded) == len(entries) > 0,
            )
        return Caller(SessionKey.parse(key.decode()), _grant(tools), running)

    async def made(self, caller: Caller | None, call: str) -> list[str] | None:
        """Return what came of a call; None if nothing was done for it yet."""
        read = functools.partial(self._scripts.client.get, keys.call(call_name(caller, call)))
        made = await self._scripts.call(read, deadline=boottime() + CALL_S)
        return None if made is None else made.decode().split("\n")

    async def messages(
        self,
        caller: Caller | None,
        call: str,
        messages: Sequence[tuple[str, str, Mapping[str, Any]]],
        *,
        note: Mapping[str, Any] | None,
        blobs: Sequence[str] = (),
    ) -> list[str]:
        """Put messages on reply streams; return their ids there.

        Each is (provider, account, payload); `blobs` are the caller's files that go with them.
        Raises `CallRefused` if the turn is over, or a file is not there any more.
        """
        streams = [keys.reply_stream(provider, account) for provider, account, _ in messages]
        sid = caller.session.sid if caller else keys.OPERATOR
        status, made = await self._run(
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
        await self._run(caller, f"{call}\0failed", note, [], ["note"])

    async def entry(
        self,
        caller: Caller | None,
        call: str,
        target: SessionKey,
        message: ChannelMessage,
        *,
        note: Mapping[str, Any] | None,
        origin: Literal["chat", "session", "cron"],
        deliver: Literal["channel", "caller"] = "caller",
        lane: Lane = "agents",
    ) -> str:
        """Put an entry on a session's stream; return its id, also if it was put there before."""
        sid = target.sid
        _, made = await self._run(
            caller,
            call,
            note,
            [keys.inbound(sid), keys.state(sid), keys.ACTIVE, keys.SESSIONS],
            [
                *("entry", sid, encode_entry(message, deliver, origin), GRACE_MS),
                *(keys.outcome_prefix(sid), str(target), lane, keys.bell(sid)),
            ],
        )
        entry_id, queue = made
        if queue:
            # It is safe by now: without this hint, the sweeper's comes.
            with contextlib.suppress(RedisUnavailable, RedisRefused):
                await self._waker.hint(sid, str(target), queue=queue)
        return entry_id

    async def job(
        self,
        caller: Caller | None,
        call: str,
        job_id: str,
        *,
        before: bytes | None,
        after: bytes | None,
        due_ms: int | None,
        note: Mapping[str, Any] | None,
    ) -> Literal["done", "nothing", "changed"]:
        """Write, change or remove a cron job, unless it is not any more what it was `before`.

        "nothing" means that there was none and is to be none. Asked again, the answer is the same.
        """
        status, (written,) = await self._run(
            caller,
            call,
            note,
            [keys.CRON_JOBS, keys.CRON_DUE],
            [
                "job",
                job_id,
                before or b"",
                after or b"",
                "" if due_ms is None else due_ms,
                MOST_JOBS,
            ],
        )
        if status == "full":
            raise CallRefused("UNAVAILABLE", f"There are {MOST_JOBS} cron jobs: remove some first.")
        if status == "changed":
            return "changed"
        return "done" if written else "nothing"

    async def _run(
        self,
        caller: Caller | None,
        call: str,
        note: Mapping[str, Any] | None,
        names: Sequence[str],
        arguments: Sequence[str | bytes | int],
    ) -> tuple[str, list[str]]:
        """Run the script; `call` is unique for its caller."""
        asked = _asked(caller, call)
        line = orjson.dumps({**note, "callId": call}) if note and caller else b""
        try:
            status, made = await self._scripts.run(
                "effect",
                [asked.state, asked.call, asked.effects, *names],
                [asked.epoch, asked.turn, CALL_MS, line, OUTCOME_MS, *arguments],
                deadline=boottime() + CALL_S,
            )
        except LeaseLost:
            raise CallRefused("TURN_OVER", "The turn of this call is over.") from None
        except RedisUnavailable as error:
            raise CallRefused(
                "UNAVAILABLE",
                f"{error} Whether it was done is unknown: look before you repeat it.",
            ) from None
        return status.decode(), made.decode().split("\n")


def call_name(caller: Caller | None, call: str) -> str:
    """Return a call's name among all: in each turn of a session, agents have names of their own."""
    scope = f"{caller.turn.id}\0" if caller and caller.turn else ""
    digest = hashlib.sha256(f"{scope}{call}".encode()).hexdigest()[:32]
    return f"{{{caller.session.sid if caller else keys.OPERATOR}}}:{digest}"


def _asked(caller: Caller | None, call: str) -> _Asked:
    name = keys.call(call_name(caller, call))
    if caller is None:
        return _Asked(keys.NOBODY, "", "", name, keys.NOBODY)
    if caller.turn is None:
        raise CallRefused("NO_TURN", "No turn is running for this agent: tools work in a turn.")
    sid = caller.session.sid
    return _Asked(keys.state(sid), caller.turn.epoch, caller.turn.id, name, keys.effects(sid))


def _grant(text: bytes) -> Grant | None:
    if not text:
        return None
    data = orjson.loads(text)
    return Grant(data["digest"], frozenset(data["names"]))


def _decoded(entries: Sequence[RawEntry]) -> tuple[Entry, ...]:
    decoded = []
    for entry_id, fields in entries:
        with contextlib.suppress(ValueError, NewerEntry):
            decoded.append(decode_entry(entry_id, fields))
    return tuple(decoded)
