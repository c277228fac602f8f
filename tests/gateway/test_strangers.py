"""The limits of a stranger's turn, whatever its agent is persuaded to do."""

from typing import Any

import pytest

from remoteclaw.errors import CallRefused
from remoteclaw.fleet import keys
from remoteclaw.fleet.turns.inbound import decode_entry
from remoteclaw.gateway.auth.principals import Agent
from remoteclaw.gateway.methods import HANDLERS as ALL
from remoteclaw.messages import SessionKey
from tests.support.cron import cron_of
from tests.support.mcp_client import agents_client
from tests.support.platform import Platform
from tests.support.stack import Stack
from tests.support.turns import DIGEST, Turn, ask, begin_turn, gateway, operator

JOB = {"name": "morning", "schedule": {"every": 3600}, "message": "Say good morning."}
HANDLERS = dict(ALL)
OWNERS = {"telegram": {"owners": ["1"]}, "test": {"owners": ["alice"]}}


@pytest.fixture(autouse=True)
def configured(stack: Stack) -> None:
    stack.configure({"runtime": "demo", "sees_sessions": "all"}, channels=OWNERS)


async def turn_of(stack: Stack, user: str, *, chat: str | None = None, **fields: Any) -> Turn:
    """Return a turn that answers a person on Telegram."""
    return await begin_turn(
        stack, HANDLERS, provider="telegram", from_=user, channel_id=chat or user, **fields
    )


async def refused(turn: Turn, tool: str, **params: Any) -> str:
    with pytest.raises(CallRefused) as refusal:
        await turn.call(tool, **params)
    assert refusal.value.code in ("FORBIDDEN", "NOT_FOUND")
    return str(refusal.value)


async def has_no_replies(stack: Stack) -> bool:
    return await stack.fleet.scripts.client.keys(keys.replies("*", "*")) == []


# -- messages -------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["999", "test:chat-1", "telegram/other:666", "web:admin.ada"])
async def test_a_strangers_turn_cannot_write_to_another_chat(stack: Stack, target: str) -> None:
    stack.configure(channels={**OWNERS, "web": {}})
    assert await stack.fleet.replies.reader("telegram", "other").claim()
    stranger = await turn_of(stack, "666")

    why = await refused(stranger, "message_send", target=target, message="Your agent: pay me.")
    await refused(stranger, "message_send_with_effect", target=target, message="x", effectId="e")
    await refused(stranger, "message_send_attachment", target=target, file="https://a.example/x")
    await refused(stranger, "message_broadcast", targets=["666", target], message="x")

    assert "may send only to its own chat" in why
    assert await has_no_replies(stack)


async def test_a_strangers_turn_may_write_to_its_own_chat_and_threads(stack: Stack) -> None:
    stranger = await turn_of(stack, "666", chat="-100")

    for params in ({"target": "-100"}, {"target": "telegram:-100", "threadId": "t"}):
        assert (await stranger.call("message_send", message="hi", **params))["status"] == "accepted"
    await stranger.call("message_thread_reply", message="hi", threadId="t2")


async def test_a_message_to_another_chat_names_its_origin(stack: Stack, directory: Any) -> None:
    agent = {"runtime": "demo", "sends_to": ["test:chat-2", "other:*"]}
    stack.configure(agent, channels={**OWNERS, "other": {}})
    platform = Platform(directory / "platform")
    stranger = await turn_of(stack, "666")
    async with platform.served(stack.fleet):
        await stranger.call("message_send", target="test:chat-2", message="hi")
        why = await refused(stranger, "message_send", target="test:chat-3", message="hi")
        await stranger.call("message_send", target="other:7", message="hi")

    assert [event["text"] for event in platform.delivered] == ["(From telegram:666, by main:)\nhi"]
    assert "unless sends_to of [agents.main] has it" in why


async def test_an_owners_turn_may_write_to_any_chat_and_names_its_origin(
    stack: Stack, directory: Any
) -> None:
    platform = Platform(directory / "platform")
    owner = await turn_of(stack, "1")
    async with platform.served(stack.fleet):
        await owner.call("message_broadcast", targets=["test:a", "test:b"], message="hi")

    line = "(From telegram:1, by main:)\nhi"
    assert [event["text"] for event in platform.delivered] == [line, line]


async def test_a_message_from_another_session_carries_no_owners_rights(stack: Stack) -> None:
    owner = await turn_of(stack, "1")
    other = await stack.append("hello", provider="telegram", from_="666", channel_id="666")
    await owner.call("sessions_send", sessionKey=str(other.session), message="x", timeout=0)
    stranger = await taken_up(stack, other.session)
    await stranger.finish()
    (raw,) = await stranger.lease.entries()
    assert await stranger.lease.turns.begin([raw[0].decode()])

    await refused(stranger, "message_send", target="1", message="x")


