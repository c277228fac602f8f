"""Sessions for operators: list, look, stop."""

import contextlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import orjson

from remoteclaw.config.model import QueueOverride
from remoteclaw.errors import NotFound
from remoteclaw.fleet import keys
from remoteclaw.fleet.caller import call_name
from remoteclaw.fleet.calls import CALL_MS
from remoteclaw.fleet.connection import Scripts
from remoteclaw.fleet.records import Records
from remoteclaw.fleet.session_map import id_of
from remoteclaw.fleet.state import IS_QUIET, MODEL, PROJECT, QUEUE, STATE_MS, SessionState
from remoteclaw.fleet.wake import Waker
from remoteclaw.messages import SessionKey
from remoteclaw.protocols import FORK_OF

#: How many of the newest sessions are found by their label or title.
MAX_NAMED = 1000
#: How many sessions with work are searched for those that run.
MAX_ACTIVE = 1000
#: How many of the newest sessions are searched for warm agents.
MAX_WARM = 300
#: How many sessions are read in one step, during which Redis answers no other client.
MAX_AT_ONCE = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionView(SessionState):
    """A session as operators see it."""

    sid: str
    waiting: int
    """Entries that have no outcome yet, the running ones included."""
    last_message_ms: int
    session_ids: Mapping[str, str]
    """The CLIs' own session ids, by runtime and workspace."""

    @property
    def shown_status(self) -> str:
        """Its status, for people: a worker that has nothing to do any more holds it for a while."""
        is_over = self.status == "running" and not self.turn and not self.waiting
        return "idle" if is_over else self.status

    def is_called(self, words: str) -> bool:
        """Whether its key, label or title contains this, in any case."""
        names = f"{self.key} {self.label or ''} {self.title or ''}"
        return words.casefold() in names.casefold()


