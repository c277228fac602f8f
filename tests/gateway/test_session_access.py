"""The session tools: visible sessions, histories, and messages between agents."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from remoteclaw.bridge import Hooks
from remoteclaw.config import tool_policy as policy
from remoteclaw.config.load import load_config
from remoteclaw.errors import CallError, CallRefused
from remoteclaw.fleet import keys
from remoteclaw.fleet.turns.inbound import decode_entry
from remoteclaw.gateway import send
from remoteclaw.gateway.auth.principals import Agent
from remoteclaw.gateway.methods import fleet, sessions, writing
from remoteclaw.host import fetch as fetching
from remoteclaw.host.tokens import digest, new_agent_token
from remoteclaw.messages import ChannelMessage, Entry, SessionKey
from remoteclaw.session.drain import Drain
from remoteclaw.tools import sessions as contract
from remoteclaw.tools.catalog import TOOLS
from tests.support.bridges import script
from tests.support.stack import REPLIES, Stack, message, said
from tests.support.tasks import call
from tests.support.turns import begin_turn, gateway, operator
from tests.support.waiting import eventually

ADMIN = operator()
HANDLERS = {**sessions.HANDLERS, **fleet.HANDLERS}


async def refused(stack: Stack, caller: Any, tool: str, **params: Any) -> tuple[CallError, str]:
    with pytest.raises(CallRefused) as refusal:
        await call(stack, caller, tool, **params)
    return refusal.value.code, str(refusal.value)


async def answer(stack: Stack, sid: str) -> None:
    """Answer a session's messages, as a work-horse does."""
    config = load_config(stack.home.config_file, {})
    await Drain(stack.fleet, config, stack.home, Hooks()).run(sid)


def set_sees_sessions(stack: Stack, which: str) -> None:
    stack.configure({"runtime": "demo", "sees_sessions": which, "warm_s": 0})


async def test_an_agent_sees_only_its_own_session(stack: Stack) -> None:
    stack.configure(channels={})  # nobody is an owner
    other = await stack.append("a secret", from_="bob")
    caller = await begin_turn(stack, HANDLERS)
    listed = await call(stack, caller, "sessions_list")
    code, why = await refused(stack, caller, "sessions_history", sessionKey=str(other.session))
    unknown = await refused(stack, caller, "sessions_history", sessionKey="main/x/y/a:b:_")

    assert [(s.key, s.is_self) for s in listed.sessions] == [(str(caller.lease.session), True)]
    assert code == "NOT_FOUND"
    # The answer does not reveal whether a hidden session exists.
    assert why.replace(str(other.session), "X") == unknown[1].replace("main/x/y/a:b:_", "X")


@pytest.mark.parametrize(("which", "count"), [("self", 1), ("agent", 2), ("all", 3)])
async def test_sees_sessions_sets_which_sessions_an_agent_sees(
    stack: Stack, which: str, count: int
) -> None:
    set_sees_sessions(stack, which)
    await stack.append("one", from_="bob")
    await stack.fleet.inbound.append(message("two", from_="carol"), agent="other")
    caller = await begin_turn(stack, HANDLERS)
    listed = await call(stack, caller, "sessions_list")

    assert len(listed.sessions) == count


async def test_the_list_of_sessions_has_a_limit_and_a_filter(stack: Stack) -> None:
    for name in ("Anna", "berta", "annette"):
        await stack.append("hi", from_=name, channel_id=name)

    few = await call(stack, ADMIN, "sessions_list", limit=2)
    filtered = await call(stack, ADMIN, "sessions_list", filter="ANN")

    assert (len(few.sessions), few.is_complete) == (2, False)
    assert (len(filtered.sessions), filtered.is_complete) == (2, True)


async def test_history_returns_the_messages_of_a_session(stack: Stack) -> None:
    set_sees_sessions(stack, "agent")
    bob = await stack.append("my colour is green", from_="bob", user_name="Bob")
    await answer(stack, bob.session.sid)
    caller = await begin_turn(stack, HANDLERS)
    history = await call(stack, caller, "sessions_history", sessionKey=str(bob.session))
    last = await call(stack, caller, "sessions_history", sessionKey=bob.session.sid, limit=1)

    assert [item.role for item in history.items] == ["user", "tool", "agent"]
    assert (history.items[0].text, history.items[0].from_) == ("my colour is green", "Bob")
    # The item of the tool has the same time as the answer, so both are on the same page.
    assert [item.role for item in last.items] == ["tool", "agent"]


