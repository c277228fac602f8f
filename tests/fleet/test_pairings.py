"""People who are let in by a code."""

from typing import Any

import orjson
import pytest

from remoteclaw.commands import Asked, parse, take
from remoteclaw.config.home import Home
from remoteclaw.config.model import Config
from remoteclaw.fleet import Fleet, keys
from remoteclaw.fleet.pairings import VALID_MS, PairingRequest
from remoteclaw.messages import EVERYONE, SessionKey
from tests.support.leases import let_pass


def request(id_: str = "7", message: str = "m1", **fields: Any) -> PairingRequest:
    about = {"provider": "test", "account": "default", "name": "Bo", "chat": id_}
    return PairingRequest(id=id_, message=message, **about | fields)


async def test_a_stranger_has_one_code_and_the_message_that_asked_has_it_again(
    fleet: Fleet,
) -> None:
    code = await fleet.pairings.ask(request())

    assert code is not None
    assert len(code) == 8
    assert code.isalpha()
    assert await fleet.pairings.ask(request()) == code  # the platform repeats itself
    assert await fleet.pairings.ask(request(message="m2")) is None
    (waiting,) = await fleet.pairings.requests()
    assert (waiting.code, waiting.id, waiting.name, waiting.chat) == (code, "7", "Bo", "7")


async def test_three_strangers_may_ask_at_once_on_each_account(fleet: Fleet) -> None:
    codes = [await fleet.pairings.ask(request(str(number))) for number in range(4)]

    assert [code is not None for code in codes] == [True, True, True, False]
    assert await fleet.pairings.ask(request(account="other"))


async def test_a_code_is_valid_for_an_hour(fleet: Fleet) -> None:
    code = await fleet.pairings.ask(request())
    assert code is not None

    await let_pass(fleet, VALID_MS)

    assert await fleet.pairings.requests() == []
    assert await fleet.pairings.approve(code, by="test:alice") is None
    assert not await fleet.pairings.has("test", "default", "7")
    assert await fleet.pairings.ask(request(message="m2")) not in (None, code)


async def test_who_is_approved_is_let_in_there_and_only_there(fleet: Fleet) -> None:
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


async def test_who_is_removed_is_let_in_no_more(fleet: Fleet) -> None:
    for account in ("default", "other"):
        await fleet.pairings.add("test", account, "7", name="Bo", by="test:alice")
    await fleet.pairings.add("test", "default", "8", name="Eve", by="test:alice")

    removed = await fleet.pairings.remove("7")

    assert [one.account for one in removed] == ["default", "other"]
    assert not await fleet.pairings.has("test", "default", "7")
    assert await fleet.pairings.has("test", "default", "8")


@pytest.fixture
def asked(fleet: Fleet, home: Home) -> Any:
    def make(text: str, *, is_owner: bool = True, is_group: bool = False) -> Any:
        user = EVERYONE if is_group else "alice"
        command = parse(text)
        assert command is not None

        def about(rest: str) -> Asked:
            return Asked(
                id="m9",
                rest=rest,
                session=SessionKey("main", "test", "default", "g1" if is_group else "alice", user),
                sender="alice",
                is_owner=is_owner,
                is_group=is_group,
                fleet=fleet,
                config=Config(),
                home=home,
            )

        return take(text, about, has_files=False)

    return make


async def test_an_owner_lets_in_who_has_a_code_and_they_are_told(fleet: Fleet, asked: Any) -> None:
    code = await fleet.pairings.ask(request(chat="42"))

    listed = (await asked("/pair")).answer.text
    told = (await asked(f"/pair {code}")).answer.text

    assert f"`{code}`: `Bo` (`7`) on test/default" in listed
    assert told == "`Bo` (`7`) may write from now on."
    assert await fleet.pairings.has("test", "default", "7")
    client: Any = fleet.scripts.client
    ((_, fields),) = await client.xrange(keys.reply_stream("test", "default"))
    said = orjson.loads(fields[b"reply"])
    assert (said["channel_id"], said["text"][:15]) == ("42", "You were let in")


async def test_nobody_else_lets_anybody_in(fleet: Fleet, asked: Any) -> None:
    code = await fleet.pairings.ask(request())

    told = (await asked(f"/pair {code}", is_owner=False)).answer.text

    assert told == "/pair is for owners of this installation."
    assert not await fleet.pairings.has("test", "default", "7")


async def test_a_wrong_code_is_a_sentence(asked: Any) -> None:
    assert (await asked("/pair ABCDEFGH")).answer.text.startswith("There is no such code")


async def test_in_a_group_it_lets_the_group_in(fleet: Fleet, asked: Any) -> None:
    told = (await asked("/pair", is_group=True)).answer.text

    assert told.startswith("Everybody in this group may write to me")
    assert await fleet.pairings.has("test", "default", "g1")
