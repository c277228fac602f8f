"""Accounts on chat platforms: how far each was read, and what its process tells of it."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from remoteclaw.clock import boottime, now_ms
from remoteclaw.fleet import keys
from remoteclaw.fleet.connection import Scripts
from remoteclaw.fleet.inbound import APPEND_S
from remoteclaw.fleet.reader import ReplyReader


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountView:
    """What is known of an account."""

    name: str = ""
    """The account's name on its platform."""
    problem: str = ""
    """Why it doesn't work, or what is odd, in a sentence that says what to do."""
    at_ms: int = 0
    """When that was told."""
    accepted: int = 0
    """How many messages were read."""
    aside: int = 0
    """How many could not be read."""


@dataclass(frozen=True, slots=True)
class AdapterProcess:
    """A process that delivers for an account, or stands by to."""

    pid: int
    host: str


class Accounts:
    """The accounts that processes run."""

    def __init__(self, scripts: Scripts) -> None:
        self._scripts = scripts

    async def position(self, reader: ReplyReader) -> str | None:
        """Return from where to go on reading a platform; None for its oldest messages."""
        found = await self._scripts.call(
            self._scripts.client.get,
            keys.position(reader.provider, reader.account),
            deadline=math.inf,
        )
        return None if found is None else found.decode()

    async def advance(
        self, reader: ReplyReader, position: str, *, accepted: int = 0, aside: int = 0
    ) -> None:
        """Note that all before a position is accepted, and how many messages that were.

        Raises `LeaseLost` if another adapter has the account's claim.
        """
        place = reader.provider, reader.account
        await self._scripts.run(
            "advance",
            keys={
                "reader": keys.reader(*place),
                "position": keys.position(*place),
                "account": keys.account(*place),
            },
            args={
                "token": reader.token,
                "position": position,
                "accepted": accepted,
                "aside": aside,
            },
            deadline=math.inf,
        )

    async def first_id(self, provider: str, account: str, chat: str) -> str:
        """Return the id that a chat had first: all that is kept of it goes by that."""
        client, moved = self._scripts.client, keys.moved(provider, account)
        found = await self._scripts.call(client.hget, moved, chat, deadline=boottime() + APPEND_S)
        return chat if found is None else str(found.decode())

    async def move(self, provider: str, account: str, *, chat: str, to: str) -> None:
        """Note the new id of a chat; it goes on by its first one."""
        client, moved = self._scripts.client, keys.moved(provider, account)
        await self._scripts.call(client.hset, moved, to, chat, deadline=boottime() + APPEND_S)

    async def leave(self, reader: ReplyReader) -> None:
        """Give the claim up, so that another process takes over at once; or stand by no longer."""
        place = reader.provider, reader.account
        await self._scripts.run(
            "leave",
            keys={
                "reader": keys.reader(*place),
                "readers": keys.READERS,
                "standbys": keys.standbys(*place),
            },
            args={"token": reader.token, "account": reader.name},
        )

    async def tell(self, provider: str, account: str, *, name: str = "", problem: str = "") -> None:
        """Note how an account is; a name that is empty stays what it was."""
        about: dict[str, str | int] = {"problem": problem, "at_ms": now_ms()}
        about |= {"name": name} if name else {}
        client = self._scripts.client
        await self._scripts.call(client.hset, keys.account(provider, account), mapping=about)

    async def processes(
        self, provider: str, account: str, now_ms: int
    ) -> tuple[AdapterProcess | None, Sequence[AdapterProcess]]:
        """Return the process that delivers for an account, if one does, and those that stand by.

        `now_ms` is Redis' time.
        """
        client = self._scripts.client

        async def look() -> tuple[Any, Any]:
            standbys = keys.standbys(provider, account)
            reader = await client.get(keys.reader(provider, account))
            return reader, await client.zrangebyscore(standbys, now_ms, "+inf")

        reader, waiting = await self._scripts.call(look)
        standbys = filter(None, (_process(token) for token in waiting))
        return _process(reader or b""), sorted(standbys, key=lambda one: (one.host, one.pid))

    async def view(self, provider: str, account: str) -> AccountView:
        """Return what is known of an account."""
        told = await self._scripts.call(
            self._scripts.client.hgetall, keys.account(provider, account)
        )
        fields = {name.decode(): value.decode() for name, value in told.items()}
        return AccountView(
            name=fields.get("name", ""),
            problem=fields.get("problem", ""),
            at_ms=int(fields.get("at_ms", 0)),
            accepted=int(fields.get("accepted", 0)),
            aside=int(fields.get("aside", 0)),
        )


def _process(token: bytes) -> AdapterProcess | None:
    """Return the process that a reader's token names; None if it names none."""
    named = re.fullmatch(r"pid (\d{1,9}) .*#\w+@(.*)", token.decode(errors="replace"))
    return AdapterProcess(int(named[1]), named[2]) if named else None
