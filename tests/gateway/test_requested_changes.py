"""Configuration changes that wait for approval: each is made once, and only after approval."""

import asyncio
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
import tomlkit

from remoteclaw.commands import CommandCall, CommandReply
from remoteclaw.commands.allow_deny import answer_by_message
from remoteclaw.commands.answers import ENDED, FOR_OWNERS, carry_out_changes
from remoteclaw.commands.config_change import carry_out
from remoteclaw.config.edit import ConfigFile
from remoteclaw.config.home import Home
from remoteclaw.config.load import load_config
from remoteclaw.config.tool_policy import Subject, approval_rule
from remoteclaw.errors import CallRefused, ConfigError
from remoteclaw.fleet import keys
from remoteclaw.fleet.requests.card import MAX_OF_SESSION
from remoteclaw.fleet.requests.request import CHANGE_MS, Request, RequestAnswer
from remoteclaw.fleet.turns.inbound import decode_entry
from remoteclaw.gateway.gateway import Gateway
from remoteclaw.gateway.methods import HANDLERS
from remoteclaw.tools.catalog import TOOLS
from tests.support.requests import answered, shown
from tests.support.stack import Stack
from tests.support.turns import begin_turn, gateway, operator
from tests.support.waiting import eventually

CHANGE = {"queue": {"mode": "steer", "cap": None}}
TEXT = "# ours\n[queue]\nmode = 'collect'\ncap = 3\n[channels.test]\nowners = ['alice']\n"
REQUESTS = "[tools]\napprove = ['gateway_config_*']\n"


@pytest.fixture(autouse=True)
def configured(stack: Stack) -> str:
    stack.home.config_file.write_text(TEXT + REQUESTS)
    return TEXT + REQUESTS


async def ask(stack: Stack, call_id: str | None = None, **fields: Any) -> dict[str, Any]:
    turn = await begin_turn(stack, HANDLERS, **fields)
    return await turn.call("gateway_config_patch", call_id, patches=CHANGE)


async def operate(stack: Stack, method: str, **params: Any) -> dict[str, Any]:
    answer, _ = await gateway(stack.fleet, stack.home, HANDLERS).call(operator(), method, params)
    return answer.model_dump(mode="json", exclude_none=True)


async def decide(stack: Stack, id_: str, verdict: str = "once") -> str:
    """Answer as an operator; return the result, or why the answer does not count."""
    answer = await operate(stack, "requests.answer", id=id_, verdict=verdict)
    return str(answer["detail"])


def mode(stack: Stack) -> str:
    return load_config(stack.home.config_file, {}).queue.mode


async def test_nothing_is_changed_before_a_person_approves(stack: Stack, configured: str) -> None:
    answer = await ask(stack)
    (request,) = await stack.fleet.requests.waiting()

    assert (answer["status"], answer["changed"]) == ("requested", ["queue.mode", "queue.cap"])
    assert 'tools.approve has "gateway_config_*"' in answer["detail"]
    assert "They are asked in the chat." in answer["detail"]
    assert stack.home.config_file.read_text() == configured
    assert request.id == answer["requestId"]
    assert request.change
    assert (request.change.patch, request.change.host) == (CHANGE, stack.home.host_id)
    assert [*request.people] == ["test:alice"]
    assert request.until_ms - request.asked_ms == CHANGE_MS


async def test_the_chat_shows_the_change_as_a_diff_and_its_result(stack: Stack) -> None:
    answer = await ask(stack)
    (request,) = await stack.fleet.requests.waiting()
    (card,) = [text async for text in shown(stack)]
    result = await answered(stack, request, "once")
    _, closed = [text async for text in shown(stack)]

    assert request.id == answer["requestId"]
    diff = '-queue.mode = "collect"\n+queue.mode = "steer"\n-queue.cap = 3'
    assert card == f"**main** asks to change the configuration:\n\n```diff\n{diff}\n```"
    assert dict(request.offered) == {"once": "Allow once", "deny": "Deny"}
    assert re.fullmatch(
        r"Allowed once by alice at \d\d:\d\d\. queue\.mode, queue\.cap are changed\.", result
    )
    assert closed == f"{card}\n\n{result}"
    assert mode(stack) == "steer"


