"""The tests' Slack refuses what the real one refuses, and keeps what the real one keeps."""

import urllib.error
import urllib.parse
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import orjson
import pytest

from tests.channels.slack.raw import ask, error
from tests.support.slack import SlackWorkspace, file
from tests.support.waiting import eventually_sync


@pytest.fixture
def team(team: SlackWorkspace) -> SlackWorkspace:
    """A workspace without limits."""
    team.set(limit_scale=1000)
    return team


def section(text: str, **more: Any) -> dict[str, Any]:
    return {"type": "section", "text": {"type": "mrkdwn", "text": text}, **more}


def actions(*labels: str, **more: Any) -> dict[str, Any]:
    buttons = [
        {"type": "button", "action_id": f"a{number}", "text": {"type": "plain_text", "text": label}}
        for number, label in enumerate(labels)
    ]
    return {"type": "actions", "elements": [{**one, **more} for one in buttons]}


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"text": "hi"}, ""),
        ({"text": ""}, "no_text"),
        ({"text": "hi", "colour": "red"}, "invalid_arguments"),
        ({"text": "hi", "thread": "1.0"}, "invalid_arguments"),
        ({"text": 7}, "invalid_arguments"),
        ({"text": "hi", "metadata": {"event_type": "x", "payload": {}}}, "invalid_arguments"),
        ({"text": "hi", "markdown_text": "hi"}, "markdown_text_conflict"),
        ({"markdown_text": "x" * 12_000}, ""),
        ({"markdown_text": "x" * 12_001}, "msg_too_long"),
        ({"text": "x" * 40_001}, "msg_too_long"),
        ({"text": "hi", "thread_ts": "1.000001"}, "thread_not_found"),
        ({"text": "hi", "blocks": [section("x" * 3000)]}, ""),
        ({"text": "hi", "blocks": [section("x" * 3001)]}, "invalid_blocks"),
        ({"text": "hi", "blocks": [section("x", color="red")]}, "invalid_arguments"),
        ({"text": "hi", "blocks": [{"type": "poll"}]}, "invalid_arguments"),
        ({"text": "hi", "blocks": [actions("x" * 76)]}, "invalid_blocks"),
        ({"text": "hi", "blocks": [actions(*"x" * 26)]}, "invalid_blocks"),
        ({"text": "hi", "blocks": [actions("x", value="v" * 2001)]}, "invalid_blocks"),
        ({"text": "hi", "blocks": [actions("x", "y", action_id="same")]}, "invalid_blocks"),
        ({"text": "hi", "blocks": [section("x")] * 51}, "invalid_blocks"),
        ({"text": "hi", "blocks": [{"type": "markdown", "text": "x" * 12_001}]}, "invalid_blocks"),
        ({"text": "hi", "blocks": [{"type": "markdown", "text": "x" * 6_001}] * 2}, "msg_too_long"),
        ({"text": "hi", "blocks": [section("x" * 2_700)] * 5}, "msg_blocks_too_long"),
    ],
)
def test_a_post_is_refused_as_slack_does(
    team: SlackWorkspace, room: str, arguments: dict[str, Any], name: str
) -> None:
    assert error(team, "chat.postMessage", channel=room, **arguments) == name
    assert bool(team.messages(room)) is not bool(name)


def test_a_form_may_have_what_is_no_string(team: SlackWorkspace, room: str) -> None:
    blocks = orjson.dumps([section("hi")]).decode()

    sent = ask(team, "chat.postMessage", as_form=True, channel=room, blocks=blocks, mrkdwn="true")
    found = ask(team, "conversations.history", as_form=True, channel=room, limit="1")

    assert sent["message"]["blocks"][0]["type"] == "section"
    assert [one["ts"] for one in found["messages"]] == [sent["ts"]]
    wrong = error(team, "conversations.history", as_form=True, channel=room, limit="many")
    assert wrong == "invalid_arguments"


def test_an_update_has_4000_bytes_and_is_of_a_message_of_ours(
    team: SlackWorkspace, ann: str, room: str
) -> None:
    ts = ask(team, "chat.postMessage", channel=room, text="hi")["ts"]
    theirs = team.say(room, ann, "hi")

    def update(text: str, ts: str = ts) -> str:
        return error(team, "chat.update", channel=room, ts=ts, text=text)

    assert [update("é" * 2000), update("é" * 2001)] == ["", "msg_too_long"]
    assert update("x", theirs) == "cant_update_message"
    assert update("x", "1.000001") == "message_not_found"
    assert error(team, "chat.delete", channel=room, ts=theirs) == "cant_delete_message"


@pytest.mark.parametrize(
    ("about", "name"),
    [
        ({"has_app": False}, "not_in_channel"),
        ({"has_app": False, "kind": "group"}, "channel_not_found"),
        ({"is_archived": True}, "is_archived"),
        ({"is_read_only": True}, "restricted_action"),
    ],
)
def test_a_channel_may_be_closed_to_the_app(
    team: SlackWorkspace, about: dict[str, Any], name: str
) -> None:
    assert error(team, "chat.postMessage", channel=team.channel("x", **about), text="hi") == name


