"""What people do in a workspace: events, presses and commands as RemoteClaw's `Incoming`.

Sources: https://docs.slack.dev/reference/events and
https://docs.slack.dev/reference/interaction-payloads
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from remoteclaw.channels.slack import text
from remoteclaw.channels.slack.emoji_names import emoji_of
from remoteclaw.channels.slack.names import Names
from remoteclaw.clock import now_ms
from remoteclaw.commands import parse
from remoteclaw.protocols import Choice, Incoming, IncomingFile

Event = Mapping[str, Any]

#: What reading an event of another form raises.
MALFORMED = (AttributeError, LookupError, TypeError, ValueError)
#: The kinds of messages that people write; all others are notices of Slack.
WRITTEN = (None, "file_share", "thread_broadcast", "me_message", "bot_message")
#: The button that asks for a reason, and the view that does.
WITH_REASON = "deny_with_reason"
NO_COMMAND = (
    "`{command}` is followed by a command, such as `{command} stop`. To write to the agent, "
    "mention it, or write to it in its direct chat."
)
EXTERNAL = "its sender is of another company"
OTHER_FORM = "it has a form that is not known here"


@dataclass(frozen=True, slots=True)
class Me:
    """The account."""

    user: str
    bot: str
    team: str
    organization: str = ""
    """The Enterprise organization of its workspace; empty if there is none."""


def source_of(chat: str, thread: str | None) -> str:
    """Return the source of a conversation's messages: a channel, or a thread in it."""
    return f"{chat}/{thread}" if thread else chat


def thread_of(message: Event) -> str | None:
    """Return the thread of a message; None for one that began it, or is in none."""
    thread = message.get("thread_ts")
    return None if thread in (None, message.get("ts")) else str(thread)


def ms_of(ts: str) -> int:
    """Return the time of an id, in milliseconds since 1970."""
    return int(float(ts) * 1000)


