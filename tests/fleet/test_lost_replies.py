"""A script has its effect once, even if its reply is lost and the script is sent again."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from remoteclaw.config.model import Config, TerminalsConfig
from remoteclaw.config.tool_policy import UNLIMITED
from remoteclaw.errors import NotFound
from remoteclaw.fleet import Fleet, keys
from remoteclaw.fleet.replies.reply import reply_payload
from remoteclaw.fleet.requests.card import make_card, request_args
from remoteclaw.fleet.requests.request import RequestAnswer
from remoteclaw.fleet.sessions.usage import Usage
from remoteclaw.fleet.terminals.state import TerminalTurn
from remoteclaw.fleet.turns.asides import AsideEnd, Asides
from remoteclaw.fleet.turns.calls import ConversationCopy
from remoteclaw.fleet.turns.inbound import Accepted
from remoteclaw.fleet.turns.lease import Lease
from remoteclaw.fleet.turns.turn import Postponement, RecordAppend, TaskResult
from remoteclaw.messages import Entry, SessionKey, TerminalWish
from remoteclaw.protocols import Conversation, Incoming, Place
from remoteclaw.tasks.branches import move_to_branch
from remoteclaw.tasks.tell import tell
from tests.support.failpoints import Failpoint, Proxy
from tests.support.leases import accept, acquire, begun, started_task
from tests.support.requests import change_request
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
    """Lose the next reply to a step, after its script has run."""
    failpoint = proxy.arm(step, "after")
    failpoint.cut()
    return failpoint


async def test_a_lost_reply_to_append_stores_the_message_once(lossy: tuple[Fleet, Proxy]) -> None:
    fleet, proxy = lossy
    lost = lose(proxy, "append")

    accepted = await fleet.inbound.append(message("hello"), agent="main")

    assert lost.reached.is_set()
    assert await fleet.scripts.client.xlen(keys.inbound(accepted.session.sid)) == 1
    assert await fleet.workers.waiting() == 1


async def test_a_lost_reply_to_acquire_still_grants_the_lease(lossy: tuple[Fleet, Proxy]) -> None:
    fleet, proxy = lossy
    accepted = await accept(fleet)
    lost = lose(proxy, "acquire")

    lease = await acquire(fleet, accepted)

    assert lost.reached.is_set()
    assert await lease.turns.begin([accepted.entry_id])


async def test_a_lost_reply_to_begin_counts_one_attempt(lossy: tuple[Fleet, Proxy]) -> None:
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
async def test_a_lost_reply_to_publish_or_finish_sends_the_text_once(
    lossy: tuple[Fleet, Proxy], step: str, write: Callable[[Lease], Awaitable[object]]
) -> None:
    fleet, proxy = lossy
    lease, _ = await begun(fleet)
    lost = lose(proxy, step)

    await write(lease)

    assert lost.reached.is_set()
    assert await fleet.scripts.client.xlen(REPLIES) == 1


async def test_a_lost_reply_to_steer_joins_the_entry_once(lossy: tuple[Fleet, Proxy]) -> None:
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


async def test_a_lost_reply_to_an_aside_step_sends_its_answer_once(
    lossy: tuple[Fleet, Proxy],
) -> None:
    fleet, proxy = lossy
    lease, first = await begun(fleet)
    second = await fleet.inbound.append(message("second"), agent="main")
    asides = Asides(lease)
    for step in ("aside_ask", "aside_end"):
        lost = lose(proxy, step)
        if step == "aside_ask":
            assert await asides.ask(first.entry_id, second.entry_id)
        else:
            payloads = [{"text": "hi"}]
            end = AsideEnd(lease.session.place, payloads, reply=payloads, note={"at": 1})
            verdict = await asides.end(first.entry_id, second.entry_id, "answered", end)
            assert verdict == "answered"
        assert lost.reached.is_set()

    client = fleet.scripts.client
    assert await client.xlen(REPLIES) == 1
    assert await client.llen(keys.aside_notes(lease.sid)) == 1


async def test_a_lost_reply_to_postpone_sends_one_notice(lossy: tuple[Fleet, Proxy]) -> None:
    fleet, proxy = lossy
    lease, accepted = await begun(fleet)
    lost = lose(proxy, "postpone")
    notice = {"text": "later"}
    postponement = Postponement(
        10**13, why="retryable", tries=1, last_notice="", detail="", notice=notice
    )

    assert await lease.turns.postpone(postponement, newest=accepted.entry_id) == "postponed"

    assert lost.reached.is_set()
    client = fleet.scripts.client
    assert await client.xlen(REPLIES) == 1
    assert await client.hget(keys.state(lease.sid), "forgiven_attempts") == b"1"


async def test_a_lost_reply_to_a_stop_command_stops_no_later_message(
    lossy: tuple[Fleet, Proxy],
) -> None:
    """A message between the command and its repetition is not stopped."""
    fleet, proxy = lossy
    lease, _ = await begun(fleet)
    lost = lose(proxy, "append")

    await fleet.inbound.append(message("/stop"), agent="main")

    assert lost.reached.is_set()
    entries: Any = await fleet.scripts.client.xrange(keys.inbound(lease.sid))
    (first, _), (_, fields) = entries
    assert fields[b"stopped"] == b"1"
    assert await fleet.scripts.client.hget(keys.state(lease.sid), "stop_entry") == first


async def test_a_lost_reply_to_reset_ends_one_conversation(lossy: tuple[Fleet, Proxy]) -> None:
    fleet, proxy = lossy
    lease, accepted = await begun(fleet)
    await lease.remember("demo|here", Conversation("old"))
    lost = lose(proxy, "reset")
    turn = accepted.entry_id

    await lease.reset(turn, "/new", keep_ms=1000, keep=1)

    assert lost.reached.is_set()
    assert lease.session_map == {}
    await lease.remember("demo|here", Conversation("new"))
    lost = lose(proxy, "reset")
    await lease.reset(turn, "/new", keep_ms=1000, keep=1)
    assert lost.reached.is_set()
    assert await fleet.scripts.client.hvals(keys.session_map(lease.sid)) == [
        Conversation("new").encode().encode()
    ]


async def test_a_lost_reply_to_retry_adds_one_entry(lossy: tuple[Fleet, Proxy]) -> None:
    """This holds even if only the dead letter is left of the message."""
    fleet, proxy = lossy
    lease, accepted = await begun(fleet)
    entry = accepted.entry_id
    await lease.turns.finish("dead", reply=[])
    await fleet.scripts.client.delete(keys.outcome(lease.sid, entry))
    (letter,) = await fleet.dead_letters.list()
    lost = lose(proxy, "retry")

    accepted = await fleet.dead_letters.retry(letter.id)

    assert lost.reached.is_set()
    entries: Any = await fleet.scripts.client.xrange(keys.inbound(lease.sid))
    assert [entry_id.decode() for entry_id, _ in entries] == [accepted.entry_id]
    with pytest.raises(NotFound, match=f"already: as message {accepted.entry_id}"):
        await fleet.dead_letters.retry(letter.id)


async def test_a_lost_reply_to_context_counts_and_records_once(lossy: tuple[Fleet, Proxy]) -> None:
    fleet, proxy = lossy
    lease, _ = await begun(fleet)
    await lease.turns.finish("done", reply=[])
    lost = lose(proxy, "context")

    usage, record = Usage(input_tokens=5), RecordAppend(b"{}\n", 1_000, 60_000)
    await lease.note_context(None, has_summary=True, usage=usage, record=record)

    assert lost.reached.is_set()
    assert await fleet.usage.session(SESSION.agent, SESSION.sid) == usage
    assert await fleet.records.of(SESSION.sid) == b"{}\n"


async def test_a_lost_reply_to_close_still_closes_the_session(lossy: tuple[Fleet, Proxy]) -> None:
    fleet, proxy = lossy
    lease, _ = await begun(fleet)
    await lease.turns.finish("done", reply=[])
    lost = lose(proxy, "close")

    assert await lease.close()

    assert lost.reached.is_set()


async def test_a_lost_reply_to_release_still_queues_the_session(lossy: tuple[Fleet, Proxy]) -> None:
    fleet, proxy = lossy
    lease, _ = await begun(fleet)
    lost = lose(proxy, "release")

    await lease.release()

    assert lost.reached.is_set()
    view = await fleet.sessions.view(lease.sid)
    assert view is not None
    assert view.status == "scheduled"


async def opened(fleet: Fleet) -> tuple[Lease, TerminalTurn, str]:
    """Open a terminal and begin its turn."""
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


async def test_a_lost_reply_to_terminal_open_opens_one_terminal(lossy: tuple[Fleet, Proxy]) -> None:
    fleet, proxy = lossy
    lost = lose(proxy, "terminal_open")

    lease, _, entry_id = await opened(fleet)

    assert lost.reached.is_set()
    assert await fleet.scripts.client.xlen(keys.inbound(lease.sid)) == 1
    opens = await fleet.scripts.client.hget(keys.terminal_opens("Ada"), "left")
    assert opens is not None
    assert 2 <= float(opens) < 3
    assert lease.state.terminal_entry == entry_id


async def test_a_lost_reply_to_terminal_place_records_the_terminal(
    lossy: tuple[Fleet, Proxy],
) -> None:
    fleet, proxy = lossy
    lease, own, turn = await opened(fleet)
    lost = lose(proxy, "terminal_place")

    await own.place(place_of(turn))

    assert lost.reached.is_set()
    view = await fleet.sessions.view(lease.sid)
    assert view is not None
    assert view.terminal is not None
    assert view.terminal["turn"] == turn


async def test_a_lost_reply_to_tools_missing_still_reports_it(lossy: tuple[Fleet, Proxy]) -> None:
    fleet, proxy = lossy
    lease, _ = await begun(fleet)
    await lease.grant("digest", ["sessions_list"])
    lost = lose(proxy, "tools_missing")

    assert await lease.are_tools_missing()

    assert lost.reached.is_set()
    await fleet.calls.note_listing(lease.sid, "of another process")
    assert await lease.are_tools_missing()
    await fleet.calls.note_listing(lease.sid, "digest")
    assert not await lease.are_tools_missing()


async def test_a_lost_reply_to_hold_gives_the_holder_one_epoch(lossy: tuple[Fleet, Proxy]) -> None:
    """The repeated script gives the holder no second epoch."""
    fleet, proxy = lossy
    lease, own, turn = await opened(fleet)
    await own.place(place_of(turn))
    lost = lose(proxy, "give_to_holder")

    epoch = await own.hold(place_of(turn), "1 2 3", hold_s=60)

    assert lost.reached.is_set()
    (held,) = await fleet.terminals.held("here")
    assert (held.epoch, held.sid, held.holder) == (epoch, lease.sid, "1 2 3")


async def test_a_lost_reply_to_renew_held_renews_the_lease(lossy: tuple[Fleet, Proxy]) -> None:
    fleet, proxy = lossy
    _, own, turn = await opened(fleet)
    await own.place(place_of(turn))
    await own.hold(place_of(turn), "1 2 3", hold_s=60)
    (held,) = await fleet.terminals.held("here")
    lost = lose(proxy, "renew_held")

    assert (await fleet.terminals.renew(held, hold_s=60)).newest == turn

    assert lost.reached.is_set()


async def test_a_lost_reply_to_terminal_stop_stops_only_the_terminal(
    lossy: tuple[Fleet, Proxy],
) -> None:
    """The terminal's own entry is stopped, and none after it."""
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


