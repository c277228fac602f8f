"""What people do in a workspace: the verbs of the tests' door."""

import base64
import itertools
from typing import Any

from tests.support.slack.world import Channel, Content, Workspace, new_id


class Door:
    """The verbs: what a test can have people, and Slack itself, do."""

    def __init__(self, world: Workspace) -> None:
        self._world = world

    def person(self, name: str, **about: Any) -> str:
        """Make a person; of another company, if it has a `team`."""
        return str(self._world.person(new_id("U"), name, **about)["id"])

    def call_person(self, person: str, name: str) -> None:
        """Give a person another name."""
        self._world.people[person]["profile"]["display_name"] = name

    def direct(self, person: str) -> str:
        """Make the direct chat of a person with the app."""
        return self.channel(kind="im", members=(person,))

    def channel(
        self, name: str = "", kind: str = "channel", members: tuple[str, ...] = (), **about: Any
    ) -> str:
        """Make a conversation; the app is in it unless `has_app` is false."""
        here = {self._world.bot} if about.pop("has_app", True) else set()
        id = new_id({"channel": "C", "group": "C", "im": "D", "mpim": "G"}[kind])
        self._world.channels[id] = Channel(id, kind, name, {*members, *here}, **about)
        return id

    def say(
        self,
        channel: str,
        user: str,
        text: str = "",
        thread: str | None = None,
        files: tuple[Content, ...] = (),
        **content: Any,
    ) -> str:
        """Have a person write; return the message's `ts`. The text has Slack's escapes.

        `broadcast` shows a reply in the channel too; `subtype` may be `me_message`.
        """
        there = self._there(channel)
        shared = []
        for file in files:
            about = {"user": user, **file}
            about["content"] = base64.b64decode(file["content"])
            redirect = about.pop("redirect", None)
            made = self._world.file(**about)
            if redirect:
                self._world.redirects[made["id"]] = redirect
            hidden = {"id": made["id"], "mode": "file_access", "file_access": "check_file_info"}
            shared.append(hidden if "file_access" in file else made)
        if shared:
            content |= {"files": shared, "upload": False, "subtype": "file_share"}
        there.members.add(user)
        message = self._world.post(there, user, text=text, thread_ts=thread, **content)
        return str(message["ts"])

    def edit(self, channel: str, ts: str, text: str, **content: Any) -> None:
        """Have a person edit a message."""
        there = self._there(channel)
        message = there.messages[ts]
        self._world.change(there, message, by=message["user"], text=text, **content)

    def unfurl(self, channel: str, ts: str, **attachment: Any) -> None:
        """Add the preview of a link to a message, as Slack does by itself."""
        there = self._there(channel)
        about = [{"id": 1, "from_url": "https://example.com", "fallback": "…", **attachment}]
        self._world.change(there, there.messages[ts], attachments=about)

    def delete(self, channel: str, ts: str) -> None:
        """Have a person delete a message."""
        there = self._there(channel)
        self._world.delete(there, there.messages[ts])

    def react(self, channel: str, ts: str, user: str, name: str, is_removed: bool = False) -> None:
        """Have a person add a reaction, or remove it."""
        there = self._there(channel)
        self._world.react(there, there.messages[ts], name, user, is_removed=is_removed)

    def press(self, channel: str, ts: str, user: str, action: str) -> str:
        """Have a person press the button with an action or a label; return the envelope's key."""
        there = self._there(channel)
        message = there.messages[ts]
        found = (
            (block, one)
            for block in message.get("blocks", ())
            for one in (*block.get("elements", ()), block.get("accessory") or {})
            if one.get("type") == "button" and action in (one["action_id"], one["text"]["text"])
        )
        block, button = next(found)
        pressed = {key: one for key, one in button.items() if key != "confirm"}
        pressed |= {"block_id": block["block_id"], "action_ts": self._world.new_ts(there)}
        thread = {"thread_ts": message["thread_ts"]} if "thread_ts" in message else {}
        about = {
            **{"type": "block_actions", "actions": [pressed], "message": message},
            **{"channel": {"id": channel, "name": there.name}, "state": {"values": {}}},
            **{"container": {"type": "message", "message_ts": ts, "channel_id": channel, **thread}},
            **{"response_url": self._world.hook(channel, user, ts)},
        }
        return self._world.interact("interactive", about, user)

    def submit(self, view: str, user: str, **values: str) -> str:
        """Have a person submit a modal with a text for each block; return the envelope's key."""
        modal = self._world.modals[view]
        inputs = {
            block["block_id"]: block["element"]
            for block in modal["blocks"]
            if block["type"] == "input"
        }
        state = {
            block: {inputs[block]["action_id"]: {"type": inputs[block]["type"], "value": value}}
            for block, value in values.items()
        }
        about: Content = {"type": "view_submission", "view": {**modal, "state": {"values": state}}}

        def close(response: Content | None) -> None:
            if (response or {}).get("response_action") != "errors":
                del self._world.modals[view]

        about["response_urls"] = []
        return self._world.interact("interactive", about, user, on_ack=close)

    def command(self, channel: str, user: str, text: str, command: str = "/claw") -> str:
        """Have a person use the slash command; return the envelope's key.

        Slack's client offers no others, and none in threads.
        """
        assert command in self._world.commands, "the client refuses it"
        self._world.need("commands")
        there = self._there(channel)

        def show(response: Content | None) -> None:
            if response and response.get("text"):
                self._world.ephemerals.append({**response, "channel": channel, "user": user})

        person = self._world.people[user]["name"]
        payload = {
            **{"token": "verification", "team_id": self._world.team, "team_domain": "tests"},
            **{"channel_id": channel, "channel_name": there.name, "user_id": user},
            **{"user_name": person, "command": command, "text": text},
            **{"api_app_id": self._world.app, "is_enterprise_install": "false"},
            **{"response_url": self._world.hook(channel, user)},
            **{"trigger_id": self._world.trigger()},
        }
        return self._world.sockets.send("slash_commands", payload, on_ack=show)

    def join(self, channel: str, user: str, inviter: str = "") -> None:
        """Have a person or the app join a channel."""
        there = self._there(channel)
        there.members.add(user)
        about = {"user": user, "team": self._world.team} | ({"inviter": inviter} if inviter else {})
        self._tell_member(there, "member_joined_channel", about)

    def leave(self, channel: str, user: str) -> None:
        """Have a person or the app leave a channel, or be removed."""
        there = self._there(channel)
        there.members.discard(user)
        self._tell_member(there, "member_left_channel", {"user": user, "team": self._world.team})
        if user == self._world.bot:
            about = {"channel": channel, "actor_id": "USLACKBOT"}
            self._tell(there, "left", about, must_see=False)

    def archive(self, channel: str, user: str, is_archived: bool = True) -> None:
        """Have a person archive a channel, or open it again."""
        there = self._there(channel)
        there.is_archived = is_archived
        about = {"channel": channel, "user": user}
        self._tell(there, "archive" if is_archived else "unarchive", about)

    def rename(self, channel: str, name: str) -> None:
        """Give a channel another name."""
        there = self._there(channel)
        there.name = name
        about = {"id": channel, "name": name, "created": 0, "is_channel": True, "is_mpim": False}
        about |= {"name_normalized": name, "context_team_id": self._world.team}
        self._tell(there, "rename", {"channel": about})

    def move(self, channel: str, **about: Any) -> str:
        """Give a channel another id, as when it is shared or made private; return that."""
        there = self._world.channels.pop(channel)
        there.id = new_id("C")
        for key, value in about.items():
            setattr(there, key, value)
        self._world.channels[there.id] = there
        ids = {"old_channel_id": channel, "new_channel_id": there.id}
        event = {"type": "channel_id_changed", **ids, "event_ts": self._world.new_ts(there)}
        self._world.tell(there, event)
        return there.id

    def set_channel(self, channel: str, **about: Any) -> None:
        """Set `is_read_only`, `is_archived`, `is_shared` or `kind` without a word."""
        for key, value in about.items():
            assert hasattr(self._there(channel), key)
            setattr(self._there(channel), key, value)

    def messages(self, channel: str, thread: str = "") -> list[Content]:
        """Return the messages of a channel and of its threads, or of one, as people see them."""
        there = self._there(channel)
        found = there.thread(thread) if thread else there.messages.values()
        return [one for one in found if one.get("subtype") != "tombstone"]

    def texts(self, channel: str, thread: str = "") -> list[str]:
        """Return the texts of the app's messages."""
        found = self.messages(channel, thread)
        return [one["text"] for one in found if one["user"] == self._world.bot]

    def files(self, channel: str) -> dict[str, str]:
        """Return the files that the app has shared in a channel, in base64."""
        messages = self._there(channel).messages.values()
        shared = (one.get("files", ()) for one in messages if one["user"] == self._world.bot)
        return {
            file["name"]: base64.b64encode(self._world.contents[file["id"]] or b"").decode()
            for file in itertools.chain.from_iterable(shared)
        }

    def ephemerals(self, user: str) -> list[Content]:
        """Return what only this person was shown."""
        return [one for one in self._world.ephemerals if one["user"] == user]

    def modals(self) -> list[Content]:
        """Return the modals that are open."""
        return list(self._world.modals.values())

    def statuses(self) -> dict[str, str]:
        """Return the status lines, by `channel/thread`."""
        return self._world.statuses

    def calls(self, *methods: str) -> list[Content]:
        """Return the calls of the API: `method`, `arguments`, `at` and `error`."""
        return [one for one in self._world.calls if not methods or one["method"] in methods]

    def envelopes(self) -> list[Content]:
        """Return all that the app was told; a person sees an error if it `is_given_up`."""
        return [
            {
                **{"key": one.key, "type": one.kind, "payload": one.payload},
                **{"sockets": [socket for _, socket in one.attempts]},
                **{"acked_after_s": one.acked_after_s, "response": one.response},
                **{"is_given_up": one.is_given_up},
            }
            for one in self._world.sockets.envelopes.values()
        ]

    def envelope(self, key: str) -> Content:
        """Return one of these."""
        return next(one for one in self.envelopes() if one["key"] == key)

    def pending(self) -> list[Content]:
        """Return those that were not acknowledged."""
        return [one for one in self.envelopes() if one["acked_after_s"] is None]

    def sockets(self) -> list[str]:
        """Return the open connections."""
        return list(self._world.sockets.open)

    def connected(self) -> int:
        """Return how often a connection was opened."""
        return self._world.sockets.connected

    def tell(self, event: Content) -> None:
        """Tell the app of an event of whatever form, without a judge."""
        payload = {"type": "event_callback", "team_id": self._world.team, "event": event}
        self._world.sockets.send("events_api", payload)

    def say_raw(self, text: str) -> None:
        """Send a text of whatever form to all connections."""
        self._world.sockets.say(text)

    async def disconnect(self, reason: str) -> None:
        """Announce the end of all connections: `warning`, `refresh_requested`, `link_disabled`.

        After the last one, no connection is opened any more.
        """
        self._world.is_socket_mode_off |= reason == "link_disabled"
        await self._world.sockets.disconnect(reason)

    def drop(self) -> None:
        """Lose all connections without a word."""
        self._world.sockets.drop()

    def deafen(self) -> None:
        """Have the open connections take and answer nothing any more."""
        for socket in self._world.sockets.open.values():
            socket.is_deaf = True

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self._world.clock.advance(seconds)

    def hurry(self, speed: float) -> None:
        """Let time go so many times as fast."""
        self._world.clock.hurry(speed)

    def set(self, **state: Any) -> None:
        """Set what a workspace is like: its fields, `limit_scale`, or how connections begin."""
        self._world.limits.scale = state.pop("limit_scale", self._world.limits.scale)
        sockets = self._world.sockets
        for key in ("closes_at_once", "first", "is_mute"):
            setattr(sockets, key, state.pop(key, getattr(sockets, key)))
        for key, value in state.items():
            assert hasattr(self._world, key), key
            setattr(self._world, key, tuple(value) if isinstance(value, list) else value)

    def _there(self, channel: str) -> Channel:
        return self._world.channel(channel, is_for_app=False)

    def _tell(self, channel: Channel, what: str, about: Content, *, must_see: bool = True) -> None:
        """Tell of a change of a channel; events of private ones have other names."""
        kind = "group" if channel.kind == "group" else "channel"
        event = {"type": f"{kind}_{what}", "event_ts": self._world.new_ts(channel), **about}
        self._world.tell(channel, event, must_see=must_see)

    def _tell_member(self, channel: Channel, kind: str, about: Content) -> None:
        letter = "G" if channel.kind == "group" else "C"
        event = {"type": kind, "channel": channel.id, "channel_type": letter, **about}
        self._world.tell(channel, {**event, "event_ts": self._world.new_ts(channel)})
