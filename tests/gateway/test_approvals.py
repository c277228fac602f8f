"""Changes that wait for approval: nothing is done before it, and then that alone."""

import asyncio
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
import tomlkit

from remoteclaw.commands import Answer, Asked
from remoteclaw.commands.allow_deny import in_passing
from remoteclaw.commands.answers import ENDED, FOR_OWNERS, carry_out_changes
from remoteclaw.commands.config_change import carry_out
from remoteclaw.config.edit import ConfigFile
from remoteclaw.config.home import Home
from remoteclaw.config.load import load_config
from remoteclaw.config.tool_policy import Subject, approval_rule
from remoteclaw.errors import CallRefused, ConfigError
from remoteclaw.fleet import keys
from remoteclaw.fleet.inbound import decode_entry
from remoteclaw.fleet.request import CHANGE_MS, Answered, Request
from remoteclaw.fleet.request_card import MAX_OF_SESSION
from remoteclaw.gateway.gateway import Gateway
from remoteclaw.gateway.methods import HANDLERS
from remoteclaw.tools.catalog import TOOLS
from tests.support.asks import answered, shown
from tests.support.stack import Stack
from tests.support.turns import begin_turn, gateway, operator
from tests.support.waiting import eventually

CHANGE = {"queue": {"mode": "steer", "cap": None}}
TEXT = "# ours\n[queue]\nmode = 'collect'\ncap = 3\n[channels.test]\nowners = ['alice']\n"
ASKS = "[tools]\napprove = ['gateway_config_*']\n"


@pytest.fixture(autouse=True)
def configured(stack: Stack) -> str:
    stack.home.config_file.write_text(TEXT + ASKS)
    return TEXT + ASKS


async def ask(stack: Stack, call_id: str | None = None, **fields: Any) -> dict[str, Any]:
    turn = await begin_turn(stack, HANDLERS, **fields)
    return await turn.call("gateway_config_patch", call_id, patches=CHANGE)


async def operate(stack: Stack, method: str, **params: Any) -> dict[str, Any]:
    answer, _ = await gateway(stack.fleet, stack.home, HANDLERS).call(operator(), method, params)
    return answer.model_dump(mode="json", exclude_none=True)


async def decide(stack: Stack, id_: str, verdict: str = "once") -> str:
    """Answer as an operator; return what became of it, or why that does not count."""
    told = await operate(stack, "asks.answer", id=id_, verdict=verdict)
    return str(told["detail"])


def mode(stack: Stack) -> str:
    return load_config(stack.home.config_file, {}).queue.mode


async def test_nothing_is_changed_before_a_person_says_so(stack: Stack, configured: str) -> None:
    told = await ask(stack)
    (request,) = await stack.fleet.asks.waiting()

    assert (told["status"], told["changed"]) == ("needs_approval", ["queue.mode", "queue.cap"])
    assert 'tools.approve has "gateway_config_*"' in told["detail"]
    assert "They are asked in the chat." in told["detail"]
    assert stack.home.config_file.read_text() == configured
    assert request.id == told["approvalId"]
    assert request.change
    assert (request.change.patch, request.change.host) == (CHANGE, stack.home.host_id)
    assert [*request.people] == ["test:alice"]
    assert request.until_ms - request.asked_ms == CHANGE_MS


async def test_the_chat_shows_it_as_a_diff_and_what_became_of_it(stack: Stack) -> None:
    told = await ask(stack)
    (request,) = await stack.fleet.asks.waiting()
    (card,) = [text async for text in shown(stack)]
    became = await answered(stack, request, "once")
    _, closed = [text async for text in shown(stack)]

    assert request.id == told["approvalId"]
    diff = '-queue.mode = "collect"\n+queue.mode = "steer"\n-queue.cap = 3'
    assert card == f"**main** asks to change the configuration:\n\n```diff\n{diff}\n```"
    assert dict(request.offered) == {"once": "Allow once", "deny": "Deny"}
    assert re.fullmatch(
        r"Allowed once by alice at \d\d:\d\d\. queue\.mode, queue\.cap are changed\.", became
    )
    assert closed == f"{card}\n\n{became}"
    assert mode(stack) == "steer"


