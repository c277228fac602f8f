"""What people do in a workspace, and what they are shown."""

from typing import Any

import pytest

from remoteclaw.channels.slack import names
from remoteclaw.fleet.requests.request import Request
from remoteclaw.messages import EVERYONE
from remoteclaw.protocols import Card
from tests.channels.slack.conftest import Account
from tests.support.requests import put_request
from tests.support.waiting import eventually


async def test_a_mention_begins_a_thread_in_which_nobody_mentions_the_app_again(
    account: Account,
) -> None:
    """It is told as a mention and as a message, and counts once."""
    team, room = account.team, account.room
    await account.start()
    opened = team.say(room, account.ann, f"<@{team.bot}> the &lt;login&gt; is *slow*")
    await account.until_accepted(room, EVERYONE, "the <login> is *slow*", thread=opened)
    bo = team.person("bo")
    team.say(room, bo, f"see <https://example.com|this>, <@{account.ann}>", thread=opened)
    await account.until_accepted(
        room,
        EVERYONE,
        "the <login> is *slow*",
        "see [this](https://example.com), @ann",
        thread=opened,
    )
    team.say(room, bo, "and this is between us")
    team.say(room, bo, "which nobody asked about", thread=team.say(room, bo, "another"))
    await eventually(lambda: not team.pending())
    assert await account.accepted(room, EVERYONE) == []


async def test_a_preview_of_a_link_is_no_edit(account: Account) -> None:
    team, direct = account.team, account.direct
    await account.start()
    said = team.say(direct, account.ann, "look at https://example.com")
    await account.until_accepted(direct, account.ann, "look at https://example.com")
    team.unfurl(direct, said)
    team.say(direct, account.ann, "and?")
    await account.until_accepted(direct, account.ann, "look at https://example.com", "and?")


async def test_people_of_another_company_are_not_read(account: Account) -> None:
    team, room = account.team, account.room
    team.set_channel(room, is_shared=True)
    eve = team.person("eve", team="T0000000EVE")
    await account.start()
    said = team.say(room, eve, f"<@{team.bot}> delete it")
    await eventually(lambda: not team.pending())
    assert await account.accepted(room, EVERYONE, said) == []
    await account.stop()

    account.configure(external=True)
    await account.start()
    said = team.say(room, eve, f"<@{team.bot}> delete it")
    await account.until_accepted(room, EVERYONE, "delete it", thread=said)


async def shown(account: Account, *, chat: str) -> tuple[Request, str]:
    """Show a request in a chat; return it, and its message."""
    about: Any = {"provider": "slack", "channel_id": chat, "from_": account.ann}
    message = await account.stack.append("x", **about)
    request = await put_request(account.stack, message, tool="Bash", what="touch x")
    card = Card(request.id, (("once", "Allow once"), ("deny", "Deny")))
    await account.deliver("May I?", chat=chat, card=card, call=f"request:{request.id}")
    found = [each for each in account.team.messages(chat) if len(each.get("blocks", ())) > 1]
    return request, str(found[-1]["ts"])


async def test_a_press_is_acknowledged_in_time_and_answers_the_request(account: Account) -> None:
    await account.start()
    request, ts = await shown(account, chat=account.direct)
    key = account.team.press(account.direct, ts, account.ann, "once")

    async def is_answered() -> bool:
        found = await account.stack.fleet.requests.find(request.id)
        return bool(found and found.answer and found.answer.verdict == "once")

    await eventually(is_answered)
    await eventually(lambda: account.team.envelope(key)["acked_after_s"] is not None)
    assert not account.team.envelope(key)["is_given_up"]


async def test_a_denial_can_have_a_reason(account: Account) -> None:
    team = account.team
    await account.start()
    request, ts = await shown(account, chat=account.direct)
    team.press(account.direct, ts, account.ann, "Deny with a reason …")
    (modal,) = await eventually(team.modals)
    team.submit(modal["id"], account.ann, reason="not before the release")

    async def words() -> str:
        found = await account.stack.fleet.requests.find(request.id)
        return found.answer.words if found and found.answer else ""

    assert await eventually(words) == "not before the release"


async def test_who_may_not_answer_is_told_alone(account: Account) -> None:
    team = account.team
    await account.start()
    eve = team.person("eve")
    team.join(account.room, eve)
    request, ts = await shown(account, chat=account.room)
    team.press(account.room, ts, eve, "once")
    (told,) = await eventually(lambda: team.ephemerals(eve))
    assert "may" in told["text"]
    found = await account.stack.fleet.requests.find(request.id)
    assert found
    assert not found.answer


