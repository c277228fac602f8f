"""A script's effect counts once, also when its reply never arrives and it is sent again."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from remoteclaw.config.model import Config, TerminalsConfig
from remoteclaw.errors import NotFound
from remoteclaw.fleet import Fleet, keys
from remoteclaw.fleet.asides import AsideEnd, Asides
from remoteclaw.fleet.calls import Copied
from remoteclaw.fleet.inbound import Accepted
from remoteclaw.fleet.lease import Lease
from remoteclaw.fleet.reply import reply_payload
from remoteclaw.fleet.request import Answered
from remoteclaw.fleet.request_card import record_args, shown_by
from remoteclaw.fleet.terminal_state import TerminalTurn
from remoteclaw.fleet.turn import Postponement, TaskResult
from remoteclaw.messages import Entry, SessionKey, TerminalWish
from remoteclaw.tasks.branches import move_to_branch
from remoteclaw.tasks.tell import tell
from tests.support.asks import change_request
from tests.support.failpoints import Failpoint, Proxy
from tests.support.leases import accept, acquire, begun, started_task
from tests.support.servers import Server
from tests.support.stack import REPLIES, message
from tests.support.terminals import place_of

SESSION = SessionKey.of(message("hello"), agent="main")


@pytest.fixture
async def lossy(any_server: Server, directory: Path) -> AsyncIterator[tuple[Fleet, Proxy]]:
    proxy = Proxy(any_server.socket, directory / "proxy")
    await proxy.start()
    fleet = Fleet.open(proxy.url)
    await fleet.scripts.client.flushall()
    yield fleet, proxy
    await fleet.aclose()
    await proxy.stop()


def lose(proxy: Proxy, step: str) -> Failpoint:
    """Lose the next reply to a step: the script has run, and its caller can't know."""
    failpoint = proxy.arm(step, "after")
    failpoint.cut()
    return failpoint


async def test_append(lossy: tuple[Fleet, Proxy]) -> None:
    fleet, proxy = lossy
    lost = lose(proxy, "append")

    accepted = await fleet.inbound.append(message("hello"), agent="main")

    assert lost.reached.is_set()
    assert await fleet.scripts.client.xlen(keys.inbound(accepted.session.sid)) == 1
    assert await fleet.workers.waiting() == 1


async def test_acquire(lossy: tuple[Fleet, Proxy]) -> None:
    fleet, proxy = lossy
    accepted = await accept(fleet)
    lost = lose(proxy, "acquire")

    lease = await acquire(fleet, accepted)

    assert lost.reached.is_set()
    assert await lease.turns.begin([accepted.entry_id])


async def test_begin(lossy: tuple[Fleet, Proxy]) -> None:
    fleet, proxy = lossy
    accepted = await accept(fleet)
    lease = await acquire(fleet, accepted)
    lost = lose(proxy, "begin")

    batch = await lease.turns.begin([accepted.entry_id])

    assert lost.reached.is_set()
    assert batch is not None
    assert (batch.attempt, batch.furthest_phase_before) == (1, "")


@pytest.mark.parametrize(
    ("step", "write"),
    [
        ("publish", lambda lease: lease.turns.publish(0, {"text": "hi"})),
        (
            "finish",
            lambda lease: lease.turns.finish(
                "done", reply=[{"text": "hi"}], payloads=[{"text": "hi"}]
            ),
        ),
    ],
    ids=["publish", "finish"],
)
async def test_what_is_said_is_said_once(
    lossy: tuple[Fleet, Proxy], step: str, write: Callable[[Lease], Awaitable[object]]
) -> None:
    fleet, proxy = lossy
    lease, _ = await begun(fleet)
    lost = lose(proxy, step)

    await write(lease)

    assert lost.reached.is_set()
    assert await fleet.scripts.client.xlen(REPLIES) == 1


async def test_steer(lossy: tuple[Fleet, Proxy]) -> None:
    fleet, proxy = lossy
    lease, _ = await begun(fleet)
    second = await fleet.inbound.append(message("second"), agent="main")
    lost = lose(proxy, "steer")

    assert await lease.turns.join([second.entry_id])

    assert lost.reached.is_set()
    finished = await lease.turns.finish("done", reply=[], taken_up=[second.entry_id])
    assert finished.left == 0
    outcome = await fleet.outcomes.read(lease.sid, second.entry_id)
    assert outcome is not None
    assert outcome.status == "steered"


