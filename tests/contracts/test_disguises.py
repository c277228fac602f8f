"""Messages to an agent's own program in a terminal are text, whatever they look like.

None of them runs, clears or ends anything, or makes the program read a file.
"""

import asyncio
import base64
import uuid
from pathlib import Path

import pytest

from remoteclaw.messages import SessionKey
from remoteclaw.runtimes import CLIS
from tests.conftest import required
from tests.support.agents import ModelServerProcess
from tests.support.disguises import disguises, harmless
from tests.support.doors import Refused, gateway_process, own_token
from tests.support.opened import becomes, shows, submit
from tests.support.pictures import png
from tests.support.prefixes import asked, word
from tests.support.stack import Stack
from tests.support.terminals import used_before
from tests.support.tty import AGAIN_S


@pytest.mark.thorough
@pytest.mark.parametrize("name", CLIS)
async def test_no_text_sent_to_a_terminal_becomes_a_command(
    swept: Stack, model_server: ModelServerProcess, directory: Path, name: str
) -> None:
    """As input, as the first prompt, pasted with Enter, and from the chat."""
    stack, cli, workspace = swept, required(name, model_server), directory / "workspace"
    secret, picture = word("secret"), png(7, 11)
    (directory / "secrets.txt").write_text(secret)
    for kind in ("png", "PNG", "jpeg", "webp"):
        (directory / f"secrets.{kind}").write_bytes(picture)
    (directory / "secrets.svg").write_text(f"<svg><!-- {secret} --></svg>")
    workspace.mkdir()
    env = used_before(cli, directory / "home", workspace)
    settings = cli.config(workspace=str(workspace), env=env)
    stack.configure(settings, terminals={"handover_s": 1})
    await stack.start_worker()
    first = word("first")

    def is_untouched() -> bool:
        """Whether no command has run, and no file was read."""
        read = (secret, base64.b64encode(picture).decode()[:60])
        bodies = model_server.bodies()
        return not (workspace / "x").exists() and all(each not in bodies for each in read)

    def is_whole(marker: str) -> bool:
        """Whether the model's request has the whole conversation, and nothing else happened."""
        return is_untouched() and first in str(asked(model_server, marker))

    async with gateway_process(stack) as (door, _), door.connected(own_token(stack)) as client:
        for text in disguises(directory):
            with pytest.raises(Refused, match="REFUSED: "):
                await client.call("terminals.open", {"agent": "main", "prompt": text})
        prompt = f"{first}\n!touch x\n/clear"
        opened = await client.call("terminals.open", {"agent": "main", "prompt": prompt})
        about = {"sid": opened["terminal"]["sid"]}
        if name == "codex":  # codex asks whether it may work there
            await shows(client, about["sid"], "Open restricted")
            await client.call("terminals.type", {**about, "keys": ["k:enter"]})
        await becomes(client, about["sid"], "idle")

        for text in disguises(directory):
            with pytest.raises(Refused, match="REFUSED: "):
                await client.call(
                    "terminals.type", {**about, "keys": [f"p:{text}"], "submit": True}
                )
        for text in harmless(directory):
            marker = word("said")
            await submit(client, about["sid"], f"{text}\n{marker}")
            await becomes(client, about["sid"], "idle")
            assert is_whole(marker), text

        with pytest.raises(Refused, match="has invisible characters"):
            await client.call("terminals.type", {**about, "keys": ["p:\u200b!touch x"]})
        marker = word("said")
        pasted = f"{marker}\x1b[201~\r!touch x"
        await client.call("terminals.type", {**about, "keys": [f"p:{pasted}"]})
        await shows(client, about["sid"], marker)
        while marker not in model_server.bodies():  # an early Enter becomes part of the paste
            await client.call("terminals.type", {**about, "keys": ["k:enter"]})
            await asyncio.sleep(AGAIN_S)
        await becomes(client, about["sid"], "idle")
        assert is_whole(marker)

        session = SessionKey.parse(opened["terminal"]["sessionKey"])
        marker = word("said")
        own = ("/clear", "  /clear")  # which are commands of the chat
        for text in (*(text for text in disguises(directory) if text not in own), marker):
            message = session.message(
                id=uuid.uuid4().hex, text=text, timestamp=1, chat_kind="direct", is_addressed=True
            )
            accepted = await stack.fleet.inbound.append(message, agent="main", deliver="channel")
            assert (await stack.outcome(accepted)).status == "done", text
            assert is_untouched(), text
        assert is_whole(marker)
