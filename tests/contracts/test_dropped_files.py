"""A picture that a person drops into an agent's own program is read by the model."""

import asyncio
import base64
from pathlib import Path
from typing import Any

import pytest

from remoteclaw.gateway.terminals.dropped_files import typed_path
from remoteclaw.messages import SessionKey
from remoteclaw.runtimes import CLIS
from tests.conftest import required
from tests.support.agents import ModelServerProcess
from tests.support.doors import gateway_process, own_token
from tests.support.opened import becomes, shows
from tests.support.pictures import png
from tests.support.prefixes import word
from tests.support.stack import Stack
from tests.support.terminals import used_before
from tests.support.tty import AGAIN_S
from tests.support.waiting import eventually


@pytest.mark.parametrize(
    "name",
    [name if name == "claude" else pytest.param(name, marks=pytest.mark.thorough) for name in CLIS],
)
async def test_a_dropped_picture_is_read_by_the_model(
    swept: Stack, model_server: ModelServerProcess, directory: Path, name: str
) -> None:
    stack, cli, workspace = swept, required(name, model_server), directory / "workspace"
    picture, second = png(7, 11), png(5, 3)
    workspace.mkdir()
    env = used_before(cli, directory / "home", workspace)
    stack.configure(cli.config(workspace=str(workspace), env=env))
    await stack.start_worker()
    async with gateway_process(stack) as (door, _), door.connected(own_token(stack)) as client:
        opened = await client.call("terminals.open", {"agent": "main"})
        about = {"sid": opened["terminal"]["sid"]}
        if name == "codex":  # codex asks whether it may work there
            await shows(client, about["sid"], "Open restricted")
            await client.call("terminals.type", {**about, "keys": ["k:enter"]})
        await becomes(client, about["sid"], "idle")
        session = SessionKey.parse(opened["terminal"]["sessionKey"])
        query = f"session={str(session).replace('/', '%2F')}&name=my%20shot.png"
        file: Any = (await door.post(f"/files?{query}", own_token(stack), picture)).json
        await client.call("terminals.take", about)
        await client.call("terminals.drop", {**about, "files": [file]})
        # The state directory's own name may have a blank.
        (place := directory / "my pictures").mkdir()
        (place / "second.png").write_bytes(second)
        typed = [f"p:{typed_path(place / 'second.png')}", "t: "]
        await client.call("terminals.type", {**about, "keys": typed})
        marker = word("said")
        await client.call("terminals.type", {**about, "keys": [f"t:{marker}"]})
        await shows(client, about["sid"], marker)
        while marker not in model_server.bodies():  # an early Enter becomes part of the paste
            await client.call("terminals.type", {**about, "keys": ["k:enter"]})
            await asyncio.sleep(AGAIN_S)
        for each in (picture, second):
            content = base64.b64encode(each).decode()[:60]
            await eventually(lambda: content in model_server.bodies())  # noqa: B023
