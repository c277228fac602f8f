"""Signs: the messages of people that show their state as a reaction, each with that state."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Literal

import orjson

from remoteclaw.fleet.connection import Scripts
from remoteclaw.fleet.replies.reader import ReplyReader
from remoteclaw.protocols import MessageState

#: At most this many messages of an account show their state: a process reads all of them twice
#: a second, in four milliseconds. The others are answered without a sign.
MAX_SIGNS = 500


@dataclass(frozen=True, slots=True)
class Sign:
    """A message in a chat that shows the state of its entry."""

    chat: str
    thread: str | None
    message_id: str
    sid: str
    entry_id: str

    @property
    def name(self) -> str:
        """A name of the message that is unique in its account."""
        return sign_name(self.chat, self.message_id)


def sign_name(chat: str, message_id: str) -> str:
    """Return the name of the sign of a message."""
    return f"{chat}\0{message_id}"


class Signs:
    """Stores which messages show their state until their outcome is shown, and reads the states."""

    def __init__(self, scripts: Scripts) -> None:
        self._scripts = scripts

    async def add(self, provider: str, account: str, sign: Sign, *, deadline: float) -> bool:
        """Store a sign; return whether it is new. With `MAX_SIGNS` of them, it is not stored."""
        added = await self._scripts.run(
            "sign",
            token=None,
            name=sign.name,
            sign=orjson.dumps(asdict(sign)),
            max_signs=MAX_SIGNS,
            provider=provider,
            account=account,
            deadline=deadline,
        )
        return bool(added)

    async def remove(self, reader: ReplyReader, name: str) -> None:
        """Remove a sign. Raises `LeaseLost` if another adapter has the claim."""
        await self._scripts.run(
            "sign",
            token=reader.token,
            name=name,
            sign=None,
            max_signs=None,
            provider=reader.provider,
            account=reader.account,
            deadline=math.inf,
        )

    async def read(
        self, reader: ReplyReader
    ) -> Sequence[tuple[Sign, MessageState | Literal["ended", "gone"]]]:
        """Return the signs with the states of their entries, the oldest entry first.

        Beside a `MessageState` that is `ended`, with nothing to show, or `gone`, without a message.
        Raises `LeaseLost` if another adapter has the claim.
        """
        rows = await self._scripts.run(
            "signs",
            token=reader.token,
            provider=reader.provider,
            account=reader.account,
            deadline=math.inf,
        )
        signs = [(Sign(**orjson.loads(row.sign)), row.state) for row in rows]
        return sorted(signs, key=lambda each: tuple(map(int, each[0].entry_id.split("-"))))