async def test_a_change_too_long_for_the_message_is_complete_in_the_attached_file(
    stack: Stack,
) -> None:
    """Otherwise an agent could hide a part of a change among many others."""
    turn = await begin_turn(stack, HANDLERS)
    many = {f"channel-{number:03}": {"cap": 7} for number in range(200)}
    hidden = {**many, "channel-100": {"cap": 99}}
    await turn.call("gateway_config_patch", patches={"queue": {"channels": hidden}})
    (request,) = await stack.fleet.requests.waiting()
    full_text = await stack.fleet.requests.full_text(request)
    client: Any = stack.fleet.scripts.client
    ((_, fields),) = await client.xrange(keys.replies("test", "default"))
    card = orjson.loads(fields[b"reply"])

    assert ("cap = 99" in request.what, "cap = 99" in full_text) == (False, True)
    assert [file["name"] for file in card["attachments"]] == [f"request-{request.id}.txt"]
    assert card["text"].endswith(f"All of it is in the file request-{request.id}.txt.")


@pytest.mark.parametrize("door", ["requests", "chat"])
async def test_the_first_answer_counts_from_the_chat_or_from_an_operator(
    stack: Stack, door: str
) -> None:
    answer = await ask(stack)
    (request,) = await stack.fleet.requests.waiting()
    match door:
        case "requests":
            await decide(stack, request.id, "deny")
        case "chat":
            await answered(stack, request, "deny")
    closed = [text async for text in shown(stack)][-1]
    late = await answered(stack, request, "once", by="alice")
    later = await decide(stack, answer["requestId"])

    assert "Denied by" in closed
    assert late.startswith("It was answered before: Denied by")
    assert later.startswith("It was answered before: Denied by")
    assert mode(stack) == "collect"


async def test_an_approved_change_is_made_once(stack: Stack) -> None:
    answer = await ask(stack)
    done = await decide(stack, answer["requestId"])
    text = stack.home.config_file.read_text()
    assert mode(stack) == "steer"
    assert "cap" not in text
    assert text.startswith("# ours\n")
    stack.home.config_file.write_text(TEXT + REQUESTS)  # a person undoes the change
    again = await decide(stack, answer["requestId"])
    denied = await decide(stack, answer["requestId"], "deny")
    await carry_out_changes(stack.fleet.requests, stack.home)

    assert again == done
    assert denied.startswith("It was answered before: Allowed once by olga")
    assert mode(stack) == "collect"
    assert await stack.fleet.requests.waiting() == []


async def test_the_agent_is_notified_of_the_answer(stack: Stack) -> None:
    turn = await begin_turn(stack, HANDLERS)
    await turn.call("gateway_config_patch", patches=CHANGE)
    (request,) = await stack.fleet.requests.waiting()
    await turn.finish()
    result = await answered(stack, request, "deny", words="not on a Friday")
    client: Any = stack.fleet.scripts.client
    entry = decode_entry(*(await client.xrange(keys.inbound(request.session.sid)))[-1])

    assert (entry.origin, entry.people) == ("verdict", ("test:alice",))
    assert result in entry.message.text
    assert "“not on a Friday”" in result


@pytest.mark.parametrize("before", ["# ours", "'collect'"])
async def test_a_change_is_refused_if_the_file_has_changed_since_the_request(
    stack: Stack, before: str
) -> None:
    """Even if the change would have the same effect: it was approved for other content."""
    answer = await ask(stack)
    by_hand = f"{TEXT}{REQUESTS}".replace(before, {"# ours": "# mine"}.get(before, "'followup'"))
    stack.home.config_file.write_text(by_hand)
    result = await decide(stack, answer["requestId"])
    closed = [text async for text in shown(stack)][-1]

    assert stack.home.config_file.read_text() == by_hand
    assert result in closed
    assert "It is not done: the configuration file has changed since" in result


