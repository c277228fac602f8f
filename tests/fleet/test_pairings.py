"""Pairing: strangers who get access by a code."""

from typing import Any

import orjson
import pytest

from remoteclaw.commands import CommandCall, handle_message, parse
from remoteclaw.commands.pair import MAX_SHOWN
from remoteclaw.config.home import Home
from remoteclaw.config.model import ChannelConfig, Config, GroupConfig
from remoteclaw.fleet import Fleet, keys
from remoteclaw.fleet.pairings import KEPT_MS, MAX_OPEN, VALID_MS, PairingRequest
from remoteclaw.messages import EVERYONE, SessionKey
from tests.support.leases import let_pass


def request(id_: str = "7", message: str = "m1", **fields: Any) -> PairingRequest:
    about = {"provider": "test", "account": "default", "name": "Bo", "chat": id_}
    return PairingRequest(id=id_, message=message, **about | fields)


async def test_a_stranger_gets_one_code_again_only_for_the_same_message(
    fleet: Fleet,
) -> None:
    code = await fleet.pairings.ask(request())

    assert code is not None
    assert len(code) == 8
    assert code.isalpha()
    assert await fleet.pairings.ask(request()) == code  # the platform repeats the message
    assert await fleet.pairings.ask(request(message="m2")) is None
    (waiting,) = await fleet.pairings.requests()
    assert (waiting.code, waiting.id, waiting.name, waiting.chat) == (code, "7", "Bo", "7")


async def test_strangers_who_hold_codes_do_not_keep_a_person_from_one(fleet: Fleet) -> None:
    """Three of them held all codes of an account, and held them again each hour."""
    for number in range(MAX_OPEN):
        assert await fleet.pairings.ask(request(f"crowd {number}"))

    at_once = await fleet.pairings.ask(request("bo"))
    elsewhere = await fleet.pairings.ask(request("bo", account="other"))
    await let_pass(fleet, KEPT_MS)
    code = await fleet.pairings.ask(request("bo", message="m2"))
    for number in range(MAX_OPEN):  # the crowd asks again for what bo got
        await fleet.pairings.ask(request(f"crowd {number}", message="m2"))

    assert at_once is None  # a crowd of a hundred within ten minutes
    assert elsewhere
    assert code is not None
    waiting = await fleet.pairings.requests()
    assert len([each for each in waiting if each.account == "default"]) == MAX_OPEN
    assert (await fleet.pairings.approve(code, by="test:alice") or request()).id == "bo"


async def test_the_newest_requests_are_shown_in_a_chat(fleet: Fleet, send_command: Any) -> None:
    codes = []
    for number in range(MAX_SHOWN + 3):
        codes.append(await fleet.pairings.ask(request(f"{number}")))
        await let_pass(fleet, 1)

    shown = (await send_command("/pair")).reply.text

    assert all(str(code) in shown for code in codes[3:])
    assert not any(str(code) in shown for code in codes[:3])
    assert "and 3 older ones, which `remoteclaw pairing list` shows" in shown


async def test_a_code_is_valid_for_an_hour(fleet: Fleet) -> None:
    code = await fleet.pairings.ask(request())
    assert code is not None

    await let_pass(fleet, VALID_MS)

    assert await fleet.pairings.requests() == []
    assert await fleet.pairings.approve(code, by="test:alice") is None
    assert not await fleet.pairings.has("test", "default", "7")
    assert await fleet.pairings.ask(request(message="m2")) not in (None, code)


async def test_an_approval_grants_access_on_its_account_only(fleet: Fleet) -> None:
    code = await fleet.pairings.ask(request())
    assert code is not None

    approved = await fleet.pairings.approve(f" {code.lower()} ", by="test:alice")

    assert approved is not None
    assert approved.id == "7"
    assert await fleet.pairings.approve(code, by="test:eve") == approved  # the reply was lost
    assert await fleet.pairings.has("test", "default", "7")
    assert not await fleet.pairings.has("test", "other", "7")
    assert await fleet.pairings.requests() == []
    (paired,) = await fleet.pairings.list()
    assert (paired.id, paired.name, paired.by) == ("7", "Bo", "test:alice")


async def test_removing_a_person_revokes_access_on_all_accounts(fleet: Fleet) -> None:
    for account in ("default", "other"):
        await fleet.pairings.add("test", account, "7", name="Bo", by="test:alice")
    await fleet.pairings.add("test", "default", "8", name="Eve", by="test:alice")

    removed = await fleet.pairings.remove("7")

    assert [one.account for one in removed] == ["default", "other"]
    assert not await fleet.pairings.has("test", "default", "7")
    assert await fleet.pairings.has("test", "default", "8")


@pytest.fixture
def send_command(fleet: Fleet, home: Home) -> Any:
    def make(
        text: str, *, is_owner: bool = True, is_group: bool = False, config: Config | None = None
    ) -> Any:
        user = EVERYONE if is_group else "alice"
        command = parse(text)
        assert command is not None

        def call_with(rest: str) -> CommandCall:
            return CommandCall(
                id="m9",
                arguments=rest,
                session=SessionKey("main", "test", "default", "g1" if is_group else "alice", user),
                sender="alice",
                is_owner=is_owner,
                is_group=is_group,
                fleet=fleet,
                config=config or Config(),
                home=home,
            )

        return handle_message(text, call_with, has_files=False)

    return make


async def test_an_owner_approves_a_code_and_the_stranger_is_notified(
    fleet: Fleet, send_command: Any
) -> None:
    code = await fleet.pairings.ask(request(chat="42"))

    listed = (await send_command("/pair")).reply.text
    answer = (await send_command(f"/pair {code}")).reply.text

    assert f"`{code}`: `Bo` (`7`) on test/default" in listed
    assert answer == "`Bo` (`7`) may write from now on."
    assert await fleet.pairings.has("test", "default", "7")
    client: Any = fleet.scripts.client
    ((_, fields),) = await client.xrange(keys.replies("test", "default"))
    notice = orjson.loads(fields[b"reply"])
    assert (notice["channel_id"], notice["text"][:19]) == ("42", "You have access now")


async def test_only_owners_can_approve_a_code(fleet: Fleet, send_command: Any) -> None:
    code = await fleet.pairings.ask(request())

    answer = (await send_command(f"/pair {code}", is_owner=False)).reply.text

    assert answer == "/pair is for owners of this installation."
    assert not await fleet.pairings.has("test", "default", "7")


async def test_an_unknown_pairing_code_is_refused(send_command: Any) -> None:
    assert (await send_command("/pair ABCDEFGH")).reply.text.startswith("There is no such code")


async def test_pair_in_a_group_grants_the_group_access(fleet: Fleet, send_command: Any) -> None:
    answer = (await send_command("/pair", is_group=True)).reply.text

    assert answer.startswith("Everybody in this group may write to me")
    assert await fleet.pairings.has("test", "default", "g1")
    everything = ChannelConfig(groups={"*": GroupConfig(require_mention=False)})
    config = Config(channels={"test": everything})
    answer = (await send_command("/pair", is_group=True, config=config)).reply.text
    assert answer == "The agent reads everything that is written in this group now."
