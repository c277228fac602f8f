"""Changes that wait for approval: nothing is done before it, and then that alone."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
import tomlkit

from remoteclaw.config.load import load_config
from remoteclaw.config.tool_policy import Subject, approval_rule
from remoteclaw.errors import CallRefused, ConfigError
from remoteclaw.fleet import keys
from remoteclaw.fleet.approvals import VALID_MS, Approval
from remoteclaw.fleet.calls import MOST_APPROVALS
from remoteclaw.gateway.approvals import approve, reject
from remoteclaw.gateway.methods.configuration import HANDLERS
from remoteclaw.tools.catalog import TOOLS
from tests.support.stack import Stack
from tests.support.turns import begin_turn, gateway, operator

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


def mode(stack: Stack) -> str:
    return load_config(stack.home.config_file, {}).queue.mode


async def test_nothing_is_changed_before_a_person_says_so(stack: Stack, configured: str) -> None:
    told = await ask(stack)
    (waits,) = (await operate(stack, "config.approvals"))["approvals"]

    assert (told["status"], told["changed"]) == ("needs_approval", ["queue.mode", "queue.cap"])
    assert f"`remoteclaw config approve {told['approvalId']}`" in told["detail"]
    assert 'tools.approve has "gateway_config_*"' in told["detail"]
    assert stack.home.config_file.read_text() == configured
    assert waits["id"] == told["approvalId"]
    assert waits["patch"] == CHANGE
    assert (waits["senders"], waits["host"]) == (["alice"], stack.home.host_id)
    assert waits["expiresMs"] - waits["askedMs"] == VALID_MS


async def test_what_is_approved_is_done_once(stack: Stack) -> None:
    told = await ask(stack)
    done = await operate(stack, "config.approve", id=told["approvalId"])
    text = stack.home.config_file.read_text()
    assert (done["status"], mode(stack)) == ("applied", "steer")
    assert "cap" not in text
    assert text.startswith("# ours\n")
    stack.home.config_file.write_text(TEXT + ASKS)  # by a person, who thinks better of it
    for method in ("config.approve", "config.reject"):
        with pytest.raises(CallRefused, match=r"No change .* waits for approval"):
            await operate(stack, method, id=told["approvalId"])

    assert mode(stack) == "collect"
    assert (await operate(stack, "config.approvals")) == {"approvals": []}


async def test_what_is_rejected_is_never_done(stack: Stack, configured: str) -> None:
    told = await ask(stack)
    await operate(stack, "config.reject", id=told["approvalId"])
    with pytest.raises(CallRefused, match=r"No change .* waits for approval"):
        await operate(stack, "config.approve", id=told["approvalId"])

    assert stack.home.config_file.read_text() == configured
    assert (await operate(stack, "config.approvals")) == {"approvals": []}


@pytest.mark.parametrize("before", ["# ours", "'collect'"])
async def test_a_file_that_has_changed_since_is_left_alone(stack: Stack, before: str) -> None:
    """Also where the change would come to the very same: it was asked for something else."""
    told = await ask(stack)
    by_hand = f"{TEXT}{ASKS}".replace(before, {"# ours": "# mine"}.get(before, "'followup'"))
    stack.home.config_file.write_text(by_hand)
    with pytest.raises(CallRefused, match=r"has changed since .* so it is not done"):
        await operate(stack, "config.approve", id=told["approvalId"])

    assert stack.home.config_file.read_text() == by_hand


async def test_one_that_was_killed_behind_the_writing_has_done_it(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = await ask(stack)

    async def killed(*_: Any) -> None:
        raise asyncio.CancelledError

    with monkeypatch.context() as patched:
        patched.setattr("remoteclaw.fleet.approvals.Approvals.remove", killed)
        with pytest.raises(asyncio.CancelledError):
            await approve(stack.fleet, stack.home, told["approvalId"])
    assert mode(stack) == "steer"
    inode = stack.home.config_file.stat().st_ino
    await approve(stack.fleet, stack.home, told["approvalId"])

    assert stack.home.config_file.stat().st_ino == inode
    assert await stack.fleet.approvals.list() == []


async def test_asked_again_it_waits_once(stack: Stack) -> None:
    turn = await begin_turn(stack, HANDLERS)
    first = await turn.call("gateway_config_patch", "one", patches=CHANGE)
    again = await turn.call("gateway_config_patch", "one", patches=CHANGE)

    assert first == again
    assert len(await stack.fleet.approvals.list()) == 1


async def test_there_is_a_limit_to_what_waits(stack: Stack) -> None:
    await ask(stack)
    (change,) = await stack.fleet.approvals.list()
    for number in range(1, MOST_APPROVALS):
        await store(stack, replace(change, id=f"{number}"))

    with pytest.raises(CallRefused, match="100 changes wait for approval already"):
        await ask(stack, channel_id="chat-2")


async def test_after_its_time_it_is_not_there(stack: Stack) -> None:
    told = await ask(stack)
    (change,) = await stack.fleet.approvals.list()
    over = replace(change, expires_ms=change.asked_ms)
    await store(stack, over)
    for method in ("config.approve", "config.reject"):
        with pytest.raises(CallRefused, match=r"No change .* waits for approval"):
            await operate(stack, method, id=told["approvalId"])
    assert await stack.fleet.approvals.list() == []
    await ask(stack, channel_id="chat-2")

    assert len(await stack.fleet.scripts.client.hkeys(keys.APPROVALS)) == 1


async def store(stack: Stack, change: Approval) -> None:
    client = stack.fleet.scripts.client
    await client.hset(keys.APPROVALS, change.id, change.encode())


async def test_what_somebody_put_there_gives_no_more_than_an_agent_has(
    stack: Stack, configured: str
) -> None:
    await ask(stack)
    (change,) = await stack.fleet.approvals.list()
    await store(stack, replace(change, patch={"redis": {"url": "redis://evil"}}))
    with pytest.raises(CallRefused, match="agents may not change redis"):
        await operate(stack, "config.approve", id=change.id)
    await store(stack, replace(change, patch={"queue": {"mode": "interrupt"}}))
    with pytest.raises(CallRefused, match="has changed since"):
        await operate(stack, "config.approve", id=change.id)
    await stack.fleet.scripts.client.hset(keys.APPROVALS, change.id, b"{}")
    with pytest.raises(CallRefused, match="No change"):
        await operate(stack, "config.approve", id=change.id)

    assert stack.home.config_file.read_text() == configured


async def test_another_host_s_change_is_decided_there(stack: Stack) -> None:
    await ask(stack)
    (change,) = await stack.fleet.approvals.list()
    await store(stack, replace(change, host="elsewhere"))
    for decide in (approve, reject):
        with pytest.raises(CallRefused, match="the file of elsewhere: decide it there"):
            await decide(stack.fleet, stack.home, change.id)


async def test_an_operator_s_own_change_waits_for_nobody(stack: Stack) -> None:
    assert (await operate(stack, "config.patch", patches=CHANGE))["status"] == "applied"


async def test_an_agent_has_no_way_to_approve(stack: Stack) -> None:
    turn = await begin_turn(stack, HANDLERS)
    told = await turn.call("gateway_config_patch", patches=CHANGE)
    for method in ("config.approve", "config.reject", "config.approvals"):
        with pytest.raises(CallRefused, match="is for operators"):
            await turn.call(method, id=told["approvalId"])
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