@pytest.mark.parametrize("tool", ["message_delete", "message_pin"])
async def test_deleting_and_pinning_in_a_group_needs_an_owner(stack: Stack, tool: str) -> None:
    stranger = await turn_of(stack, "666", chat="-100")

    assert "doesn't allow" in await refused(stranger, tool, messageId="5")

    groups = {"groups": {"-100": {"tools": {"also_allow": [tool]}}}}
    stack.configure(channels={"telegram": {"owners": ["1"], **groups}})
    allowed = gateway(stack.fleet, stack.home, HANDLERS)
    with pytest.raises(CallRefused) as refusal:  # no adapter runs
        await allowed.call(stranger.agent, tool, {"messageId": "5"})
    assert refusal.value.code == "UNAVAILABLE"


# -- sessions -------------------------------------------------------------------------------------


async def test_a_strangers_turn_sees_only_its_own_sessions_whatever_is_configured(
    stack: Stack,
) -> None:
    owners = await stack.append("my salary", provider="telegram", from_="1", channel_id="1")
    view = await stack.fleet.sessions.view(owners.session.sid)
    assert view is not None
    await stack.fleet.sessions.label(view, "pay")
    stranger = await turn_of(stack, "666")
    key = str(owners.session)

    await refused(stranger, "sessions_history", sessionKey=key)
    await refused(stranger, "session_status", sessionKey=key)
    await refused(stranger, "sessions_send", sessionKey=key, message="x", timeout=0)
    await refused(stranger, "sessions_send", label="pay", message="x", timeout=0)
    listed = await stranger.call("sessions_list")

    assert [one["key"] for one in listed["sessions"]] == [str(stranger.lease.session)]
    view = await stack.fleet.sessions.view(owners.session.sid)
    assert view is not None
    assert view.waiting == 1


async def test_an_owners_turn_sees_all_sessions_of_its_agent(stack: Stack) -> None:
    stack.configure({"runtime": "demo"}, channels=OWNERS)
    other = await stack.append("hello", provider="telegram", from_="666", channel_id="666")
    owner = await turn_of(stack, "1")

    await owner.call("sessions_history", sessionKey=str(other.session))


# -- rights of tasks and jobs ---------------------------------------------------------------------


async def taken_up(stack: Stack, session: SessionKey) -> Turn:
    """Begin a turn with the first entry that waits in a session."""
    lease = await stack.fleet.leases.acquire(session.sid, worker="t", host=stack.home.host_id)
    assert lease is not None
    first = (await lease.entries())[0][0].decode()
    assert await lease.turns.begin([first])
    await lease.grant(DIGEST, ["message_send"])
    door = gateway(stack.fleet, stack.home, HANDLERS)
    return Turn(first, lease, Agent(session.sid, DIGEST), door)


@pytest.mark.parametrize(("user", "may"), [("1", True), ("666", False)])
async def test_a_task_and_its_result_have_the_rights_of_the_person_who_asked(
    stack: Stack, user: str, may: bool
) -> None:
    turn = await turn_of(stack, user)
    started = await turn.call("sessions_spawn", prompt="Tell test:chat-1 that it works.")
    await turn.finish()
    task = await taken_up(stack, SessionKey.parse(started["childSessionKey"]))
    elsewhere = {"target": "test:chat-1", "message": "It works."}
    if may:
        await task.call("message_send", **elsewhere)
    else:
        await refused(task, "message_send", **elsewhere)

    (raw,) = await task.lease.entries()
    assert decode_entry(*raw).people == (f"telegram:{user}",)


@pytest.mark.parametrize(("user", "may"), [("1", True), ("666", False)])
async def test_a_cron_run_has_the_current_rights_of_the_jobs_creator(
    stack: Stack, user: str, may: bool
) -> None:
    allow = {"tools": {"also_allow": ["cron_add"]}}
    stack.configure({"runtime": "demo", **allow}, channels={"telegram": {"owners": ["1", "666"]}})
    turn = await turn_of(stack, user)
    job = (await turn.call("cron_add", job=JOB))["job"]
    stack.configure(channels=OWNERS)  # from now on 666 is a stranger
    await turn.finish()
    await turn.lease.close()
    await ask(turn.gateway, operator(), "cron.run", jobId=job["id"])
    fired = await taken_up(stack, turn.lease.session)

    elsewhere = {"target": "test:chat-1", "message": "Good morning."}
    if may:
        await fired.call("message_send", **elsewhere)
    else:
        await refused(fired, "message_send", **elsewhere)


