"""Sessions for commands, tools and operators: list, find, change, fork and stop them."""

import contextlib
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import orjson

from remoteclaw.clock import boottime
from remoteclaw.config.model import QueueOverride
from remoteclaw.config.tool_policy import SessionLimits
from remoteclaw.errors import NotFound
from remoteclaw.events import ContextSize
from remoteclaw.fleet import keys
from remoteclaw.fleet.connection import Scripts
from remoteclaw.fleet.sessions.records import Records
from remoteclaw.fleet.sessions.state import IS_QUIET, MODEL, PROJECT, QUEUE, STATE_MS, SessionState
from remoteclaw.fleet.turns.caller import call_name
from remoteclaw.fleet.turns.calls import CALL_MS
from remoteclaw.fleet.turns.inbound import APPEND_S
from remoteclaw.fleet.wake import Waker
from remoteclaw.messages import SessionKey
from remoteclaw.protocols import FORK_OF, Conversation

#: At most this many of the newest sessions are searched for a label or title.
MAX_NAMED = 1000
#: At most this many sessions with work are searched for running ones.
MAX_ACTIVE = 1000
#: At most this many of the newest sessions are searched for warm agents.
MAX_WARM = 300
#: The number of sessions that are read in one transaction, during which Redis is blocked.
MAX_AT_ONCE = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionView(SessionState):
    """A session's state with its number of entries and its conversations."""

    sid: str
    waiting: int
    """The number of entries without a final outcome, including those of the running turn."""
    last_message_ms: int
    session_ids: Mapping[str, str]
    """The CLIs' own session ids, by `conversation_name()`."""
    identities: Mapping[str, str]
    """The identities of these conversations (`Conversation.identity`), by the same names."""

    @property
    def size(self) -> ContextSize | None:
        """The size of the conversation; None if it is not known, as in a new conversation."""
        is_current = self.context and self.context.conversation in self.session_ids.values()
        return self.context.size if self.context and is_current else None

    @property
    def shown_status(self) -> str:
        """The status for people: `terminal` while the session is open in one.

        It is `idle` also while a worker only keeps the lease for a while.
        """
        if self.turn and self.turn == self.terminal_entry:
            return "terminal"
        is_over = self.status == "running" and not self.turn and not self.waiting
        return "idle" if is_over else self.status

    @property
    def is_postponed(self) -> bool:
        """Whether the session itself is postponed, and not only a batch behind its terminal."""
        return self.postponed_until_ms is not None and not self.kept_size

    def matches(self, text: str) -> bool:
        """Return whether the key, label or title contains `text`, in any case."""
        names = f"{self.key} {self.label or ''} {self.title or ''}"
        return text.casefold() in names.casefold()


@dataclass(frozen=True, slots=True)
class WorkCounts:
    """How many sessions do what, of those that have work."""

    running: int
    """A turn runs."""
    waiting: int
    """Their messages wait for a worker."""
    postponed: int
    """Their messages wait for a time, such as the end of a limit."""
    terminals: int
    """They are open in a terminal."""
    waiting_since_ms: int | None
    """Since when the oldest message waits for a worker, in milliseconds since 1970."""


