"""The tests' Slack keeps messages, and gives them, in the order and pages of the real one."""

from typing import Any

from tests.channels.slack.raw import ask
from tests.support.slack import SlackWorkspace, mentions_in


def test_history_has_no_replies_but_those_that_were_broadcast(
    team: SlackWorkspace, ann: str, room: str
) -> None:
    ts = team.say(room, ann, "question")
    reply = team.say(room, ann, "answer", thread=ts)
    shown = team.say(room, ann, "look", thread=ts, broadcast=True)

    found = ask(team, "conversations.history", channel=room)["messages"]
    thread = ask(team, "conversations.replies", channel=room, ts=ts)["messages"]

    assert [one["ts"] for one in found] == [shown, ts]
    assert found[1]["latest_reply"] == shown
    assert [one["ts"] for one in thread] == [ts, reply, shown]
    (only,) = ask(team, "conversations.replies", channel=room, ts=reply)["messages"]
    assert only["ts"] == reply


def test_pages_of_a_thread_go_forward_from_its_first_message(
    team: SlackWorkspace, ann: str, room: str
) -> None:
    ts = team.say(room, ann, "0")
    replies = [team.say(room, ann, str(number), thread=ts) for number in range(1, 5)]

    first = ask(team, "conversations.replies", channel=room, ts=ts, oldest=replies[0], limit=2)
    cursor = first["response_metadata"]["next_cursor"]
    second = ask(
        team, "conversations.replies", channel=room, ts=ts, oldest=replies[0], cursor=cursor
    )

    assert [one["text"] for one in first["messages"]] == ["0", "2", "3"]
    assert [one["text"] for one in second["messages"]] == ["0", "4"]
    assert (first["has_more"], second["has_more"]) == (True, False)


def test_pages_of_a_channel_are_newest_first_and_go_forward_from_a_time(
    team: SlackWorkspace, ann: str, room: str
) -> None:
    sent = [team.say(room, ann, str(number)) for number in range(5)]

    def page(**more: Any) -> list[str]:
        answer = ask(team, "conversations.history", channel=room, limit=2, **more)
        return [one["text"] for one in answer["messages"]]

    assert page() == ["4", "3"]
    assert page(oldest=sent[0]) == ["2", "1"]
    assert page(oldest=sent[0], inclusive=True) == ["1", "0"]
    assert page(latest=sent[2]) == ["1", "0"]


def test_a_ts_is_of_one_message_of_a_channel(team: SlackWorkspace, ann: str, room: str) -> None:
    sent = [team.say(room, ann, "hi") for _ in range(20)]

    assert sorted(set(sent)) == sent


def test_a_message_with_replies_leaves_a_tombstone(
    team: SlackWorkspace, ann: str, room: str
) -> None:
    ts = team.say(room, ann, "question")
    reply = team.say(room, ann, "answer", thread=ts)

    team.delete(room, ts)

    found = ask(team, "conversations.replies", channel=room, ts=ts)["messages"]
    assert [one.get("subtype") for one in found] == ["tombstone", None]
    assert [one["ts"] for one in team.messages(room)] == [reply]


def test_mentions_are_found_that_notify_people(team: SlackWorkspace, room: str) -> None:
    team.set(limit_scale=100)
    texts = ["<!channel> and <@U1>", "&lt;!channel&gt; @here", "<!subteam^S1|team>"]

    for text in texts:
        ask(team, "chat.postMessage", channel=room, text=text)

    found = [mentions_in(one) for one in team.messages(room)]
    assert found == [["!channel", "@U1"], [], ["!subteam^S1"]]
