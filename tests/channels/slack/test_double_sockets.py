"""The tests' Slack spreads events over sockets and repeats them until they are acknowledged."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import orjson
import pytest

from tests.support.slack import SlackWorkspace
from tests.support.waiting import HANG_S, eventually

Envelope = dict[str, Any]


class Listener:
    """A connection that a test reads by itself."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.socket = socket

    async def next(self) -> Envelope:
        """Return the next message; fails at the end of the connection."""
        return dict(orjson.loads(await self.socket.receive_str(timeout=HANG_S)))

    async def acknowledge(self, envelope: Envelope, **payload: Any) -> None:
        about = {"payload": payload} if payload else {}
        await self.socket.send_json({"envelope_id": envelope["envelope_id"], **about})


async def link(team: SlackWorkspace, http: aiohttp.ClientSession) -> str:
    """Return the address of a new connection."""
    signed = {"Authorization": f"Bearer {team.app_token}"}
    async with http.post(f"{team.api_url}apps.connections.open", headers=signed) as answer:
        return str((await answer.json())["url"])


@contextlib.asynccontextmanager
async def listening(team: SlackWorkspace, count: int = 1) -> AsyncIterator[list[Listener]]:
    """Open connections."""
    team.set(limit_scale=100)
    async with aiohttp.ClientSession() as http:
        listeners = []
        for _ in range(count):
            before = len(team.sockets())
            listeners.append(
                Listener(await http.ws_connect(await link(team, http), autoping=False))
            )
            hello = await listeners[-1].next()
            assert (hello["type"], hello["num_connections"]) == ("hello", before + 1)
        yield listeners


async def test_events_are_spread_over_all_connections(
    team: SlackWorkspace, ann: str, room: str
) -> None:
    async with listening(team, 2) as (first, second):
        for number in range(4):
            team.say(room, ann, str(number))
        found = [[(await one.next())["payload"] for _ in range(2)] for one in (first, second)]

    texts = [{one["event"]["text"] for one in payloads} for payloads in found]
    assert texts in ([{"0", "2"}, {"1", "3"}], [{"1", "3"}, {"0", "2"}])


async def test_an_event_is_repeated_at_once_and_after_1_and_5_minutes(
    team: SlackWorkspace, ann: str, room: str
) -> None:
    async with listening(team) as (socket,):
        ts = team.say(room, ann, "hi")
        found = [await socket.next()]
        for pause_s in (3, 3 + 60, 3 + 300):
            team.advance(pause_s - 0.5)
            assert len(team.pending()[0]["sockets"]) == len(found)
            team.advance(3)
            found.append(await socket.next())
        team.advance(3)
        (given_up,) = await eventually(
            lambda: [one for one in team.pending() if one["is_given_up"]]
        )

    assert [one["retry_attempt"] for one in found] == [0, 1, 2, 3]
    assert [one["retry_reason"] for one in found] == ["", "timeout", "timeout", "timeout"]
    assert {one["payload"]["event"]["ts"] for one in found} == {ts}
    assert len({one["envelope_id"] for one in found}) == 4
    assert given_up["payload"] == found[0]["payload"]


async def test_an_acknowledged_event_is_not_repeated(
    team: SlackWorkspace, ann: str, room: str
) -> None:
    async with listening(team) as (socket,):
        team.say(room, ann, "hi")
        await socket.acknowledge(await socket.next())
        await eventually(lambda: not team.pending())
        team.advance(600)
        team.say(room, ann, "there")
        event = (await socket.next())["payload"]["event"]

    assert event["text"] == "there"


async def test_what_nobody_listened_to_comes_as_a_repetition(
    team: SlackWorkspace, ann: str, room: str
) -> None:
    team.say(room, ann, "hi")
    await eventually(lambda: len(team.pending()[0]["sockets"]) == 2)

    async with listening(team) as (socket,):
        team.advance(60)
        envelope = await socket.next()

    assert team.pending()[0]["sockets"][:2] == ["", ""]
    assert envelope["retry_attempt"] == 2


async def test_a_lost_connection_repeats_its_events_on_another_one_at_once(
    team: SlackWorkspace, ann: str, room: str
) -> None:
    async with listening(team) as (first,):
        team.say(room, ann, "hi")
        await first.next()
        team.advance(-3600)  # so that time is not what ends the wait
        async with listening(team) as (second,):
            await first.socket.close()
            envelope = await second.next()

    assert envelope["retry_attempt"] == 1


async def test_a_press_waits_three_seconds_and_is_not_repeated(
    team: SlackWorkspace, ann: str, room: str
) -> None:
    async with listening(team) as (socket,):
        in_time = team.command(room, ann, "status")
        await socket.acknowledge(await socket.next(), text="fine")
        await eventually(lambda: team.ephemerals(ann))
        late = team.command(room, ann, "status")
        envelope = await socket.next()
        team.advance(3.1)
        await eventually(lambda: team.envelope(late)["is_given_up"])
        await socket.acknowledge(envelope, text="too late")
        team.say(room, ann, "hi")
        assert (await socket.next())["type"] == "events_api"

    assert team.envelope(in_time)["acked_after_s"] < 3
    assert team.envelope(late)["acked_after_s"] is None
    assert [one["text"] for one in team.ephemerals(ann)] == ["fine"]


