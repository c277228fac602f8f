"""The inbox of an account: reports that its platform has delivered and that are still handled.

A report is stored here only if its handling is slow, for example because of a large file. Then the
account's position moves past it, so that it holds up nobody else.
"""

import functools
import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import TypeAdapter, ValidationError

from remoteclaw.errors import RedisRefused
from remoteclaw.fleet import keys
from remoteclaw.fleet.connection import Scripts
from remoteclaw.fleet.replies.reader import ReplyReader
from remoteclaw.fleet.turns.inbound import FULL
from remoteclaw.protocols import Incoming

#: The inbox has at most this many reports: of one sender, of one chat, and in all; and this size,
#: in bytes. Beyond that, reports are refused, so that nobody's files hold up the account.
MAX_OF_SENDER, MAX_OF_CHAT, MAX_REPORTS = 50, 100, 1000
MAX_BYTES = 16 * 1024 * 1024

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StoredReport:
    """A report in the inbox."""

    id: str
    incoming: Incoming
    tries: int
    """How many processes have begun to handle it, since one has ended as it was told to."""


class Inbox:
    """The reports of accounts that are still being handled, and the positions after them."""

    def __init__(self, scripts: Scripts) -> None:
        self._scripts = scripts

    async def position(self, reader: ReplyReader) -> str | None:
        """Return the position from which to read a platform; None for its oldest messages."""
        position = await self._scripts.call(
            self._scripts.client.get,
            keys.position(reader.provider, reader.account),
            deadline=math.inf,
        )
        return None if position is None else position.decode()

    async def advance(
        self,
        reader: ReplyReader,
        position: str,
        *,
        accepted: int = 0,
        skipped: int = 0,
        slow: Sequence[Incoming] = (),
    ) -> list[str | None]:
        """Record that every report before `position` was handled, or is stored in the inbox.

        `accepted` and `skipped` are the numbers of handled reports. Return the ids under which the
        `slow` ones are stored; None for a report for which the inbox has no room.
        Raises `LeaseLost` if another adapter has the account's claim, and `RedisRefused` if Redis
        is too full.
        """
        stored = await self._scripts.run(
            "advance",
            token=reader.token,
            position=position,
            accepted=accepted,
            skipped=skipped,
            max_of_sender=MAX_OF_SENDER,
            max_of_chat=MAX_OF_CHAT,
            max_reports=MAX_REPORTS,
            max_bytes=MAX_BYTES,
            reports=[_adapter().dump_json(each, exclude_defaults=True) for each in slow],
            provider=reader.provider,
            account=reader.account,
            deadline=math.inf,
        )
        if stored == "full":
            raise RedisRefused(FULL)
        return [each.decode() or None for each in stored]

    async def take(self, reader: ReplyReader) -> list[StoredReport]:
        """Return the stored reports, oldest first, and remove those that can't be read.

        Another version of RemoteClaw may have stored them. Raises `LeaseLost` if another adapter
        has the account's claim.
        """
        rows = await self._scripts.run(
            "inbox_take",
            token=reader.token,
            provider=reader.provider,
            account=reader.account,
            deadline=math.inf,
        )
        reports: list[StoredReport] = []
        for id_, tries, report in rows:
            try:
                incoming = _adapter().validate_json(report)
            except ValidationError as error:
                log.error(
                    "a stored message of %s is skipped, because it can't be read: %s",
                    f"{reader.provider}/{reader.account}",
                    error.errors(include_url=False, include_input=False),
                )
                await self.done(reader, id_, is_accepted=False)
            else:
                reports.append(StoredReport(id_, incoming, int(tries)))
        return reports

    async def try_again(self, reader: ReplyReader, stored: StoredReport) -> None:
        """Count one more try of a report. Raises `LeaseLost` if another adapter has the claim."""
        await self._scripts.run(
            "inbox_try",
            token=reader.token,
            id=stored.id,
            tries=stored.tries + 1,
            provider=reader.provider,
            account=reader.account,
            deadline=math.inf,
        )

    async def done(self, reader: ReplyReader, id_: str, *, is_accepted: bool) -> None:
        """Remove a report that was handled. Raises `LeaseLost` if another adapter has the claim."""
        await self._scripts.run(
            "inbox_done",
            token=reader.token,
            id=id_,
            is_accepted=is_accepted,
            provider=reader.provider,
            account=reader.account,
            deadline=math.inf,
        )


@functools.cache
def _adapter() -> TypeAdapter[Incoming]:
    return TypeAdapter(Incoming)
