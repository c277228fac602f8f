"""Pairings: people and groups that were let in, and the codes by which strangers ask for it."""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import orjson

from remoteclaw.clock import boottime, now_ms
from remoteclaw.fleet import keys
from remoteclaw.fleet.connection import Scripts
from remoteclaw.fleet.inbound import APPEND_S

#: How long a code is valid, in milliseconds.
VALID_MS = 3600 * 1000
#: A code is letters that are not taken for digits or for each other, so that it can be read out.
LETTERS, CODE_LETTERS = "ABCDEFGHJKMNPQRSTUVWXYZ", 8


@dataclass(frozen=True, slots=True, kw_only=True)
class PairingRequest:
    """A stranger who asks to be let in."""

    provider: str
    account: str
    id: str
    """Their id on the platform."""
    name: str
    """What they call themselves."""
    chat: str
    """Where they have asked."""
    message: str
    """With which message."""
    code: str = ""
    at_ms: int = 0
    by: str = ""
    """Who has approved it; empty while it waits."""

    @classmethod
    def decode(cls, code: str, text: bytes) -> Self:
        """Return a request as Redis has it."""
        data: dict[str, Any] = orjson.loads(text)
        return cls(**{**data, "code": code, "at_ms": int(data["at_ms"])})


@dataclass(frozen=True, slots=True, kw_only=True)
class Paired:
    """A person or a group that was let in."""

    provider: str
    account: str
    id: str
    name: str
    by: str
    """Who has let them in."""
    at_ms: int


class Pairings:
    """The people and groups that were let in, and those that ask for it."""

    def __init__(self, scripts: Scripts) -> None:
        self._scripts = scripts

    async def has(self, provider: str, account: str, id_: str) -> bool:
        """Whether a person or a group was let in."""
        client = self._scripts.client
        field = _field(provider, account, id_)
        return bool(await self._call(client.hexists, keys.PAIRED, field))

    async def ask(self, request: PairingRequest) -> str | None:
        """Return the code for a stranger; None if they have one, or too many others do."""
        about = {
            name: getattr(request, name)
            for name in ("provider", "account", "id", "name", "chat", "message")
        }
        code = "".join(secrets.choice(LETTERS) for _ in range(CODE_LETTERS))
        told = await self._scripts.run(
            "pairing",
            keys={"pairing": keys.PAIRING},
            args={"code": code, "request": orjson.dumps(about), "valid_ms": VALID_MS},
            deadline=boottime() + APPEND_S,
        )
        return told.decode() or None

    async def approve(self, code: str, *, by: str) -> PairingRequest | None:
        """Let in whom a code stands for; None if it is not known, or too old."""
        wanted = code.strip().upper()
        told = await self._scripts.run(
            "pair",
            keys={"pairing": keys.PAIRING, "paired": keys.PAIRED},
            args={"code": wanted, "by": by, "valid_ms": VALID_MS},
        )
        return PairingRequest.decode(wanted, told) if told else None

    async def add(self, provider: str, account: str, id_: str, *, name: str, by: str) -> None:
        """Let a person or a group in."""
        told = orjson.dumps({"name": name, "by": by, "at_ms": now_ms()})
        client = self._scripts.client
        await self._call(client.hset, keys.PAIRED, _field(provider, account, id_), told)

    async def remove(self, id_: str, *, provider: str | None = None) -> Sequence[Paired]:
        """Let a person or a group in no more, on any account; return what they were."""
        found = [
            one for one in await self.list() if one.id == id_ and provider in (None, one.provider)
        ]
        if found:
            fields = [_field(one.provider, one.account, one.id) for one in found]
            await self._call(self._scripts.client.hdel, keys.PAIRED, *fields)
        return found

    async def list(self) -> Sequence[Paired]:
        """Return all that were let in, by account and name."""
        told = await self._call(self._scripts.client.hgetall, keys.PAIRED)
        found = []
        for field, text in told.items():
            provider, account, id_ = field.decode().split("\n")
            data = orjson.loads(text)
            found.append(
                Paired(
                    provider=provider,
                    account=account,
                    id=id_,
                    **data | {"at_ms": int(data["at_ms"])},
                )
            )
        return sorted(found, key=lambda one: (one.provider, one.account, one.name, one.id))

    async def requests(self) -> Sequence[PairingRequest]:
        """Return what waits to be approved, oldest first."""
        told = await self._call(self._scripts.client.hgetall, keys.PAIRING)
        oldest = await self._scripts.now_ms() - VALID_MS
        found = [PairingRequest.decode(code.decode(), text) for code, text in told.items()]
        waiting = [one for one in found if not one.by and one.at_ms > oldest]
        return sorted(waiting, key=lambda one: one.at_ms)

    async def _call(self, command: Any, *args: Any) -> Any:
        return await self._scripts.call(command, *args, deadline=boottime() + APPEND_S)


def _field(provider: str, account: str, id_: str) -> str:
    return f"{provider}\n{account}\n{id_}"
