"""The methods of the Web API for conversations, and for the people in them."""

from collections.abc import Iterator
from typing import Any

from tests.support.slack.judge import Refusal
from tests.support.slack.limits import OF_KIND
from tests.support.slack.world import Channel, Content, Workspace, new_id, shown


def _readable(world: Workspace, channel: str, word: str) -> Channel:
    found = world.channel(channel)
    world.need(f"{OF_KIND[found.kind]}:{word}")
    return world.joined(channel) if word == "history" else found


def _between(
    found: list[Content], oldest: str = "0", latest: str = "", *, inclusive: bool = False
) -> list[Content]:
    """Return the messages of a time, oldest first."""
    first, last = float(oldest), float(latest or "inf")
    return [
        one
        for one in sorted(found, key=lambda one: str(one["ts"]))
        if first < float(one["ts"]) < last or (inclusive and float(one["ts"]) in (first, last))
    ]


def conversations_history(
    world: Workspace,
    channel: str,
    oldest: str = "0",
    latest: str = "",
    inclusive: bool = False,
    limit: int = 100,
    cursor: str = "",
    include_all_metadata: bool = False,
) -> Content:
    """Newest first; with `oldest` only, pages go forward from there (slackhq/slack-api-docs#4)."""
    there = _readable(world, channel, "history")
    if channel == world.broken_history:
        raise Refusal("internal_error", status=500)
    top = [
        one
        for one in there.messages.values()
        if one.get("thread_ts", one["ts"]) == one["ts"] or one.get("subtype") == "thread_broadcast"
    ]
    found = _between(top, oldest, latest, inclusive=inclusive)
    is_forward = oldest != "0" and not latest
    page, more = _pages(found if is_forward else found[::-1], limit, cursor)
    if is_forward:
        page.reverse()
    return _page("messages", [shown(one, with_metadata=include_all_metadata) for one in page], more)


def conversations_replies(
    world: Workspace,
    channel: str,
    ts: str,
    oldest: str = "0",
    latest: str = "",
    inclusive: bool = False,
    limit: int = 1000,
    cursor: str = "",
    include_all_metadata: bool = False,
) -> Content:
    """Oldest first. What began the thread comes first on each page, whatever `oldest` is."""
    there = _readable(world, channel, "history")
    found = there.thread(ts)
    if ts not in there.messages:
        raise Refusal("thread_not_found")
    page, more = _pages(_between(found[1:], oldest, latest, inclusive=inclusive), limit, cursor)
    all_shown = [shown(one, with_metadata=include_all_metadata) for one in (found[0], *page)]
    return _page("messages", all_shown, more)


def _page(name: str, found: list[Any], cursor: str) -> Content:
    more = {"has_more": bool(cursor)} if name == "messages" else {}
    return {name: found, **more, "response_metadata": {"next_cursor": cursor}}


def _about(world: Workspace, channel: Channel) -> Content:
    """Return what Slack says of a conversation."""
    is_private = channel.kind != "channel"
    about: Content = {
        "id": channel.id,
        "is_archived": channel.is_archived,
        "is_private": is_private,
        "is_im": channel.kind == "im",
        "is_mpim": channel.kind == "mpim",
        "is_group": channel.kind == "group",
        "is_channel": channel.kind == "channel",
        "is_ext_shared": channel.is_shared,
        "is_shared": channel.is_shared,
        "context_team_id": world.team,
    }
    if channel.kind == "im":
        (user,) = channel.members - {world.bot}
        return about | {"user": user}
    return about | {"name": channel.name, "is_member": world.bot in channel.members}


def conversations_info(
    world: Workspace, channel: str, include_num_members: bool = False, include_locale: bool = False
) -> Content:
    about = _about(world, there := _readable(world, channel, "read"))
    return {"channel": about | ({"num_members": len(there.members)} if include_num_members else {})}


def conversations_list(
    world: Workspace,
    types: str = "public_channel",
    exclude_archived: bool = False,
    limit: int = 100,
    cursor: str = "",
    team_id: str = "",
) -> Content:
    wanted = set(_kinds(types))
    for kind in sorted(wanted):
        world.need(f"{OF_KIND[kind]}:read")
    found = [
        _about(world, one)
        for one in world.channels.values()
        if one.kind in wanted
        and (one.kind == "channel" or world.bot in one.members)
        and not (exclude_archived and one.is_archived)
    ]
    return _page("channels", *_pages(found, limit, cursor))


def users_conversations(
    world: Workspace,
    types: str = "public_channel",
    exclude_archived: bool = False,
    limit: int = 100,
    cursor: str = "",
) -> Content:
    found = conversations_list(world, types, exclude_archived, 1000)["channels"]
    joined = [one for one in found if world.bot in world.channels[one["id"]].members]
    return _page("channels", *_pages(joined, limit, cursor))


def conversations_members(
    world: Workspace, channel: str, limit: int = 100, cursor: str = ""
) -> Content:
    found = _readable(world, channel, "read")
    members, more = _pages([{"id": one} for one in sorted(found.members)], limit, cursor)
    return _page("members", [one["id"] for one in members], more)


def conversations_open(
    world: Workspace,
    users: str = "",
    channel: str = "",
    return_im: bool = False,
    prevent_creation: bool = False,
) -> Content:
    names = set(users.split(",")) - {""}
    if channel:
        return {"channel": {"id": world.channel(channel).id}}
    world.need("im:write" if len(names) == 1 else "mpim:write")
    if not names or not names <= world.people.keys() - {world.bot}:
        raise Refusal("user_not_found" if len(names) == 1 else "users_list_not_supplied")
    kind, members = "im" if len(names) == 1 else "mpim", {*names, world.bot}
    known = (one for one in world.channels.values() if (one.kind, one.members) == (kind, members))
    found = next(known, None)
    if found is None:
        found = Channel(new_id("D" if kind == "im" else "G"), kind, "", members)
        world.channels[found.id] = found
    return {"channel": _about(world, found) if return_im else {"id": found.id}}


def users_info(world: Workspace, user: str, include_locale: bool = False) -> Content:
    if user not in world.people:
        raise Refusal("user_not_found")
    return {"user": world.people[user] | ({"locale": "en-GB"} if include_locale else {})}


def _pages(found: list[Content], limit: int, cursor: str) -> tuple[list[Content], str]:
    """Return a page, and the cursor of the next one."""
    start = int(cursor or 0)
    end = start + limit
    return found[start:end], str(end) if end < len(found) else ""


def _kinds(names: str) -> Iterator[str]:
    """Yield the kinds of conversations that `types` names."""
    words = {"public_channel": "channel", "private_channel": "group", "im": "im", "mpim": "mpim"}
    for name in names.split(","):
        if name not in words:
            raise Refusal("invalid_types")
        yield words[name]