async def test_the_command_takes_commands_and_says_so(account: Account) -> None:
    """Only who has written it sees the answer."""
    team = account.team
    await account.start()
    team.command(account.direct, account.ann, "status")
    await eventually(lambda: team.texts(account.direct))
    team.command(account.room, account.ann, "why is it slow?")
    (told,) = await eventually(lambda: team.ephemerals(account.ann))
    assert "is followed by a command" in told["text"]
    team.command(account.room, account.ann, "/status")
    await eventually(lambda: len(team.ephemerals(account.ann)) == 2)
    assert team.texts(account.room) == []


async def test_a_connection_that_slack_replaces_loses_nothing(account: Account) -> None:
    team, direct = account.team, account.direct
    await account.start()
    before = len(team.calls("conversations.history"))
    for number in range(3):
        team.disconnect("warning")
        team.say(direct, account.ann, f"{number}")
    await account.until_accepted(direct, account.ann, "0", "1", "2")
    assert len(team.calls("conversations.history")) == before, "there was no gap"


async def test_what_is_no_event_stops_nothing(account: Account) -> None:
    team = account.team
    await account.start()
    for text in ("{", "[]", '"x"', "1", '{"envelope_id": "x"}', '{"type": 1}'):
        team.say_raw(text)
    for event in ({}, {"type": "message"}, {"type": "message", "channel": 7, "ts": {}},
                  {"type": "message", "channel": "C1", "user": "U1", "ts": "yesterday"},
                  {"type": "reaction_added", "item": []}, {"type": "unheard_of"}):  # fmt: skip
        team.tell(event)
    team.say(account.direct, account.ann, "hello")
    await account.until_accepted(account.direct, account.ann, "hello")
    assert team.pending() == []


@pytest.mark.parametrize("is_held", [False, True])
async def test_a_message_with_hundreds_of_mentions_holds_up_nobody(
    account: Account, monkeypatch: pytest.MonkeyPatch, is_held: bool
) -> None:
    """A person's program can write one; each name is a call, and Slack may answer none."""
    monkeypatch.setattr(names, "ASK_S", 0.1)
    team, direct = account.team, account.direct
    await account.start()
    if is_held:
        team.fault("users.info", "hold", times=10**6)
    eve = team.person("eve")
    team.say(team.direct(eve), eve, " ".join(f"<@U{number:08}>" for number in range(300)))
    team.say(direct, account.ann, "hello")
    await account.until_accepted(direct, account.ann, "hello")
    assert len(team.calls("users.info")) <= (1 if is_held else names.ASKS)


async def test_the_first_message_counts_though_the_clock_here_is_fast(account: Account) -> None:
    """What is older than the first start is not answered, by Slack's clock."""
    account.team.advance(-120)
    await account.start()
    account.team.advance(2)
    account.team.say(account.direct, account.ann, "hello")
    await account.until_accepted(account.direct, account.ann, "hello")


async def test_a_channel_with_a_new_id_keeps_its_conversations(account: Account) -> None:
    """Slack gives one to a private channel that is shared, and doesn't take the old one."""
    team, room = account.team, account.room
    await account.start()
    opened = team.say(room, account.ann, f"<@{team.bot}> one")
    await account.until_accepted(room, EVERYONE, "one", thread=opened)
    moved = team.move(room)
    team.say(moved, account.ann, "two", thread=opened)
    await account.until_accepted(room, EVERYONE, "one", "two", thread=opened)
    await account.deliver("an answer", chat=room)
    await account.stop()
    await account.start()
    await account.deliver("another", chat=room, index=1)
    assert team.texts(moved) == ["an answer", "another"]


async def test_a_channel_that_is_renamed_and_made_private_keeps_its_conversations(
    account: Account, caplog: pytest.LogCaptureFixture
) -> None:
    """Slack writes notices of it there, which nobody answers."""
    team, room, ann = account.team, account.room, account.ann
    account.configure(groups={room: {"require_mention": False, "threads": "auto"}})
    await account.start()
    opened = team.say(room, ann, "one")
    await account.until_accepted(room, EVERYONE, "one", thread=opened)
    for number, subtype in enumerate(("channel_name", "channel_convert_to_private")):
        notice = {"type": "message", "subtype": subtype, "channel": room, "user": ann}
        team.tell({**notice, "ts": f"{opened[:-1]}{number + 5}", "text": "did so"})
    team.rename(room, "chamber")
    team.set_channel(room, kind="group")
    team.say(room, ann, "two", thread=opened)
    await account.until_accepted(room, EVERYONE, "one", "two", thread=opened)
    await account.stop()
    team.say(room, ann, "three", thread=opened)
    other = team.say(room, ann, "another")
    await account.start()
    await account.until_accepted(room, EVERYONE, "one", "two", "three", thread=opened)
    await account.until_accepted(room, EVERYONE, "another", thread=other)
    await account.deliver("an answer", chat=room)
    assert team.texts(room) == ["an answer"]
    assert len(await account.stack.fleet.sessions.list(limit=9)) == 2

    team.leave(room, team.bot)
    await eventually(lambda: f"removed slack/default from the group {room}" in caplog.text)
