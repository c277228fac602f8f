"""Models that are left alone for a while, because their provider has refused or not answered.

All sessions of the fleet read this, so that not each of them asks the model to find out.
"""

import hashlib
import hmac
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import orjson

from remoteclaw.errors import ErrorCategory
from remoteclaw.fleet import keys
from remoteclaw.fleet.connection import Scripts

#: For how long a model is left alone if its provider names no time, in milliseconds, by the
#: failure. It is short, because only an ask can find out that the model is back.
COOL_MS = {
    ErrorCategory.USAGE_LIMIT: 60_000,
    ErrorCategory.RETRYABLE: 60_000,
    ErrorCategory.UNREACHABLE: 60_000,
    ErrorCategory.BILLING: 15 * 60_000,
}
#: The number of hexadecimal digits that stand for an account.
DIGITS = 24


@dataclass(frozen=True, slots=True)
class Failure:
    """A failure for which a model is left alone."""

    category: ErrorCategory
    until_ms: int | None = None
    """The time at which the provider accepts requests again, in milliseconds since 1970; None if it
    is unknown."""

    @classmethod
    def parse(cls, noted: str) -> Self | None:
        """Return what a script has noted; None for an empty text."""
        category, _, until_ms = noted.partition(" ")
        return cls(ErrorCategory(category), int(until_ms)) if category else None


@dataclass(frozen=True, slots=True)
class Cool:
    """A model to leave alone, and why."""

    key: str
    failure: Failure


def cool_args(cool: Cool | None) -> dict[str, str | int | None]:
    """Return what a script needs to note that a model is left alone; None notes nothing."""
    if cool is None or cool.failure.category not in COOL_MS:
        return {"cool": None, "category": None, "default_ms": None}
    category = cool.failure.category
    return {"cool": cool.key, "category": str(category), "default_ms": COOL_MS[category]}


class CoolingModels:
    """The models that are left alone at the moment."""

    def __init__(self, scripts: Scripts) -> None:
        self._scripts = scripts
        self._secret = b""

    async def key(self, runtime: str, account: Sequence[str], model: str | None) -> str:
        """Return the key of a model; `account` identifies the account and may contain secrets."""
        if not self._secret:
            new = secrets.token_hex(32)
            self._secret = str(await self._scripts.run("account_digests", new=new)).encode()
        told = orjson.dumps([runtime, *account])
        digest = hmac.new(self._secret, told, hashlib.sha256).hexdigest()[:DIGITS]
        return keys.cool(runtime, digest, model or "")

    async def read(self, names: Sequence[str]) -> list[Failure | None]:
        """Return why each model, by its key, is left alone; None for one that can be asked."""
        noted = await self._scripts.run("cooling", cooling=names)
        return [Failure.parse(each.decode()) for each in noted]
