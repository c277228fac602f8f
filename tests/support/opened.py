"""An open terminal, used by a client of its gateway."""

from typing import Any

from tests.support.doors import Refused, RpcClient
from tests.support.waiting import eventually


async def becomes(client: RpcClient, sid: str, activity: str) -> dict[str, Any]:
    """Wait until the program reports `activity`; return the terminal's record."""

    async def told() -> dict[str, Any] | None:
        terminal: dict[str, Any] = await client.call("terminals.get", {"sid": sid})
        return terminal if terminal["activity"] == activity else None

    try:
        found: dict[str, Any] = await eventually(told)
    except AssertionError:
        screen = await client.call("terminals.screen", {"sid": sid})
        raise AssertionError(f"not {activity}:\n{screen['text']}") from None
    return found


async def shows(client: RpcClient, sid: str, text: str) -> None:
    """Wait until the screen shows a text."""

    async def is_shown() -> bool:
        try:
            screen = await client.call("terminals.screen", {"sid": sid})
        except Refused:  # the terminal is still starting
            return False
        return text in screen["text"]

    await eventually(is_shown)


async def submit(client: RpcClient, sid: str, text: str) -> None:
    """Submit a text as soon as the program is idle: it may be busy at its start."""

    async def is_submitted() -> bool:
        try:
            await client.call("terminals.type", {"sid": sid, "keys": [f"p:{text}"], "submit": True})
        except Refused as refused:
            if refused.code == "TIMEOUT":  # the text is in the composer, so only Enter is missing
                await client.call("terminals.type", {"sid": sid, "keys": ["k:enter"]})
                return True
            if "nothing was typed" not in str(refused):
                raise
            return False
        return True

    await eventually(is_submitted)