async def test_a_lost_reply_to_terminal_change_publishes_one_event(
    lossy: tuple[Fleet, Proxy],
) -> None:
    fleet, proxy = lossy
    lease, _, _ = await opened(fleet)
    lost = lose(proxy, "terminal_change")

    event = {"type": "state", "state": "live"}
    await fleet.terminals.change(lease.sid, lease.epoch, event=event, state="live")

    assert lost.reached.is_set()
    assert [each.data for each in await fleet.terminals.events(lease.sid)] == [event]


async def test_a_lost_reply_to_terminal_note_publishes_each_record_once(
    lossy: tuple[Fleet, Proxy],
) -> None:
    """Each record of a transcript is published once."""
    fleet, proxy = lossy
    lease, _, _ = await opened(fleet)
    lost = lose(proxy, "terminal_note")

    async def note(before: str, position: str) -> bool:
        events = [{"type": "message", "id": position}]
        return await fleet.terminals.publish(
            lease.sid, lease.epoch, before=before, position=position, events=events
        )

    assert await note("", "7")
    assert lost.reached.is_set()
    assert not await note("3", "9")
    assert await note("7", "9")
    assert [each.data["id"] for each in await fleet.terminals.events(lease.sid)] == ["7", "9"]


async def test_a_lost_reply_to_receipt_removes_the_delivered_reply(
    lossy: tuple[Fleet, Proxy],
) -> None:
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


