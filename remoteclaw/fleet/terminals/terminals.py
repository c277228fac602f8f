"""Terminals of the fleet: their opening, their state, their leases and their events.

A terminal is the turn of an entry. Once its program runs, the lease belongs to the program's
holder, and the host's gateway or sweeper renews it while the holder lives.
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
from remoteclaw.fleet.lua import Value
from remoteclaw.fleet.requests.turn_requests import TurnRequests
from remoteclaw.fleet.sessions.state import STATE_MS
from remoteclaw.fleet.sessions.usage import Usage, UsageScopes, usage_args
from remoteclaw.fleet.terminals.state import (
    HeldLease,
    LeaseRenewal,
    TerminalEvent,
    TerminalPlace,
    TerminalRecord,
)
from remoteclaw.fleet.turns.inbound import (
    APPEND_S,
    DEDUPE_MS,
    FULL,
    GRACE_MS,
    Accepted,
    encode_entry,
    entry_args,
)
from remoteclaw.fleet.wake import Waker
from remoteclaw.messages import SessionKey, TerminalWish, stream_order
from remoteclaw.protocols import Conversation

#: The events of a terminal are kept for this long, in milliseconds.
EVENTS_MS = 7 * 24 * 3600 * 1000
#: This many terminals may be opened at once beyond the rate per minute.
BURST = 3
#: The time limit of an update of a terminal, in seconds. A lost update is repaired by the next one.
CHANGE_S = 5.0
#: At most this many of the newest sessions are searched.
MAX_NEWEST = 1000
#: The maximum number of events that are read at once.
MAX_EVENTS = 500

ENDING = "The terminal is being ended: open it again in a moment."


class TerminalEnding(CallRefused):
    """Raised when a terminal can't be opened yet, since the session's last one is still ending."""


@dataclass(frozen=True, slots=True)
class _HeldSession:
    """A session whose lease the holder of its terminal has."""

    _scripts: Scripts
    sid: str
    epoch: str

    async def run_fenced(self, name: str, /, **values: Value) -> Any:
        """Run the script `name`; raise `LeaseLost` if the holder has lost the lease."""
        own = {"sid": self.sid, "epoch": self.epoch}
        return await self._scripts.run(name, deadline=boottime() + CHANGE_S, **{**values, **own})


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
        """Append the entry that opens a session's terminal on `host`, on behalf of `people`.

        A repeated `call` opens nothing, and neither does a call for a session with an open
        terminal: the result is then a duplicate. Raises `CallRefused`; after `TerminalEnding`, the
        call can be retried in a moment.
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
        opened = await self._scripts.run(
            "terminal_open",
            dedupe_ms=DEDUPE_MS,
            lane="agents",
            by=wish.by,
            host=host,
            max_on_host=limits.max,
            max_per_person=limits.max_per_person,
            per_minute=limits.opens_per_minute,
            burst=BURST,
            fields=orjson.dumps(fields),
            keep_ms=STATE_MS,
            seen=keys.known(session, message.id),
            terminal_opens=keys.terminal_opens(wish.by),
            **entry_args(session, entry),
            deadline=boottime() + APPEND_S,
        )
        if refusal := _refusal(opened.status, opened.wait_ms, limits):
            raise refusal
        await self._waker.try_hint(session, opened.queue)
        return Accepted(session, opened.entry_id, opened.status != "accepted")

    # -- what people see -----------------------------------------------------------------------

    async def record(self, sid: str) -> TerminalRecord | None:
        """Return a session's terminal; None if it had none within the last 8 days."""
        fields = await self._scripts.call(self._scripts.client.hgetall, keys.terminal(sid))
        return TerminalRecord.decode(sid, fields) if fields else None

    async def is_open(self, sid: str) -> bool:
        """Return whether a session has a terminal that is open or not settled yet."""
        record = await self.record(sid)
        return record is not None and record.is_open

    async def recent(self) -> Sequence[TerminalRecord]:
        """Return the open terminals, and the ended ones of the newest sessions."""
        open_now, newest = await self._scripts.run_pipeline(
            lambda ask: (
                ask.zrange(keys.TERMINALS, 0, -1),
                ask.zrevrange(keys.SESSIONS, 0, MAX_NEWEST - 1),
            )
        )
        return await self.records([sid.decode() for sid in dict.fromkeys([*open_now, *newest])])

    async def records(self, sids: Sequence[str]) -> Sequence[TerminalRecord]:
        """Return the terminals of the sessions `sids` that had one."""
        rows = await self._scripts.run_pipeline(
            lambda ask: [ask.hgetall(keys.terminal(sid)) for sid in sids]
        )
        return [
            TerminalRecord.decode(sid, fields)
            for sid, fields in zip(sids, rows, strict=True)
            if fields
        ]

    async def other_session_with(self, conversation: str, *, but: str) -> str | None:
        """Return the id of a session other than `but` that continues a CLI's conversation.

        Only the newest sessions are searched. Returns None if none of them continues it.
        """
        client = self._scripts.client
        newest = await self._scripts.call(client.zrevrange, keys.SESSIONS, 0, MAX_NEWEST - 1)
        maps = await self._scripts.run_pipeline(
            lambda ask: [ask.hvals(keys.session_map(sid.decode())) for sid in newest]
        )
        for sid, session_map in zip(newest, maps, strict=True):
            ids = [Conversation.decode(value.decode()).id for value in session_map]
            if sid.decode() != but and conversation in ids:
                return str(sid.decode())
        return None

    async def change(
        self, sid: str, epoch: str, *, event: Mapping[str, Any] | None = None, **changes: Any
    ) -> bool:
        """Change fields of a terminal's record, and publish `event` if a field changed.

        None stands for an empty value. Returns False if no field changed. Raises `LeaseLost` if the
        lease no longer has this epoch.
        """
        return bool(
            await self._scripts.run(
                "terminal_change",
                epoch=epoch,
                sid=sid,
                changes=orjson.dumps({name: _text(value) for name, value in changes.items()}),
                event=orjson.dumps(event) if event else None,
                keep_ms=STATE_MS,
                events_ms=EVENTS_MS,
                deadline=boottime() + CHANGE_S,
            )
        )

    async def count(
        self, sid: str, epoch: str, turn: str, usage: Usage, scopes: UsageScopes
    ) -> None:
        """Count what the program of a turn's terminal has used so far, each part of it once.

        Raises `LeaseLost` if the lease no longer has this epoch, or another turn runs.
        """
        await self._scripts.run(
            "terminal_usage",
            sid=sid,
            epoch=epoch,
            turn=turn,
            deadline=boottime() + CHANGE_S,
            **usage_args(usage, scopes),
        )

    async def stop(self, sid: str) -> bool:
        """Ask a terminal's host to end it, so that the session goes on; False if none is held.

        The request is durable and idempotent.
        """
        return bool(await self._scripts.run("terminal_stop", sid=sid))

    # -- leases of holders ---------------------------------------------------------------------

    async def held(self, host: str) -> Sequence[HeldLease]:
        """Return the leases that were given to holders on a host."""
        client = self._scripts.client
        sids = await self._scripts.call(client.zrange, keys.TERMINALS, 0, -1)
        names = "key epoch terminal held worker lease_until_ms stop_entry stopped_terminal".split()
        states = await self._scripts.run_pipeline(
            lambda ask: [ask.hmget(keys.state(sid.decode()), names) for sid in sids]
        )
        leases = []
        for sid, fields in zip(sids, states, strict=True):
            key, epoch, place, holder, worker, until, stop, stopped = [
                value.decode() if value is not None else "" for value in fields
            ]
            # A worker that has acquired the lease since will settle the terminal.
            if not holder or worker != holder or not place or int(until or 0) == 0:
                continue
            owner, _, process = holder.partition(" ")
            if owner != host:
                continue
            with contextlib.suppress(ValueError, TypeError):
                terminal = TerminalPlace(**orjson.loads(place))
                session = SessionKey.parse(key)
                stop = stopped or stop
                leases.append(HeldLease(sid.decode(), session, epoch, terminal, process, stop))
        return leases

    async def renew(self, held: HeldLease, *, hold_s: float) -> LeaseRenewal:
        """Renew a holder's lease. Raises `LeaseLost` if the holder has lost it."""
        sent_at = boottime()
        renewed = await self._scripts.run(
            "renew_held",
            sid=held.sid,
            epoch=held.epoch,
            hold_ms=int(hold_s * 1000),
            grace_ms=GRACE_MS,
            deadline=sent_at + CHANGE_S,
        )
        return LeaseRenewal(
            renewed.stop_entry or "",
            renewed.newest_message or "",
            renewed.newest_entry or "",
            int(renewed.kept_until_ms) if renewed.kept_until_ms else None,
            sent_at,
        )

    def requests(self, held: HeldLease) -> TurnRequests:
        """Return the requests to people of a terminal's turn."""
        return TurnRequests(_HeldSession(self._scripts, held.sid, held.epoch), held.place.turn)

    async def is_placed(self, sid: str, path: str) -> bool:
        """Return whether the terminal of a session's turn has its holder at `path`."""
        place = await self._scripts.call(self._scripts.client.hget, keys.state(sid), "terminal")
        return place is not None and orjson.loads(place)["path"] == path

    # -- events --------------------------------------------------------------------------------

    async def publish(
        self,
        sid: str,
        epoch: str,
        *,
        before: str,
        position: str,
        events: Sequence[Mapping[str, Any]],
    ) -> bool:
        """Publish the `events` of a transcript between the positions `before` and `position`.

        Returns False, and publishes nothing, if the stored position is neither of the two: another
        process has published these events.
        """
        return bool(
            await self._scripts.run(
                "terminal_note",
                epoch=epoch,
                sid=sid,
                before=before,
                position=position,
                events_ms=EVENTS_MS,
                new_events=[orjson.dumps(event) for event in events],
                deadline=boottime() + CHANGE_S,
            )
        )

    async def events(
        self, sid: str, after: str = "-", *, count: int = MAX_EVENTS
    ) -> Sequence[TerminalEvent]:
        """Return the events after the event `after`, oldest first; "-" is the beginning."""
        client = self._scripts.client
        start = after if after == "-" else f"({after}"
        entries = await self._scripts.call(
            client.xrange, keys.terminal_events(sid), start, count=count
        )
        return list(map(_event_of, entries))

    async def unrecorded(self, sid: str) -> tuple[TerminalRecord, Sequence[TerminalEvent]] | None:
        """Return a session's terminal that is not in its record yet, with all its kept events.

        None if there is none: a terminal is recorded as a whole when its turn is over.
        """
        events, record, entry = await self._scripts.run_pipeline(
            lambda ask: (
                ask.xrange(keys.terminal_events(sid)),
                ask.hgetall(keys.terminal(sid)),
                ask.hget(keys.state(sid), "terminal_entry"),
            )
        )
        if not record or record.get(b"entry") != entry:
            return None
        terminal = TerminalRecord.decode(sid, record)
        own = [
            event
            for event in map(_event_of, events)
            if stream_order(event.id) >= (terminal.opened_ms, 0)
        ]
        return terminal, own

    async def event_range(self, sid: str) -> tuple[str, str]:
        """Return the ids of the first and the last event; empty if there are no events."""
        name = keys.terminal_events(sid)
        first, last = await self._scripts.run_pipeline(
            lambda ask: (ask.xrange(name, count=1), ask.xrevrange(name, count=1))
        )
        return (first[0][0].decode(), last[0][0].decode()) if first and last else ("", "")


def _event_of(entry: tuple[bytes, Mapping[bytes, bytes]]) -> TerminalEvent:
    id_, fields = entry
    return TerminalEvent(id_.decode(), orjson.loads(fields[b"event"]))


def _refusal(status: str, wait_ms: int, limits: TerminalsConfig) -> CallRefused | None:
    match status:
        case "ending":
            return TerminalEnding("CONFLICT", ENDING)
        case "full":
            return CallRefused("UNAVAILABLE", FULL)
        case "host":
            return CallRefused(
                "TOO_MANY",
                f"This host has {limits.max} open terminals, the limit set by [terminals] max: "
                "park one.",
                retry_after_s=60.0,
            )
        case "person":
            return CallRefused(
                "TOO_MANY",
                f"You have {limits.max_per_person} open terminals, the limit set by [terminals] "
                "max_per_person: park one.",
                retry_after_s=60.0,
            )
        case "rate":
            return CallRefused(
                "TOO_MANY",
                f"Too many terminals were opened at once: try again in {wait_ms / 1000:.0f} s.",
                retry_after_s=wait_ms / 1000,
            )
    return None


def _text(value: Any) -> str:
    if value is None:
        return ""
    return str(int(value)) if isinstance(value, bool) else str(value)