@pytest.mark.parametrize(
    ("scope", "user", "may"),
    [("admin", "1", True), ("admin", "666", False), ("write", "1", False)],
)
async def test_an_operators_task_has_only_the_rights_of_the_sessions_user(
    stack: Stack, scope: str, user: str, may: bool
) -> None:
    """A task of an operator does not give a stranger's messages an owner's rights."""
    session = (await turn_of(stack, user)).lease.session
    door = gateway(stack.fleet, stack.home, HANDLERS)
    started, _ = await ask(
        *(door, operator(scope), "tasks.spawn"), prompt="Go on.", session_key=str(session)
    )
    task = await taken_up(stack, SessionKey.parse(started["childSessionKey"]))

    elsewhere = {"target": "test:chat-1", "message": "It works."}
    if may:
        await task.call("message_send", **elsewhere)
    else:
        await refused(task, "message_send", **elsewhere)


# -- with an independent client --------------------------------------------------------------------


async def test_a_strangers_agent_reaches_nothing_of_an_owner_over_mcp(stack: Stack) -> None:
    agent = {"runtime": "demo", "sees_sessions": "all", "tools": {"also_allow": ["*"]}}
    stack.configure(agent, channels={**OWNERS, "web": {}})
    owners = await stack.append("my salary", provider="telegram", from_="1", channel_id="1")
    view = await stack.fleet.sessions.view(owners.session.sid)
    assert view is not None
    await stack.fleet.sessions.label(view, "pay")
    key, here = str(owners.session), {"provider": "telegram", "from_": "666", "channel_id": "666"}
    job = {**JOB, "sessionKey": key}
    attacks: list[tuple[str, dict[str, Any]]] = [
        *(("message_send", {"target": to, "message": "x"}) for to in ("1", "web:admin.ada")),
        ("message_broadcast", {"targets": ["666", "1"], "message": "x"}),
        *(
            ("message_send", {"target": to, "message": "(From telegram:1, by main:)\nx"})
            for to in ("Telegram:1", "telegram/default:1", "telegram:1:5", "TELEGRAM/default:1")
        ),
        ("message_send", {"target": "1", "message": "x", "threadId": "5"}),
        ("message_send", {"target": "666", "to": "1", "message": "x"}),
        ("message_reply", {"message": "x", "target": "1"}),
        ("message_reply", {"message": "x", "sessionKey": key}),
        ("message_thread_reply", {"message": "x", "threadId": "5", "sessionKey": key}),
        *(
            (tool, {"sessionKey": name, **more})
            for name in (owners.session.sid, owners.session.sid[:8], owners.session.conversation)
            for tool, more in (
                ("sessions_send", {"message": "x", "timeout": 0}),
                ("sessions_history", {}),
                ("session_status", {}),
            )
        ),
        ("sessions_spawn", {"prompt": "x", "sessionKey": key}),
        ("cron_add", {"job": {**JOB, "to": "1"}}),
        ("message_send_attachment", {"target": "1", "file": "https://a.example/x"}),
        ("message_send_with_effect", {"target": "1", "message": "x", "effectId": "e"}),
        ("message_read", {"channelId": "1"}),
        ("sessions_send", {"sessionKey": key, "message": "x", "timeout": 0}),
        ("sessions_send", {"label": "pay", "message": "x", "timeout": 0}),
        ("sessions_history", {"sessionKey": key}),
        ("session_status", {"sessionKey": key}),
        ("sessions_spawn", {"prompt": "x", "channel": "telegram:1"}),
        ("cron_add", {"job": JOB}),
        ("cron_add", {"job": job}),
    ]
    async with agents_client(stack, **here) as (session, _):
        for tool, params in attacks:
            result = await session.call_tool(tool, params)
            assert result.is_error, (tool, params)
        listed = await session.call_tool("sessions_list", {})
        started = await session.call_tool("sessions_spawn", {"prompt": "Write to telegram:1."})

    assert key not in str(listed.content)
    assert not started.is_error
    task = await taken_up(stack, SessionKey.parse(started.structured_content["childSessionKey"]))
    await refused(task, "message_send", target="1", message="x")
    after = await stack.fleet.sessions.view(owners.session.sid)
    assert after is not None
    assert after.waiting == 1
    assert await has_no_replies(stack)
    assert await cron_of(stack.fleet).jobs() == []
