"""The methods of the Web API for messages and their marks."""

from typing import Any

from tests.support.slack import judge
from tests.support.slack.judge import MAX_MARKDOWN, MAX_TEXT, MAX_UPDATE, Refusal
from tests.support.slack.world import Content, Workspace, shown


def _content(
    text: str = "",
    markdown_text: str = "",
    blocks: list[Content] | None = None,
    metadata: Content | None = None,
    *,
    most_bytes: int | None = None,
) -> Content:
    """Return what a message has; raises `Refusal`.

    Slack makes rich text of Markdown. Here a message has it as its text, as it was sent.
    """
    if not text and not markdown_text and not blocks:
        raise Refusal("no_text")
    written = text or markdown_text
    if len(text) > MAX_TEXT or len(markdown_text) > MAX_MARKDOWN:
        raise Refusal("msg_too_long")
    if most_bytes and len(written.encode()) > most_bytes:
        raise Refusal("msg_too_long")
    judge.blocks(blocks or [])
    for number, block in enumerate(blocks or []):
        block.setdefault("block_id", f"b{number}")
    about: Content = {"text": written}
    about |= {"blocks": blocks} if blocks is not None else {}
    return about | ({"metadata": metadata} if metadata is not None else {})


def chat_post_message(
    world: Workspace,
    channel: str,
    thread_ts: str | None = None,
    reply_broadcast: bool = False,
    unfurl_links: bool = False,
    unfurl_media: bool = True,
    mrkdwn: bool = True,
    **content: Any,
) -> Content:
    there = world.joined(channel, writes=True)
    about = _content(**content)
    message = world.post(there, world.bot, thread_ts=thread_ts, broadcast=reply_broadcast, **about)
    world.statuses.pop(f"{channel}/{thread_ts}", None)
    if "http" in message["text"] and (unfurl_links or unfurl_media):
        preview = [{"id": 1, "from_url": "https://example.com", "fallback": "a preview"}]
        world.later(lambda: world.change(there, message, attachments=preview))
    return {"channel": channel, "ts": message["ts"], "message": shown(message)}


def chat_update(
    world: Workspace,
    channel: str,
    ts: str,
    reply_broadcast: bool = False,
    **content: Any,
) -> Content:
    there = world.joined(channel, writes=True)
    message = world.message(there, ts)
    if message["user"] != world.bot:
        raise Refusal("cant_update_message")
    about = _content(**content, most_bytes=MAX_UPDATE)
    if "blocks" not in about:
        message.pop("blocks", None)
    world.change(there, message, by=world.bot, **about)
    return {"channel": channel, "ts": ts, "text": about["text"], "message": shown(message)}


def chat_delete(world: Workspace, channel: str, ts: str) -> Content:
    there = world.joined(channel, writes=True)
    message = world.message(there, ts)
    if message["user"] != world.bot:
        raise Refusal("cant_delete_message")
    world.delete(there, message)
    return {"channel": channel, "ts": ts}


def chat_post_ephemeral(
    world: Workspace, channel: str, user: str, thread_ts: str | None = None, **content: Any
) -> Content:
    there = world.joined(channel, writes=True)
    if user not in there.members:
        raise Refusal("user_not_in_channel")
    about = _content(**content)
    ts = world.new_ts(there)
    world.ephemerals.append({**about, "channel": channel, "user": user, "thread_ts": thread_ts})
    return {"message_ts": ts}


def assistant_threads_set_status(
    world: Workspace,
    channel_id: str,
    thread_ts: str,
    status: str,
    loading_messages: list[str] | None = None,
) -> None:
    there = world.joined(channel_id)
    if thread_ts not in there.messages:
        raise Refusal("invalid_thread_ts")
    if len(loading_messages or ()) > 10:
        raise Refusal("invalid_arguments")
    world.statuses[f"{channel_id}/{thread_ts}"] = status


def _emoji(name: str) -> str:
    if not name or not all(one.isalnum() or one in "_-+:'" for one in name) or not name.isascii():
        raise Refusal("invalid_name")
    return name


def reactions_add(world: Workspace, channel: str, timestamp: str, name: str) -> None:
    there = world.joined(channel, writes=True)
    world.react(there, world.message(there, timestamp), _emoji(name), world.bot)


def reactions_remove(world: Workspace, channel: str, timestamp: str, name: str) -> None:
    there = world.joined(channel, writes=True)
    message = world.message(there, timestamp)
    world.react(there, message, _emoji(name), world.bot, is_removed=True)


def reactions_get(world: Workspace, channel: str, timestamp: str, full: bool = False) -> Content:
    there = world.joined(channel)
    message = world.message(there, timestamp)
    return {"type": "message", "channel": channel, "message": shown(message, with_metadata=False)}


def pins_add(world: Workspace, channel: str, timestamp: str) -> None:
    message = world.message(world.joined(channel, writes=True), timestamp)
    if channel in message.setdefault("pinned_to", []):
        raise Refusal("already_pinned")
    message["pinned_to"].append(channel)


def pins_remove(world: Workspace, channel: str, timestamp: str) -> None:
    message = world.message(world.joined(channel, writes=True), timestamp)
    if channel not in message.get("pinned_to", ()):
        raise Refusal("no_pin")
    message["pinned_to"].remove(channel)
