"""The tests' Slack serves the clients of others as they are: slack-sdk's two, and slack-bolt."""

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from slack_bolt.adapter.socket_mode.async_handler import AsyncSocketModeHandler
from slack_bolt.async_app import AsyncAck, AsyncApp, AsyncRespond, AsyncSay
from slack_sdk.errors import SlackApiError
from slack_sdk.socket_mode.aiohttp import SocketModeClient
from slack_sdk.socket_mode.async_client import AsyncBaseSocketModeClient
from slack_sdk.socket_mode.request import SocketModeRequest
from slack_sdk.socket_mode.response import SocketModeResponse
from slack_sdk.web.async_client import AsyncWebClient

from tests.support.slack import SlackWorkspace, file
from tests.support.waiting import eventually


@pytest.fixture
def web(team: SlackWorkspace) -> AsyncWebClient:
    """slack-sdk's client of the Web API, as it is but for its retries."""
    return AsyncWebClient(team.bot_token, base_url=team.api_url, retry_handlers=[])


@contextlib.asynccontextmanager
async def listening(
    team: SlackWorkspace, *, acknowledges: bool = True
) -> AsyncIterator[list[SocketModeRequest]]:
    """Run slack-sdk's Socket Mode client; yield what it has received."""
    web = AsyncWebClient(base_url=team.api_url, retry_handlers=[])
    client = SocketModeClient(app_token=team.app_token, web_client=web)
    requests: list[SocketModeRequest] = []

    async def take(client: AsyncBaseSocketModeClient, request: SocketModeRequest) -> None:
        requests.append(request)
        if acknowledges:
            await client.send_socket_mode_response(SocketModeResponse(request.envelope_id))

    client.socket_mode_request_listeners.append(take)
    await client.connect()
    await eventually(team.sockets)
    try:
        yield requests
    finally:
        await client.close()


async def test_a_token_is_checked_with_its_scopes(
    team: SlackWorkspace, web: AsyncWebClient
) -> None:
    answer = await web.auth_test()

    assert (answer["team_id"], answer["user_id"]) == (team.team, team.bot)
    assert "chat:write" in answer.headers["x-oauth-scopes"].split(",")


async def test_a_message_is_posted_changed_found_and_deleted(
    team: SlackWorkspace, web: AsyncWebClient
) -> None:
    room = team.channel("room")
    metadata = {"event_type": "remoteclaw", "event_payload": {"key": "k1"}}

    sent = await web.chat_postMessage(
        channel=room, markdown_text="**hi**", unfurl_links=False, unfurl_media=False,
        metadata=metadata,
    )  # fmt: skip
    await web.chat_update(channel=room, ts=sent["ts"], text="there")
    found = await web.conversations_history(channel=room, include_all_metadata=True)

    assert team.texts(room) == ["there"]
    assert found["messages"][0]["metadata"] == metadata
    assert "metadata" not in (await web.conversations_history(channel=room))["messages"][0]
    await web.chat_delete(channel=room, ts=sent["ts"])
    assert team.messages(room) == []


async def test_every_method_of_slack_sdk_that_an_adapter_uses_works(
    team: SlackWorkspace, web: AsyncWebClient
) -> None:
    ann = team.person("ann")
    room = team.channel("room", members=[ann])
    ts = team.say(room, ann, "hello")

    await web.reactions_add(channel=room, timestamp=ts, name="thumbsup")
    assert (await web.reactions_get(channel=room, timestamp=ts))["message"]["reactions"]
    await web.reactions_remove(channel=room, timestamp=ts, name="thumbsup")
    await web.pins_add(channel=room, timestamp=ts)
    await web.pins_remove(channel=room, timestamp=ts)
    await web.chat_postEphemeral(channel=room, user=ann, text="no", thread_ts=ts)
    await web.assistant_threads_setStatus(channel_id=room, thread_ts=ts, status="thinks")
    names = [one["id"] for one in (await web.conversations_list(limit=10))["channels"]]
    members = (await web.conversations_members(channel=room))["members"]
    direct = (await web.conversations_open(users=[ann], return_im=True))["channel"]

    assert (await web.conversations_info(channel=room))["channel"]["name"] == "room"
    assert (await web.users_info(user=ann))["user"]["profile"]["display_name"] == "ann"
    assert (names, sorted(members)) == ([room], sorted([ann, team.bot]))
    assert direct["is_im"]
    assert direct["user"] == ann
    assert [one["text"] for one in team.ephemerals(ann)] == ["no"]
    assert team.statuses() == {f"{room}/{ts}": "thinks"}


async def test_files_go_both_ways(team: SlackWorkspace, web: AsyncWebClient) -> None:
    ann = team.person("ann")
    room = team.channel("room")
    ts = team.say(room, ann, files=[file("in.txt", b"in")])

    await web.files_upload_v2(channel=room, thread_ts=ts, filename="out.txt", content="out")
    await eventually(lambda: team.files(room) == {"out.txt": b"out"})
    (given,) = team.messages(room)[0]["files"]
    async with aiohttp.ClientSession() as http:
        signed = {"Authorization": f"Bearer {team.bot_token}"}
        async with http.get(given["url_private"], headers=signed) as answer:
            assert await answer.read() == b"in"
        async with http.get(given["url_private"]) as answer:
            assert answer.content_type == "text/html"

    sent = team.messages(room)[1]
    about = await web.files_info(file=sent["files"][0]["id"])
    assert about["file"]["shares"]["public"][room] == [{"ts": sent["ts"], "thread_ts": ts}]


