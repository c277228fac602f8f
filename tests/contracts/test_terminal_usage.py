"""The usage of the CLIs' own programs in terminals, request by request."""

from pathlib import Path

import pytest

from remoteclaw.fleet.sessions.usage import Usage
from remoteclaw.messages import SessionKey
from tests.conftest import required
from tests.support.agents import ModelServerProcess
from tests.support.doors import gateway_process, own_token
from tests.support.model_server.charge import Charge
from tests.support.opened import becomes, shows, submit
from tests.support.stack import Stack
from tests.support.terminals import used_before
from tests.support.waiting import eventually

#: The beginning of a request for the title of a conversation, which is in no transcript.
TITLES = {"claude": "Write the title in the language the user wrote in"}
NOWHERE = "this is in no request"


@pytest.mark.thorough("claude", "gemini", "opencode")
@pytest.mark.parametrize("name", ["claude", "codex", "gemini", "opencode"])
async def test_a_terminal_counts_what_its_program_asks_the_model(
    swept: Stack, model_server: ModelServerProcess, directory: Path, name: str
) -> None:
    """While it is open, after its gateway is killed, and at its end: each request once."""
    stack, cli, workspace = swept, required(name, model_server), directory / "workspace"
    workspace.mkdir()
    env = used_before(cli, directory / "home", workspace)
    settings = cli.config(workspace=str(workspace), env=env, permissions="auto")
    stack.configure(settings, terminals={"handover_s": 1})
    await stack.start_worker()
    token = own_token(stack)

    async def is_counted() -> bool:
        titles = cli.model.bodies().count(TITLES.get(name, NOWHERE))
        charged = cli.model.charged() - before - Charge.fixed(titles)
        used = (await stack.fleet.usage.agents()).get("main", Usage())
        tokens = (used.read_tokens, used.output_tokens)
        return charged.requests > 0 and tokens == (charged.read, charged.output)

    before = cli.model.charged()
    async with gateway_process(stack) as (door, process):
        async with door.connected(token) as client:
            opened = await client.call("terminals.open", {"agent": "main", "cols": 100})
            about = {"sid": opened["terminal"]["sid"]}
            if name == "codex":  # codex asks whether it may work there
                await shows(client, about["sid"], "Open restricted")
                await client.call("terminals.type", {**about, "keys": ["k:enter"]})
            await becomes(client, about["sid"], "idle")
            await submit(client, about["sid"], "SAY:first")
            await shows(client, about["sid"], "first")
            await becomes(client, about["sid"], "idle")
            await eventually(is_counted)
        process.kill()
    async with gateway_process(stack) as (door, _), door.connected(token) as client:
        await becomes(client, about["sid"], "idle")
        await submit(client, about["sid"], "SAY:second")
        await shows(client, about["sid"], "second")
        await becomes(client, about["sid"], "idle")
        await eventually(is_counted)

        session = SessionKey.parse(opened["terminal"]["sessionKey"])
        message = session.message(id="chat", text="SAY:third", timestamp=1, is_addressed=True)
        accepted = await stack.fleet.inbound.append(message, agent="main", deliver="channel")
        await stack.outcome(accepted)
        await eventually(is_counted)