@pytest.mark.parametrize("is_written", [False, True])
async def test_a_process_killed_after_the_answer_leaves_the_change_to_the_gateway(
    stack: Stack, monkeypatch: pytest.MonkeyPatch, *, is_written: bool
) -> None:
    await ask(stack)
    (request,) = await stack.fleet.requests.waiting()

    async def killed(*_: Any, **__: Any) -> None:
        raise asyncio.CancelledError

    step = (
        "fleet.requests.requests.Requests.close_change"
        if is_written
        else "config.edit.ConfigFile.write"
    )
    with monkeypatch.context() as patched:
        patched.setattr(f"remoteclaw.{step}", killed)
        with pytest.raises(asyncio.CancelledError):
            await answered(stack, request, "once")
    assert mode(stack) == ("steer" if is_written else "collect")
    inode = stack.home.config_file.stat().st_ino
    await carry_out_changes(stack.fleet.requests, stack.home)
    closed = [text async for text in shown(stack)][-1]

    assert (stack.home.config_file.stat().st_ino == inode) == is_written
    assert mode(stack) == "steer"
    assert closed.endswith("queue.mode, queue.cap are changed.")
    assert await stack.fleet.requests.answered_changes() == []


async def allowed_but_not_made(stack: Stack) -> Request:
    """Return a change that was allowed by a process that was killed before it made the change."""
    await ask(stack)
    (request,) = await stack.fleet.requests.waiting()
    answer = RequestAnswer(verdict="once", by="test:alice", name="alice", at_ms=1)
    await stack.fleet.requests.answer(
        request, answer, holders=["*"], closing_text="", entry_text="Go on."
    )
    return await stack.fleet.requests.named(request.id)


async def test_two_processes_that_carry_out_a_change_make_it_once(stack: Stack) -> None:
    request = await allowed_but_not_made(stack)
    await carry_out(stack.fleet.requests, stack.home, request, "Allowed.")
    assert mode(stack) == "steer"
    stack.home.config_file.write_text(TEXT + REQUESTS)  # a person edits it before the second call
    await carry_out(stack.fleet.requests, stack.home, request, "Allowed.")

    assert mode(stack) == "collect"


async def test_the_gateway_makes_a_change_that_a_killed_process_left_unmade(stack: Stack) -> None:
    request = await allowed_but_not_made(stack)

    async def is_done() -> bool:
        return (await stack.fleet.requests.named(request.id)).state == "used"

    config = load_config(stack.home.config_file, {})
    running = asyncio.create_task(Gateway(stack.fleet, stack.home, lambda: config, HANDLERS).run())
    await eventually(is_done)
    running.cancel()
    await asyncio.wait((running,))

    assert mode(stack) == "steer"


async def test_only_owners_decide_on_a_change(stack: Stack) -> None:
    """Even if [requests] lets paired people answer for their own turns, or names other people."""
    for who in ("'sender'", "['test:bob', 'test:alice']"):
        stack.home.config_file.write_text(f"{TEXT}{REQUESTS}[requests]\nwho = {who}\n")
        await ask(stack, channel_id=f"chat-{who}", from_="alice")
    one, other = await stack.fleet.requests.waiting()

    for request in (one, other):
        assert await answered(stack, request, "once", by="bob") == FOR_OWNERS
    assert mode(stack) == "collect"
    assert "are changed" in await answered(stack, other, "once")


async def test_a_change_can_only_be_allowed_once_or_denied(stack: Stack) -> None:
    await ask(stack)
    (request,) = await stack.fleet.requests.waiting()
    for verdict in ("conversation", "words"):
        answer = await operate(stack, "requests.answer", id=request.id, verdict=verdict, reason="x")
        assert "answer with `/allow" in answer["detail"]

    assert len(await stack.fleet.requests.waiting()) == 1


async def test_a_request_for_a_change_outlives_its_turn_and_conversation(stack: Stack) -> None:
    turn = await begin_turn(stack, HANDLERS)
    await turn.call("gateway_config_patch", patches=CHANGE)
    (request,) = await stack.fleet.requests.waiting()
    await turn.lease.reset(turn.id, "new", keep_ms=0, keep=1)
    await turn.finish()
    await stack.fleet.sessions.stop(request.session.sid)
    await stack.fleet.requests.expire_due()

    assert "are changed" in await answered(stack, request, "once")


