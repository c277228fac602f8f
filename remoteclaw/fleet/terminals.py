"""Terminals of the fleet: opened, shown, held for their holders, told to cockpits.

A terminal is the turn of an entry. Once its program runs, its lease belongs to the program's
holder: it is renewed while that lives, by the host's gateway or sweep.
"""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from remoteclaw.clock import boottime, now_ms
from remoteclaw.config.model import TerminalsConfig
from remoteclaw.errors import CallRefused
from remoteclaw.fleet import keys
from remoteclaw.fleet.connection import Scripts
from remoteclaw.fleet.inbound import (
    APPEND_S,
    DEDUPE_MS,
    FULL,
    GRACE_MS,
    Accepted,
    encode_entry,
    entry_args,
    entry_keys,
)
from remoteclaw.fleet.lua import Arguments, Keys
from remoteclaw.fleet.session_map import id_of
from remoteclaw.fleet.state import STATE_MS
from remoteclaw.fleet.terminal_state import (
    Held,
    Renewed,
    TerminalEvent,
    TerminalPlace,
    TerminalRecord,
)
from remoteclaw.fleet.turn_asks import TurnAsks
from remoteclaw.fleet.wake import Waker
from remoteclaw.messages import SessionKey, TerminalWish

#: How long the events for cockpits are kept, in milliseconds.
EVENTS_MS = 7 * 24 * 3600 * 1000
#: How many more than a minute's share may be opened at once.
BURST = 3
#: Time limit of a change of what people see, in seconds; the next change tells more.
CHANGE_S = 5.0
#: How many of the newest sessions are searched.
MAX_NEWEST = 1000
#: How many events are read at once.
MAX_EVENTS = 500

ENDING = "The terminal is being ended: open it again in a moment."


class TerminalEnding(CallRefused):
    """A terminal can't be opened yet: the session's last one ends."""


@dataclass(frozen=True, slots=True)
class _HeldSession:
    """A session that the holder of its terminal has."""

    _scripts: Scripts
    sid: str
    epoch: str

    async def run_fenced(self, name: str, names: Keys, args: Arguments) -> Any:
        """Run a script that is refused once the holder has it no more."""
        return await self._scripts.run(
            name,
            keys={"state": keys.state(self.sid), **names},
            args={"epoch": self.epoch, **args},
            deadline=boottime() + CHANGE_S,
        )


