"""Pairings: the people and groups with access, and the codes with which strangers request it."""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import orjson

from remoteclaw.clock import boottime, now_ms
from remoteclaw.fleet import keys
from remoteclaw.fleet.connection import Scripts
from remoteclaw.fleet.turns.inbound import APPEND_S

#: A code is valid for this long, in milliseconds.
VALID_MS = 3600 * 1000
#: How many strangers of an account can have a code at the same time: more than one person has
#: accounts, and few enough to list.
MAX_OPEN = 100
#: Beyond that, a stranger gets the place of the oldest request, but not before this time, in
#: milliseconds: an owner has that long to approve it, and a crowd gets no more answers than this.
KEPT_MS = 10 * 60 * 1000
#: The letters of a code, without those that look like digits or like each other, and its length.
LETTERS, CODE_LETTERS = "ABCDEFGHJKMNPQRSTUVWXYZ", 8


#: The name of each group with access: platforms don't report their names.
A_GROUP = "a group"


@dataclass(frozen=True, slots=True, kw_only=True)
class PairingRequest:
    """A stranger's request for access."""

    provider: str
    account: str
    id: str
    """The stranger's id on the platform."""
    name: str
    """The stranger's display name."""
    chat: str
    """The chat of the stranger's message."""
    message: str
    """The id of the stranger's message."""
    code: str = ""
    at_ms: int = 0
    by: str = ""
    """The person who approved the request; empty while it is pending."""

    @classmethod
    def decode(cls, code: str, text: bytes) -> Self:
        """Return a request from its stored form."""
        data: dict[str, Any] = orjson.loads(text)
        return cls(**{**data, "code": code, "at_ms": int(data["at_ms"])})


@dataclass(frozen=True, slots=True, kw_only=True)
class Paired:
    """A person or a group with access."""

    provider: str
    account: str
    id: str
    name: str
    by: str
    """The person who granted the access."""
    at_ms: int
    """The time of the grant, in milliseconds since 1970."""
    agent: str | None = None
    """The agent that the group was given to; None for the one that the configuration names."""


class Pairings:
    """The people and groups with access, and the pending requests for access."""

    def __init__(self, scripts: Scripts) -> None:
        self._scripts = scripts

    async def has(self, provider: str, account: str, id_: str) -> bool:
        """Return whether a person or a group has access."""
        client = self._scripts.client
        field = field_of(provider, account, id_)
        return bool(await self._call(client.hexists, keys.PAIRED, field))

    async def ask(self, request: PairingRequest) -> str | None:
        """Store a request for access and return its code.

        Returns None if the stranger already has a code, or if too many have asked just now.
        """
        fields = {
            name: getattr(request, name)
            for name in ("provider", "account", "id", "name", "chat", "message")
        }
        code = "".join(secrets.choice(LETTERS) for _ in range(CODE_LETTERS))
        stored_code: str = await self._scripts.run(
            "pairing",
            code=code,
            request=orjson.dumps(fields),
            valid_ms=VALID_MS,
            most=MAX_OPEN,
            kept_ms=KEPT_MS,
            deadline=boottime() + APPEND_S,
        )
        return stored_code or None

    async def approve(self, code: str, *, by: str) -> PairingRequest | None:
        """Grant access to the person of a code, in any case; None if it is unknown or expired."""
        code = code.strip().upper()
        request = await self._scripts.run("pair", code=code, by=by, valid_ms=VALID_MS)
        return PairingRequest.decode(code, request) if request else None

    async def add(
        self,
        provider: str,
        account: str,
        id_: str,
        *,
        name: str,
        by: str,
        agent: str | None = None,
    ) -> None:
        """Grant access to a person or a group, whose agent is `agent` or the configured one."""
        about = {"name": name, "by": by, "at_ms": now_ms()} | ({"agent": agent} if agent else {})
        value = orjson.dumps(about)
        client = self._scripts.client
        await self._call(client.hset, keys.PAIRED, field_of(provider, account, id_), value)

    async def remove(
        self, id_: str, *, provider: str | None = None, account: str | None = None
    ) -> Sequence[Paired]:
        """Revoke the access of a person or a group; return the removed pairings.

        Without `provider` and `account`, that is the access on all channels and accounts.
        """
        removed = [
            one
            for one in await self.list()
            if one.id == id_ and provider in (None, one.provider) and account in (None, one.account)
        ]
        if removed:
            fields = [field_of(one.provider, one.account, one.id) for one in removed]
            await self._call(self._scripts.client.hdel, keys.PAIRED, *fields)
        return removed

    async def list(self) -> Sequence[Paired]:
        """Return the people and groups with access, by account and name."""
        stored = await self._call(self._scripts.client.hgetall, keys.PAIRED)
        paired = []
        for field, text in stored.items():
            provider, account, id_ = field.decode().split("\n")
            data = orjson.loads(text)
            paired.append(
                Paired(
                    provider=provider,
                    account=account,
                    id=id_,
                    **data | {"at_ms": int(data["at_ms"])},
                )
            )
        return sorted(paired, key=lambda one: (one.provider, one.account, one.name, one.id))

    async def requests(self) -> Sequence[PairingRequest]:
        """Return the pending requests, oldest first."""
        stored = await self._call(self._scripts.client.hgetall, keys.PAIRING)
        expired_ms = await self._scripts.now_ms() - VALID_MS
        requests = [PairingRequest.decode(code.decode(), text) for code, text in stored.items()]
        pending = [request for request in requests if not request.by and request.at_ms > expired_ms]
        return sorted(pending, key=lambda request: request.at_ms)

    async def _call(self, command: Any, *args: Any) -> Any:
        return await self._scripts.call(command, *args, deadline=boottime() + APPEND_S)


def field_of(provider: str, account: str, id_: str) -> str:
    """Return the field of a person or a chat in hashes of them."""
    return f"{provider}\n{account}\n{id_}"
