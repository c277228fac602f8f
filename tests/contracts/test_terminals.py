"""Terminals with the agents' own programs, over the gateway."""

from pathlib import Path
from typing import Any

import orjson
import pytest

from remoteclaw.fleet import keys
from remoteclaw.messages import SessionKey
from tests.conftest import required
from tests.support.agents import ModelServerProcess
from tests.support.dialogs import ESCALATED
from tests.support.doors import Refused, RpcClient, gateway_process, own_token
from tests.support.stack import Stack, said
from tests.support.terminals import used_before
from tests.support.waiting import eventually
from tests.support.watched import watching


async def becomes(client: RpcClient, sid: str, activity: str) -> dict[str, Any]:
    """Wait until the program says that it is at something."""

    async def told() -> dict[str, Any] | None:
        terminal: dict[str, Any] = await client.call("terminals.get", {"sid": sid})
        return terminal if terminal["activity"] == activity else None

    found: dict[str, Any] = await eventually(told)
    return found


async def shows(client: RpcClient, sid: str, text: str) -> None:
    """Wait until it has a text on its screen."""

    async def is_shown() -> bool:
        try:
            screen = await client.call("terminals.screen", {"sid": sid})
        except Refused:  # it is being started
            return False
        return text in screen["text"]

    await eventually(is_shown)


async def submit(client: RpcClient, sid: str, text: str) -> None:
    """Give it a text as soon as it is idle: it may be busy with itself at its start."""

    async def is_submitted() -> bool:
        try:
            await client.call("terminals.input", {"sid": sid, "text": text})
        except Refused as refused:
            if "nothing was typed" not in str(refused):
                raise
            return False
        return True

    await eventually(is_submitted)


async def notices(stack: Stack, session: SessionKey) -> list[str]:
    """Return what the session's chat was told beside answers."""
    stream = keys.reply_stream(session.provider, session.account)
    found: Any = await stack.fleet.scripts.client.xrange(stream)
    replies = [orjson.loads(fields[b"reply"]) for _, fields in found]
    return [reply["text"] for reply in replies if reply["call"]]


#: What has each ask, and what its dialog has when that is there as a whole.
ASKS = {
    "claude": ("SHELL:touch x", "Esc to cancel"),
    "codex": (ESCALATED, "esc to cancel"),
}


@pytest.mark.parametrize("name", ASKS)
async def test_a_terminal_is_shared_survives_its_gateway_and_gives_way_to_the_chat(
    swept: Stack, model_server: ModelServerProcess, directory: Path, name: str
) -> None:
    """Two watch; only keys answer a dialog, also after a SIGKILL of the gateway; then the chat."""
    stack, cli, workspace = swept, required(name, model_server), directory / "workspace"
    asking, dialog = ASKS[name]
    workspace.mkdir()
    env = used_before(cli, directory / "home", workspace)
    settings = cli.config(workspace=str(workspace), env=env)
    stack.configure(settings, terminals={"handover_s": 1})
    await stack.start_worker()
    token, made = own_token(stack), workspace / "x"
    async with gateway_process(stack) as (door, process):
        async with door.connected(token) as client:
            opened = await client.call("terminals.open", {"agent": "main", "cols": 100})
            about = {"sid": opened["terminal"]["sid"]}
            again = await client.call("terminals.open", {"agent": "main"})
            assert (opened["created"], again["created"]) == (True, False)
            if name == "codex":  # it asks whether it may work there
                await shows(client, about["sid"], "Open restricted")
                await client.call("terminals.key", {**about, "key": "enter"})
            await becomes(client, about["sid"], "idle")
        async with (
            watching(door, token, about["sid"]) as ada,
            watching(door, token, about["sid"]) as ben,
        ):
            await submit(ada.client, about["sid"], "remember plum-1")
            await becomes(ada.client, about["sid"], "idle")
            await ada.until("plum-1")
            await ben.until("plum-1")
            await submit(ada.client, about["sid"], asking)
            await becomes(ada.client, about["sid"], "waiting")
            await shows(ada.client, about["sid"], dialog)
            shown = (await ada.client.call("terminals.screen", about))["text"]
            process.kill()

    async with gateway_process(stack) as (door, _), watching(door, token, about["sid"]) as ada:
        await becomes(ada.client, about["sid"], "waiting")
        await shows(ada.client, about["sid"], shown)
        session = SessionKey.parse(opened["terminal"]["sessionKey"])
        message = session.message(
            id="chat", text="RECALL", timestamp=1, chat_kind="direct", is_addressed=True
        )
        accepted = await stack.fleet.inbound.append(message, agent="main", deliver="channel")
        with pytest.raises(Refused, match="CONFLICT: The program is not idle"):
            await ada.client.call("terminals.input", {**about, "text": "no, do not do that"})

        async def are_told() -> bool:
            return len(await notices(stack, session)) == 2

        await eventually(are_told)
        assert not made.exists(), "nothing but keys lets the tool run"
        await ada.client.call("terminals.key", {**about, "key": "enter"})
        await becomes(ada.client, about["sid"], "idle")
        assert made.exists()
        await ada.client.call("terminals.leave", about)

        outcome = await stack.outcome(accepted)
        assert "plum-1" in said(outcome)
        told = await ada.client.call("terminals.get", about)
        assert (told["state"], told["resumable"]) == ("parked", True)
    texts = await notices(stack, session)
    assert len(texts) == 2, texts
    first, second = texts
    assert first.startswith("The agent waits for a person in its terminal")
    assert second == (
        "A terminal is open (the operator, waiting for a person): your message waits. "
        "/take ends it."
    )