@dataclass(frozen=True, slots=True)
class Terminals:
    """The terminals of the fleet."""

    _scripts: Scripts
    _waker: Waker

    async def open(
        self,
        session: SessionKey,
        wish: TerminalWish,
        *,
        people: Sequence[str],
        call: str,
        host: str,
        name: str,
        limits: TerminalsConfig,
    ) -> Accepted:
        """Ask for a session's terminal; return the entry that opens it.

        The same `call` again, and an opening where one is open, open nothing: a duplicate. `people`
        are those on whose behalf it is, and `host` the one that is to have it. Raises
        `CallRefused`, of which `TerminalEnding` is over in a moment.
        """
        fields = {
            "v": "1",
            "key": str(session),
            "name": name,
            "state": "starting",
            "activity": "unknown",
            "cols": str(wish.cols),
            "rows": str(wish.rows),
        }
        message = session.message(
            id=f"terminal-{call}",
            text=wish.prompt.strip() or "opens a terminal",
            from_="operator",
            timestamp=now_ms(),
        )
        entry = encode_entry(message, "caller", "terminal", people=people, terminal=wish)
        status, entry_id, queue, wait_ms = await self._scripts.run(
            "terminal_open",
            keys={
                **entry_keys(session),
                "seen": keys.dedupe(session, message.id),
                "terminals": keys.TERMINALS,
                "record": keys.terminal(session.sid),
                "opens": keys.terminal_opens(wish.by),
            },
            args={
                **entry_args(session, entry),
                "dedupe_ms": DEDUPE_MS,
                "lane": "agents",
                "by": wish.by,
                "host": host,
                "most": limits.max,
                "most_per_person": limits.max_per_person,
                "per_minute": limits.opens_per_minute,
                "burst": BURST,
                "fields": orjson.dumps(fields),
                "keep_ms": STATE_MS,
            },
            deadline=boottime() + APPEND_S,
        )
        if refusal := _refusal(status, int(wait_ms), limits):
            raise refusal
        await self._waker.try_hint(session, queue.decode())
        return Accepted(session, entry_id.decode(), status != b"accepted")

    # -- what people see -----------------------------------------------------------------------

    async def record(self, sid: str) -> TerminalRecord | None:
        """Return a session's terminal; None if it has had none within the last days."""
        found = await self._scripts.call(self._scripts.client.hgetall, keys.terminal(sid))
        return TerminalRecord.decode(sid, found) if found else None

    async def is_open(self, sid: str) -> bool:
        """Return whether a session has a terminal that is open, or not settled yet."""
        record = await self.record(sid)
        return record is not None and record.is_open

    async def of_last_days(self) -> Sequence[TerminalRecord]:
        """Return those that are open, and those that have ended in the newest sessions."""
        open_now, newest = await self._scripts.together(
            lambda ask: (
                ask.zrange(keys.TERMINALS, 0, -1),
                ask.zrevrange(keys.SESSIONS, 0, MAX_NEWEST - 1),
            )
        )
        return await self.records([sid.decode() for sid in dict.fromkeys([*open_now, *newest])])

    async def records(self, sids: Sequence[str]) -> Sequence[TerminalRecord]:
        """Return the terminals of some sessions, those that have had one."""
        found = await self._scripts.together(
            lambda ask: [ask.hgetall(keys.terminal(sid)) for sid in sids]
        )
        return [
            TerminalRecord.decode(sid, fields)
            for sid, fields in zip(sids, found, strict=True)
            if fields
        ]

    async def other_with(self, conversation: str, *, but: str) -> str | None:
        """Return which other of the newest sessions goes on with a CLI's conversation."""
        client = self._scripts.client
        newest = await self._scripts.call(client.zrevrange, keys.SESSIONS, 0, MAX_NEWEST - 1)
        maps = await self._scripts.together(
            lambda ask: [ask.hvals(keys.session_map(sid.decode())) for sid in newest]
        )
        for sid, known in zip(newest, maps, strict=True):
            ids = [id_of(value.decode()) for value in known]
            if sid.decode() != but and conversation in ids:
                return str(sid.decode())
        return None

    async def change(
        self, sid: str, epoch: str, *, event: Mapping[str, Any] | None = None, **changes: Any
    ) -> bool:
        """Change what people see of a terminal; False if it was so already.

        `event` is told to cockpits if it is new. None stands for an empty value. Raises `LeaseLost`
        for an owner that is none any more.
        """
        return bool(
            await self._scripts.run(
                "terminal_change",
                keys=_keys(sid),
                args={
                    "epoch": epoch,
                    "sid": sid,
                    "changes": orjson.dumps({name: _text(it) for name, it in changes.items()}),
                    "event": orjson.dumps(event) if event else None,
                    "keep_ms": STATE_MS,
                    "events_ms": EVENTS_MS,
                },
                deadline=boottime() + CHANGE_S,
            )
        )

    async def stop(self, sid: str) -> bool:
        """Ask a terminal's host to end it, so that what waits goes on; False if none is held.

        It is durable, and the same again changes nothing.
        """
        names = {"state": keys.state(sid), "bell": keys.bell(sid)}
        return bool(await self._scripts.run("terminal_stop", keys=names))

    # -- those that are held -------------------------------------------------------------------

    async def held(self, host: str) -> Sequence[Held]:
        """Return the sessions of a host whose leases belong to holders."""
        client = self._scripts.client
        sids = await self._scripts.call(client.zrange, keys.TERMINALS, 0, -1)
        names = ["key", "epoch", "terminal", "held", "worker", "lease_until_ms", "stop_entry"]
        states = await self._scripts.together(
            lambda ask: [ask.hmget(keys.state(sid.decode()), names) for sid in sids]
        )
        found = []
        for sid, fields in zip(sids, states, strict=True):
            key, epoch, place, holder, worker, until, stop = [
                value.decode() if value is not None else "" for value in fields
            ]
            # A worker that has the session since is about to settle it.
            if not holder or worker != holder or not place or int(until or 0) == 0:
                continue
            owner, _, process = holder.partition(" ")
            if owner != host:
                continue
            with contextlib.suppress(ValueError, TypeError):
                where = TerminalPlace(**orjson.loads(place))
                session = SessionKey.parse(key)
                found.append(Held(sid.decode(), session, epoch, where, process, stop))
        return found

    async def renew(self, held: Held, *, hold_s: float) -> Renewed:
        """Hold a terminal's session for longer. Raises `LeaseLost` if it is not its own."""
        sent_at = boottime()
        stop, said, newest = await self._scripts.run(
            "renew_held",
            keys={"state": keys.state(held.sid), "active": keys.ACTIVE},
            args={
                "epoch": held.epoch,
                "sid": held.sid,
                "hold_ms": int(hold_s * 1000),
                "grace_ms": GRACE_MS,
            },
            deadline=sent_at + CHANGE_S,
        )
        return Renewed(stop.decode(), said.decode(), newest.decode(), sent_at)

    def asks(self, held: Held) -> TurnAsks:
        """Return the requests to people of a terminal's turn."""
        return TurnAsks(_HeldSession(self._scripts, held.sid, held.epoch), held.place.turn)

    async def is_placed(self, sid: str, path: str) -> bool:
        """Return whether the turn of a session has its terminal where a holder listens."""
        place = await self._scripts.call(self._scripts.client.hget, keys.state(sid), "terminal")
        return place is not None and orjson.loads(place)["path"] == path

    # -- what cockpits are told ----------------------------------------------------------------

    async def note(
        self,
        sid: str,
        epoch: str,
        *,
        before: str,
        position: str,
        told: Sequence[Mapping[str, Any]],
    ) -> bool:
        """Tell what a transcript has behind a position, once; False if another is further."""
        return bool(
            await self._scripts.run(
                "terminal_note",
                keys=_keys(sid),
                args={
                    "epoch": epoch,
                    "sid": sid,
                    "before": before,
                    "position": position,
                    "events_ms": EVENTS_MS,
                    "told": [orjson.dumps(event) for event in told],
                },
                deadline=boottime() + CHANGE_S,
            )
        )

    async def events(
        self, sid: str, after: str = "-", *, count: int = MAX_EVENTS
    ) -> Sequence[TerminalEvent]:
        """Return what was told behind an event, oldest first; "-" is the beginning."""
        client = self._scripts.client
        start = after if after == "-" else f"({after}"
        found = await self._scripts.call(
            client.xrange, keys.terminal_events(sid), start, count=count
        )
        return [
            TerminalEvent(each.decode(), orjson.loads(fields[b"event"])) for each, fields in found
        ]

    async def edges(self, sid: str) -> tuple[str, str]:
        """Return the ids of the first and of the last event; empty where there is none."""
        name = keys.terminal_events(sid)
        first, last = await self._scripts.together(
            lambda ask: (ask.xrange(name, count=1), ask.xrevrange(name, count=1))
        )
        return (first[0][0].decode(), last[0][0].decode()) if first and last else ("", "")


def _refusal(status: bytes, wait_ms: int, limits: TerminalsConfig) -> CallRefused | None:
    match status:
        case b"ending":
            return TerminalEnding("CONFLICT", ENDING)
        case b"full":
            return CallRefused("UNAVAILABLE", FULL)
        case b"host":
            return CallRefused(
                "TOO_MANY",
                f"This host has {limits.max} terminals open, the most that [terminals] max "
                "allows: park one.",
                retry_after_s=60.0,
            )
        case b"person":
            return CallRefused(
                "TOO_MANY",
                f"You have {limits.max_per_person} terminals open, the most that [terminals] "
                "max_per_person allows: park one.",
                retry_after_s=60.0,
            )
        case b"rate":
            return CallRefused(
                "TOO_MANY",
                f"Too many terminals were opened at once: try again in {wait_ms / 1000:.0f} s.",
                retry_after_s=wait_ms / 1000,
            )
    return None


def _keys(sid: str) -> dict[str, str]:
    return {
        "state": keys.state(sid),
        "record": keys.terminal(sid),
        "events": keys.terminal_events(sid),
    }


def _text(value: Any) -> str:
    if value is None:
        return ""
    return str(int(value)) if isinstance(value, bool) else str(value)