async def test_what_is_said_beside_is_said_once(lossy: tuple[Fleet, Proxy]) -> None:
    fleet, proxy = lossy
    lease, first = await begun(fleet)
    second = await fleet.inbound.append(message("second"), agent="main")
    asides = Asides(lease)
    for step in ("aside_ask", "aside_end"):
        lost = lose(proxy, step)
        if step == "aside_ask":
            assert await asides.ask(first.entry_id, second.entry_id)
        else:
            end = AsideEnd(payloads=[{"text": "hi"}], reply=[{"text": "hi"}], note={"at": 1})
            verdict = await asides.end(first.entry_id, second.entry_id, "answered", end)
            assert verdict == "answered"
        assert lost.reached.is_set()

    client = fleet.scripts.client
    assert await client.xlen(REPLIES) == 1
    assert await client.llen(keys.beside(lease.sid)) == 1


async def test_postpone(lossy: tuple[Fleet, Proxy]) -> None:
    fleet, proxy = lossy
    lease, accepted = await begun(fleet)
    lost = lose(proxy, "postpone")
    told = {"text": "later"}
    what = Postponement(10**13, why="retryable", tries=1, told="", detail="", notice=told)

    assert await lease.turns.postpone(what, newest=accepted.entry_id) == "postponed"

    assert lost.reached.is_set()
    client = fleet.scripts.client
    assert await client.xlen(REPLIES) == 1
    assert await client.hget(keys.state(lease.sid), "forgiven_attempts") == b"1"


async def test_a_command_to_stop(lossy: tuple[Fleet, Proxy]) -> None:
    """What comes between the command and its repetition is not stopped."""
    fleet, proxy = lossy
    lease, _ = await begun(fleet)
    lost = lose(proxy, "append")

    await fleet.inbound.append(message("/stop"), agent="main")

    assert lost.reached.is_set()
    entries: Any = await fleet.scripts.client.xrange(keys.inbound(lease.sid))
    (first, _), (_, fields) = entries
    assert fields[b"stopped"] == b"1"
    assert await fleet.scripts.client.hget(keys.state(lease.sid), "stop_entry") == first


async def test_reset(lossy: tuple[Fleet, Proxy]) -> None:
    fleet, proxy = lossy
    lease, accepted = await begun(fleet)
    await lease.remember("demo|here", "old")
    lost = lose(proxy, "reset")
    turn = accepted.entry_id

    await lease.reset(turn, "/new", keep_ms=1000, keep=1)

    assert lost.reached.is_set()
    assert lease.session_map == {}
    await lease.remember("demo|here", "new")
    lost = lose(proxy, "reset")
    await lease.reset(turn, "/new", keep_ms=1000, keep=1)
    assert lost.reached.is_set()
    assert await fleet.scripts.client.hvals(keys.session_map(lease.sid)) == [b"new"]


async def test_retry(lossy: tuple[Fleet, Proxy]) -> None:
    """Also when nothing but the dead letter itself was left of the message."""
    fleet, proxy = lossy
    lease, accepted = await begun(fleet)
    entry = accepted.entry_id
    await lease.turns.finish("dead", reply=[])
    await fleet.scripts.client.delete(keys.outcome_prefix(lease.sid) + entry)
    (letter,) = await fleet.dead_letters.list()
    lost = lose(proxy, "retry")

    accepted = await fleet.dead_letters.retry(letter.id)

    assert lost.reached.is_set()
    entries: Any = await fleet.scripts.client.xrange(keys.inbound(lease.sid))
    assert [entry_id.decode() for entry_id, _ in entries] == [accepted.entry_id]
    with pytest.raises(NotFound, match=f"already: as message {accepted.entry_id}"):
        await fleet.dead_letters.retry(letter.id)


async def test_close(lossy: tuple[Fleet, Proxy]) -> None:
    fleet, proxy = lossy
    lease, _ = await begun(fleet)
    await lease.turns.finish("done", reply=[])
    lost = lose(proxy, "close")

    assert await lease.close()

    assert lost.reached.is_set()


async def test_release(lossy: tuple[Fleet, Proxy]) -> None:
    fleet, proxy = lossy
    lease, _ = await begun(fleet)
    lost = lose(proxy, "release")

    await lease.release()

    assert lost.reached.is_set()
    view = await fleet.sessions.view(lease.sid)
    assert view is not None
    assert view.status == "scheduled"


async def opened(fleet: Fleet) -> tuple[Lease, TerminalTurn, str]:
    """Have a terminal's turn begun."""
    wish = TerminalWish(by="Ada", cols=80, rows=24)
    accepted = await fleet.terminals.open(
        SESSION,
        wish,
        people=(),
        call="1",
        host="here",
        name="main",
        limits=TerminalsConfig(),
    )
    lease = await acquire(fleet, accepted)
    assert await lease.turns.begin([accepted.entry_id])
    return lease, TerminalTurn(lease), accepted.entry_id


