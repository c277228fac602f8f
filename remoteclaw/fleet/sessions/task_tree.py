"""The tasks and branches of a session, as one tree, and the progress that their turns report."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import orjson

from remoteclaw.errors import RedisRefused, RedisUnavailable
from remoteclaw.fleet import keys
from remoteclaw.fleet.connection import Scripts, announcements
from remoteclaw.fleet.turns.leased_session import LeasedSession
from remoteclaw.messages import SessionKey, TaskStatus

#: A tree lists at most this many tasks and branches, and counts the others.
MAX_TASKS = 50
#: A tree lists a task for this long after its end, in milliseconds.
RECENT_MS = 10 * 60 * 1000
#: The minimum pause between two trees that `follow()` yields, in seconds.
FOLLOW_S = 1.0
#: At most this many ancestors are read, against a loop in damaged data: `max_depth` is far lower.
MAX_ANCESTORS = 100


@dataclass(frozen=True, slots=True)
class TaskTree:
    """The tasks and branches below a session, at any depth."""

    items: tuple[TaskStatus, ...]
    """The unfinished ones, oldest first, then the ended ones, newest first."""
    left_out: int
    """The number of tasks and branches that are not in `items`."""
    at_ms: int
    """The time at which the tree was read, in milliseconds on Redis' clock."""
    is_quiet: bool
    """Whether the session's chat shows only answers, without progress."""

    @property
    def without_ages(self) -> tuple[TaskStatus, ...]:
        """The items with an age of 0, so that two trees compare equal unless something changed."""
        return tuple(replace(item, age_ms=0) for item in self.items)

    @property
    def unfinished(self) -> tuple[TaskStatus, ...]:
        """The tasks and branches that have not ended."""
        return tuple(item for item in self.items if not item.is_over)


class TaskTrees:
    """Reads the trees of tasks, and announces their changes."""

    def __init__(self, scripts: Scripts) -> None:
        self._scripts = scripts

    async def read(
        self,
        sid: str,
        *,
        max_tasks: int = MAX_TASKS,
        recent_ms: int = RECENT_MS,
        deadline: float | None = None,
    ) -> TaskTree:
        """Return a session's tree: its unfinished tasks, and those that ended in `recent_ms`."""
        tree = await self._scripts.run(
            "task_tree",
            sid=sid,
            max_tasks=max_tasks,
            recent_ms=recent_ms,
            deadline=deadline,
        )
        items = tuple(_task_status(row, tree.host, tree.now_ms) for row in tree.tasks)
        return TaskTree(items, tree.left_out, tree.now_ms, bool(tree.is_quiet))

    async def follow(self, sid: str) -> AsyncGenerator[TaskTree, None]:
        """Yield a session's tree, and again after each change, at most once per `FOLLOW_S`."""
        last: TaskTree | None = None
        client = self._scripts.client
        async with contextlib.aclosing(announcements(client, keys.TASK_UPDATES)) as changes:
            async for sids in changes:
                if sids is not None and sid not in sids.decode().split(","):
                    continue
                tree = await self.read(sid)
                if last is None or tree.without_ages != last.without_ages:
                    last = tree
                    yield tree
                    await asyncio.sleep(FOLLOW_S)

    async def announce(self, ancestors: Sequence[SessionKey]) -> None:
        """Publish that the trees of `ancestors`, nearest first, have changed.

        Errors of Redis are ignored: the next change or read shows the same state.
        """
        if not ancestors:
            return
        client, recipients = self._scripts.client, Recipients.of(ancestors)
        with contextlib.suppress(RedisUnavailable, RedisRefused):
            await self._scripts.call(client.publish, keys.TASK_UPDATES, recipients.above)
            await self._scripts.call(client.publish, recipients.account, recipients.hint)


@dataclass(frozen=True, slots=True)
class Recipients:
    """The recipients of a change in a session's state: its ancestors and their chat.

    All fields are None for a session that no other session started.
    """

    above: str | None = None
    """The ids of the ancestors, nearest first, separated by commas."""
    account: str | None = None
    """The Pub/Sub channel of the account whose chat shows the tasks."""
    hint: bytes | None = None
    """The message for `account`, as JSON: it names the topmost ancestor."""
    top: SessionKey | None = None
    """The topmost ancestor."""

    @classmethod
    def of(cls, ancestors: Sequence[SessionKey]) -> "Recipients":
        """Return the recipients of a change below `ancestors`, nearest first."""
        if not ancestors:
            return cls()
        top = ancestors[-1]
        return cls(
            above=",".join(key.sid for key in ancestors),
            account=keys.live_of(top.provider, top.account),
            hint=orjson.dumps({"work": str(top)}),
            top=top,
        )