async def test_a_lost_reply_to_call_tell_continues_the_task_once(
    lossy: tuple[Fleet, Proxy],
) -> None:
    """The message is on its stream once, and starts one new run of the ended task."""
    fleet, proxy = lossy
    child = await spawned(fleet)
    view, parent = await fleet.sessions.view(child.sid), await fleet.sessions.view(SESSION.sid)
    assert view is not None
    assert parent is not None
    lost = lose(proxy, "call_tell")

    result = await tell(
        fleet.sessions,
        fleet.calls,
        fleet.task_trees,
        fleet.outcomes,
        Config(),
        None,
        "c",
        text="x",
        parent=parent,
        child=view,
        people=(),
        side_effect={},
    )

    assert lost.reached.is_set()
    assert result.place == "continued"
    assert await fleet.scripts.client.xlen(keys.inbound(child.sid)) == 1
    again = await fleet.sessions.view(child.sid)
    assert again is not None
    assert again.task_entry == result.run != view.task_entry


async def spawned(fleet: Fleet) -> SessionKey:
    """Return the session of a task that has ended."""
    await begun(fleet)
    child, entry_id = await started_task(fleet, SESSION, message("a task"), call="task")
    lease = await acquire(fleet, Accepted(child, entry_id, False))
    assert await lease.turns.begin([entry_id])
    await lease.turns.finish("done", reply=[], task_result=TaskResult(SESSION, b"{}"))
    return child


