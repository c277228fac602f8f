"""What people send to an agent's own program in a terminal is text, however it looks.

Nothing of it runs, clears or ends something, or has a file read.
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
async def test_no_text_becomes_a_command(
    swept: Stack, model_server: ModelServerProcess, directory: Path, name: str
) -> None:
    """By input, as the first message, pasted with Enter, and from the chat."""
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
        """Whether nothing has run, and nothing was read."""
        read = (secret, base64.b64encode(picture).decode()[:60])
        bodies = model_server.bodies()
        return not (workspace / "x").exists() and all(each not in bodies for each in read)

    def is_whole(said: str) -> bool:
        """Whether the model was asked with all that was said before, and nothing else was done."""
        return is_untouched() and first in str(asked(model_server, said))

    async with gateway_process(stack) as (door, _), door.connected(own_token(stack)) as client:
        for text in disguises(directory):
            with pytest.raises(Refused, match="REFUSED: "):
                await client.call("terminals.open", {"agent": "main", "prompt": text})
        prompt = f"{first}\n!touch x\n/clear"
        opened = await client.call("terminals.open", {"agent": "main", "prompt": prompt})
        about = {"sid": opened["terminal"]["sid"]}
        if name == "codex":  # it asks whether it may work there
            await shows(client, about["sid"], "Open restricted")
            await client.call("terminals.key", {**about, "key": "enter"})
        await becomes(client, about["sid"], "idle")

        for text in disguises(directory):
            with pytest.raises(Refused, match="REFUSED: "):
                await client.call("terminals.input", {**about, "text": text})
        for text in harmless(directory):
            said = word("said")
            await submit(client, about["sid"], f"{text}\n{said}")
            await becomes(client, about["sid"], "idle")
            assert is_whole(said), text

        with pytest.raises(Refused, match="signs that can't be seen"):
            await client.call("terminals.paste", {**about, "text": "\u200b!touch x"})
        said = word("said")
        pasted = f"{said}\x1b[201~\r!touch x"
        await client.call("terminals.paste", {**about, "text": pasted})
        await shows(client, about["sid"], said)
        while said not in model_server.bodies():  # an Enter that comes early is a part of a paste
            await client.call("terminals.key", {**about, "key": "enter"})
            await asyncio.sleep(AGAIN_S)
        await becomes(client, about["sid"], "idle")
        assert is_whole(said)

        session = SessionKey.parse(opened["terminal"]["sessionKey"])
        said = word("said")
        own = ("/clear", "  /clear")  # which are commands of the chat
        for text in (*(text for text in disguises(directory) if text not in own), said):
            message = session.message(
                id=uuid.uuid4().hex, text=text, timestamp=1, chat_kind="direct", is_addressed=True
            )
            accepted = await stack.fleet.inbound.append(message, agent="main", deliver="channel")
            assert (await stack.outcome(accepted)).status == "done", text
            assert is_untouched(), text
        assert is_whole(said)