async def test_terminal_open(lossy: tuple[Fleet, Proxy]) -> None:
    fleet, proxy = lossy
    lost = lose(proxy, "terminal_open")

    lease, _, entry_id = await opened(fleet)

    assert lost.reached.is_set()
    assert await fleet.scripts.client.xlen(keys.inbound(lease.sid)) == 1
    opens = await fleet.scripts.client.hget(keys.terminal_opens("Ada"), "left")
    assert opens is not None
    assert 2 <= float(opens) < 3
    assert lease.state.terminal_entry == entry_id


async def test_terminal_place(lossy: tuple[Fleet, Proxy]) -> None:
    fleet, proxy = lossy
    lease, own, turn = await opened(fleet)
    lost = lose(proxy, "terminal_place")

    await own.place(place_of(turn))

    assert lost.reached.is_set()
    view = await fleet.sessions.view(lease.sid)
    assert view is not None
    assert view.terminal is not None
    assert view.terminal["turn"] == turn


async def test_hold(lossy: tuple[Fleet, Proxy]) -> None:
    """The holder has one epoch, however often it was asked for."""
    fleet, proxy = lossy
    lease, own, turn = await opened(fleet)
    await own.place(place_of(turn))
    lost = lose(proxy, "hold")

    epoch = await own.hold(place_of(turn), "1 2 3", hold_s=60)

    assert lost.reached.is_set()
    (held,) = await fleet.terminals.held("here")
    assert (held.epoch, held.sid, held.holder) == (epoch, lease.sid, "1 2 3")


async def test_renew_held(lossy: tuple[Fleet, Proxy]) -> None:
    fleet, proxy = lossy
    _, own, turn = await opened(fleet)
    await own.place(place_of(turn))
    await own.hold(place_of(turn), "1 2 3", hold_s=60)
    (held,) = await fleet.terminals.held("here")
    lost = lose(proxy, "renew_held")

    assert (await fleet.terminals.renew(held, hold_s=60)).newest == turn

    assert lost.reached.is_set()


async def test_terminal_stop(lossy: tuple[Fleet, Proxy]) -> None:
    """The terminal's own entry is stopped, and none behind it."""
    fleet, proxy = lossy
    lease, own, turn = await opened(fleet)
    assert not await fleet.terminals.stop(lease.sid)
    await own.place(place_of(turn))
    await own.hold(place_of(turn), "1 2 3", hold_s=60)
    lost = lose(proxy, "terminal_stop")

    assert await fleet.terminals.stop(lease.sid)

    assert lost.reached.is_set()
    (held,) = await fleet.terminals.held("here")
    assert held.stop_entry == turn


async def test_terminal_change(lossy: tuple[Fleet, Proxy]) -> None:
    fleet, proxy = lossy
    lease, _, _ = await opened(fleet)
    lost = lose(proxy, "terminal_change")

    event = {"type": "state", "state": "live"}
    await fleet.terminals.change(lease.sid, lease.epoch, event=event, state="live")

    assert lost.reached.is_set()
    assert [each.told for each in await fleet.terminals.events(lease.sid)] == [event]


async def test_terminal_note(lossy: tuple[Fleet, Proxy]) -> None:
    """Each record of a transcript is told once."""
    fleet, proxy = lossy
    lease, _, _ = await opened(fleet)
    lost = lose(proxy, "terminal_note")

    async def note(before: str, position: str) -> bool:
        told = [{"type": "message", "id": position}]
        return await fleet.terminals.note(
            lease.sid, lease.epoch, before=before, position=position, told=told
        )

    assert await note("", "7")
    assert lost.reached.is_set()
    assert not await note("3", "9")
    assert await note("7", "9")
    assert [each.told["id"] for each in await fleet.terminals.events(lease.sid)] == ["7", "9"]


async def test_receipt(lossy: tuple[Fleet, Proxy]) -> None:
    fleet, proxy = lossy
    lease, _ = await begun(fleet)
    payload = reply_payload(lease.session.place, "hi", sid=lease.sid, turn="1-0", attempt=1)
    await lease.turns.finish("done", reply=[], payloads=[payload])
    reader = fleet.replies.reader("test", "default")
    replies = reader.replies()
    reply = await anext(replies)
    lost = lose(proxy, "receipt")

    await reader.receipt(reply)

    assert lost.reached.is_set()
    assert await fleet.scripts.client.xlen(REPLIES) == 0
    await replies.aclose()