async def test_history_has_full_tool_output_for_operators_and_little_for_agents(
    stack: Stack, directory: Path
) -> None:
    body = """
turn()
say(type='tool_use', id='1', name='Bash', input={'command': 'look ' + 'x' * 500})
say(type='tool_result', id='1', output='y' * 500)
say(type='text', text='Seen.')
say(type='done', error='it broke')
"""
    command = list(script(directory, body))
    agent = {"runtime": "demo", "command": command, "warm_s": 0, "sees_sessions": "agent"}
    stack.configure(agent)
    bob = await stack.append("go", from_="bob")
    await answer(stack, bob.session.sid)
    steps = [{"text": "look", "state": "completed"}]
    more = ({"role": "plan", "at": 1, "steps": steps}, {"role": "notice", "at": 1, "text": "So."})
    for line in more:
        record = keys.record(bob.session.sid)
        await stack.fleet.scripts.client.append(record, orjson.dumps(line) + b"\n")
    caller = await begin_turn(stack, HANDLERS)
    for_agent = await call(stack, caller, "sessions_history", sessionKey=str(bob.session))
    for_operator = await call(stack, ADMIN, "sessions_history", sessionKey=str(bob.session))

    assert [item.role for item in for_agent.items] == ["user", "tool", "agent", "error"]
    (tool,) = [item for item in for_agent.items if item.role == "tool"]
    assert (tool.text, tool.input, tool.turn) == (f"{'y' * 300} …", None, None)
    (tool,) = [item for item in for_operator.items if item.role == "tool"]
    assert (tool.text, tool.id, tool.turn) == ("y" * 500, "1", bob.entry_id)
    assert tool.input == orjson.dumps({"command": "look " + "x" * 500}).decode()
    assert tool.argument is not None
    assert tool.argument.startswith("look xxx")
    assert tool.seconds is not None
    *_, error, plan, notice = for_operator.items
    assert (plan.steps[0].text, notice.text) == ("look", "So.")
    assert error.text.endswith(f"({bob.session.sid[:8]}-{bob.entry_id})")


async def test_a_session_is_idle_as_soon_as_its_turn_is_over(stack: Stack) -> None:
    """The worker keeps its lease for a moment longer, in case another message arrives."""
    caller = await begin_turn(stack, HANDLERS)
    key = str(caller.lease.session)
    before = await call(stack, ADMIN, "session_status", sessionKey=key)
    await caller.lease.turns.finish("done", reply=[])
    after = await call(stack, ADMIN, "session_status", sessionKey=key)
    view = await stack.fleet.sessions.view(caller.lease.session.sid)

    assert view is not None
    assert view.status == "running"
    assert (before.state, after.state) == ("running", "idle")


async def test_the_pages_of_a_history_contain_every_item_once(stack: Stack) -> None:
    """Messages that arrived during a turn are included."""
    bob = await stack.append("one", from_="bob")
    for text in ("two", "three", "four"):  # each is older than the answer before it
        await stack.append(text, from_="bob")
    stack.configure({"runtime": "demo", "warm_s": 0})
    await answer(stack, bob.session.sid)
    key = str(bob.session)
    whole = await call(stack, ADMIN, "sessions_history", sessionKey=key)
    pages = [await call(stack, ADMIN, "sessions_history", sessionKey=key, limit=1)]
    while pages[-1].before is not None:
        more = {"limit": 1, "before": pages[-1].before}
        pages.append(await call(stack, ADMIN, "sessions_history", sessionKey=key, **more))

    times = [item.at for item in whole.items]
    assert times != sorted(times)
    assert len(pages) > 2
    assert [item for page in reversed(pages) for item in page.items] == list(whole.items)
    assert whole.before is None