async def test_an_error_has_its_name(team: SlackWorkspace, web: AsyncWebClient) -> None:
    with pytest.raises(SlackApiError) as refused:
        await web.chat_postMessage(channel="C0NONE", text="hi")
    team.set(auth_error="account_inactive")
    with pytest.raises(SlackApiError) as refused_too:
        await web.auth_test()

    assert refused.value.response["error"] == "channel_not_found"
    assert refused_too.value.response["error"] == "account_inactive"


async def test_the_socket_mode_client_receives_what_people_do(team: SlackWorkspace) -> None:
    ann = team.person("ann")
    room = team.channel("room")

    async with listening(team) as requests:
        ts = team.say(room, ann, f"<@{team.bot}> hi")
        await eventually(lambda: len(requests) == 2)
        await eventually(lambda: not team.pending())

    events = {one.payload["event"]["type"]: one.payload["event"] for one in requests}
    assert set(events) == {"app_mention", "message"}
    assert {(one["channel"], one["ts"]) for one in events.values()} == {(room, ts)}


async def test_the_socket_mode_client_goes_on_behind_a_disconnection(team: SlackWorkspace) -> None:
    ann = team.person("ann")
    room = team.channel("room")
    team.set(limit_scale=100)

    async with listening(team) as requests:
        (first,) = team.sockets()
        team.disconnect("refresh_requested")
        await eventually(lambda: team.sockets() not in ([], [first]))
        team.say(room, ann, "hi")
        await eventually(lambda: len(requests) == 1)

    assert team.connected() >= 2


@contextlib.asynccontextmanager
async def bolted(team: SlackWorkspace) -> AsyncIterator[AsyncApp]:
    """Run an app of slack-bolt."""
    app = AsyncApp(client=AsyncWebClient(team.bot_token, base_url=team.api_url))
    socket = AsyncSocketModeHandler(app, team.app_token)
    socket.client.web_client = AsyncWebClient(base_url=team.api_url)
    await socket.connect_async()
    await eventually(team.sockets)
    try:
        yield app
    finally:
        await socket.close_async()


def button(action: str) -> dict[str, Any]:
    label = {"type": "plain_text", "text": action.title()}
    return {"type": "button", "action_id": action, "value": "r1", "text": label}


async def test_an_app_of_slack_bolt_answers_mentions_and_commands(team: SlackWorkspace) -> None:
    ann = team.person("ann")
    room = team.channel("room", members=[ann])

    async with bolted(team) as app:

        @app.event("app_mention")
        async def mentioned(event: dict[str, Any], say: AsyncSay) -> None:
            await say("hello", thread_ts=event["ts"])

        @app.command("/claw")
        async def commanded(ack: AsyncAck, command: dict[str, Any], respond: AsyncRespond) -> None:
            await ack("at once")
            await respond(f"later: {command['text']}")

        ts = team.say(room, ann, f"<@{team.bot}> hi")
        team.command(room, ann, "status")
        await eventually(lambda: team.texts(room, ts) == ["hello"])
        await eventually(lambda: len(team.ephemerals(ann)) == 2)

    texts = {one["text"] for one in team.ephemerals(ann)}
    assert texts == {"at once", "later: status"}


async def test_an_app_of_slack_bolt_takes_a_press_and_a_reason(team: SlackWorkspace) -> None:
    ann = team.person("ann")
    room = team.channel("room", members=[ann])
    modal = {
        "type": "modal",
        "callback_id": "why",
        "title": {"type": "plain_text", "text": "Deny"},
        "submit": {"type": "plain_text", "text": "Deny"},
        "blocks": [
            {
                "type": "input",
                "block_id": "reason",
                "label": {"type": "plain_text", "text": "Reason"},
                "element": {"type": "plain_text_input", "action_id": "words"},
            }
        ],
    }
    reasons: list[str] = []

    async with bolted(team) as app:

        @app.action("deny")
        async def deny(ack: AsyncAck, body: dict[str, Any], client: AsyncWebClient) -> None:
            await ack()
            await client.views_open(trigger_id=body["trigger_id"], view=modal)

        @app.view("why")
        async def reason(ack: AsyncAck, view: dict[str, Any]) -> None:
            await ack()
            reasons.append(view["state"]["values"]["reason"]["words"]["value"])

        blocks = [{"type": "actions", "elements": [button("allow"), button("deny")]}]
        sent = await app.client.chat_postMessage(channel=room, text="May I?", blocks=blocks)
        press = team.press(room, sent["ts"], ann, "Deny")
        (opened,) = await eventually(team.modals)
        team.submit(opened["id"], ann, reason="too late")
        await eventually(lambda: reasons == ["too late"])
        await eventually(lambda: not team.modals())

    assert team.envelope(press)["acked_after_s"] < 3