async def test_what_a_long_change_leaves_out_is_in_its_file(stack: Stack) -> None:
    """An agent could have it leave out what it wants."""
    turn = await begin_turn(stack, HANDLERS)
    many = {f"channel-{number:03}": {"cap": 7} for number in range(200)}
    hidden = {**many, "channel-100": {"cap": 99}}
    await turn.call("gateway_config_patch", patches={"queue": {"channels": hidden}})
    (request,) = await stack.fleet.asks.waiting()
    whole = await stack.fleet.asks.whole(request)
    client: Any = stack.fleet.scripts.client
    ((_, fields),) = await client.xrange(keys.reply_stream("test", "default"))
    card = orjson.loads(fields[b"reply"])

    assert ("cap = 99" in request.what, "cap = 99" in whole) == (False, True)
    assert [file["name"] for file in card["attachments"]] == [f"request-{request.id}.txt"]
    assert card["text"].endswith(f"All of it is in the file request-{request.id}.txt.")


@pytest.mark.parametrize("door", ["asks", "chat"])
async def test_the_first_answer_counts_whichever_door_it_comes_through(
    stack: Stack, door: str
) -> None:
    told = await ask(stack)
    (request,) = await stack.fleet.asks.waiting()
    match door:
        case "asks":
            await decide(stack, request.id, "deny")
        case "chat":
            await answered(stack, request, "deny")
    closed = [text async for text in shown(stack)][-1]
    late = await answered(stack, request, "once", by="alice")
    later = await decide(stack, told["approvalId"])

    assert "Denied by" in closed
    assert late.startswith("It was answered before: Denied by")
    assert later.startswith("It was answered before: Denied by")
    assert mode(stack) == "collect"


async def test_what_is_allowed_is_done_once(stack: Stack) -> None:
    told = await ask(stack)
    done = await decide(stack, told["approvalId"])
    text = stack.home.config_file.read_text()
    assert mode(stack) == "steer"
    assert "cap" not in text
    assert text.startswith("# ours\n")
    stack.home.config_file.write_text(TEXT + ASKS)  # by a person, who thinks better of it
    again = await decide(stack, told["approvalId"])
    denied = await decide(stack, told["approvalId"], "deny")
    await carry_out_changes(stack.fleet, stack.home)

    assert again == done
    assert denied.startswith("It was answered before: Allowed once by the operator")
    assert mode(stack) == "collect"
    assert await stack.fleet.asks.waiting() == []


async def test_the_agent_hears_what_became_of_it(stack: Stack) -> None:
    turn = await begin_turn(stack, HANDLERS)
    await turn.call("gateway_config_patch", patches=CHANGE)
    (request,) = await stack.fleet.asks.waiting()
    await turn.finish()
    became = await answered(stack, request, "deny", words="not on a Friday")
    client: Any = stack.fleet.scripts.client
    entry = decode_entry(*(await client.xrange(keys.inbound(request.session.sid)))[-1])

    assert (entry.origin, entry.people) == ("verdict", ("test:alice",))
    assert became in entry.message.text
    assert "“not on a Friday”" in became


@pytest.mark.parametrize("before", ["# ours", "'collect'"])
async def test_a_file_that_has_changed_since_is_left_alone(stack: Stack, before: str) -> None:
    """Also where the change would come to the very same: it was asked for something else."""
    told = await ask(stack)
    by_hand = f"{TEXT}{ASKS}".replace(before, {"# ours": "# mine"}.get(before, "'followup'"))
    stack.home.config_file.write_text(by_hand)
    became = await decide(stack, told["approvalId"])
    closed = [text async for text in shown(stack)][-1]

    assert stack.home.config_file.read_text() == by_hand
    assert became in closed
    assert "It is not done: the configuration file has changed since" in became


@pytest.mark.parametrize("is_written", [False, True])
async def test_one_that_is_killed_behind_the_answer_leaves_it_to_the_gateway(
    stack: Stack, monkeypatch: pytest.MonkeyPatch, *, is_written: bool
) -> None:
    await ask(stack)
    (request,) = await stack.fleet.asks.waiting()

    async def killed(*_: Any, **__: Any) -> None:
        raise asyncio.CancelledError

    step = "fleet.asks.Asks.made" if is_written else "config.edit.ConfigFile.write"
    with monkeypatch.context() as patched:
        patched.setattr(f"remoteclaw.{step}", killed)
        with pytest.raises(asyncio.CancelledError):
            await answered(stack, request, "once")
    assert mode(stack) == ("steer" if is_written else "collect")
    inode = stack.home.config_file.stat().st_ino
    await carry_out_changes(stack.fleet, stack.home)
    closed = [text async for text in shown(stack)][-1]

    assert (stack.home.config_file.stat().st_ino == inode) == is_written
    assert mode(stack) == "steer"
    assert closed.endswith("queue.mode, queue.cap are changed.")
    assert await stack.fleet.asks.changes() == []


