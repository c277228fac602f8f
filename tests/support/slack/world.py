"""A workspace: its people, channels, messages and files, and what the app is told of them."""

import asyncio
import itertools
import mimetypes
from dataclasses import dataclass, field
from typing import Any

from tests.support.slack import judge
from tests.support.slack.clock import Clock
from tests.support.slack.judge import Refusal
from tests.support.slack.limits import OF_EVENT, OF_KIND, Limits
from tests.support.slack.sockets import REPEAT_S, Sockets
from tests.support.slack.writing import rich_text

Content = dict[str, Any]

#: What an app of ours asks for, unless a test takes something away.
BOT_SCOPES = (
    "app_mentions:read assistant:write channels:history channels:read chat:write commands "
    "files:read files:write groups:history groups:read im:history im:read im:write mpim:history "
    "mpim:read pins:write reactions:read reactions:write users:read"
)
EVENTS = (
    "app_mention channel_archive channel_id_changed channel_left channel_rename channel_unarchive "
    "group_archive group_left group_rename group_unarchive member_joined_channel "
    "member_left_channel message.channels message.groups message.im message.mpim reaction_added "
    "reaction_removed"
)
#: How long a trigger can be used, in seconds.
TRIGGER_S = 3.0

_numbers = itertools.count(0x1000)


def new_id(kind: str) -> str:
    """Return an id that nothing else in this process has."""
    return f"{kind}{next(_numbers):08X}"


@dataclass
class Channel:
    """A conversation, also one of two people."""

    id: str
    kind: str
    """`channel`, `group` (a private channel), `im` or `mpim`."""
    name: str
    members: set[str]
    is_archived: bool = False
    is_read_only: bool = False
    """Whether the app may not write there."""
    is_shared: bool = False
    """Whether another company is in it."""
    messages: dict[str, Content] = field(default_factory=dict)
    last: tuple[int, int] = (0, 0)
    """The second of its last message, and the number in it."""

    def thread(self, ts: str) -> list[Content]:
        """Return a message and its replies, oldest first."""
        found = (one for one in self.messages.values() if ts in (one["ts"], one.get("thread_ts")))
        return sorted(found, key=lambda one: str(one["ts"]))