class TurnProgress:
    """Reports what a session's running turn does to the sessions above it.

    A session that no other session started has no recipients. Every method raises `LeaseLost` once
    another worker holds the session.
    """

    def __init__(self, lease: LeasedSession) -> None:
        self._lease = lease
        self._recipients: Recipients | None = None

    async def recipients(self) -> Recipients:
        """Return the recipients of a change, read from Redis once."""
        if self._recipients is None:
            self._recipients = Recipients.of(await self._ancestors())
        return self._recipients

    async def root(self) -> SessionKey:
        """Return the session above all others; the session itself if no other has started it."""
        return (await self.recipients()).top or self._lease.session

    async def note(self, turn: str, doing: Mapping[str, str] | None, *, is_first: bool) -> None:
        """Note what the running turn does; None notes nothing.

        With `is_first`, the notes of an earlier attempt at the turn are removed first.
        """
        recipients = await self.recipients()
        await self._lease.run_fenced(
            "task_activity",
            turn=turn,
            doing=orjson.dumps(doing) if doing else None,
            is_first=is_first,
            above=recipients.above,
            hint=recipients.hint,
            live_of=recipients.account,
        )

    async def unfinished_tasks(self) -> tuple[TaskStatus, ...]:
        """Return the session's tasks and branches that have not ended."""
        lease = self._lease
        trees = TaskTrees(lease.scripts)
        return (await trees.read(lease.sid, recent_ms=0, deadline=lease.stop_at)).items

    async def _ancestors(self) -> list[SessionKey]:
        """Return the session's parent, the parent's parent and so on."""
        scripts, parent = self._lease.scripts, self._lease.state.parent
        ancestors: list[SessionKey] = []
        while parent and len(ancestors) < MAX_ANCESTORS:
            ancestors.append(parent)
            client, state = scripts.client, keys.state(parent.sid)
            text = await scripts.call(client.hget, state, "parent", deadline=self._lease.stop_at)
            parent = SessionKey.parse(text.decode()) if text else None
        return ancestors


def _task_status(row: Any, host: str | None, now_ms: int) -> TaskStatus:
    is_running, since_ms = row.status == "running", int(row.task_entry.partition("-")[0])
    activity = orjson.loads(row.doing) if row.doing and is_running else {}
    return TaskStatus(
        session=SessionKey.parse(row.key),
        parent=row.parent,
        run=f"{row.sid}-{row.task_entry}",
        kind="branch" if row.branch_of else "task",
        label=row.label,
        state=row.status,
        since_ms=since_ms,
        age_ms=max(0, (row.ended_ms or now_ms) - since_ms),
        host=row.host if row.host != host else None,
        tool=activity.get("tool", ""),
        argument=activity.get("argument", ""),
        last_text=activity.get("said", ""),
        progress=(row.progress or "") if is_running else "",
    )


async def unreported_replies(
    lease: LeasedSession,
) -> tuple[str | None, Sequence[Sequence[dict[str, Any]]]]:
    """Return the id of the entry that began a task's run, and the replies not yet reported.

    A message to a running task may be answered in a later turn than the task itself. The result of
    the last turn then also includes the replies of the earlier turns; these are returned, in the
    form of their outcomes. A reply that Redis no longer keeps is left out. The id is None where it
    is unknown.
    """
    client, deadline = lease.scripts.client, lease.stop_at
    run, unreported = await lease.scripts.call(
        client.hmget, keys.state(lease.sid), ["task_entry", "unreported"], deadline=deadline
    )
    replies = []
    for turn in (unreported or b"").decode().split(","):
        name = keys.outcome(lease.sid, turn)
        reply = turn and await lease.scripts.call(client.hget, name, "reply", deadline=deadline)
        if reply:
            replies.append(orjson.loads(reply))
    return run.decode() if run else None, replies
