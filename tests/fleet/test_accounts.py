"""The claim of an account, and the state that its adapter keeps."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from remoteclaw.config.home import Home
from remoteclaw.errors import ConfigError, LeaseLost, StateTooLarge
from remoteclaw.fleet import Fleet, adapter_state, keys
from remoteclaw.up.embedded import ServerProgram
from tests.support.servers import installed_servers, running_server
from tests.support.stack import Stack
from tests.support.waiting import eventually


async def test_a_leaving_reader_gives_up_only_its_own_claim(fleet: Fleet) -> None:
    first, second = (fleet.replies.reader("test", "default") for _ in range(2))
    await first.wait_for_claim()

    await fleet.accounts.leave(second)
    assert not await second.claim()
    await fleet.accounts.leave(first)

    assert not (await fleet.replies.readers()).is_read("test", "default")
    assert await second.claim()


async def test_the_state_of_an_adapter_is_written_by_the_reader_alone_and_secrets_are_encrypted(
    fleet: Fleet, tmp_path: Path
) -> None:
    client: Any = fleet.scripts.client
    home, other = Home(tmp_path / "one").create(), Home(tmp_path / "two").create()
    first = fleet.replies.reader("test", "default")
    await first.wait_for_claim()
    state = fleet.accounts.state(first, home.adapter_state_key)
    await state.write("session", b"abc")
    await state.write("key", b"secret \xff words", is_secret=True)
    stored = b"".join(await client.hvals(keys.adapter_state("test", "default")))
    assert b"abc" in stored
    assert b"secret" not in stored
    with pytest.raises(StateTooLarge, match="'session' has 1 MB, and 256 KB are allowed"):
        await state.write("session", b"x" * 2**20)

    await client.delete(keys.reader("test", "default"))  # it has expired
    second = fleet.replies.reader("test", "default")
    await second.wait_for_claim()
    with pytest.raises(LeaseLost):
        await state.write("session", b"old")
    state = fleet.accounts.state(second, home.adapter_state_key)
    assert await state.read("session") == b"abc"
    assert await state.read("key") == b"secret \xff words"
    await state.write("session", None)
    assert await state.read("session") is None

    elsewhere = fleet.accounts.state(second, other.adapter_state_key)
    with pytest.raises(ConfigError, match="copy adapter-state-key from the state directory"):
        await elsewhere.read("key")


@pytest.mark.parametrize("program", installed_servers(), ids=lambda program: program.name)
async def test_the_state_of_an_adapter_waits_for_the_disk(
    program: ServerProgram, directory: Path
) -> None:
    """A server that writes to its disk now and then keeps the caller waiting until it has."""
    with running_server(program, directory, "--appendfsync", "no") as server:
        fleet = Fleet.open(server.url)
        client: Any = fleet.scripts.client
        reader = fleet.replies.reader("test", "default")
        await reader.wait_for_claim()
        state = fleet.accounts.state(reader, directory / "unused")
        await state.write("session", b"abc")
        settling = asyncio.create_task(state.settle())

        async def waits() -> bool:
            return "waitaof" in [each["cmd"] for each in await client.client_list()]

        version = (await client.info("server"))["redis_version"].split(".")
        if [*map(int, version[:2])] >= [7, 2]:
            await eventually(waits)
            await client.config_set("appendfsync", "everysec")
        await settling
        await fleet.aclose()


async def test_the_state_of_an_adapter_has_a_limit_but_also_fits_into_a_full_redis(
    stack: Stack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet, client = stack.fleet, stack.fleet.scripts.client
    monkeypatch.setattr(adapter_state, "MAX_BYTES", 300_000)
    reader = fleet.replies.reader("test", "default")
    await reader.wait_for_claim()
    state = fleet.accounts.state(reader, tmp_path / "unused")
    used = (await client.info("memory"))["used_memory"]
    await client.config_set("maxmemory", int((used + 2**20) / 0.9))
    try:
        await state.write("one", b"x" * 200_000)
        with pytest.raises(StateTooLarge):
            await state.write("two", b"x" * 200_000)
        await state.write("one", b"y" * 200_000)
    finally:
        await client.config_set("maxmemory", 0)
