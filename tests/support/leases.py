"""Sessions in the states with which tests of the fleet begin: accepted, leased, begun, idle."""

from typing import Any

from remoteclaw.config.model import TerminalsConfig
from remoteclaw.config.tool_policy import SessionLimits
from remoteclaw.fleet import Fleet
from remoteclaw.fleet.replies.reply import reply_payload
from remoteclaw.fleet.sessions.usage import Usage
from remoteclaw.fleet.turns.inbound import Accepted
from remoteclaw.fleet.turns.lease import Lease
from remoteclaw.fleet.turns.turn import Postponement
from remoteclaw.messages import Attachment, ChannelMessage, Provenance, SessionKey, TerminalWish
from tests.support.stack import message


async def accept(fleet: Fleet, text: str = "hello", **fields: object) -> Accepted:
    """Append a message to its session."""
    return await fleet.inbound.append(message(text, **fields), agent="main")


async def acquire(fleet: Fleet, accepted: Accepted) -> Lease:
    """Take a session's lease, on the host `here`."""
    lease = await fleet.leases.acquire(accepted.session.sid, worker="test", host="here")
    assert lease is not None
    return lease


async def begun(fleet: Fleet, text: str = "hello", **fields: object) -> tuple[Lease, Accepted]:
    """Append a message and begin its turn; return the lease and the message."""
    accepted = await accept(fleet, text, **fields)
    lease = await acquire(fleet, accepted)
    assert await lease.turns.begin([accepted.entry_id])
    return lease, accepted


async def idle(fleet: Fleet, text: str = "hello", **fields: object) -> tuple[Lease, Accepted]:
    """Append and answer a message. The lease is still held, and no hint waits."""
    lease, accepted = await begun(fleet, text, **fields)
    await lease.turns.finish("done", reply=[])
    await fleet.scripts.client.delete("rq:queue:agents")
    return lease, accepted


async def answered(fleet: Fleet, text: str, *files: Attachment, **fields: object) -> Accepted:
    """Append a message and answer it with its own text; the session is idle afterwards."""
    lease, accepted = await begun(fleet, text, **fields)
    payload = reply_payload(
        lease.session.place,
        text,
        sid=lease.sid,
        turn=accepted.entry_id,
        attempt=1,
        attachments=files,
        entries=[accepted.entry_id],
    )
    await lease.turns.finish("done", reply=[], payloads=[payload])
    await lease.close()
    return accepted


async def started_task(
    fleet: Fleet, parent: SessionKey, task: ChannelMessage, *, call: str, **options: Any
) -> tuple[SessionKey, str]:
    """Start a task from a session; return the task's session and its entry's id."""
    child, entry_id, _ = await fleet.calls.spawn(
        options.pop("caller", None),
        call,
        parent,
        task,
        effect=None,
        provenance=Provenance(by=str(parent), via=(parent.sid,), hops=1, parent=str(parent)),
        parent=parent,
        limits=SessionLimits(depth=1),
        label=None,
        max_unfinished=5,
        **options,
    )
    return child, entry_id


async def opened(
    fleet: Fleet,
    *,
    call: str = "1",
    by: str = "Ada",
    of: str = "alice",
    channel_id: str = "chat-1",
    **limits: int,
) -> Accepted:
    """Open the terminal of a person's session in a chat."""
    return await fleet.terminals.open(
        SessionKey.of(message("hello", from_=of, channel_id=channel_id), agent="main"),
        TerminalWish(by=by, cols=80, rows=24),
        people=(),
        call=call,
        host="here",
        name="main",
        limits=TerminalsConfig(**limits),
    )


async def hints(fleet: Fleet) -> int:
    """Return the number of waiting hints."""
    return await fleet.workers.waiting()


async def let_pass(fleet: Fleet, milliseconds: int) -> None:
    """Move the clock of the scripts of the fixture `fleet` forward."""
    await fleet.scripts.client.incrby("test:shift", milliseconds)


async def postpone(
    fleet: Fleet, lease: Lease, milliseconds: int, *, usage: Usage | None = None
) -> int:
    """Postpone a turn; return the end of the pause, in milliseconds."""
    until_ms = await fleet.scripts.now_ms() + milliseconds
    what = Postponement(until_ms, why="retryable", tries=1, last_notice="retryable", detail="busy")
    (*_, (newest, _)) = await lease.entries()
    verdict = await lease.turns.postpone(what, newest=newest.decode(), usage=usage)
    assert verdict == "postponed"
    return until_ms