async def test_slack_ends_connections_in_all_its_ways(team: SlackWorkspace) -> None:
    async with listening(team) as (socket,):
        team.disconnect("warning")
        assert (await socket.next())["reason"] == "warning"
        assert len(team.sockets()) == 1
        team.disconnect("refresh_requested")
        assert (await socket.next())["reason"] == "refresh_requested"
        assert (await socket.socket.receive()).type == aiohttp.WSMsgType.CLOSE
    async with listening(team) as (socket,):
        team.drop()
        assert (await socket.socket.receive()).type in (
            aiohttp.WSMsgType.CLOSED,
            aiohttp.WSMsgType.ERROR,
        )
    async with listening(team) as (socket,):
        await socket.socket.ping()
        assert (await socket.socket.receive()).type == aiohttp.WSMsgType.PONG
        team.deafen()
        await socket.socket.ping()
        with pytest.raises(TimeoutError):
            await socket.socket.receive(timeout=0.1)
    team.set(closes_at_once=True)
    with pytest.raises(TypeError):  # the end of the connection is no text
        async with listening(team):
            pass


async def test_an_app_has_ten_connections(team: SlackWorkspace) -> None:
    async with listening(team, 10), aiohttp.ClientSession() as http:
        url = await link(team, http)
        one_more = Listener(await http.ws_connect(url))
        assert (await one_more.next())["reason"] == "too_many_websockets"
        with pytest.raises(aiohttp.WSServerHandshakeError):
            await http.ws_connect(url)  # an address is good for one connection


async def taken(socket: Listener, count: int) -> list[dict[str, Any]]:
    """Return the next events, acknowledged."""
    found = []
    for _ in range(count):
        envelope = await socket.next()
        await socket.acknowledge(envelope)
        found.append(envelope["payload"]["event"])
    return found


async def test_people_and_slack_change_messages(team: SlackWorkspace, ann: str, room: str) -> None:
    async with listening(team) as (socket,):
        ts = team.say(room, ann, "see <https://example.com>")
        team.unfurl(room, ts)
        team.edit(room, ts, "see it")
        team.react(room, ts, ann, "eyes")
        team.react(room, ts, ann, "eyes", is_removed=True)
        team.delete(room, ts)
        said, unfurled, edited, added, removed, deleted = await taken(socket, 6)

    assert said["blocks"][0]["elements"][0]["elements"][1]["type"] == "link"
    assert unfurled["subtype"] == edited["subtype"] == "message_changed"
    assert unfurled["message"]["text"] == unfurled["previous_message"]["text"]
    assert "edited" not in unfurled["message"]
    assert edited["message"]["edited"]["user"] == ann
    assert (added["type"], removed["type"]) == ("reaction_added", "reaction_removed")
    assert added["item"]["ts"] == deleted["deleted_ts"] == ts


async def test_channels_are_left_closed_renamed_and_moved(
    team: SlackWorkspace, ann: str, room: str
) -> None:
    async with listening(team) as (socket,):
        team.rename(room, "chamber")
        team.archive(room, ann)
        team.archive(room, ann, is_archived=False)
        moved = team.move(room)
        team.join(moved, team.person("bo"), inviter=ann)
        team.leave(moved, team.bot)
        events = await taken(socket, 6)

    assert [one["type"] for one in events] == [
        "channel_rename",
        "channel_archive",
        "channel_unarchive",
        "channel_id_changed",
        "member_joined_channel",
        "channel_left",
    ]
    assert (events[3]["old_channel_id"], events[3]["new_channel_id"]) == (room, moved)
    assert team.texts(moved) == []


async def test_only_what_was_asked_for_is_told(team: SlackWorkspace, ann: str) -> None:
    elsewhere = team.channel("elsewhere", has_app=False)
    direct, shared = team.direct(ann), team.channel("shared", is_shared=True)
    stranger = team.person("eve", team="T0OTHER")
    team.set(
        events=["message.im", "message.channels", "message.groups"], scopes=["channels:history"]
    )

    async with listening(team) as (socket,):
        team.say(elsewhere, ann, "not there")
        team.say(direct, ann, "the scope is missing")
        team.join(shared, ann)
        team.say(shared, stranger, f"<@{team.bot}> hi")
        (event,) = await taken(socket, 1)

    assert (event["type"], event["user"], event["user_team"]) == ("message", stranger, "T0OTHER")


async def test_a_message_of_the_app_is_told_too(team: SlackWorkspace, room: str) -> None:
    team.set(share_s=0)

    async with listening(team) as (socket,), aiohttp.ClientSession() as http:
        signed = {"Authorization": f"Bearer {team.bot_token}"}
        sent: dict[str, Any] = {"channel": room, "text": "see https://example.com"}
        async with http.post(f"{team.api_url}chat.postMessage", headers=signed, json=sent):
            said, unfurled = await taken(socket, 2)
        sent |= {"unfurl_links": False, "unfurl_media": False}
        team.advance(1)
        async with http.post(f"{team.api_url}chat.postMessage", headers=signed, json=sent):
            (again,) = await taken(socket, 1)
        await asyncio.to_thread(team.tell, {"type": "nothing.known"})
        (unknown,) = await taken(socket, 1)

    assert said["bot_id"] == again["bot_id"]
    assert unfurled["message"]["attachments"]
    assert unknown == {"type": "nothing.known"}
