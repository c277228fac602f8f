"""What tools send to somebody at a terminal."""

import asyncio
import os
from pathlib import Path
from typing import Any

from remoteclaw.config.home import Home
from remoteclaw.config.model import Config
from remoteclaw.fleet import Fleet
from remoteclaw.gateway.methods.chats import HANDLERS
from tests.support.agents import ROOT
from tests.support.command import REMOTECLAW
from tests.support.terminal import Terminal
from tests.support.turns import ask, gateway, operator
from tests.support.waiting import eventually


def env(home: Home) -> dict[str, str]:
    return {
        "HOME": os.environ["HOME"],
        "PATH": f"{Path(REMOTECLAW).parent}:/usr/bin:/bin",
        "PYTHONPATH": str(ROOT),
        "REMOTECLAW_HOME": str(home.path),
        "REMOTECLAW__FLEET__WORKERS": "1",
        "REMOTECLAW__AGENTS__MAIN__RUNTIME": "demo",
        "REMOTECLAW__GATEWAY__PORT": "0",
    }


async def send(home: Home, target: str, message: str, **params: Any) -> dict[str, Any]:
    """Send something as an operator does."""
    fleet = Fleet.open(home.redis_url(Config()))
    door = gateway(fleet, home, HANDLERS)

    async def is_there() -> bool:
        return bool((await fleet.replies.readers()).accounts("console"))

    await eventually(is_there)  # its prompt is there a moment earlier
    name = "message.sendWithEffect" if params else "message.send"
    sent, _ = await ask(door, operator(), name, target=target, message=message, **params)
    await fleet.aclose()
    return sent


def test_a_tool_s_message_stands_beside_the_answer_that_is_being_written(home: Home) -> None:
    with Terminal.running(REMOTECLAW, "up", env=env(home)) as terminal:
        terminal.see("›")
        terminal.type("slow\r")
        terminal.see("\n1 2 3 4")

        sent = asyncio.run(send(home, "console:console", "Beside it.\n\x1b[31mred"))
        elsewhere = asyncio.run(send(home, "console:elsewhere", "hidden"))
        terminal.see_match(r"^Beside it\.\n\\u001b\[31mred\n(.*\n)*1 2 3 4")
        shown = terminal.see("\n1 2 3 4 5 6 7 8")

        assert sent["status"] == "delivered"
        assert elsewhere["status"] == "failed"
        assert elsewhere["error"] == "A console is one chat, called console."
        assert "hidden" not in shown

        sent = asyncio.run(send(home, "console:console", "No effects.", effectId="confetti"))

        terminal.see("\nNo effects.")
        assert (sent["status"], "without the effect" in sent["error"]) == ("delivered", True)