async def test_a_message_to_another_session_returns_its_answer(stack: Stack) -> None:
    set_sees_sessions(stack, "agent")
    bob = await stack.append("hello", from_="bob")
    await answer(stack, bob.session.sid)
    caller = await begin_turn(stack, HANDLERS)
    sending = asyncio.create_task(
        call(stack, caller, "sessions_send", sessionKey=str(bob.session), message="memory")
    )

    async def has_arrived() -> bool:
        view = await stack.fleet.sessions.view(bob.session.sid)
        return view is not None and view.waiting > 0

    await eventually(has_arrived)
    await answer(stack, bob.session.sid)
    sent = await sending
    noted = await caller.lease.turns.side_effects()

    assert sent.status == "answered"
    assert "- hello" in sent.reply
    assert [(note["tool"], note["to"], note["text"]) for note in noted] == [
        ("sessions_send", str(bob.session), "memory")
    ]
    assert await stack.fleet.scripts.client.xlen(REPLIES) == 1  # bob's own


async def test_a_message_from_a_session_names_its_sender_and_carries_no_rights(
    stack: Stack,
) -> None:
    set_sees_sessions(stack, "agent")
    stack.configure({"runtime": "demo"}, channels={"test": {"owners": ["alice", "bob"]}})
    bob = await stack.append("hello", from_="bob")
    await answer(stack, bob.session.sid)
    caller = await begin_turn(stack, HANDLERS)
    await call(stack, caller, "sessions_send", sessionKey=str(bob.session), message="hi", timeout=0)
    found: Any = await stack.fleet.scripts.client.xrange(keys.inbound(bob.session.sid))

    entry = decode_entry(*found[0])
    assert entry.origin == "session"
    assert entry.message.user_name == f"the session {caller.lease.session}"
    config = load_config(stack.home.config_file, {})
    subject = policy.subject_of(bob.session, [entry])
    assert not any(
        name.startswith("cron") for name in policy.allowed_tools(config, subject, TOOLS.values())
    )


async def test_a_repeated_sessions_send_call_sends_nothing(stack: Stack) -> None:
    set_sees_sessions(stack, "agent")
    bob = await stack.append("hello", from_="bob")
    caller = await begin_turn(stack, HANDLERS)
    params = {"sessionKey": str(bob.session), "message": "hi", "timeout": 0, "call_id": "c"}
    first, second = [await call(stack, caller, "sessions_send", **params) for _ in range(2)]
    noted = await caller.lease.turns.side_effects()
    view = await stack.fleet.sessions.view(bob.session.sid)

    assert first == second
    assert len(noted) == 1
    assert view is not None
    assert view.waiting == 2  # bob's own and this one


async def test_an_unanswered_message_is_not_sent_again_by_another_call(stack: Stack) -> None:
    """A model that gets no answer may send the message again in another call."""
    set_sees_sessions(stack, "agent")
    bob = await stack.append("hello", from_="bob")
    caller = await begin_turn(stack, HANDLERS)
    params = {"sessionKey": str(bob.session), "timeout": 0}

    first, again, other = [
        await call(stack, caller, "sessions_send", **params, message=text)
        for text in ("hi", "hi", "you")
    ]
    waiting = await stack.fleet.sessions.view(bob.session.sid)
    await answer(stack, bob.session.sid)
    later = await call(stack, caller, "sessions_send", **params, message="hi")

    assert first.run_id == again.run_id
    assert len({first.run_id, other.run_id, later.run_id}) == 3
    assert waiting is not None
    assert waiting.waiting == 3  # bob's own, "hi" and "you"


async def test_an_unanswered_message_is_not_sent_again_in_a_later_turn(stack: Stack) -> None:
    set_sees_sessions(stack, "agent")
    bob = await stack.append("hello", from_="bob")
    caller = await begin_turn(stack, HANDLERS)
    other = await begin_turn(stack, HANDLERS, channel_id="chat-2")
    params = {"sessionKey": str(bob.session), "message": "hi", "timeout": 0}
    first = await call(stack, caller, "sessions_send", **params, call_id="c")
    await caller.finish()
    later = await stack.append("hello again")
    assert await caller.lease.turns.begin([later.entry_id])

    again = [await call(stack, caller, "sessions_send", **params, call_id="d") for _ in range(2)]
    of_other = await call(stack, other, "sessions_send", **params)
    noted = await caller.lease.turns.side_effects()
    await answer(stack, bob.session.sid)
    repeated = await call(stack, caller, "sessions_send", **params, call_id="d")
    new = await call(stack, caller, "sessions_send", **params)

    assert {first.run_id} == {each.run_id for each in (*again, repeated)}
    assert noted == []
    assert len({first.run_id, of_other.run_id, new.run_id}) == 3