async def test_what_a_task_is_told(lossy: tuple[Fleet, Proxy]) -> None:
    """It stands on its stream once, and makes one run of a task that had ended."""
    fleet, proxy = lossy
    child = await spawned(fleet)
    view, parent = await fleet.sessions.view(child.sid), await fleet.sessions.view(SESSION.sid)
    assert view is not None
    assert parent is not None
    lost = lose(proxy, "call_tell")

    told = await tell(
        fleet, Config(), None, "c", text="x", parent=parent, child=view, people=(), side_effect={}
    )

    assert lost.reached.is_set()
    assert told.place == "continued"
    assert await fleet.scripts.client.xlen(keys.inbound(child.sid)) == 1
    again = await fleet.sessions.view(child.sid)
    assert again is not None
    assert again.task_entry == told.run != view.task_entry


async def spawned(fleet: Fleet) -> SessionKey:
    """Have a session whose task has ended, and return it."""
    await begun(fleet)
    child, entry_id = await started_task(fleet, SESSION, message("a task"), call="task")
    lease = await acquire(fleet, Accepted(child, entry_id, False))
    assert await lease.turns.begin([entry_id])
    await lease.turns.finish("done", reply=[], task_result=TaskResult(SESSION, b"{}"))
    return child


async def test_a_change_of_the_configuration(lossy: tuple[Fleet, Proxy]) -> None:
    """It is asked for once."""
    fleet, proxy = lossy
    lost = lose(proxy, "call_change")
    request = change_request(SESSION)
    shown = shown_by(request, attempt=1, text="?")

    asked = record_args(request, shown, keep_ms=0)
    await fleet.calls.change(None, "c", "made", note=None, asked=asked)

    assert lost.reached.is_set()
    assert await fleet.calls.made(None, "c") == ["made"]
    assert [one.id for one in await fleet.asks.waiting()] == [request.id]
    assert await fleet.scripts.client.xlen(REPLIES) == 1


async def test_what_became_of_a_change(lossy: tuple[Fleet, Proxy]) -> None:
    """It is said once, and its session is woken once."""
    fleet, proxy = lossy
    request = change_request(SESSION)
    asked = record_args(request, None, keep_ms=0)
    await fleet.calls.change(None, "c", "made", note=None, asked=asked)
    answer = Answered(verdict="once", by="operator", name="", at_ms=1)
    await fleet.asks.answer(request, answer, words="", going_on="Go on.")
    assert [one.id for one in await fleet.asks.changes()] == [request.id]
    lost = lose(proxy, "made")

    await fleet.asks.made(request, "used", words="It is done.", told="Done.")

    assert lost.reached.is_set()
    found = await fleet.asks.find(request.id)
    assert found is not None
    assert (found.state, found.became) == ("used", "It is done.")
    assert await fleet.asks.changes() == []
    assert await fleet.scripts.client.xlen(keys.inbound(request.session.sid)) == 1
    assert await fleet.workers.waiting() == 1


async def test_what_a_turn_does(lossy: tuple[Fleet, Proxy]) -> None:
    fleet, proxy = lossy
    lease, accepted = await begun(fleet)
    lost = lose(proxy, "doing")

    await lease.work.note(accepted.entry_id, {"tool": "Bash"}, is_first=True)

    assert lost.reached.is_set()
    assert await fleet.scripts.client.hget(keys.state(lease.sid), "doing") == b'{"tool":"Bash"}'


async def test_a_branch_is_started_once(lossy: tuple[Fleet, Proxy]) -> None:
    fleet, proxy = lossy
    lost = lose(proxy, "call_spawn")

    child, _ = await started_task(
        fleet, SESSION, message("look"), call="a call", copied=Copied((), (SESSION, 0))
    )

    assert lost.reached.is_set()
    assert len(await fleet.sessions.children(SESSION.sid)) == 1
    assert await fleet.scripts.client.xlen(keys.inbound(child.sid)) == 1


async def test_a_message_is_moved_once(lossy: tuple[Fleet, Proxy]) -> None:
    fleet, proxy = lossy
    lease, _ = await begun(fleet)
    second = await fleet.inbound.append(message("second"), agent="main")
    lost = lose(proxy, "aside_move")

    entry = Entry(second.entry_id, message("second"))
    said = {"text": "on it"}
    told = await move_to_branch(lease, Config(), entry, running=(), acknowledgement=said)

    assert lost.reached.is_set()
    assert told == "moved"
    (branch,) = await fleet.sessions.children(lease.sid)
    assert branch.waiting == 1
    assert await fleet.scripts.client.xlen(keys.inbound(lease.sid)) == 1
    assert await fleet.scripts.client.xlen(REPLIES) == 1