async def allowed_and_left(stack: Stack) -> Request:
    """Return a change that somebody has allowed who was killed then."""
    await ask(stack)
    (request,) = await stack.fleet.asks.waiting()
    answer = Answered(verdict="once", by="test:alice", name="alice", at_ms=1)
    await stack.fleet.asks.answer(request, answer, words="", going_on="Go on.")
    return await stack.fleet.asks.named(request.id)


async def test_two_that_carry_it_out_at_once_do_it_once(stack: Stack) -> None:
    request = await allowed_and_left(stack)
    await carry_out(stack.fleet, stack.home, request, "Allowed.")
    assert mode(stack) == "steer"
    stack.home.config_file.write_text(TEXT + ASKS)  # by a person, before the other has the lock
    await carry_out(stack.fleet, stack.home, request, "Allowed.")

    assert mode(stack) == "collect"


async def test_the_gateway_carries_out_what_a_killed_process_has_left(stack: Stack) -> None:
    request = await allowed_and_left(stack)

    async def is_done() -> bool:
        return (await stack.fleet.asks.named(request.id)).state == "used"

    config = load_config(stack.home.config_file, {})
    running = asyncio.create_task(Gateway(stack.fleet, stack.home, lambda: config, HANDLERS).run())
    await eventually(is_done)
    running.cancel()
    await asyncio.wait((running,))

    assert mode(stack) == "steer"


async def test_it_is_for_owners_to_decide(stack: Stack) -> None:
    """Also where paired people answer for their own turns, or others are named."""
    for who in ("'sender'", "['test:bob', 'test:alice']"):
        stack.home.config_file.write_text(f"{TEXT}{ASKS}[approvals]\nwho = {who}\n")
        await ask(stack, channel_id=f"chat-{who}", from_="alice")
    one, other = await stack.fleet.asks.waiting()

    for request in (one, other):
        assert await answered(stack, request, "once", by="bob") == FOR_OWNERS
    assert mode(stack) == "collect"
    assert "are changed" in await answered(stack, other, "once")


async def test_it_is_allowed_once_or_denied(stack: Stack) -> None:
    await ask(stack)
    (request,) = await stack.fleet.asks.waiting()
    for verdict in ("conversation", "words"):
        told = await operate(stack, "asks.answer", id=request.id, verdict=verdict, reason="x")
        assert "answer with `/allow" in told["detail"]

    assert len(await stack.fleet.asks.waiting()) == 1


async def test_it_outlives_its_turn_and_its_conversation(stack: Stack) -> None:
    turn = await begin_turn(stack, HANDLERS)
    await turn.call("gateway_config_patch", patches=CHANGE)
    (request,) = await stack.fleet.asks.waiting()
    await turn.lease.reset(turn.id, "new", keep_ms=0, keep=1)
    await turn.finish()
    await stack.fleet.sessions.stop(request.session.sid)
    await stack.fleet.asks.let_lapse()

    assert "are changed" in await answered(stack, request, "once")


@pytest.mark.parametrize(
    ("number", "reply_to", "state"), [("2", "", "denied"), ("1", "77", "used")]
)
async def test_a_number_answers_it(stack: Stack, number: str, reply_to: str, state: str) -> None:
    """In a reply to the message that shows it also after the agent has written more."""
    turn = await begin_turn(stack, HANDLERS)
    await turn.call("gateway_config_patch", patches=CHANGE)
    (request,) = await stack.fleet.asks.waiting()
    client = stack.fleet.scripts.client
    await client.hset(keys.ask(request.id), "shown", "77")
    if reply_to:
        await client.hset(keys.state(request.session.sid), "said_ms", request.asked_ms + 1)
    asked = Asked(
        id="2",
        rest="",
        session=request.session,
        sender="alice",
        is_owner=True,
        reply_to=reply_to,
        fleet=stack.fleet,
        config=load_config(stack.home.config_file, {}),
        home=stack.home,
    )

    assert await in_passing(number, asked) == Answer("")
    assert (await stack.fleet.asks.named(request.id)).state == state


async def test_asked_again_it_waits_once(stack: Stack) -> None:
    turn = await begin_turn(stack, HANDLERS)
    first = await turn.call("gateway_config_patch", "one", patches=CHANGE)
    again = await turn.call("gateway_config_patch", "one", patches=CHANGE)

    assert first == again
    assert len(await stack.fleet.asks.waiting()) == 1


