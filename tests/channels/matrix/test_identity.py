"""The account's identity: made, published, repaired, and taken over with a recovery key."""

import pytest

from remoteclaw.channels.matrix.api import Homeserver as Api
from remoteclaw.channels.matrix.encryption import Encryption
from remoteclaw.channels.matrix.identity import Identity, sign_device
from remoteclaw.channels.matrix.recovery import WRONG_KEY, Recovery, key_of, recovery_key
from remoteclaw.errors import ConfigError, PlatformAway, PlatformUnknown
from tests.channels.matrix.conftest import State, again
from tests.support.matrix import Faults, Homeserver, Login, Second
from tests.support.waiting import eventually


async def signed(url: str, login: Login, state: State) -> str:
    """Start the device; return the problem of its signature."""
    api = Api(url, login.token)
    try:
        encryption = Encryption(api, state, login.user, login.device)
        await encryption.open()
        return await sign_device(api, state, encryption.device)
    finally:
        await api.aclose()


async def signers(homeserver: Homeserver, login: Login) -> int:
    """Return how many keys have signed the device, itself included."""
    api = Api(homeserver.url, login.token)
    known = await api.post("keys", "query", body={"device_keys": {login.user: []}})
    await api.aclose()
    keys = known["device_keys"][login.user][login.device]
    return len(keys["signatures"][login.user])


@pytest.mark.parametrize("step", ["device_signing/upload", "signatures/upload"])
@pytest.mark.parametrize("is_done", [False, True])
async def test_a_start_that_ends_at_any_step_is_completed_by_the_next(
    homeserver: Homeserver, step: str, is_done: bool
) -> None:
    bot, state = await homeserver.register("bot"), State()

    async with Faults.before(homeserver.url) as faults:
        if is_done:
            faults.lose(step)
        else:
            faults.refuse(step, 503)
        with pytest.raises((PlatformAway, PlatformUnknown)):
            await signed(faults.url, bot, state)
        faults.end()
        identity = state["identity"]
        assert await signed(faults.url, bot, state) == ""
        assert await signed(faults.url, bot, state) == ""

    assert state["identity"] == identity
    assert await signers(homeserver, bot) == 2


async def test_another_clients_identity_is_taken_over_with_its_recovery_key_only(
    homeserver: Homeserver,
) -> None:
    first, own = await homeserver.register("bot"), State()
    assert await signed(homeserver.url, first, own) == ""
    other, state = await again(homeserver, first), State()
    assert "--recovery-key" in await signed(homeserver.url, other, state)
    assert "identity" not in state, "nothing is overwritten"
    api = Api(homeserver.url, other.token)
    recovery = Recovery(api, other.user)
    with pytest.raises(ConfigError, match="no recovery key"):
        await recovery.identity(recovery_key(bytes(32)))

    key = await Recovery(api, first.user).make_key(Identity.loaded(first.user, own["identity"]))
    for wrong in ("", "EsTy", key[:-1], key[:-1] + "0", recovery_key(bytes(32))):
        with pytest.raises(ConfigError) as error:
            await recovery.identity(wrong)
        assert str(error.value) == WRONG_KEY
    await (await recovery.identity(f" {key.replace(' ', '')}\n")).keep(state)
    await api.aclose()

    assert [len(group) for group in key.split()] == [4] * 12
    assert await signed(homeserver.url, other, state) == ""
    assert await signers(homeserver, other) == 2
    assert state["identity"] == own["identity"]


def test_a_recovery_key_is_written_as_other_clients_write_it() -> None:
    made_by_matrix_js_sdk = "EsTd AH34 Qkto R24a cuSF 6BwT RJuT mQBo SH7y uuTT LRa7 BxmS"

    assert recovery_key(key_of(made_by_matrix_js_sdk)) == made_by_matrix_js_sdk


async def test_the_recovery_keys_of_elements_client_and_ours_open_the_same_identity(
    homeserver: Homeserver, second: Second
) -> None:
    theirs, ours, state = await homeserver.register("a"), await homeserver.register("b"), State()

    # The account is a client's first: its key makes our device one of the account's.
    await second.open(homeserver.url, theirs)
    key = await second.do("makeRecoveryKey", user=theirs.user)
    device, taken = await again(homeserver, theirs), State()
    api = Api(homeserver.url, device.token)
    await (await Recovery(api, device.user).identity(key)).keep(taken)
    await api.aclose()
    assert await signed(homeserver.url, device, taken) == ""
    about = {"user": theirs.user, "of": device.user, "device": device.device}
    await eventually(lambda: second.do("isSigned", **about))  # its next /sync says so

    # The account is ours first: that client signs its device with our key.
    assert await signed(homeserver.url, ours, state) == ""
    api = Api(homeserver.url, ours.token)
    key = await Recovery(api, ours.user).make_key(Identity.loaded(ours.user, state["identity"]))
    await api.aclose()
    client = await again(homeserver, ours)
    await second.do(
        "open",
        url=homeserver.url,
        user=client.user,
        token=client.token,
        device=client.device,
        recoveryKey=key,
    )
    assert await signers(homeserver, client) == 2
    assert await second.do("isSigned", user=ours.user, of=ours.user, device=ours.device)