async def test_a_lost_reply_to_call_change_makes_one_request(lossy: tuple[Fleet, Proxy]) -> None:
    """The change is requested once."""
    fleet, proxy = lossy
    lost = lose(proxy, "call_change")
    request = change_request(SESSION)
    card = make_card(request, attempt=1, text="?")

    args = request_args(request, card, keep_ms=0)
    await fleet.calls.record_change(None, "c", "made", effect=None, request_args=args)

    assert lost.reached.is_set()
    assert await fleet.calls.result_of(None, "c") == {"result": "made"}
    assert [one.id for one in await fleet.requests.waiting()] == [request.id]
    assert await fleet.scripts.client.xlen(REPLIES) == 1


async def test_a_lost_reply_to_made_reports_the_change_once(lossy: tuple[Fleet, Proxy]) -> None:
    """The result is reported once, and the session is scheduled once."""
    fleet, proxy = lossy
    request = change_request(SESSION)
    args = request_args(request, None, keep_ms=0)
    await fleet.calls.record_change(None, "c", "made", effect=None, request_args=args)
    answer = RequestAnswer(verdict="once", by="operator", name="", at_ms=1)
    await fleet.requests.answer(
        request, answer, holders=["*"], closing_text="", entry_text="Go on."
    )
    assert [one.id for one in await fleet.requests.answered_changes()] == [request.id]
    lost = lose(proxy, "close_change")

    await fleet.requests.close_change(
        request, "used", closing_text="It is done.", entry_text="Done."
    )

    assert lost.reached.is_set()
    closed = await fleet.requests.find(request.id)
    assert closed is not None
    assert (closed.state, closed.became) == ("used", "It is done.")
    assert await fleet.requests.answered_changes() == []
    assert await fleet.scripts.client.xlen(keys.inbound(request.session.sid)) == 1
    assert await fleet.workers.waiting() == 1


async def test_a_lost_reply_to_doing_records_the_activity(lossy: tuple[Fleet, Proxy]) -> None:
    fleet, proxy = lossy
    lease, accepted = await begun(fleet)
    lost = lose(proxy, "task_activity")

    await lease.progress.note(accepted.entry_id, {"tool": "Bash"}, is_first=True)

    assert lost.reached.is_set()
    assert await fleet.scripts.client.hget(keys.state(lease.sid), "doing") == b'{"tool":"Bash"}'


async def test_a_lost_reply_to_call_spawn_starts_one_branch(lossy: tuple[Fleet, Proxy]) -> None:
    fleet, proxy = lossy
    lost = lose(proxy, "call_spawn")

    copied = ConversationCopy((), (SESSION, UNLIMITED))
    child, _ = await started_task(fleet, SESSION, message("look"), call="a call", copied=copied)

    assert lost.reached.is_set()
    assert len(await fleet.sessions.children(SESSION.sid)) == 1
    assert await fleet.scripts.client.xlen(keys.inbound(child.sid)) == 1


async def test_a_lost_reply_to_aside_move_moves_the_message_once(
    lossy: tuple[Fleet, Proxy],
) -> None:
    fleet, proxy = lossy
    lease, _ = await begun(fleet)
    second = await fleet.inbound.append(message("second"), agent="main")
    lost = lose(proxy, "aside_move")

    entry = Entry(second.entry_id, message("second"))
    acknowledgement = {"text": "on it"}
    result = await move_to_branch(
        lease, Config(), entry, running=(), acknowledgement=acknowledgement
    )

    assert lost.reached.is_set()
    assert result == "moved"
    (branch,) = await fleet.sessions.children(lease.sid)
    assert branch.waiting == 1
    assert await fleet.scripts.client.xlen(keys.inbound(lease.sid)) == 1
    assert await fleet.scripts.client.xlen(REPLIES) == 1


async def test_a_store_whose_reply_is_lost_stores_its_reports_once(
    lossy: tuple[Fleet, Proxy],
) -> None:
    fleet, proxy = lossy
    reader = fleet.replies.reader("test", "default")
    await reader.wait_for_claim()
    report = Incoming(id="1", chat="alice", sender="alice", at_ms=1, text="hello")
    lost = lose(proxy, "inbox_store")
    (stored,) = await fleet.inbox.store(reader, [report], {"one": "7"})
    await lost.wait()

    assert await fleet.inbox.take(reader) == [stored]
    lost = lose(proxy, "inbox_done")
    await fleet.inbox.done(reader, late=[(stored.id, 5, Place("alice"))])
    await lost.wait()

    (late,) = await fleet.inbox.late_messages(reader)
    assert late.count == 1
