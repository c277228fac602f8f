"""Restarts of a gateway's process, and what is in their way."""

from pathlib import Path
from typing import Any, Literal

from tests.support.doors import Door, own_token
from tests.support.stack import Stack


def starts(stack: Stack) -> int:
    return (stack.home.logs / "gateway.log").read_text().count("The gateway is at ")


async def restart(stack: Stack, door: Door) -> dict[str, Any]:
    """Ask for a restart; return what the gateway answers."""
    answer = await door.invoke(own_token(stack), "gateway_restart")
    assert answer.status == 200, answer.body
    return dict(answer.json["result"])


BROKEN = "[agents.main]\nenv = 'canary'\n"


def take_away(file: Path, how: Literal["empty", "gone", "broken"]) -> None:
    """Leave a file as an editor leaves it for a moment, or a person with a mistake."""
    if how == "gone":
        file.unlink()
    else:
        file.write_text("" if how == "empty" else BROKEN)