class Reader:
    """Reads what Slack pushes, and what its histories have."""

    def __init__(self, me: Me, names: Names, *, external: bool) -> None:
        self._me, self.names, self._external = me, names, external

    async def event(self, payload: Event) -> tuple[Incoming | None, dict[str, str]]:
        """Return the report of an event, if anybody expects something of it, and its cursor."""
        event = payload["event"]
        match event["type"]:
            case "message" | "app_mention":
                return await self._message_event(event)
            case "reaction_added" | "reaction_removed":
                return await self._reaction(event), {}
            case "channel_id_changed":
                moved = str(event["new_channel_id"])
                about = self._about(event["old_channel_id"], f"moved {moved}", self._me.user)
                return Incoming(**about, moved_to=moved), {}
            case "channel_left" | "group_left":
                id_ = f"{event['event_ts']} left"
                about = self._about(event["channel"], id_, str(event.get("actor_id") or ""))
                return Incoming(**about, invitation="removed"), {}
            case "member_joined_channel" if event["user"] == self._me.user:
                return None, {event["channel"]: event["event_ts"]}
        return None, {}

    async def _message_event(self, event: Event) -> tuple[Incoming | None, dict[str, str]]:
        chat, subtype = event["channel"], event.get("subtype")
        is_group = not chat.startswith("D")
        after = event.get("message") or {}
        # A deleted message that has replies becomes a tombstone.
        is_deleted = subtype == "message_deleted" or after.get("subtype") == "tombstone"
        if subtype == "message_changed" and not is_deleted:
            return await self._edit(event, is_group=is_group), {}
        if is_deleted:
            before = event.get("previous_message") or {}
            sender = before.get("user") or ""
            if not sender or sender == self._me.user:
                return None, {}
            id_ = str(event.get("deleted_ts") or before["ts"])
            about = self._about(chat, f"{id_} deleted", sender, is_group=is_group)
            return Incoming(**about, thread=thread_of(before), deletes=id_), {}
        float(event["ts"])  # else it is malformed, and no cursor
        cursor = {source_of(chat, thread_of(event)): str(event["ts"])}
        return await self.message(event, chat, is_group=is_group), cursor

    async def message(self, message: Event, chat: str, *, is_group: bool) -> Incoming | None:
        """Return the report of a message; None for one of the account, or a notice of Slack."""
        is_own = self._me.user == message.get("user") or self._me.bot == message.get("bot_id")
        if message.get("subtype") not in WRITTEN or is_own:
            return None
        sender = str(message.get("user") or message.get("bot_id") or "")
        if not sender:
            return None
        about = self._about(chat, str(message["ts"]), sender, is_group=is_group)
        about["thread"] = thread_of(message)
        if is_group and await self.is_external(message):
            return Incoming(**about, left_out=EXTERNAL)
        try:
            said = await self._content(message)
        except MALFORMED:
            about["is_for_us"] = not is_group
            return Incoming(**about, problem=OTHER_FORM)
        raw = str(message.get("text") or "")
        command = parse(said["text"])
        is_for_us = (
            not is_group
            or text.mentions(raw, self._me.user)
            or message.get("parent_user_id") == self._me.user
            or (command is not None and command.known is not None)
        )
        is_bot = bool(message.get("bot_id"))
        name = await self.names.of(sender) if not is_bot else message.get("username")
        return Incoming(**about, **said, sender_name=name, is_for_us=is_for_us, is_bot=is_bot)

    async def is_external(self, message: Event) -> bool:
        """Whether a person of another company has written a message, and that counts.

        A reaction doesn't say of which company its person is, and within an organization, a
        colleague can be of another workspace.
        """
        team, user = message.get("user_team") or message.get("team"), message.get("user")
        ours = {self._me.team, self._me.organization} - {""}
        if self._external or team in ours:
            return False
        teams = await self.names.teams_of(user) if user else frozenset()
        return not teams & ours if teams else team is not None

    async def _content(self, message: Event) -> dict[str, Any]:
        raw = text.without_mention(str(message.get("text") or ""), self._me.user)
        shown = await text.read(raw, self.names.of)
        if message.get("subtype") == "me_message":
            shown = f"*{shown}*"
        shared = [
            await text.read(str(each.get("text") or ""), self.names.of)
            for each in message.get("attachments") or ()
            if each.get("is_share")
        ]
        files = tuple([_file(await self.names.file(each)) for each in message.get("files") or ()])
        return {"text": shown, "files": files, "quoted": "\n\n".join(shared)}

    async def _edit(self, event: Event, *, is_group: bool) -> Incoming | None:
        """Return a person's change of a message; None for a preview of a link, or a reply below."""
        after, before = event["message"], event.get("previous_message") or {}
        is_changed = _written(after) != _written(before)
        if not after.get("edited") or not is_changed:
            return None
        report = await self.message(after, event["channel"], is_group=is_group)
        if report is None or report.left_out:
            return None
        id_ = f"{report.id} {after['edited']['ts']}"
        return replace(report, id=id_, replaces=report.id, at_ms=ms_of(after["edited"]["ts"]))

    async def _reaction(self, event: Event) -> Incoming | None:
        item = event["item"]
        if item.get("type") != "message" or event["user"] == self._me.user:
            return None
        about = self._about(item["channel"], str(event["event_ts"]), event["user"])
        if about["is_group"] and await self.is_external(event):
            return Incoming(**about, left_out=EXTERNAL)
        return Incoming(
            **about,
            sender_name=await self.names.of(event["user"]),
            reply_to=str(item["ts"]),
            reaction=emoji_of(event["reaction"]),
            is_removed=event["type"] == "reaction_removed",
        )

    async def pressed(self, payload: Event) -> Incoming | None:
        """Return the report of a press; None for a button that only opens a view."""
        action = payload["actions"][0]
        if action["action_id"] == WITH_REASON:
            return None
        choice = Choice(request=str(action["value"]), verdict=str(action["action_id"]))
        return await self._choice(payload, payload["container"], choice, str(action["action_ts"]))

    async def submitted(self, payload: Event) -> Incoming:
        """Return the report of a reason that was entered."""
        view = payload["view"]
        shown = json.loads(view["private_metadata"])
        words = str(view["state"]["values"]["reason"]["reason"]["value"] or "")
        choice = Choice(request=shown["request"], verdict="deny", words=words)
        return await self._choice(payload, shown, choice, str(view["id"]))

    async def _choice(self, payload: Event, where: Event, choice: Choice, id_: str) -> Incoming:
        user = payload["user"]
        about = self._about(where["channel_id"], f"{id_} {choice.request}", user["id"])
        if about["is_group"] and await self.is_external(
            {"user": user["id"], "team": user.get("team_id")}
        ):
            return Incoming(**about, left_out=EXTERNAL)
        return Incoming(
            **about,
            sender_name=user.get("name"),
            thread=where.get("thread_ts"),
            reply_to=str(where["message_ts"]),
            choice=choice,
        )

    def command(self, payload: Event) -> Incoming | str:
        """Return the report of a slash command, or why it is none, for the person alone."""
        about = self._about(payload["channel_id"], str(payload["trigger_id"]), payload["user_id"])
        about["sender_name"] = payload.get("user_name")
        said = str(payload.get("text") or "").strip()
        said = said if said[:1] in ("/", "!") else f"/{said}"
        command = parse(said)
        if command is None or command.known is None:
            return NO_COMMAND.format(command=payload["command"])
        return Incoming(**about, text=said)

    def _about(
        self, chat: str, id_: str, sender: str, *, is_group: bool | None = None
    ) -> dict[str, Any]:
        is_in_group = not chat.startswith("D") if is_group is None else is_group
        head = id_.partition(" ")[0]
        is_time = head.replace(".", "", 1).isdecimal()
        return {
            "id": id_,
            "chat": chat,
            "sender": sender,
            "is_group": is_in_group,
            "within": (self._me.team,) if is_in_group else None,
            "at_ms": ms_of(head) if is_time else now_ms(),
        }


def _written(message: Event) -> tuple[str, list[str]]:
    return str(message.get("text") or ""), [each["id"] for each in message.get("files") or ()]


def _file(file: Event) -> IncomingFile:
    size, kind = file.get("size"), str(file.get("mimetype") or "application/octet-stream")
    if file.get("subtype") == "slack_audio":  # Slack calls some recordings of a voice videos
        kind = kind.replace("video/", "audio/")
    return IncomingFile(
        str(file["id"]),
        str(file.get("name") or file.get("title") or "file"),
        kind,
        size if isinstance(size, int) else None,
    )
