"""What an app may do in Slack, and how often: the scopes and the rates of each method."""

import math
from collections import deque

from tests.support.slack.clock import Clock
from tests.support.slack.judge import Refusal

#: The scopes of a method, of which one is needed. Those of `conversations.…` depend on the kind.
SCOPES: dict[str, tuple[str, ...]] = {
    "assistant.threads.setStatus": ("chat:write", "assistant:write"),
    "chat.delete": ("chat:write",),
    "chat.postEphemeral": ("chat:write",),
    "chat.postMessage": ("chat:write",),
    "chat.update": ("chat:write",),
    "files.completeUploadExternal": ("files:write",),
    "files.getUploadURLExternal": ("files:write",),
    "files.info": ("files:read",),
    "pins.add": ("pins:write",),
    "pins.remove": ("pins:write",),
    "reactions.add": ("reactions:write",),
    "reactions.get": ("reactions:read",),
    "reactions.remove": ("reactions:write",),
    "users.info": ("users:read",),
}
#: The first part of the scopes for a kind of conversation.
OF_KIND = {"channel": "channels", "group": "groups", "im": "im", "mpim": "mpim"}
#: The scope without which Slack sends no such events.
OF_EVENT = {
    "app_mention": "app_mentions:read",
    "message.channels": "channels:history",
    "message.groups": "groups:history",
    "message.im": "im:history",
    "message.mpim": "mpim:history",
    "reaction_added": "reactions:read",
    "reaction_removed": "reactions:read",
}
#: The calls a minute of a tier. Slack says "20+", "50+": nobody can rely on more.
_TIER_1, _TIER_2, _TIER_3, _TIER_4, _SPECIAL = 1, 20, 50, 100, 600
_TIERS = {
    _TIER_1: "apps.connections.open",
    _TIER_2: "conversations.list pins.add pins.remove reactions.remove",
    _TIER_3: "chat.delete chat.update conversations.history conversations.info conversations.open "
    "conversations.replies reactions.add reactions.get users.conversations",
    _TIER_4: "chat.postEphemeral conversations.members files.completeUploadExternal files.info "
    "files.getUploadURLExternal users.info views.open",
}
PER_MINUTE = {method: count for count, methods in _TIERS.items() for method in methods.split()}
#: The pause between two posts in a channel, in seconds. Slack allows bursts of unknown length.
POST_S = 1.0


class Limits:
    """The rates of an app in a workspace."""

    def __init__(self, clock: Clock) -> None:
        self.scale = 1.0
        """How many times as much is allowed."""
        self._clock = clock
        self._calls: dict[str, deque[float]] = {}

    def count(self, method: str, channel: str | None) -> None:
        """Count a call; raises `Refusal` if it is one too many."""
        most = math.ceil(PER_MINUTE.get(method, _SPECIAL) * self.scale)
        self._take(method, most, 60.0)
        if method == "chat.postMessage" and channel:
            self._take(f"{method} {channel}", math.ceil(self.scale), POST_S)

    def _take(self, what: str, most: int, within_s: float) -> None:
        now, calls = self._clock.now(), self._calls.setdefault(what, deque())
        while calls and calls[0] <= now - within_s:
            calls.popleft()
        if len(calls) >= most:
            after_s = max(1, math.ceil(calls[0] + within_s - now))
            raise Refusal("ratelimited", status=429, after_s=after_s)
        calls.append(now)
