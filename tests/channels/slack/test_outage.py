"""A time without a connection: what was written meanwhile is read, once and in order."""

from collections import Counter

import pytest

from remoteclaw.channels.slack import catch_up
from remoteclaw.channels.slack.api import WebApi
from remoteclaw.channels.slack.manifest import BOT_SCOPES
from remoteclaw.messages import EVERYONE
from tests.channels.slack.conftest import Account
from tests.support.waiting import eventually

CHANNELS, THREADS, MESSAGES = 20, 10, 200


async def test_an_hours_outage_is_read_with_few_calls(account: Account) -> None:
    """Twenty channels and ten threads, with two hundred messages."""
    team, ann = account.team, account.ann
    team.set(limit_scale=1)
    rooms = [team.channel(f"room{number}", members=[ann]) for number in range(CHANNELS)]
    settings = {"require_mention": False, "threads": "platform"}
    account.configure(groups=dict.fromkeys(rooms, settings))
    await account.start()
    threads = []
    for room in rooms[:THREADS]:
        root = team.say(room, ann, "root")
        threads.append((room, root))
        team.say(room, ann, "first reply", thread=root)
    for room, root in threads:
        await account.until_accepted(room, EVERYONE, "first reply", thread=root)
    await account.stop()
    places = [*((room, None) for room in rooms), *threads]
    for number in range(MESSAGES):
        room, thread = places[number % len(places)]
        team.say(room, ann, f"message {number}", thread=thread)
    team.advance(3600)
    before = len(team.calls())
    await account.start()
    for index, (room, thread) in enumerate(places):
        texts = [f"message {number}" for number in range(index, MESSAGES, len(places))]
        early = ["first reply"] if thread else ["root"] if index < THREADS else []
        await account.until_accepted(room, EVERYONE, *early, *texts, thread=thread)

    calls = Counter(call["method"] for call in team.calls()[before:])
    reading = calls.total() - calls["reactions.add"] - calls["reactions.get"]
    assert reading <= 45, calls
    assert not [call for call in team.calls() if call["error"] == "ratelimited"]


async def test_a_live_message_does_not_wait_for_other_histories(account: Account) -> None:
    team, ann, direct = account.team, account.ann, account.direct
    await account.start()
    team.say(direct, ann, "one")
    await account.until_accepted(direct, ann, "one")
    await account.stop()
    for number in range(60):  # more than the calls of a minute
        team.channel(f"other{number}", members=[ann])
    await account.start()
    await eventually(lambda: len(team.calls("conversations.history")) >= 30)
    team.say(direct, ann, "two")
    await account.until_accepted(direct, ann, "one", "two")


async def test_a_history_that_slack_refuses_holds_up_no_other(account: Account) -> None:
    team, ann, direct = account.team, account.ann, account.direct
    await account.start()
    await account.stop()
    team.say(direct, ann, "one")
    other = team.channel("other", members=[ann])
    team.fault("conversations.history", "error", error="unheard_of", times=1)
    await account.start()
    await eventually(lambda: len(team.calls("conversations.history")) >= 3)
    team.say(direct, ann, "two")

    async def is_accepted() -> bool:
        return "two" in await account.accepted(direct, ann)

    await eventually(is_accepted)
    assert other in [each["arguments"]["channel"] for each in team.calls("conversations.history")]


async def test_a_thread_that_begins_in_an_outage_survives_a_second_one(account: Account) -> None:
    """Its first message is in the channel's history, and its replies have to be read as well."""
    team, room, ann = account.team, account.room, account.ann
    await account.start()
    await account.stop()
    root = team.say(room, ann, f"<@{team.bot}> one")
    team.say(room, ann, "two", thread=root)
    team.fault("conversations.replies", "hold")
    await account.start()
    await account.until_accepted(room, EVERYONE, "one", thread=root)
    await eventually(lambda: team.calls("conversations.replies"))
    await account.stop()
    team.release()
    await account.start()
    await account.until_accepted(room, EVERYONE, "one", "two", thread=root)


async def test_a_reply_that_the_channel_shows_too_is_read(account: Account) -> None:
    """It is in the channel's history, though its thread began before the account did."""
    team, room, ann = account.team, account.room, account.ann
    root = team.say(room, ann, "old")
    await account.start()
    await account.stop()
    team.say(room, ann, f"<@{team.bot}> new", thread=root, broadcast=True)
    await account.start()
    await account.until_accepted(room, EVERYONE, "new", thread=root)


async def test_a_history_that_slack_can_not_read_holds_up_no_other(account: Account) -> None:
    team, ann, direct = account.team, account.ann, account.direct
    await account.start()
    team.say(direct, ann, "one")
    await account.until_accepted(direct, ann, "one")
    await account.stop()
    broken = team.channel("broken", members=[ann])
    team.set(broken_history=broken)
    team.say(broken, ann, "never")
    team.say(direct, ann, "two")
    await account.start()
    await account.until_accepted(direct, ann, "one", "two")
    team.say(direct, ann, "three")
    await account.until_accepted(direct, ann, "one", "two", "three")
    assert (await account.state())[1] == ""


async def test_histories_are_read_with_the_scopes_that_there_are(account: Account) -> None:
    """Slack refuses to list conversations of one kind without its scope, with all others."""
    team, ann, direct = account.team, account.ann, account.direct
    team.set(scopes=sorted(BOT_SCOPES - {"mpim:read"}))
    await account.start()
    await account.stop()
    team.say(direct, ann, "one")
    await account.start()
    await account.until_accepted(direct, ann, "one")


async def test_two_long_histories_of_busy_channels_are_both_read(
    account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A message in one of them has its history read next, though the other one is half read."""
    monkeypatch.setattr(catch_up, "PAGE", 2)
    team, ann = account.team, account.ann
    rooms = [team.channel(name, members=[ann]) for name in ("one", "two")]
    for number in range(6):
        for room in rooms:
            team.say(room, ann, str(number))
    api = WebApi(team.api_url.rstrip("/"), team.bot_token)
    reading = catch_up.CatchUp(api)
    await reading.begin({"": "1.000000"})
    texts = {}
    for turn in range(20):
        if reading.has(room := rooms[turn % 2]):
            reading.hasten(room, "")
        if not reading.is_over and (found := await reading.step()):
            texts[found.source] = [each["text"] for each in found.messages]
    await api.aclose()
    assert [texts.get(room) for room in rooms] == [[*"012345"]] * 2
