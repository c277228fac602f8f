"""Restarts of a gateway's process, and what is in their way."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Literal

import pytest

from remoteclaw.config.edit import ConfigFile
from tests.support.doors import Door, own_token
from tests.support.stack import Stack


def starts(stack: Stack) -> int:
    return (stack.home.logs / "gateway.log").read_text().count("The gateway is at ")


async def restart(stack: Stack, door: Door) -> dict[str, Any]:
    """Ask for a restart; return what the gateway answers."""
    answer = await door.invoke(own_token(stack), "gateway_restart")
    assert answer.status == 200, answer.body
    return dict(answer.json["result"])


def take_away(file: Path, how: Literal["empty", "gone"]) -> None:
    if how == "empty":
        file.write_text("")
    else:
        file.unlink()


def change_before_the_lock(stack: Stack, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """Have another writer change the file while a call waits until it may change it."""
    real = ConfigFile.locked

    @contextlib.asynccontextmanager
    async def locked(self: ConfigFile) -> AsyncIterator[None]:
        stack.home.config_file.write_text(text)
        async with real(self):
            yield

    monkeypatch.setattr(ConfigFile, "locked", locked)