@pytest.mark.parametrize(
    ("number", "reply_to", "state"), [("2", "", "denied"), ("1", "77", "used")]
)
async def test_a_number_in_the_chat_answers_the_request(
    stack: Stack, number: str, reply_to: str, state: str
) -> None:
    """If the agent has written more since, it has to reply to the message with the request."""
    turn = await begin_turn(stack, HANDLERS)
    await turn.call("gateway_config_patch", patches=CHANGE)
    (request,) = await stack.fleet.requests.waiting()
    client = stack.fleet.scripts.client
    await client.hset(keys.request(request.id), "shown", "77")
    if reply_to:
        await client.hset(keys.state(request.session.sid), "said_ms", request.asked_ms + 1)
    command = CommandCall(
        id="2",
        arguments="",
        session=request.session,
        sender="alice",
        is_owner=True,
        reply_to=reply_to,
        fleet=stack.fleet,
        config=load_config(stack.home.config_file, {}),
        home=stack.home,
    )

    assert await answer_by_message(number, command) == CommandReply("")
    assert (await stack.fleet.requests.named(request.id)).state == state


async def test_a_repeated_call_creates_one_request(stack: Stack) -> None:
    turn = await begin_turn(stack, HANDLERS)
    first = await turn.call("gateway_config_patch", "one", patches=CHANGE)
    again = await turn.call("gateway_config_patch", "one", patches=CHANGE)

    assert first == again
    assert len(await stack.fleet.requests.waiting()) == 1


async def test_a_session_has_a_maximum_number_of_waiting_requests(stack: Stack) -> None:
    turn = await begin_turn(stack, HANDLERS)
    for _ in range(MAX_OF_SESSION):
        await turn.call("gateway_config_patch", patches=CHANGE)

    with pytest.raises(CallRefused, match="too many requests wait for an answer already"):
        await turn.call("gateway_config_patch", patches=CHANGE)


async def test_a_request_for_a_change_expires(stack: Stack) -> None:
    await ask(stack)
    (request,) = await stack.fleet.requests.waiting()
    client = stack.fleet.scripts.client
    await client.hset(keys.request(request.id), "until_ms", 1)
    assert await answered(stack, request, "once") == ENDED["expired"]

    await ask(stack, channel_id="chat-2")
    (other,) = await stack.fleet.requests.waiting()
    await client.zadd(keys.REQUESTS, {other.id: 1})
    await stack.fleet.requests.expire_due()

    assert [text async for text in shown(stack)][-1].endswith("Nobody answered in time.")
    assert await stack.fleet.requests.waiting() == []
    assert mode(stack) == "collect"


async def test_a_request_forged_in_redis_cannot_exceed_an_agents_rights(
    stack: Stack, configured: str
) -> None:
    for patch, refusal in (
        ({"redis": {"url": "redis://evil"}}, "agents may not change redis"),
        ({"queue": {"mode": "interrupt"}}, "has changed since"),
    ):
        await ask(stack, channel_id=refusal)
        (request,) = await stack.fleet.requests.waiting()
        assert request.change is not None
        disguised = replace(request, change=replace(request.change, patch=patch))
        client = stack.fleet.scripts.client
        await client.hset(keys.request(request.id), "request", disguised.encode())
        assert refusal in await decide(stack, request.id)

    assert stack.home.config_file.read_text() == configured


async def test_a_change_is_made_by_the_host_of_its_configuration(
    stack: Stack, directory: Path
) -> None:
    await ask(stack)
    (request,) = await stack.fleet.requests.waiting()
    elsewhere = Home(directory / "elsewhere").create()
    (elsewhere.path / "config.toml").write_text(TEXT)
    other = gateway(stack.fleet, elsewhere, HANDLERS)
    answer, _ = await other.call(
        operator(), "requests.answer", {"id": request.id, "verdict": "once"}
    )
    await carry_out_changes(stack.fleet.requests, elsewhere)
    assert answer.model_dump()["detail"].endswith(
        f"{stack.home.host_id} makes the change in a moment."
    )
    assert mode(stack) == "collect"
    await carry_out_changes(stack.fleet.requests, stack.home)

    assert mode(stack) == "steer"