async def test_waits_are_shorter_than_the_tool_timeouts_of_agent_clis(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """claude, gemini and opencode abandon a tool call after 60 s."""
    assert contract.SEND_WAIT_S <= 50
    assert fetching.FETCH_S + send.RECEIPT_S <= 50
    monkeypatch.setattr(contract, "SEND_WAIT_S", 0.1)
    bob = await stack.append("hello", from_="bob")

    params = {"sessionKey": str(bob.session), "message": "hi", "timeout": 100}
    async with asyncio.timeout(50):
        sent = await call(stack, ADMIN, "sessions_send", **params)

    assert (sent.status, sent.note) == ("accepted", writing.NO_ANSWER_YET)


async def test_an_agent_has_none_of_the_parameters_of_operators(stack: Stack) -> None:
    """It would read ended conversations, and search what was said in sessions."""
    caller = await begin_turn(stack, HANDLERS)
    own = str(caller.lease.session)

    for tool, params in (
        ("sessions_history", {"sessionKey": own, "endedMs": 10**12}),
        ("sessions_list", {"state": "idle"}),
    ):
        code, why = await refused(stack, caller, tool, **params)
        assert (code, "is no parameter" in why) == ("INVALID_REQUEST", True)


async def test_a_session_cannot_send_to_itself(stack: Stack) -> None:
    caller = await begin_turn(stack, HANDLERS)
    own = str(caller.lease.session)
    code, why = await refused(stack, caller, "sessions_send", sessionKey=own, message="hi")

    assert (code, "would wait for its own turn" in why) == ("INVALID_REQUEST", True)


async def test_a_failed_turn_has_a_failed_outcome(stack: Stack) -> None:
    stack.configure({"runtime": "demo", "command": ["/not/there"], "sees_sessions": "agent"})
    bob = await stack.append("hello", from_="bob")
    await answer(stack, bob.session.sid)
    sent = await call(
        stack, ADMIN, "sessions_send", sessionKey=str(bob.session), message="x", timeout=0
    )
    await answer(stack, bob.session.sid)
    outcome = await stack.fleet.outcomes.read(*sent.run_id.split("-", 1))

    assert outcome is not None
    assert outcome.status == "failed"
    assert "can't be started" in said(outcome)


async def test_session_status_and_agents_list_describe_the_caller(stack: Stack) -> None:
    caller = await begin_turn(stack, HANDLERS)
    own = await call(stack, caller, "session_status")
    agents = await call(stack, caller, "agents_list")
    nothing, _ = await refused(stack, ADMIN, "session_status")
    by_operator = await call(stack, ADMIN, "session_status", session_key=str(caller.lease.session))

    assert (own.key, own.state, own.waiting) == (str(caller.lease.session), "running", 1)
    assert own.turn == f"{caller.lease.sid[:8]}-{caller.id}"
    assert [(agent.id, agent.runtime, agent.is_self) for agent in agents.agents] == [
        ("main", "demo", True)
    ]
    assert nothing == "INVALID_REQUEST"
    assert by_operator.key == own.key


async def test_an_entry_that_no_person_wrote_lifts_no_denial(stack: Stack) -> None:
    """Nor does it have an owner's rights, even in an owner's own chat."""
    denied = {"senders": {"alice": {"tools": {"deny": ["message_*"]}}}}
    stack.configure(channels={"test": denied})
    config = load_config(stack.home.config_file, {})
    by_clock = replace(entry_of(message("ping", from_="clock")), origin="cron")
    by_alice = entry_of(message("hello"))
    by_admin = entry_of(message("hello", from_="admin.alice"))
    session = SessionKey("main", "test", "default", "chat-1", "alice")
    console = SessionKey("main", "web", "default", "admin.alice", "admin.alice")

    for entries in ([by_alice], [by_clock], [by_alice, by_clock]):
        subject = policy.subject_of(session, entries)
        assert "message_send" not in policy.allowed_tools(config, subject, TOOLS.values())
        assert "session_status" in policy.allowed_tools(config, subject, TOOLS.values())
    for entries, is_owner in (
        ([by_admin], True),
        ([by_clock], False),
        ([by_admin, by_clock], False),
    ):
        subject = policy.subject_of(console, entries)
        assert policy.is_owner(config, subject) == is_owner
        assert ("cron_add" in policy.allowed_tools(config, subject, TOOLS.values())) == is_owner


def entry_of(written: ChannelMessage) -> Entry:
    return Entry("1-0", written)


# -- tokens and rights ----------------------------------------------------------------------------


async def test_the_token_of_a_previous_agent_is_refused(stack: Stack) -> None:
    caller = await begin_turn(stack, HANDLERS)
    other = Agent(caller.lease.sid, digest(new_agent_token(caller.lease.sid)))
    await caller.lease.grant(digest(new_agent_token(caller.lease.sid)), ["session_status"])
    stale, _ = await refused(stack, caller, "session_status")
    with pytest.raises(CallRefused) as made_up:
        await gateway(stack.fleet, stack.home, HANDLERS).call(other, "session_status", {})

    assert (stale, made_up.value.code) == ("UNAUTHORIZED", "UNAUTHORIZED")


async def test_tools_are_refused_after_a_stop(stack: Stack) -> None:
    set_sees_sessions(stack, "agent")
    bob = await stack.append("hello", from_="bob")
    caller = await begin_turn(stack, HANDLERS)
    stopped = await stack.fleet.sessions.stop(caller.lease.sid)
    params = {"sessionKey": str(bob.session), "message": "hi", "timeout": 0}
    code, _ = await refused(stack, caller, "sessions_send", **params)
    view = await stack.fleet.sessions.view(bob.session.sid)

    assert (stopped, code) == (1, "TURN_OVER")
    assert view is not None
    assert view.waiting == 1


async def test_the_agent_of_a_superseded_attempt_is_refused(stack: Stack) -> None:
    stack.lease_s = 1.0
    stack.reopen()
    caller = await begin_turn(stack, HANDLERS)
    sid = caller.lease.sid
    await stack.fleet.scripts.client.hset(keys.state(sid), "lease_until_ms", 0)
    other = await stack.fleet.leases.acquire(sid, worker="next", host="here")
    assert other is not None
    await other.turns.begin([caller.id])
    code, _ = await refused(stack, caller, "session_status")

    assert code == "UNAUTHORIZED"


async def test_rights_are_the_narrower_of_grant_and_policy(stack: Stack) -> None:
    stack.configure({"runtime": "demo", "tools": {"deny": ["agents_list"]}})
    caller = await begin_turn(stack, HANDLERS, tools=["session_status", "agents_list"])
    listed = {
        tool.tool for tool in await gateway(stack.fleet, stack.home, HANDLERS).tools(caller.agent)
    }
    denied, _ = await refused(stack, caller, "agents_list")
    not_granted, _ = await refused(stack, caller, "sessions_list")

    assert listed == {"session_status"}
    assert (denied, not_granted) == ("FORBIDDEN", "FORBIDDEN")


async def test_a_message_that_joins_narrows_the_rights_of_the_turn(stack: Stack) -> None:
    stack.configure(
        {"runtime": "demo"},
        channels={"test": {"senders": {"mallory": {"tools": {"deny": ["*"]}}}}},
    )
    caller = await begin_turn(stack, HANDLERS)
    before = await call(stack, caller, "session_status")
    joined = await stack.append("and me")
    sid = caller.lease.sid
    client: Any = stack.fleet.scripts.client
    entry = (await client.xrange(keys.inbound(sid)))[-1][1][b"entry"].replace(b"alice", b"mallory")
    await client.xdel(keys.inbound(sid), joined.entry_id)
    entry_id = await client.xadd(keys.inbound(sid), {"entry": entry})
    await client.hset(keys.state(sid), "steered", entry_id)
    code, _ = await refused(stack, caller, "session_status")

    assert before.state == "running"
    assert code == "FORBIDDEN"


async def test_an_agent_cannot_name_another_session_as_its_own(stack: Stack) -> None:
    bob = await stack.append("hello", from_="bob")
    caller = await begin_turn(stack, HANDLERS)
    code, _ = await refused(stack, caller, "session_status", session_key=str(bob.session))

    assert code == "FORBIDDEN"