class Sessions:
    """The sessions of a fleet."""

    def __init__(self, scripts: Scripts, waker: Waker, records: Records) -> None:
        self._scripts = scripts
        self._waker = waker
        self._records = records

    async def list(self, *, limit: int) -> Sequence[SessionView]:
        """Return the sessions with the newest messages, newest first."""
        return await self.views(await self._newest(limit))

    async def busy(self, *, limit: int) -> tuple[int, Sequence[SessionView]]:
        """Return the number of sessions with work, and at most `limit` of them, running first.

        Their order is otherwise that of their ids, because each sweep changes that of `ACTIVE`.
        """
        count, sids = await self._scripts.run_pipeline(
            lambda ask: (ask.zcard(keys.ACTIVE), ask.zrange(keys.ACTIVE, 0, MAX_ACTIVE - 1))
        )
        states = await self._fields(sids, ["status"])
        pairs = sorted(
            (state != [b"running"], sid) for state, sid in zip(states, sids, strict=True)
        )
        some = await self.views([sid for _, sid in pairs[:limit]])
        return count, [view for view in some if view.status != "idle"]

    async def counts(self) -> WorkCounts:
        """Return how many sessions do what; at most `MAX_ACTIVE` sessions are counted."""
        client = self._scripts.client
        sids = await self._scripts.call(client.zrange, keys.ACTIVE, 0, MAX_ACTIVE - 1)
        fields = ["status", "turn", "terminal_entry", "postponed_until_ms", "kept_batch"]
        at_work: dict[str, list[str]] = {kind: [] for kind in ("terminal", "turn", "later", "now")}
        for sid, state in zip(sids, await self._fields(sids, fields), strict=True):
            status, turn, terminal, postponed_until, kept = state
            if status == b"running":
                kind = turn and ("terminal" if turn == terminal else "turn")
            else:
                is_postponed = postponed_until and not kept
                kind = status == b"scheduled" and ("later" if is_postponed else "now")
            if kind:
                at_work[kind].append(sid.decode())
        since = await self._oldest_entries(at_work["now"])
        return WorkCounts(
            running=len(at_work["turn"]),
            waiting=len(at_work["now"]),
            postponed=len(at_work["later"]),
            terminals=len(at_work["terminal"]),
            waiting_since_ms=min(filter(None, since), default=None),
        )

    async def leased(self, beginnings: Collection[str]) -> set[str]:
        """Return those `beginnings` of session ids whose session has a lease that is valid now."""
        client, now_ms = self._scripts.client, await self._scripts.now_ms()
        active = await self._scripts.call(client.zrange, keys.ACTIVE, 0, MAX_ACTIVE - 1)
        sids = [sid for sid in active if sid.decode().startswith(tuple(beginnings))]
        leases = await self._fields(sids, ["status", "lease_until_ms"])
        return {
            next(each for each in beginnings if sid.decode().startswith(each))
            for sid, (status, until_ms) in zip(sids, leases, strict=True)
            if status == b"running" and int(until_ms or 0) > now_ms
        }

    async def waiting_since(self, views: Sequence[SessionView]) -> Sequence[int | None]:
        """Return the time of each session's oldest entry without an outcome; None without one.

        Times are in milliseconds since 1970.
        """
        return await self._oldest_entries([view.sid for view in views])

    async def _oldest_entries(self, sids: Sequence[str]) -> Sequence[int | None]:
        oldest = await self._scripts.run_pipeline(
            lambda ask: [ask.xrange(keys.inbound(sid), count=1) for sid in sids]
        )
        return [int(entries[0][0].partition(b"-")[0]) if entries else None for entries in oldest]

    async def by_agent_path(self) -> Mapping[str, SessionKey]:
        """Return sessions by the address of their last agent's holder.

        Only the newest sessions are read, since an agent stays warm for minutes.
        """
        newest = await self._newest(MAX_WARM)
        return {
            orjson.loads(agent)["path"]: SessionKey.parse(key.decode())
            for key, agent in await self._fields(newest, ["key", "agent_process"])
            if key and agent
        }

    async def exists(self, session: SessionKey) -> bool:
        """Return whether a session has had a message within 8 days."""
        score = await self._scripts.call(
            self._scripts.client.zscore, keys.SESSIONS, session.sid, deadline=boottime() + APPEND_S
        )
        return score is not None

    async def view(self, sid: str) -> SessionView | None:
        """Return a session; None if its state has expired."""
        return next(iter(await self.views([sid.encode()])), None)

    async def views(self, sids: Sequence[bytes]) -> Sequence[SessionView]:
        """Return the sessions in the order of `sids`, without those whose state has expired."""
        names = [sid.decode() for sid in sids]
        return [
            view
            for first in range(0, len(names), MAX_AT_ONCE)
            for view in await self._views(names[first : first + MAX_AT_ONCE])
            if view is not None
        ]

    async def _views(self, sids: Sequence[str]) -> Sequence[SessionView | None]:
        rows = await self._scripts.run("session_views", sids=sids)
        return [
            _view(
                sid,
                dict(_pairs(row.state)),
                row.waiting,
                float(row.last_message_ms),
                dict(_pairs(row.session_map)),
            )
            for sid, row in zip(sids, rows, strict=True)
        ]

    async def _newest(self, count: int) -> Sequence[bytes]:
        client = self._scripts.client
        sids: Sequence[bytes] = await self._scripts.call(
            client.zrevrange, keys.SESSIONS, 0, count - 1
        )
        return sids

    async def _fields(self, sids: Sequence[bytes], names: Sequence[str]) -> Sequence[Any]:
        return await self._scripts.run_pipeline(
            lambda ask: [ask.hmget(keys.state(sid.decode()), [*names]) for sid in sids]
        )

    async def ancestors(self, view: SessionView) -> Sequence[SessionKey]:
        """Return the parent of a session, the parent's parent and so on."""
        ancestors = []
        current: SessionView | None = view
        while current and current.parent and current.parent not in ancestors:
            ancestors.append(current.parent)
            current = await self.view(current.parent.sid)
        return ancestors

    async def root(self, session: SessionKey) -> SessionKey:
        """Return the session above all others; the session itself if no other has started it."""
        view = await self.view(session.sid)
        above = await self.ancestors(view) if view else ()
        return above[-1] if above else session

    async def children(self, sid: str) -> Sequence[SessionView]:
        """Return the sessions that a session started, oldest first."""
        client = self._scripts.client
        sids = await self._scripts.call(client.zrange, keys.children(sid), 0, -1)
        return await self.views(sids)

    async def labelled(self, agent: str, label: str) -> str | None:
        """Return the id of the agent's session with a label; None if no session has it."""
        client = self._scripts.client
        sid = await self._scripts.call(client.hget, keys.labels(agent), label)
        return sid.decode() if sid else None

    async def label(self, view: SessionView, label: str | None) -> None:
        """Set the label of a session; None removes it.

        Raises `NotFound` if another session of the agent has the label.
        """
        owner = await self._scripts.run(
            "label",
            sid=view.sid,
            label=label,
            labels=keys.labels(view.key.agent),
        )
        if owner:
            raise NotFound(f"{owner!r} already has the label {label!r}: choose another.")

    async def find(self, text: str) -> str:
        """Return the id of the session that `text` names.

        `text` is the session's key, its label, its id or the beginning of it, or its title or the
        beginning of it; the first of these that matches decides. Raises `NotFound` if no session
        matches, or more than one.
        """
        found: set[str] = set()
        client = self._scripts.client

        async def scan_ids() -> None:
            async for sid, _score in client.zscan_iter(keys.SESSIONS, match=f"{text}*", count=1000):
                found.add(sid.decode())

        sid = text if re.fullmatch("[0-9a-f]{32}", text) else None
        if "/" in text:
            with contextlib.suppress(ValueError):
                sid = SessionKey.parse(text).sid
        if sid and (await self.view(sid) or await self._records.has(sid)):
            found.add(sid)
        elif not (found := await self._named_by(text, "label")):
            if re.fullmatch("[0-9a-f]{1,31}", text):
                await self._scripts.call(scan_ids)
            if not found:
                found = await self._named_by(text, "title")
        if len(found) == 1:
            return found.pop()
        listed = "`remoteclaw sessions list` lists them"
        if found:
            raise NotFound(f"{text!r} fits {len(found)} sessions: give more of its id; {listed}.")
        raise NotFound(f"{text!r} is no session: {listed}.")

    async def _named_by(self, text: str, field: Literal["label", "title"]) -> set[str]:
        """Return the ids of the newest sessions whose `field` is `text`, in any case.

        If no title is `text`, the sessions whose title begins with it are returned.
        """
        newest = await self._newest(MAX_NAMED)
        rows = await self._fields(newest, [field])
        names = {
            sid.decode(): name.decode().casefold()
            for sid, (name,) in zip(newest, rows, strict=True)
            if name
        }
        text = text.casefold()
        exact = {sid for sid, name in names.items() if name == text}
        if exact or field == "label" or not text:
            return exact
        return {sid for sid, name in names.items() if name.startswith(text)}

    async def named(self, text: str) -> SessionView:
        """Return the session that `text` names, as for `find()`.

        Raises `NotFound` also if the session's state has expired.
        """
        if view := await self.view(await self.find(text)):
            return view
        raise NotFound(f"There is no {text!r}, or its record has expired.")

    async def key_of(self, text: str) -> SessionKey:
        """Return the key of the session that `text` names, as for `find()`.

        Raises `NotFound` also if the session's state has expired and `text` is not its key.
        """
        sid = await self.find(text)
        if view := await self.view(sid):
            return view.key
        if "/" not in text:
            raise NotFound(f"The session {text!r} has expired: give its key instead.")
        return SessionKey.parse(text)

    async def fork(
        self,
        source: SessionView,
        target: SessionKey,
        names: Sequence[str],
        limits: SessionLimits,
    ) -> None:
        """Begin the session `target`, with `limits` and a copy of the conversation of `source`.

        `names` are the conversations, by their names in the session map, that their CLIs can copy.
        The CLI makes the copy in the first turn of `target`; without a copy, that turn begins with
        the record. Raises `NotFound` if `target` exists, or if there is nothing to copy.
        """
        result = await self._scripts.run(
            "fork",
            new_sid=target.sid,
            sid=source.sid,
            session_key=str(target),
            limits=limits.model_dump_json(),
            keep_ms=STATE_MS,
            mark=FORK_OF,
            names=names,
        )
        if result == "exists":
            raise NotFound(f"{str(target)!r} already exists: choose another thread or user.")
        if result == "nothing":
            raise NotFound(f"{str(source.key)!r} has no conversation that could be copied.")

    async def configure(self, session: SessionKey, queue: QueueOverride | None) -> None:
        """Set a session's own queue settings from its next turn on; None removes them."""
        await self._set(session, QUEUE, queue.model_dump_json(exclude_none=True) if queue else None)

    async def change_queue(
        self, view: SessionView, wanted: Mapping[str, Any], *, is_reset: bool
    ) -> QueueOverride | None:
        """Add the settings `wanted` to a session's own queue settings; return the new ones.

        With `is_reset`, the previous settings are removed first.
        """
        own = None if is_reset else view.queue_settings
        if is_reset or wanted:
            before = own.model_dump(exclude_none=True) if own else {}
            own = QueueOverride(**{**before, **wanted}) if before or wanted else None
            await self.configure(view.key, own)
        return own

    async def choose_model(self, session: SessionKey, model: str | None) -> None:
        """Set a session's own model from its next turn on; None removes it."""
        await self._set(session, MODEL, model)

    async def bind(self, session: SessionKey, project: str | None) -> None:
        """Bind a session to a project from its next turn on; None removes the binding.

        The state of a bound session does not expire.
        """
        await self._set(session, PROJECT, project)

    async def quieten(self, session: SessionKey, *, is_quiet: bool) -> None:
        """Set whether the session's chat shows only the answers of turns, without progress."""
        await self._set(session, IS_QUIET, "1" if is_quiet else None)

    async def _set(self, session: SessionKey, field: str, value: str | None) -> None:
        """Set or remove a field of a session's state; the session may not have a message yet."""
        await self._scripts.run(
            "configure",
            sid=session.sid,
            session_key=str(session),
            field=field,
            value=value,
            keep_ms=STATE_MS,
        )

    async def stop(self, sid: str, *, call: str | None = None, wants_result: bool = True) -> int:
        """Stop all unfinished entries of a session and of all sessions below it.

        Returns the number of the session's entries; 0 if there were none, or if they finished
        first. No session below returns a result, and the session itself returns one to its parent
        only with `wants_result`. The stop is durable: a worker that acquires the lease later obeys
        it. A postponed session gets a hint. A repeated `call` of an operator does not stop entries
        that have arrived since. Calls are named within the session: a platform may number the
        messages of each chat.
        """
        stopped = await self._scripts.run(
            "stop",
            sid=sid,
            is_unwanted=not wants_result,
            keep_ms=CALL_MS,
            call=keys.call(call_name(None, f"{sid}\0{call}")) if call else None,
        )
        if stopped.queue:
            await self._waker.try_hint(SessionKey.parse(stopped.session_key), stopped.queue)
        return int(stopped.count)

    async def retry(self, sid: str) -> bool:
        """Have a postponed session ask its agent again now; return whether it was postponed."""
        woken = await self._scripts.run("wake", sid=sid)
        if woken.queue:
            await self._waker.try_hint(SessionKey.parse(woken.session_key), woken.queue)
        return bool(woken.session_key)

    async def stop_own(self, session: SessionKey, sender: str, *, call: str) -> int | None:
        """Stop what a shared session does for one of its people before it works for others.

        That is the running turn, if it answers only `sender`, and the sender's waiting messages up
        to the first one of another person. Sessions below continue. Returns the number of stopped
        entries; None if the session works for others first. A repeated `call` has no effect.
        """
        stopped = await self._scripts.run(
            "stop_own",
            sid=session.sid,
            by=replace(session, user=sender).person,
            sender=sender,
            keep_ms=CALL_MS,
            call=keys.call(call_name(None, f"{session.sid}\0{call}")),
        )
        await self._waker.try_hint(session, stopped.queue)
        return None if stopped.count < 0 else int(stopped.count)


def _pairs(flat: Sequence[bytes]) -> Iterator[tuple[bytes, bytes]]:
    """Yield the fields of a hash with their values, which follow them."""
    return zip(flat[::2], flat[1::2], strict=True)


def _view(
    sid: str,
    state: Mapping[bytes, bytes],
    waiting: int,
    last_message_ms: float | None,
    session_map: Mapping[bytes, bytes],
) -> SessionView | None:
    if not state:
        return None
    conversations = {
        name.decode(): Conversation.decode(value.decode()) for name, value in session_map.items()
    }
    return SessionView.decode(
        state,
        sid=sid,
        waiting=waiting,
        last_message_ms=int(last_message_ms or 0),
        session_ids={name: each.id for name, each in conversations.items()},
        identities={name: each.identity for name, each in conversations.items()},
    )
