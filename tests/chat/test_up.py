"""The chat of `remoteclaw up`: it shows a link to the page and the messages of tools."""

import asyncio
import re
import urllib.request
from typing import Any

import pytest

from remoteclaw.config.home import Home
from remoteclaw.config.model import Config
from remoteclaw.errors import CallRefused
from remoteclaw.fleet import Fleet
from remoteclaw.gateway.methods.messages import HANDLERS
from tests.support.command import REMOTECLAW
from tests.support.pages import OPERATOR, OWN
from tests.support.terminal import Terminal, env
from tests.support.turns import ask, gateway, operator
from tests.support.waiting import eventually

LINK = r"^  page     (http://127\.0\.0\.1:\d+)/#([\w-]{32})$"


async def send(home: Home, target: str, message: str, **params: Any) -> dict[str, Any]:
    """Send a message as an operator."""
    fleet = Fleet.open(home.redis_url(Config()))
    door = gateway(fleet, home, HANDLERS)

    async def has_reader() -> bool:
        return bool((await fleet.replies.readers()).accounts("web"))

    try:
        await eventually(has_reader)  # the prompt appears before the adapter reads
        name = "message.sendWithEffect" if params else "message.send"
        sent, _ = await ask(door, operator(), name, target=target, message=message, **params)
    finally:
        await fleet.aclose()
    return sent


def log_in(url: str, code: str) -> int:
    """Log in as the page does after its link was opened."""
    data, headers = f'{{"code":"{code}"}}'.encode(), {"Origin": url, **OWN}
    request = urllib.request.Request(f"{url}/page/login", data, headers)
    with urllib.request.urlopen(request) as answer:
        return int(answer.status)


def test_the_chat_of_up_shows_a_login_link_and_a_tools_message_during_an_answer(home: Home) -> None:
    """The code of the link is in no log; the message arrives before the answer is complete."""
    with Terminal.running(REMOTECLAW, "up", env=env(home)) as terminal:
        terminal.type("ahead\r")  # before the chat is there
        found = re.search(LINK, terminal.see("›"), re.MULTILINE)
        assert found is not None, terminal.shown()
        assert log_in(*found.groups()) == 200
        terminal.see("You wrote 5 characters")
        terminal.see("\n0 s")
        terminal.type("slow\r")
        terminal.see("\n1 2 3 4")

        sent = asyncio.run(send(home, f"web:{OPERATOR}", "Beside it.\n\x1b[31mred"))
        with pytest.raises(CallRefused, match=r"You can write to web:admin\."):
            asyncio.run(send(home, "web:elsewhere", "hidden"))
        terminal.see_match(r"^Beside it\.\n\\u001b\[31mred\n(.*\n)*1 2 3 4")
        shown = terminal.see("\n1 2 3 4 5 6 7 8")

        assert sent["status"] == "delivered"
        assert "hidden" not in shown

        sent = asyncio.run(send(home, f"web:{OPERATOR}", "No effects.", effectId="confetti"))

        terminal.see("\nNo effects.")
        assert (sent["status"], "without the effect" in sent["error"]) == ("delivered", True)
        assert [path for path in home.logs.iterdir() if found[2] in path.read_text()] == []