@pytest.mark.parametrize(
    ("method", "scope", "arguments"),
    [
        ("chat.postMessage", "chat:write", {"text": "hi"}),
        ("conversations.history", "channels:history", {}),
        ("conversations.info", "channels:read", {}),
        ("reactions.add", "reactions:write", {"name": "eyes", "timestamp": "1.000001"}),
    ],
)
def test_a_scope_that_is_missing_is_named(
    team: SlackWorkspace, room: str, method: str, scope: str, arguments: dict[str, Any]
) -> None:
    team.set(scopes=["users:read"])

    answer = ask(team, method, channel=room, **arguments)

    assert (answer["error"], answer["needed"]) == ("missing_scope", scope)
    assert answer["provided"] == "users:read"


def test_tokens_are_told_apart(team: SlackWorkspace) -> None:
    def wrong(method: str = "auth.test", token: str = "") -> str:
        return error(team, method, token=token)

    assert wrong() == ""
    assert wrong(token="xoxb-of-nobody") == "invalid_auth"
    assert wrong(token=team.app_token) == "not_allowed_token_type"
    assert wrong("apps.connections.open") == "not_allowed_token_type"
    assert wrong("chat.shout") == "unknown_method"
    old = team.bot_token
    team.rotate()
    assert (wrong(token=old), wrong()) == ("token_revoked", "")
    team.set(auth_error="account_inactive")
    assert wrong() == "account_inactive"


def test_the_token_of_an_organisation_says_so(team: SlackWorkspace) -> None:
    team.set(is_enterprise=True)

    assert ask(team, "auth.test")["is_enterprise_install"] is True


def test_each_method_has_its_rate_a_minute(team: SlackWorkspace, room: str) -> None:
    team.set(limit_scale=1)

    answers = [ask(team, "conversations.history", channel=room) for _ in range(51)]

    assert [one["status"] for one in answers] == [200] * 50 + [429]
    assert answers[-1]["error"] == "ratelimited"
    assert 0 < int(answers[-1]["after_s"]) <= 60
    assert error(team, "conversations.replies", channel=room, ts="1.0") == "thread_not_found"
    team.advance(60)
    assert error(team, "conversations.history", channel=room) == ""


def test_a_channel_takes_a_post_a_second(team: SlackWorkspace, room: str) -> None:
    team.set(limit_scale=1)
    other = team.channel("other")

    def post(channel: str) -> tuple[int, str]:
        answer = ask(team, "chat.postMessage", channel=channel, text="hi")
        return answer["status"], answer.get("after_s", "")

    assert [post(room), post(room), post(other)] == [(200, ""), (429, "1"), (200, "")]
    team.advance(1)
    assert post(room) == (200, "")


def test_a_reaction_and_a_pin_are_there_once(team: SlackWorkspace, ann: str, room: str) -> None:
    ts = team.say(room, ann, "hi")
    mark: dict[str, Any] = {"channel": room, "timestamp": ts}

    assert error(team, "reactions.add", **mark, name="no such") == "invalid_name"
    assert error(team, "reactions.add", **mark, name="eyes") == ""
    assert error(team, "reactions.add", **mark, name="eyes") == "already_reacted"
    assert error(team, "reactions.remove", **mark, name="tada") == "no_reaction"
    assert [error(team, "pins.add", **mark) for _ in range(2)] == ["", "already_pinned"]
    assert [error(team, "pins.remove", **mark) for _ in range(2)] == ["", "no_pin"]


def test_a_private_word_is_for_a_member(team: SlackWorkspace, ann: str, room: str) -> None:
    bo = team.person("bo")

    assert error(team, "chat.postEphemeral", channel=room, user=ann, text="no") == ""
    assert error(team, "chat.postEphemeral", channel=room, user=bo, text="no") == (
        "user_not_in_channel"
    )


def test_an_upload_is_as_long_as_was_said_and_shown_later(team: SlackWorkspace, room: str) -> None:
    made = ask(team, "files.getUploadURLExternal", filename="a.txt", length=3)
    complete: dict[str, Any] = {"files": [{"id": made["file_id"]}], "channel_id": room}

    assert error(team, "files.completeUploadExternal", **complete) == "file_not_found"
    with pytest.raises(urllib.error.HTTPError, match="400"):
        urllib.request.urlopen(made["upload_url"], b"four")
    urllib.request.urlopen(made["upload_url"], b"abc")
    team.set(share_s=0.3)
    ask(team, "files.completeUploadExternal", **complete)
    assert "shares" not in ask(team, "files.info", file=made["file_id"])["file"]
    eventually_sync(lambda: "shares" in ask(team, "files.info", file=made["file_id"])["file"])
    assert team.files(room) == {"a.txt": b"abc"}


