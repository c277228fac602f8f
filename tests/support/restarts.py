"""Restarts of a gateway's process, and obstacles to them."""

from pathlib import Path
from typing import Any, Literal

from tests.support.doors import Door, own_token
from tests.support.stack import Stack


def starts(stack: Stack) -> int:
    return (stack.home.logs / "gateway.log").read_text().count("The gateway is at ")


async def restart(stack: Stack, door: Door) -> dict[str, Any]:
    """Request a restart, and return the gateway's answer."""
    answer = await door.invoke(own_token(stack), "gateway_restart")
    assert answer.status == 200, answer.body
    return dict(answer.json["result"])


BROKEN = "[agents.main]\nenv = 'canary'\n"


def take_away(file: Path, how: Literal["empty", "gone", "broken"]) -> None:
    """Leave a file as an editor does while it saves, or as a user does by mistake."""
    if how == "gone":
        file.unlink()
    else:
        file.write_text("" if how == "empty" else BROKEN)