@dataclass
class Workspace:
    """A workspace with one app in it."""

    url: str
    clock: Clock = field(default_factory=Clock)
    team: str = field(default_factory=lambda: new_id("T"))
    app: str = field(default_factory=lambda: new_id("A"))
    bot: str = field(default_factory=lambda: new_id("U"))
    bot_id: str = field(default_factory=lambda: new_id("B"))
    people: dict[str, Content] = field(default_factory=dict)
    channels: dict[str, Channel] = field(default_factory=dict)
    files: dict[str, Content] = field(default_factory=dict)
    contents: dict[str, bytes | None] = field(default_factory=dict)
    """Of files, by id; None before they are uploaded."""
    redirects: dict[str, str] = field(default_factory=dict)
    """By file, where its address leads elsewhere."""
    uploads: dict[str, tuple[str, int]] = field(default_factory=dict)
    """By ticket, the file's id and length."""
    triggers: dict[str, float] = field(default_factory=dict)
    """When each was made; 0 once it was used."""
    hooks: dict[str, tuple[str, str, float, list[str]]] = field(default_factory=dict)
    """Response URLs: channel, person, when they were made, and the message at each use."""
    modals: dict[str, Content] = field(default_factory=dict)
    ephemerals: list[Content] = field(default_factory=list)
    statuses: dict[str, str] = field(default_factory=dict)
    calls: list[Content] = field(default_factory=list)
    commands: tuple[str, ...] = ("/claw",)
    scopes: tuple[str, ...] = tuple(BOT_SCOPES.split())
    app_scopes: tuple[str, ...] = ("connections:write",)
    events: tuple[str, ...] = tuple(EVENTS.split())
    auth_error: str = ""
    """Why no call is taken: `token_revoked`, `account_inactive`, …"""
    is_socket_mode_off: bool = False
    """Whether Socket Mode was switched off on the app's page."""
    is_enterprise: bool = False
    """Whether the token is of a whole organisation."""
    organization: str = ""
    """The Enterprise organization of the workspace; empty if there is none."""
    broken_history: str = ""
    """The channel whose history Slack can't read."""
    share_s: float = 0.05
    """How long an uploaded file takes until its message is there, in seconds."""

    def __post_init__(self) -> None:
        self.limits = Limits(self.clock)
        self.sockets = Sockets(self.app, self.clock)
        self.person(self.bot, "claw", is_bot=True)
        self.people[self.bot]["profile"] |= {"bot_id": self.bot_id, "api_app_id": self.app}

    # What there is.

    def person(
        self, id: str, name: str, *, team: str = "", is_bot: bool = False, **more: Any
    ) -> Content:
        """Make a person."""
        profile = {"real_name": name.title(), "display_name": name, "team": team or self.team}
        about = {"id": id, "team_id": team or self.team, "name": name, "real_name": name.title()}
        flags = {"is_bot": is_bot, "is_stranger": bool(team), "deleted": False}
        self.people[id] = {**about, **flags, "profile": profile, **more}
        return self.people[id]

    def channel(self, id: Any, *, is_for_app: bool = True) -> Channel:
        """Return a conversation; raises `Refusal` if there is none, for the app."""
        channel = self.channels.get(id)
        is_hidden = channel and channel.kind != "channel" and self.bot not in channel.members
        if channel is None or (is_for_app and is_hidden):
            raise Refusal("channel_not_found")
        return channel

    def joined(self, id: Any, *, writes: bool = False) -> Channel:
        """Return a conversation that the app is in; raises `Refusal`."""
        channel = self.channel(id)
        if self.bot not in channel.members:
            raise Refusal("not_in_channel")
        if writes and channel.is_archived:
            raise Refusal("is_archived")
        if writes and channel.is_read_only:
            raise Refusal("restricted_action")
        return channel

    def message(self, channel: Channel, ts: str) -> Content:
        """Return a message; raises `Refusal` if there is none."""
        if ts not in channel.messages:
            raise Refusal("message_not_found")
        return channel.messages[ts]

    def need(self, *scopes: str) -> None:
        """Refuse a call if the app has none of the scopes."""
        if scopes and not set(scopes) & set(self.scopes):
            needed, provided = ",".join(scopes), ",".join(self.scopes)
            raise Refusal("missing_scope", needed=needed, provided=provided)

    # What happens.

    def new_ts(self, channel: Channel, *, at_ms: int | None = None) -> str:
        """Return a new `ts`: of one channel, and only of that; perhaps of another time."""
        if at_ms is not None:
            return f"{at_ms // 1000}.{len(channel.messages):06}"
        second, number = divmod(int(self.clock.now() * 1_000_000), 1_000_000)
        if (second, number) <= channel.last:
            second, number = channel.last[0], channel.last[1] + 10
        channel.last = second, number
        return f"{second}.{number:06}"

    def post(self, channel: Channel, user: str, **content: Any) -> Content:
        """Add a message of a person or of the app, and tell the app of it."""
        thread_ts, is_broadcast = content.pop("thread_ts", None), content.pop("broadcast", False)
        parent = channel.messages.get(thread_ts) if thread_ts else None
        if thread_ts and (parent is None or parent.get("thread_ts", thread_ts) != thread_ts):
            raise Refusal("thread_not_found")
        ts = self.new_ts(channel, at_ms=content.pop("at_ms", None))
        message: Content = {"type": "message", "user": user, "ts": ts, "text": "", **content}
        message["team"] = self.people[user]["team_id"]
        if user == self.bot:
            profile = {"id": self.bot_id, "name": "claw", "app_id": self.app, "team_id": self.team}
            bot = {"deleted": False, "updated": 0, "icons": {}}
            message |= {"bot_id": self.bot_id, "app_id": self.app, "bot_profile": profile | bot}
        else:
            message |= {"client_msg_id": new_id("M")}
            if message["text"] and "blocks" not in message:
                message["blocks"] = [rich_text(message["text"])]
        if parent:
            message |= {"thread_ts": thread_ts, "parent_user_id": parent["user"]}
            users = [*parent.get("reply_users", ()), user]
            parent |= {"thread_ts": thread_ts, "reply_count": parent.get("reply_count", 0) + 1}
            parent |= {"latest_reply": ts, "reply_users": list(dict.fromkeys(users))}
            parent["reply_users_count"] = len(parent["reply_users"])
            if is_broadcast:
                message |= {"subtype": "thread_broadcast", "root": dict(parent)}
                message.setdefault("client_msg_id", new_id("M"))
        channel.messages[ts] = message
        self._tell_message(channel, message)
        return message

    def _tell_message(self, channel: Channel, message: Content) -> None:
        team = {}
        if message["team"] != self.team:
            team = {"user_team": message["team"], "source_team": message["team"]}
        shown = {key: one for key, one in message.items() if key not in ("reactions", "metadata")}
        event = {**shown, **team, "event_ts": message["ts"]}
        if f"<@{self.bot}>" in message["text"] and channel.kind != "im":
            mention = {key: one for key, one in event.items() if key != "subtype"}
            self.tell(channel, mention | {"type": "app_mention"})
        self.tell(channel, event)

    def change(self, channel: Channel, message: Content, *, by: str = "", **content: Any) -> None:
        """Change a message, by a person or as Slack does (with a preview, say)."""
        previous = dict(message)
        message |= content
        if by:
            message["edited"] = {"user": by, "ts": f"{int(self.clock.now())}.000000"}
        about = {"message": dict(message), "previous_message": previous}
        self._tell_hidden(channel, "message_changed", about)

    def delete(self, channel: Channel, message: Content) -> None:
        """Delete a message. One with replies stays as a tombstone, by which they are found."""
        if message.get("reply_count"):
            stone: Content = {"subtype": "tombstone", "user": "USLACKBOT", "hidden": True}
            stone["text"] = "This message was deleted."
            message.pop("blocks", None)
            self.change(channel, message, **stone)
            return
        del channel.messages[message["ts"]]
        about = {"deleted_ts": message["ts"], "previous_message": message}
        self._tell_hidden(channel, "message_deleted", about)

    def _tell_hidden(self, channel: Channel, subtype: str, about: Content) -> None:
        ts = self.new_ts(channel)
        event = {"type": "message", "subtype": subtype, "hidden": True, "ts": ts, "event_ts": ts}
        self.tell(channel, {**event, **about})

    def react(
        self, channel: Channel, message: Content, name: str, user: str, *, is_removed: bool = False
    ) -> None:
        """Add or remove a reaction; raises `Refusal`."""
        reactions = message.setdefault("reactions", [])
        found = next((one for one in reactions if one["name"] == name), None)
        if is_removed != bool(found and user in found["users"]):
            raise Refusal("no_reaction" if is_removed else "already_reacted")
        users = [*(found["users"] if found else ()), user]
        if is_removed:
            users = [one for one in users if one != user]
        kept = [one for one in reactions if one is not found]
        new = [{"name": name, "users": users, "count": len(users)}] if users else []
        message["reactions"] = kept + new
        item = {"type": "message", "channel": channel.id, "ts": message["ts"]}
        kind = "reaction_removed" if is_removed else "reaction_added"
        about = {"user": user, "reaction": name, "item": item, "item_user": message["user"]}
        self.tell(channel, {"type": kind, **about, "event_ts": self.new_ts(channel)})

    def share(self, file: Content, channel: Channel, thread_ts: str | None, ts: str) -> None:
        """Note in a file that a message has it."""
        public = "public" if channel.kind == "channel" else "private"
        shares = file.setdefault("shares", {}).setdefault(public, {}).setdefault(channel.id, [])
        shares.append({"ts": ts, **({"thread_ts": thread_ts} if thread_ts else {})})

    def file(self, name: str, content: bytes | None, user: str, **more: Any) -> Content:
        """Make a file, whose content may come later."""
        id = new_id("F")
        address = f"{self.url}/files-pri/{self.team}-{id}"
        kind = name.rpartition(".")[2]
        self.contents[id] = content
        self.files[id] = {
            **{"id": id, "created": int(self.clock.now()), "name": name, "title": name},
            **{"mimetype": mimetypes.guess_type(name)[0] or "application/octet-stream"},
            **{"filetype": kind, "pretty_type": kind.upper(), "user": user, "mode": "hosted"},
            **{"size": len(content or b""), "editable": False, "is_external": False},
            **{"external_type": "", "is_public": False, "public_url_shared": False},
            **{"display_as_bot": False, "username": "", "permalink": f"{address}/permalink"},
            **{"url_private": f"{address}/{name}", "channels": [], "groups": [], "ims": []},
            **{"url_private_download": f"{address}/download/{name}", **more},
        }
        return self.files[id]

    # What the app is told.

    def tell(self, channel: Channel | None, about: Content, *, must_see: bool = True) -> None:
        """Tell the app of an event, if it has asked for such and is in the channel."""
        name = about["type"]
        if channel and name in ("message", "app_mention"):
            about = {**about, "channel": channel.id, "channel_type": channel.kind}
        if channel and name == "message":
            name = f"message.{OF_KIND[channel.kind]}"
        if name == "app_mention":
            about.pop("channel_type")
        event = judge.event(about)
        is_seen = not must_see or channel is None or self.bot in channel.members
        scope = OF_EVENT.get(name)
        if not is_seen or name not in self.events or (scope and scope not in self.scopes):
            return
        authorization = {"team_id": self.team, "user_id": self.bot, "is_bot": True}
        is_shared = bool(channel and channel.is_shared)
        payload = {
            **{"token": "verification", "team_id": self.team, "context_team_id": self.team},
            **{"api_app_id": self.app, "type": "event_callback", "event_id": new_id("Ev")},
            **{"event": event, "event_time": int(self.clock.now())},
            **{"authorizations": [{"enterprise_id": None, **authorization}]},
            **{"is_ext_shared_channel": is_shared},
        }
        self.sockets.send("events_api", payload, repeats=REPEAT_S)

    def interact(self, kind: str, about: Content, user: str, **more: Any) -> str:
        """Tell the app of what a person does with it; return the envelope's key."""
        person = self.people[user]
        who = {"id": user, "username": person["name"], "name": person["name"]}
        payload = {"user": who | {"team_id": person["team_id"]}, **self._origin(), **about}
        return self.sockets.send(kind, payload, **more)

    def _origin(self) -> Content:
        team = {"id": self.team, "domain": "tests"}
        about = {"api_app_id": self.app, "token": "verification", "team": team}
        return {**about, "trigger_id": self.trigger(), "enterprise": None}

    def trigger(self) -> str:
        """Return a new trigger, by which a modal can be opened."""
        name = f"{next(_numbers)}.{self.team}"
        self.triggers[name] = self.clock.now()
        return name

    def hook(self, channel: str, user: str, ts: str = "") -> str:
        """Return an address to which the app can answer what a person did."""
        name = new_id("hook")
        self.hooks[name] = channel, user, self.clock.now(), [ts]
        return f"{self.url}/hooks/{self.team}/{name}"

    def later(self, work: Any) -> None:
        """Do something as soon as the platform has the time."""
        asyncio.get_running_loop().call_later(self.share_s, work)


def shown(message: Content, *, with_metadata: bool = True) -> Content:
    """Return a message as an answer has it."""
    return {key: one for key, one in message.items() if with_metadata or key != "metadata"}
