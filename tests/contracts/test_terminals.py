"""Terminals with the agents' own programs, used through the gateway."""

from pathlib import Path

import pytest

from remoteclaw.fleet.web import chat_name
from remoteclaw.host.terminal import login_name
from remoteclaw.messages import SessionKey
from tests.conftest import required
from tests.support.agents import ModelServerProcess
from tests.support.dialogs import ESCALATED
from tests.support.doors import Refused, gateway_process, own_token
from tests.support.opened import becomes, shows, submit
from tests.support.prefixes import asked, word
from tests.support.stack import Stack
from tests.support.terminals import used_before
from tests.support.waiting import eventually
from tests.support.watched import watching


async def notices(stack: Stack, session: SessionKey, request: str) -> list[str]:
    """Return the messages in the person's chat about the terminal, and about its request."""
    events = await stack.fleet.web.before(chat_name(session.user, session.thread))
    texts = [event.about["text"] for event in events if event.kind == "message"]
    return [text for text in texts if text.startswith((request, "A terminal is open"))]


#: For each CLI: a prompt that makes it ask, and a text at the end of its dialog.
REQUESTS = {
    "claude": ("SHELL:touch x", "Esc to cancel"),
    "codex": (ESCALATED, "esc to cancel"),
    "gemini": ("SHELL:touch x", "Allow once"),
    "opencode": ("SHELL:touch x", "Allow once"),
}


#: The request in the chat, if it can be answered without keys (by claude's hook, opencode's port).
BY_CHAT = {"claude": "**main** asks to use Bash", "opencode": "**main** asks to use bash"}


@pytest.mark.thorough("codex", "gemini", "opencode")
@pytest.mark.parametrize("name", REQUESTS)
async def test_a_terminal_is_shared_survives_its_gateway_and_yields_to_the_chat(
    swept: Stack, model_server: ModelServerProcess, directory: Path, name: str
) -> None:
    """Two people watch. Only keys answer a dialog, even after a SIGKILL of the gateway."""
    stack, cli, workspace = swept, required(name, model_server), directory / "workspace"
    prompt, dialog = REQUESTS[name]
    requests = BY_CHAT.get(name, "The agent waits for a person in its terminal")
    workspace.mkdir()
    env = used_before(cli, directory / "home", workspace)
    settings = cli.config(workspace=str(workspace), env=env)
    stack.configure(settings, terminals={"handover_s": 1})
    await stack.start_worker()
    token, made = own_token(stack), workspace / "x"
    plum, recall = word("plum"), word("recall")
    async with gateway_process(stack) as (door, process):
        async with door.connected(token) as client:
            opened = await client.call("terminals.open", {"agent": "main", "cols": 100})
            about = {"sid": opened["terminal"]["sid"]}
            again = await client.call("terminals.open", {"agent": "main"})
            assert (opened["created"], again["created"]) == (True, False)
            if name == "codex":  # codex asks whether it may work there
                await shows(client, about["sid"], "Open restricted")
                await client.call("terminals.type", {**about, "keys": ["k:enter"]})
            await becomes(client, about["sid"], "idle")
        async with (
            watching(door, token, about["sid"]) as ada,
            watching(door, token, about["sid"]) as ben,
        ):
            await submit(ada.client, about["sid"], f"remember {plum}")
            await becomes(ada.client, about["sid"], "idle")
            await ada.until(plum)
            await ben.until(plum)
            await submit(ada.client, about["sid"], prompt)
            await becomes(ada.client, about["sid"], "waiting")
            await shows(ada.client, about["sid"], dialog)
            shown = (await ada.client.call("terminals.screen", about))["text"]
            process.kill()

    async with gateway_process(stack) as (door, _), watching(door, token, about["sid"]) as ada:
        await becomes(ada.client, about["sid"], "waiting")
        await shows(ada.client, about["sid"], shown)
        session = SessionKey.parse(opened["terminal"]["sessionKey"])
        message = session.message(
            id="chat", text=recall, timestamp=1, chat_kind="direct", is_addressed=True
        )
        accepted = await stack.fleet.inbound.append(message, agent="main", deliver="channel")
        with pytest.raises(Refused, match="CONFLICT: The program is not known to be idle"):
            await ada.client.call(
                "terminals.type", {**about, "keys": ["p:no, do not do that"], "submit": True}
            )

        async def have_notices() -> bool:
            return len(await notices(stack, session, requests)) == 2

        await eventually(have_notices)
        again = await ada.client.call("terminals.open", {"agent": "main", "prompt": "no"})
        assert not again["created"]
        with pytest.raises(Refused, match="press its key instead"):
            await ada.client.call("terminals.type", {**about, "keys": ["p:1"]})
        await ada.client.call("terminals.resize", {**about, "cols": 90, "rows": 30})
        await becomes(ada.client, about["sid"], "waiting")
        assert not made.exists(), "only a key or an answer to the request lets the tool run"
        if name in BY_CHAT:
            (request,) = (await ada.client.call("requests.list"))["requests"]
            await ada.client.call("requests.answer", {"id": request["id"], "verdict": "once"})
        else:
            await ada.client.call("terminals.type", {**about, "keys": ["k:enter"]})
        await becomes(ada.client, about["sid"], "idle")
        assert made.exists()
        await ada.client.call("terminals.leave", about)

        await stack.outcome(accepted)
        assert plum in str(asked(model_server, recall)), "gemini's request has it from the notes"
        ended = await ada.client.call("terminals.get", about)
        assert (ended["state"], ended["resumable"]) == ("parked", True)
    first, second, *closing = await notices(stack, session, requests)
    assert first.startswith(requests)
    assert [text.startswith(requests) for text in closing] == [True] * (name in BY_CHAT)
    assert second.startswith(f"A terminal is open ({login_name()}, ")
    assert second.endswith("): your message waits. /take ends it.")
