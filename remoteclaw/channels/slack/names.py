"""The names of people and channels, each asked for alone and kept for an hour."""

import asyncio
import time
from collections.abc import Mapping
from typing import Any

from remoteclaw.channels.slack.api import SlackRefused, WebApi
from remoteclaw.errors import RemoteClawError

#: A name is asked for again after this time, in seconds; one that can't be had, after the second.
KEPT_S, AGAIN_S = 3600.0, 60.0
#: A message waits this long for a name, in seconds.
ASK_S = 2.0
#: This many names are kept.
MAX_NAMES = 5000


class Names:
    """The names of people and channels, by their ids."""

    def __init__(self, api: WebApi) -> None:
        self._api = api
        self._known: dict[str, tuple[float, str]] = {}

    async def of(self, id_: str) -> str:
        """Return the name of a person or channel; the id if it can't be had."""
        until, name = self._known.get(id_, (0.0, id_))
        if time.monotonic() < until:
            return name
        kept_s = KEPT_S
        try:
            async with asyncio.timeout(ASK_S):
                name = await self._asked(id_) or id_
        except SlackRefused:
            name = id_
        except (RemoteClawError, TimeoutError):
            kept_s = AGAIN_S
        self._known.pop(id_, None)
        self._known[id_] = time.monotonic() + kept_s, name
        while len(self._known) > MAX_NAMES:
            del self._known[next(iter(self._known))]
        return name

    async def _asked(self, id_: str) -> str:
        if id_[0] in "UW":
            return _name((await self._api.call("users.info", user=id_))["user"])
        return str((await self._api.call("conversations.info", channel=id_))["channel"]["name"])


def _name(user: Mapping[str, Any]) -> str:
    profile = user.get("profile") or {}
    return str(profile.get("display_name") or profile.get("real_name") or user.get("name") or "")