def test_a_file_of_a_stranger_is_known_only_by_its_id(
    team: SlackWorkspace, ann: str, room: str
) -> None:
    given = file("a.txt", b"abc", file_access="check_file_info", redirect="http://127.0.0.1:9/x")
    team.say(room, ann, files=[given])

    (shown,) = team.messages(room)[0]["files"]

    assert (shown["file_access"], "url_private" in shown) == ("check_file_info", False)
    about = ask(team, "files.info", file=shown["id"])["file"]
    signed = {"Authorization": f"Bearer {team.bot_token}"}
    with pytest.raises(urllib.error.URLError, match="refused"):
        urllib.request.urlopen(urllib.request.Request(about["url_private"], headers=signed))


def test_a_modal_is_opened_once_within_three_seconds(
    team: SlackWorkspace, ann: str, room: str
) -> None:
    ts = ask(team, "chat.postMessage", channel=room, text="?", blocks=[actions("Go")])["ts"]
    title = {"type": "plain_text", "text": "Title"}
    view = {"type": "modal", "title": title, "blocks": [section("hi")]}

    def pressed() -> str:
        press = team.envelope(team.press(room, ts, ann, "Go"))
        return str(press["payload"]["trigger_id"])

    def opened(trigger: str, **more: Any) -> str:
        return error(team, "views.open", trigger_id=trigger, view={**view, **more})

    trigger = pressed()
    assert opened(trigger, title={**title, "text": "x" * 25}) == "invalid_arguments"
    assert opened(trigger, colour="red") == "invalid_arguments"
    assert [opened(trigger), opened(trigger)] == ["", "exchanged_trigger_id"]
    late = pressed()
    team.advance(3.1)
    assert [opened(late), opened("1.2")] == ["expired_trigger_id", "invalid_trigger_id"]


def test_a_response_url_is_good_for_five_answers_in_half_an_hour(
    team: SlackWorkspace, ann: str, room: str
) -> None:
    ts = ask(team, "chat.postMessage", channel=room, text="?", blocks=[actions("Go")])["ts"]

    def pressed() -> str:
        press = team.envelope(team.press(room, ts, ann, "Go"))
        return str(press["payload"]["response_url"])

    def answer(url: str, **content: Any) -> int:
        try:
            with urllib.request.urlopen(url, orjson.dumps(content)) as answered:
                return int(answered.status)
        except urllib.error.HTTPError as refused:
            return refused.code

    url, late = pressed(), pressed()
    answers = [answer(url, text=str(number)) for number in range(3)]
    answers.append(answer(url, text="in the channel", response_type="in_channel"))
    answers.append(answer(url, text="done", replace_original=True))

    assert [*answers, answer(url, text="too often")] == [200] * 5 + [404]
    assert [one["text"] for one in team.ephemerals(ann)] == ["0", "1", "2"]
    assert team.texts(room) == ["done", "in the channel"]
    team.advance(1801)
    assert answer(late, text="too late") == 404


@pytest.mark.parametrize("is_done", [False, True])
def test_a_call_goes_wrong_before_or_behind_what_it_does(
    team: SlackWorkspace, room: str, is_done: bool
) -> None:
    post: dict[str, Any] = {"channel": room, "text": "hi"}

    team.fault("chat.postMessage", "drop", is_done=is_done)
    with pytest.raises((ConnectionError, urllib.error.URLError)):
        ask(team, "chat.postMessage", **post)
    team.fault("chat.postMessage", "status", is_done=is_done)
    assert ask(team, "chat.postMessage", **post)["status"] == 500
    team.fault("chat.postMessage", "error", is_done=is_done, times=2)
    assert error(team, "chat.postMessage", **post) == "internal_error"
    assert error(team, "chat.postMessage", **post) == "internal_error"
    assert error(team, "chat.postMessage", **post) == ""

    assert team.texts(room) == ["hi"] * (5 if is_done else 1)


def test_a_call_is_held_until_it_is_released(team: SlackWorkspace, room: str) -> None:
    team.fault("chat.postMessage", "hold")
    post: dict[str, Any] = {"channel": room, "text": "hi"}

    with ThreadPoolExecutor() as threads:
        answer = threads.submit(ask, team, "chat.postMessage", **post)
        eventually_sync(lambda: team.calls("chat.postMessage"))
        assert team.texts(room) == []
        team.release()
        assert answer.result()["ok"]

    assert team.texts(room) == ["hi"]


def test_a_limit_may_come_from_nowhere(team: SlackWorkspace, room: str) -> None:
    team.fault("chat.postMessage", "limited", after_s=7)

    answer = ask(team, "chat.postMessage", channel=room, text="hi")

    assert (answer["status"], answer["after_s"]) == (429, "7")