class Sessions:
    """The sessions that Redis knows."""

    def __init__(self, scripts: Scripts, waker: Waker, records: Records) -> None:
        self._scripts = scripts
        self._waker = waker
        self._records = records

    async def list(self, *, limit: int) -> Sequence[SessionView]:
        """Return the sessions with the newest messages, newest first."""
        return await self.views(await self._newest(limit))

    async def busy(self, *, limit: int) -> tuple[int, Sequence[SessionView]]:
        """Return how many sessions have work, and some of them: those first that a worker has."""
        count, sids = await self._scripts.together(
            lambda ask: (ask.zcard(keys.ACTIVE), ask.zrange(keys.ACTIVE, 0, MAX_ACTIVE - 1))
        )
        states = await self._fields(sids, ["status"])
        pairs = sorted(zip(states, sids, strict=True), key=lambda one: one[0] != [b"running"])
        some = await self.views([sid for _, sid in pairs[:limit]])
        return count, [view for view in some if view.status != "idle"]

    async def waiting_since(self, views: Sequence[SessionView]) -> Sequence[int | None]:
        """Return when the oldest message of each came that has no outcome; None without one."""
        found = await self._scripts.together(
            lambda ask: [ask.xrange(keys.inbound(view.sid), count=1) for view in views]
        )
        return [int(entries[0][0].partition(b"-")[0]) if entries else None for entries in found]

    async def of_agents(self) -> Mapping[str, SessionKey]:
        """Return sessions by where the holder of each one's last agent listens.

        Those of the newest sessions alone: an agent is warm for minutes.
        """
        newest = await self._newest(MAX_WARM)
        return {
            orjson.loads(agent)["path"]: SessionKey.parse(key.decode())
            for key, agent in await self._fields(newest, ["key", "agent_process"])
            if key and agent
        }

    async def view(self, sid: str) -> SessionView | None:
        """Return one session; None if nothing is known of it any more."""
        return next(iter(await self.views([sid.encode()])), None)

    async def views(self, sids: Sequence[bytes]) -> Sequence[SessionView]:
        """Return those of which something is known, in their order, many in one round trip."""
        names = [sid.decode() for sid in sids]
        return [
            view
            for first in range(0, len(names), MAX_AT_ONCE)
            for view in await self._views(names[first : first + MAX_AT_ONCE])
            if view is not None
        ]

    async def _views(self, sids: Sequence[str]) -> Sequence[SessionView | None]:
        def ask(pipeline: Any) -> None:
            for sid in sids:
                pipeline.hgetall(keys.state(sid))
                pipeline.xlen(keys.inbound(sid))
                pipeline.zscore(keys.SESSIONS, sid)
                pipeline.hgetall(keys.session_map(sid))

        told = iter(await self._scripts.together(ask, is_atomic=True))
        return [_view(sid, *facts) for sid, *facts in zip(sids, *[told] * 4, strict=True)]

    async def _newest(self, count: int) -> Sequence[bytes]:
        client = self._scripts.client
        sids: Sequence[bytes] = await self._scripts.call(
            client.zrevrange, keys.SESSIONS, 0, count - 1
        )
        return sids

    async def _fields(self, sids: Sequence[bytes], names: Sequence[str]) -> Sequence[Any]:
        return await self._scripts.together(
            lambda ask: [ask.hmget(keys.state(sid.decode()), [*names]) for sid in sids]
        )

    async def above(self, view: SessionView) -> Sequence[SessionKey]:
        """Return the sessions that a session was started by, the nearest first."""
        found = []
        current: SessionView | None = view
        while current and current.parent and current.parent not in found:
            found.append(current.parent)
            current = await self.view(current.parent.sid)
        return found

    async def children(self, sid: str) -> Sequence[SessionView]:
        """Return the sessions that a session has started, oldest first."""
        client = self._scripts.client
        known = await self._scripts.call(client.zrange, keys.children(sid), 0, -1)
        return await self.views(known)

    async def labelled(self, agent: str, label: str) -> str | None:
        """Return the id of an agent's session that has a label."""
        client = self._scripts.client
        sid = await self._scripts.call(client.hget, keys.labels(agent), label)
        return sid.decode() if sid else None

    async def label(self, view: SessionView, label: str | None) -> None:
        """Give a session a label, or take it away.

        Raises `NotFound` if another session of the agent has it.
        """
        owner = await self._scripts.run(
            "label",
            keys={"state": keys.state(view.sid), "labels": keys.labels(view.key.agent)},
            args={"sid": view.sid, "label": label},
        )
        if owner:
            raise NotFound(f"{owner.decode()!r} is called {label!r} already: choose another name.")

    async def find(self, text: str) -> str:
        """Return the id of the session that `text` names: its key, its label, the start of its id,
        or its title or the start of that.

        Raises `NotFound` if none fits, or more than one.
        """
        found: set[str] = set()
        client = self._scripts.client

        async def scan() -> None:
            async for sid, _score in client.zscan_iter(keys.SESSIONS, match=f"{text}*", count=1000):
                found.add(sid.decode())

        sid = text if re.fullmatch("[0-9a-f]{32}", text) else None
        if "/" in text:
            with contextlib.suppress(ValueError):
                sid = SessionKey.parse(text).sid
        if sid and (await self.view(sid) or await self._records.has(sid)):
            found.add(sid)
        elif not (found := await self._called(text, "label")):
            if re.fullmatch("[0-9a-f]{1,31}", text):
                await self._scripts.call(scan)
            if not found:
                found = await self._called(text, "title")
        if len(found) == 1:
            return found.pop()
        listed = "`remoteclaw sessions list` shows those there are"
        if found:
            raise NotFound(f"{text!r} fits {len(found)} sessions: give more of its id; {listed}.")
        raise NotFound(f"{text!r} is no session: {listed}.")

    async def _called(self, text: str, field: Literal["label", "title"]) -> set[str]:
        """Return the ids of newer sessions with a label, or with a title that begins so."""
        newest = await self._newest(MAX_NAMED)
        names = await self._fields(newest, [field])
        named = {
            sid.decode(): name.decode().casefold()
            for sid, (name,) in zip(newest, names, strict=True)
            if name
        }
        wanted = text.casefold()
        exact = {sid for sid, name in named.items() if name == wanted}
        if exact or field == "label" or not wanted:
            return exact
        return {sid for sid, name in named.items() if name.startswith(wanted)}

    async def named(self, text: str) -> SessionView:
        """Return the session that `text` names, as `find()` does.

        Raises `NotFound` also if only its record is known.
        """
        if view := await self.view(await self.find(text)):
            return view
        raise NotFound(f"There is no {text!r}, or its record has expired.")

    async def key_of(self, text: str) -> SessionKey:
        """Return the key of the session that `text` names, as `find()` does.

        Raises `NotFound` also if only its record is known, and its key is not given.
        """
        sid = await self.find(text)
        if view := await self.view(sid):
            return view.key
        if "/" not in text:
            raise NotFound(f"The session {text!r} has been idle for long: give its key.")
        return SessionKey.parse(text)

    async def fork(self, source: SessionView, target: SessionKey, names: Sequence[str]) -> None:
        """Begin a session with a copy of what another one remembers: ids and record.

        `names` are the conversations that their CLIs can copy. The copy is made with the new
        session's first turn; without one, it begins with the record alone. Raises `NotFound`
        if the session is there already, or there is nothing to copy.
        """
        told = await self._scripts.run(
            "fork",
            keys={
                "state": keys.state(source.sid),
                "session_map": keys.session_map(source.sid),
                "record": keys.record(source.sid),
                "new_state": keys.state(target.sid),
                "new_map": keys.session_map(target.sid),
                "new_record": keys.record(target.sid),
                "sessions": keys.SESSIONS,
            },
            args={
                "sid": target.sid,
                "session_key": str(target),
                "keep_ms": STATE_MS,
                "mark": FORK_OF,
                "names": names,
            },
        )
        if told == b"exists":
            raise NotFound(
                f"{str(target)!r} is there already: choose another thread, or another user."
            )
        if told == b"nothing":
            raise NotFound(f"{str(source.key)!r} has no conversation that could be copied.")

    async def configure(self, session: SessionKey, queue: QueueOverride | None) -> None:
        """Give a session queue settings of its own, from its next turn on; None takes them away."""
        await self._set(session, QUEUE, queue.model_dump_json(exclude_none=True) if queue else None)

    async def change_queue(
        self, view: SessionView, wanted: Mapping[str, Any], *, is_reset: bool
    ) -> QueueOverride | None:
        """Change a session's own queue settings, all of them if it `is_reset`; return them."""
        own = None if is_reset else view.queue
        if is_reset or wanted:
            before = own.model_dump(exclude_none=True) if own else {}
            own = QueueOverride(**{**before, **wanted}) if before or wanted else None
            await self.configure(view.key, own)
        return own

    async def choose_model(self, session: SessionKey, model: str | None) -> None:
        """Give a session a model of its own, from its next turn on; None takes it away."""
        await self._set(session, MODEL, model)

    async def bind(self, session: SessionKey, project: str | None) -> None:
        """Bind a session to a project, from its next turn on; None ends that.

        While it does, it is not forgotten, however long nobody writes.
        """
        await self._set(session, PROJECT, project)

    async def quieten(self, session: SessionKey, *, is_quiet: bool) -> None:
        """Hide what a session's turns do before their answers from its chat, or show it again."""
        await self._set(session, IS_QUIET, "1" if is_quiet else None)

    async def _set(self, session: SessionKey, field: str, value: str | None) -> None:
        """Set or remove a setting of a session, also of one that has no message yet."""
        await self._scripts.run(
            "configure",
            keys={"state": keys.state(session.sid)},
            args={
                "session_key": str(session),
                "field": field,
                "value": value,
                "keep_ms": STATE_MS,
            },
        )

    async def stop(self, sid: str, *, call: str | None = None, wants_result: bool = True) -> int:
        """Stop all that the session has accepted so far; return how many entries that concerns.

        Sessions that it has started are stopped, too, and theirs in turn. The one that started
        them gets no result, and neither does its own parent unless that `wants_result`.
        It is durable: a worker that takes the session later stops them too.
        0 means that there was nothing to stop, or that it finished first. With the same `call`
        of an operator again, what came since is not stopped. A session that is postponed is woken
        for it.
        """
        count, key, queue = await self._scripts.run(
            "stop",
            keys={
                "state": keys.state(sid),
                "inbound": keys.inbound(sid),
                "call": keys.call(call_name(None, call)) if call else None,
            },
            args={"sid": sid, "is_unwanted": not wants_result, "keep_ms": CALL_MS},
        )
        if queue:
            await self._waker.try_hint(SessionKey.parse(key.decode()), queue.decode())
        return int(count)


def _view(
    sid: str,
    raw: Mapping[bytes, bytes],
    waiting: int,
    last: float | None,
    session_ids: Mapping[bytes, bytes],
) -> SessionView | None:
    if not raw:
        return None
    return SessionView.decode(
        raw,
        sid=sid,
        waiting=waiting,
        last_message_ms=int(last or 0),
        session_ids={name.decode(): id_of(value.decode()) for name, value in session_ids.items()},
    )
