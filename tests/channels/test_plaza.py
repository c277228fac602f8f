"""The example's adapter of a platform that pushes: what its process can't show."""

import importlib
from pathlib import Path

import pytest

from tests.support.channel import PACKAGES
from tests.support.platform import Platform
from tests.support.plaza import BOT_TOKEN, FEED_TOKEN, PlazaServer


class State(dict[str, bytes]):
    """The state of an account, in this process."""

    async def read(self, name: str) -> bytes | None:
        return self.get(name)

    async def write(self, name: str, value: bytes | None, *, is_secret: bool = False) -> None:
        assert value
        self[name] = value


async def test_a_poll_returns_again_what_could_not_be_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process had lost its claim, and got it back before another one read the session."""
    monkeypatch.syspath_prepend(str(PACKAGES[1]))
    channel = importlib.import_module("remoteclaw_plaza.channel")

    platform = Platform(tmp_path)
    async with PlazaServer(tmp_path).serving() as url:
        account = channel.PlazaAccount(url=url, token=BOT_TOKEN, feed_token=FEED_TOKEN)
        plaza = channel.Plaza(account)
        await plaza.use_state(State())
        first = await plaza.poll({})
        assert first.acknowledge
        await first.acknowledge()
        platform.say("ada", "ada", "hello")
        lost, again = await plaza.poll(first.cursors), await plaza.poll(first.cursors)
        await plaza.aclose()

    assert [each.text for each in lost.incoming] == ["hello"]
    assert again.incoming == lost.incoming
