"""What an adapter keeps while its account is added, and the take-over of it into Redis."""

from typing import Any

import pytest

from remoteclaw.config.home import Home
from remoteclaw.errors import LeaseLost
from remoteclaw.fleet import Fleet, keys
from remoteclaw.fleet.kept_state import KeptState


async def test_what_was_kept_is_taken_over_once_by_the_process_with_the_claim(
    fleet: Fleet, home: Home
) -> None:
    home.kept_state("test", "default").parent.mkdir()
    kept = KeptState(home.kept_state("test", "default"), home.adapter_state_key)
    await kept.write("login", b"@bot")
    await kept.write("identity", b"secret seeds", is_secret=True)
    await kept.write("gone", b"1")
    await kept.write("gone", None)
    file = home.kept_state("test", "default")
    assert file.stat().st_mode & 0o777 == 0o600
    assert b"secret" not in file.read_bytes()

    # A process that loses the claim meanwhile leaves the file to the next one.
    reader = fleet.replies.reader("test", "default")
    await reader.wait_for_claim()
    state = fleet.accounts.state(reader, home.adapter_state_key)
    client: Any = fleet.scripts.client
    await client.delete(keys.reader("test", "default"))  # it has expired
    second = fleet.replies.reader("test", "default")
    await second.wait_for_claim()
    with pytest.raises(LeaseLost):
        await kept.move_to(state)
    assert await kept.read("identity") == b"secret seeds"

    state = fleet.accounts.state(second, home.adapter_state_key)
    await kept.move_to(state)
    assert not file.exists()
    await state.write("login", b"@later")
    await kept.move_to(state)  # at its next start there is nothing to take over
    assert await state.read("login") == b"@later"
    assert await state.read("identity") == b"secret seeds"
    assert await state.read("gone") is None
    stored = b"".join(await client.hvals(keys.adapter_state("test", "default")))
    assert b"secret" not in stored