async def test_an_operator_is_asked_if_no_chat_is(stack: Stack) -> None:
    text = stack.home.config_file.read_text()
    stack.home.config_file.write_text(f"{text}[requests]\nwho = []\n")
    answer = await ask(stack)

    assert f"`remoteclaw requests answer {answer['requestId']} once`" in answer["detail"]
    assert [text async for text in shown(stack)] == []
    await decide(stack, answer["requestId"])
    assert mode(stack) == "steer"


def test_a_diff_masks_secrets_and_escapes_invisible_characters(stack: Stack) -> None:
    """Right-to-left overrides and invisible characters could hide a part of the change."""
    stack.home.config_file.write_text("[agents.main.env]\nKEY = 'canary'\n")
    file = ConfigFile(stack.home.config_file)
    disguised = {"env": {"KEY": "other"}, "workspace": "/a\u202e\u2066\u200b\x1b[2J"}
    plan = file.plan_patch(file.read(), {"agents": {"main": disguised}})

    assert plan.diff.split("\n") == [
        '-agents.main.env.KEY = "***"',
        '+agents.main.env.KEY = "***"',
        r'+agents.main.workspace = "/a\u202e\u2066\u200b\u001b[2J"',
    ]


async def test_an_operators_own_change_needs_no_approval(stack: Stack) -> None:
    assert (await operate(stack, "config.patch", patches=CHANGE))["status"] == "applied"


async def test_an_agent_cannot_approve_changes(stack: Stack) -> None:
    turn = await begin_turn(stack, HANDLERS)
    answer = await turn.call("gateway_config_patch", patches=CHANGE)
    with pytest.raises(CallRefused, match="is for operators"):
        await turn.call("requests.answer", id=answer["requestId"], verdict="once")
    with pytest.raises(CallRefused, match=r"may not change tools\.approve"):
        await turn.call("gateway_config_patch", patches={"tools": {"approve": []}})


SUBJECT = Subject("main", "test", "group", is_group=True, senders=("alice",))
PATCH = TOOLS["gateway_config_patch"]


@pytest.mark.parametrize(
    ("tables", "rule"),
    [
        ({}, None),
        ({"tools": ["*"]}, "tools"),
        ({"tools": ["*"], "agents.main.tools": []}, None),
        ({"tools": [], "agents.main.tools": ["group:gateway"]}, "agents.main.tools"),
        ({"agents.main.tools": [], "channels.test.tools": ["*"]}, "channels.test.tools"),
        ({"channels.test.tools": ["*"], "channels.test.senders.alice.tools": []}, None),
        (
            {
                "channels.test.senders.alice.tools": [],
                "channels.test.groups.group.tools": ["*"],
            },
            'channels.test.groups."group".tools',
        ),
        (
            {
                "channels.test.groups.group.tools": ["*"],
                "channels.test.groups.group.senders.alice.tools": [],
            },
            None,
        ),
        ({"channels.test.senders.bob.tools": ["*"]}, None),
        ({"tools": ["gateway_config_apply"]}, None),
    ],
)
def test_the_most_specific_approve_table_decides(
    stack: Stack, tables: dict[str, list[str]], rule: str | None
) -> None:
    tree: dict[str, Any] = {}
    for path, entries in tables.items():
        table = tree
        for name in path.split("."):
            table = table.setdefault(name, {})
        table["approve"] = entries
    tree.setdefault("agents", {}).setdefault("main", {})
    stack.home.config_file.write_text(tomlkit.dumps(tree))
    config = load_config(stack.home.config_file, {})
    found = approval_rule(config, SUBJECT, PATCH)
    together = approval_rule(config, replace(SUBJECT, senders=("bob", "alice")), PATCH)

    assert (found or "").partition(".approve has")[0] == (rule or "")
    assert together is not None or rule is None


def test_approval_of_a_tool_that_cannot_wait_is_a_configuration_error(stack: Stack) -> None:
    stack.home.config_file.write_text("[tools]\napprove = ['message_send']\n")

    with pytest.raises(ConfigError, match=r"tools\.approve has 'message_send', which can't wait"):
        load_config(stack.home.config_file, {})