async def test_there_is_a_limit_to_what_waits(stack: Stack) -> None:
    turn = await begin_turn(stack, HANDLERS)
    for _ in range(MAX_OF_SESSION):
        await turn.call("gateway_config_patch", patches=CHANGE)

    with pytest.raises(CallRefused, match="too many requests wait for an answer already"):
        await turn.call("gateway_config_patch", patches=CHANGE)


async def test_after_its_time_it_is_not_there(stack: Stack) -> None:
    await ask(stack)
    (request,) = await stack.fleet.asks.waiting()
    client = stack.fleet.scripts.client
    await client.hset(keys.ask(request.id), "until_ms", 1)
    assert await answered(stack, request, "once") == ENDED["expired"]

    await ask(stack, channel_id="chat-2")
    (other,) = await stack.fleet.asks.waiting()
    await client.zadd(keys.ASKS, {other.id: 1})
    await stack.fleet.asks.let_lapse()

    assert [text async for text in shown(stack)][-1].endswith("Nobody answered in time.")
    assert await stack.fleet.asks.waiting() == []
    assert mode(stack) == "collect"


async def test_what_somebody_put_there_gives_no_more_than_an_agent_has(
    stack: Stack, configured: str
) -> None:
    for patch, refusal in (
        ({"redis": {"url": "redis://evil"}}, "agents may not change redis"),
        ({"queue": {"mode": "interrupt"}}, "has changed since"),
    ):
        await ask(stack, channel_id=refusal)
        (request,) = await stack.fleet.asks.waiting()
        assert request.change is not None
        sly = replace(request, change=replace(request.change, patch=patch))
        client = stack.fleet.scripts.client
        await client.hset(keys.ask(request.id), "request", sly.encode())
        assert refusal in await decide(stack, request.id)

    assert stack.home.config_file.read_text() == configured


async def test_another_host_makes_its_own_change(stack: Stack, directory: Path) -> None:
    await ask(stack)
    (request,) = await stack.fleet.asks.waiting()
    elsewhere = Home(directory / "elsewhere").create()
    (elsewhere.path / "config.toml").write_text(TEXT)
    other = gateway(stack.fleet, elsewhere, HANDLERS)
    told, _ = await other.call(operator(), "asks.answer", {"id": request.id, "verdict": "once"})
    await carry_out_changes(stack.fleet, elsewhere)
    assert told.model_dump()["detail"].endswith(
        f"{stack.home.host_id} makes the change in a moment."
    )
    assert mode(stack) == "collect"
    await carry_out_changes(stack.fleet, stack.home)

    assert mode(stack) == "steer"


async def test_where_no_chat_is_asked_an_operator_is(stack: Stack) -> None:
    text = stack.home.config_file.read_text()
    stack.home.config_file.write_text(f"{text}[approvals]\nwho = []\n")
    told = await ask(stack)

    assert f"`remoteclaw asks answer {told['approvalId']} once`" in told["detail"]
    assert [text async for text in shown(stack)] == []
    await decide(stack, told["approvalId"])
    assert mode(stack) == "steer"


def test_what_is_shown_has_no_secret_and_hides_nothing(stack: Stack) -> None:
    """A text may be one that is read from right to left, or in which nothing is to be seen."""
    stack.home.config_file.write_text("[agents.main.env]\nKEY = 'canary'\n")
    file = ConfigFile(stack.home.config_file)
    sly = {"env": {"KEY": "other"}, "workspace": "/a\u202e\u2066\u200b\x1b[2J"}
    plan = file.patched(file.read(), {"agents": {"main": sly}})

    assert plan.diff.split("\n") == [
        '-agents.main.env.KEY = "***"',
        '+agents.main.env.KEY = "***"',
        r'+agents.main.workspace = "/a\u202e\u2066\u200b\u001b[2J"',
    ]


async def test_an_operator_s_own_change_waits_for_nobody(stack: Stack) -> None:
    assert (await operate(stack, "config.patch", patches=CHANGE))["status"] == "applied"


async def test_an_agent_has_no_way_to_approve(stack: Stack) -> None:
    turn = await begin_turn(stack, HANDLERS)
    told = await turn.call("gateway_config_patch", patches=CHANGE)
    with pytest.raises(CallRefused, match="is for operators"):
        await turn.call("asks.answer", id=told["approvalId"], verdict="once")
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
def test_the_narrowest_table_decides(
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


def test_what_can_t_wait_is_refused(stack: Stack) -> None:
    stack.home.config_file.write_text("[tools]\napprove = ['message_send']\n")

    with pytest.raises(ConfigError, match=r"tools\.approve has 'message_send', which can't wait"):
        load_config(stack.home.config_file, {})
