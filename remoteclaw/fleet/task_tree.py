"""Work for a session: its tasks and branches, read by one script, and what their turns report.

The line of a turn, the commands, the gateway and the chats all read it here.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import orjson

from remoteclaw.errors import RedisRefused, RedisUnavailable
from remoteclaw.fleet import keys
from remoteclaw.fleet.connection import Scripts, announcements
from remoteclaw.messages import SessionKey, Work

if TYPE_CHECKING:
    from remoteclaw.fleet.lease import Lease

#: How many sessions are told at most.
MOST = 50
#: How long one is told after its end, in milliseconds.
RECENT_MS = 10 * 60 * 1000
#: The least pause between two reports to a follower, in seconds.
FOLLOW_S = 1.0
#: How many sessions may be above one: `max_depth` is far less.
MAX_ABOVE = 100


@dataclass(frozen=True, slots=True)
class WorkBelow:
    """What works for a session."""

    items: tuple[Work, ...]
    """First those that have not ended, the oldest first, then the others, the newest first."""
    left_out: int
    """How many there are besides."""
    at_ms: int
    """When it was so, on Redis' clock."""
    is_quiet: bool
    """Whether the session's chat shows nothing but answers."""

    @property
    def looks(self) -> tuple[Work, ...]:
        """The same at each look, as long as nothing but time has passed."""
        return tuple(replace(item, age_ms=0) for item in self.items)

    @property
    def unfinished(self) -> tuple[Work, ...]:
        """Those that have not ended."""
        return tuple(item for item in self.items if not item.is_over)


class WorkTrees:
    """What works for sessions."""

    def __init__(self, scripts: Scripts) -> None:
        self._scripts = scripts

    async def below(
        self,
        sid: str,
        *,
        most: int = MOST,
        recent_ms: int = RECENT_MS,
        deadline: float | None = None,
    ) -> WorkBelow:
        """Return what works for a session, and what has ended within `recent_ms`."""
        at_ms, left_out, host, quiet, *found = await self._scripts.run(
            "work",
            keys={"state": keys.state(sid), "children": keys.children(sid)},
            args={"sid": sid, "most": most, "recent_ms": recent_ms},
            deadline=deadline,
        )
        items = tuple(_work(one, host.decode(), int(at_ms)) for one in found)
        return WorkBelow(items, int(left_out), int(at_ms), bool(quiet))

    async def follow(self, sid: str) -> AsyncGenerator[WorkBelow, None]:
        """Yield what works for a session, then again when it has changed, once a second at most."""
        told: WorkBelow | None = None
        client = self._scripts.client
        async with contextlib.aclosing(announcements(client, keys.WORK)) as heard:
            async for sids in heard:
                if sids is not None and sid not in sids.decode().split(","):
                    continue
                below = await self.below(sid)
                if told is None or below.looks != told.looks:
                    told = below
                    yield below
                    await asyncio.sleep(FOLLOW_S)

    async def announce(self, above: Sequence[SessionKey]) -> None:
        """Tell that something has changed below sessions, the nearest first; it may get lost."""
        if not above:
            return
        client, told = self._scripts.client, Recipients.of(above)
        with contextlib.suppress(RedisUnavailable, RedisRefused):
            await self._scripts.call(client.publish, keys.WORK, told.above)
            await self._scripts.call(client.publish, told.account, told.hint)


@dataclass(frozen=True, slots=True)
class Recipients:
    """The recipients of news of a change; none for a session that works for no other."""

    above: str | None = None
    account: str | None = None
    hint: bytes | None = None

    @classmethod
    def of(cls, above: Sequence[SessionKey]) -> "Recipients":
        """Return who is told of a change below sessions, the nearest first."""
        if not above:
            return cls()
        top = above[-1]
        return cls(
            above=",".join(key.sid for key in above),
            account=keys.live_of(top.provider, top.account),
            hint=orjson.dumps({"work": str(top)}),
        )


class TurnWork:
    """The words of a session's turns for those whose work they do.

    A session that works for no other one says nothing. Every method raises `LeaseLost` once
    another worker holds the session.
    """

    def __init__(self, lease: "Lease") -> None:
        self._lease = lease
        self._told: Recipients | None = None

    async def names(self) -> "Recipients":
        """Return what scripts need to tell of a change."""
        if self._told is None:
            self._told = Recipients.of(await self._above())
        return self._told

    async def note(self, turn: str, doing: Mapping[str, str] | None, *, is_first: bool) -> None:
        """Note what the running turn does; with `is_first`, nothing is known of it before."""
        told = await self.names()
        await self._lease.run_fenced(
            "doing",
            {"account": told.account},
            {
                "turn": turn,
                "doing": orjson.dumps(doing) if doing else None,
                "is_first": is_first,
                "above": told.above,
                "hint": told.hint,
            },
        )

    async def below(self) -> tuple[Work, ...]:
        """Return what works for the session itself, and has not ended."""
        lease = self._lease
        trees = WorkTrees(lease.scripts)
        return (await trees.below(lease.sid, recent_ms=0, deadline=lease.stop_at)).items

    async def _above(self) -> list[SessionKey]:
        """Return the sessions that this one was started by, the nearest first."""
        scripts, parent = self._lease.scripts, self._lease.state.parent
        found: list[SessionKey] = []
        while parent and len(found) < MAX_ABOVE:
            found.append(parent)
            client, state = scripts.client, keys.state(parent.sid)
            text = await scripts.call(client.hget, state, "parent", deadline=self._lease.stop_at)
            parent = SessionKey.parse(text.decode()) if text else None
        return found


def _work(told: Sequence[bytes], host: str, now_ms: int) -> Work:
    sid, parent, state, ended, *fields = told
    key, label, task, branch_of, own_host, doing, progress = (one.decode() for one in fields)
    is_running, since_ms = state == b"running", int(task.partition("-")[0])
    does = orjson.loads(doing) if doing and is_running else {}
    return Work(
        session=SessionKey.parse(key),
        parent=parent.decode(),
        run=f"{sid.decode()}-{task}",
        kind="branch" if branch_of else "task",
        label=label or None,
        state=state.decode(),
        since_ms=since_ms,
        age_ms=max(0, (int(ended) or now_ms) - since_ms),
        host=own_host if own_host != host else None,
        tool=does.get("tool", ""),
        argument=does.get("argument", ""),
        said=does.get("said", ""),
        progress=progress if is_running else "",
    )


async def owed(lease: "Lease") -> tuple[str | None, Sequence[Sequence[dict[str, Any]]]]:
    """Return what the result that a task's session owes is about besides its running turn.

    That is the entry that its run is called by, if that is known, and the replies of the turns
    before that are a part of it, as their outcomes have them.

    What a task is told while it works may be answered in another turn than the task itself; then
    one result has all answers. An answer that Redis no longer keeps is left out.
    """
    client, deadline = lease.scripts.client, lease.stop_at
    run, unreported = await lease.scripts.call(
        client.hmget, keys.state(lease.sid), ["task_entry", "unreported"], deadline=deadline
    )
    answers = []
    for turn in (unreported or b"").decode().split(","):
        name = keys.outcome_prefix(lease.sid) + turn
        reply = turn and await lease.scripts.call(client.hget, name, "reply", deadline=deadline)
        if reply:
            answers.append(orjson.loads(reply))
    return run.decode() if run else None, answers
