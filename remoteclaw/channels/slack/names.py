"""The names of people, channels and files, each asked for alone; the first two are kept."""

import asyncio
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from remoteclaw.channels.slack.api import SlackRefused, WebApi
from remoteclaw.errors import RemoteClawError

#: A name is asked for again after this time, in seconds; one that can't be had, after the second.
KEPT_S, AGAIN_S = 3600.0, 60.0
#: A message waits this long for a name, in seconds.
ASK_S = 2.0
#: At most this many names are asked for in so many seconds: all reports wait meanwhile, and anybody
#: can write a message with hundreds of mentions.
ASKS, PER_S = 20, 20.0
#: This many names are kept.
MAX_NAMES = 5000


@dataclass(frozen=True, slots=True)
class Named:
    """What is known of a person or channel."""

    name: str
    teams: frozenset[str] = frozenset()
    """A person's workspaces and organization; empty if they are not known."""


class Names:
    """The names of people and channels, by their ids."""

    def __init__(self, api: WebApi) -> None:
        self._api = api
        self._known: dict[str, tuple[float, Named]] = {}
        self._asked_at: deque[float] = deque([0.0] * ASKS, maxlen=ASKS)
        self._not_before = 0.0

    async def of(self, id_: str) -> str:
        """Return the name of a person or channel; the id if it can't be had."""
        return (await self._named(id_)).name

    async def teams_of(self, id_: str) -> frozenset[str]:
        """Return the workspaces and the organization of a person; empty if they can't be had."""
        return (await self._named(id_)).teams

    async def file(self, file: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return what is known of a file: messages in shared channels have nothing but its id."""
        if file.get("file_access") != "check_file_info" or time.monotonic() < self._not_before:
            return file
        try:
            async with asyncio.timeout(ASK_S):
                return dict((await self._api.call("files.info", file=file["id"]))["file"])
        except (RemoteClawError, TimeoutError):
            self._not_before = time.monotonic() + PER_S
            return file

    async def _named(self, id_: str) -> Named:
        now = time.monotonic()
        until, named = self._known.get(id_, (0.0, Named(id_)))
        if now < until or now < max(self._not_before, self._asked_at[0] + PER_S):
            return named
        self._asked_at.append(now)
        kept_s = KEPT_S
        try:
            async with asyncio.timeout(ASK_S):
                named = await self._asked(id_)
        except SlackRefused:
            named = Named(id_)
        except (RemoteClawError, TimeoutError):
            kept_s, self._not_before = AGAIN_S, time.monotonic() + PER_S
        self._known.pop(id_, None)
        self._known[id_] = time.monotonic() + kept_s, named
        while len(self._known) > MAX_NAMES:
            del self._known[next(iter(self._known))]
        return named

    async def _asked(self, id_: str) -> Named:
        if id_[0] not in "UW":
            about = await self._api.call("conversations.info", channel=id_)
            return Named(str(about["channel"].get("name") or id_))
        user = (await self._api.call("users.info", user=id_))["user"]
        of_grid = user.get("enterprise_user") or {}
        teams = user.get("team_id"), of_grid.get("enterprise_id"), *(of_grid.get("teams") or ())
        return Named(_name(user) or id_, frozenset(map(str, filter(None, teams))))


def _name(user: Mapping[str, Any]) -> str:
    profile = user.get("profile") or {}
    return str(profile.get("display_name") or profile.get("real_name") or user.get("name") or "")
