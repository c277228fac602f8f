"""The inbox of an account: the reports that its platform has delivered, until they are handled.

A report is stored here before the platform is told that it has arrived, in the same step as the
cursors after it. So the platform need not keep it, and a slow report holds up nobody else.
"""

import functools
import json
import logging
import math
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from pydantic import TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError

from remoteclaw.errors import RedisRefused
from remoteclaw.fleet import keys
from remoteclaw.fleet.connection import Scripts
from remoteclaw.fleet.replies.reader import ReplyReader
from remoteclaw.fleet.turns.inbound import FULL
from remoteclaw.protocols import Incoming, Place

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StoredReport:
    """A report in the inbox."""

    id: str
    incoming: Incoming
    tries: int = 1
    """How many processes have begun to handle it, since one has ended as it was told to."""
    size: int = 0
    """The size of its JSON, in bytes."""


@dataclass(frozen=True, slots=True)
class LateMessages:
    """The messages of a place that were too old to be answered when they arrived."""

    place: Place
    summary: str
    """Their number, and the platform's times of the first and the last, in milliseconds."""

    @property
    def count(self) -> int:
        """How many they are."""
        return int(self.summary.split()[0])

    @property
    def first_ms(self) -> int:
        """When the first one was written, in milliseconds since 1970."""
        return int(self.summary.split()[1])

    @property
    def last_ms(self) -> int:
        """When the last one was written, in milliseconds since 1970."""
        return int(self.summary.split()[2])


class Inbox:
    """The reports of accounts that are still being handled, and the cursors after them.

    Each write raises `LeaseLost` if another adapter has the account's claim.
    """

    def __init__(self, scripts: Scripts) -> None:
        self._scripts = scripts

    async def cursors(self, reader: ReplyReader) -> dict[str, str]:
        """Return the cursor of each source of an account; empty before its first poll."""
        key = keys.cursors(reader.provider, reader.account)
        stored = await self._scripts.call(self._scripts.client.hgetall, key, deadline=math.inf)
        return {source.decode(): cursor.decode() for source, cursor in stored.items()}

    async def store(
        self,
        reader: ReplyReader,
        reports: Sequence[Incoming],
        moves: Mapping[str, str | None],
        *,
        run_id: str | None = None,
        is_urgent: bool = False,
    ) -> list[StoredReport]:
        """Store `readable()` reports, and the cursors that have moved; None removes a source.

        `run_id` is the server's when `cursors()` were read. Raises `LeaseLost` if it was restarted
        since: it may have lost reports before these, which have to be read again. Raises
        `RedisRefused` if Redis is too full for reports; for urgent ones there is more room.
        """
        contents = [_adapter().dump_json(each, exclude_defaults=True) for each in reports]
        last = await self._scripts.run(
            "inbox_store",
            token=reader.token,
            run_id=run_id,
            batch=uuid.uuid4().hex,
            is_urgent=is_urgent,
            moves=[*chain.from_iterable((name, moved or "") for name, moved in moves.items())],
            reports=contents,
            provider=reader.provider,
            account=reader.account,
            deadline=math.inf,
        )
        if last == "full":
            raise RedisRefused(FULL)
        first = last - len(reports) + 1
        return [
            StoredReport(str(first + index), report, size=len(content))
            for index, (report, content) in enumerate(zip(reports, contents, strict=True))
        ]

    async def take(self, reader: ReplyReader) -> list[StoredReport]:
        """Return the stored reports, oldest first, and remove those that can't be read.

        Another version of RemoteClaw may have stored them.
        """
        rows = await self._scripts.run(
            "inbox_take",
            token=reader.token,
            provider=reader.provider,
            account=reader.account,
            deadline=math.inf,
        )
        reports: list[StoredReport] = []
        unreadable: list[str] = []
        for id_, tries, report in rows:
            try:
                incoming = _adapter().validate_json(report)
            except ValidationError as error:
                log.error(
                    "a stored message of %s is skipped, because it can't be read: %s",
                    f"{reader.provider}/{reader.account}",
                    error.errors(include_url=False, include_input=False),
                )
                unreadable.append(id_)
            else:
                reports.append(StoredReport(id_, incoming, int(tries), len(report)))
        if unreadable:
            await self.done(reader, skipped=unreadable)
        return reports

    async def try_again(self, reader: ReplyReader, stored: StoredReport) -> None:
        """Count one more try of a report."""
        await self._scripts.run(
            "inbox_try",
            token=reader.token,
            id=stored.id,
            tries=stored.tries + 1,
            provider=reader.provider,
            account=reader.account,
            deadline=math.inf,
        )

    async def done(
        self,
        reader: ReplyReader,
        *,
        accepted: Sequence[str] = (),
        skipped: Sequence[str] = (),
        late: Sequence[tuple[str, int, Place]] = (),
    ) -> None:
        """Remove reports that were handled, by their ids.

        `late` are messages that were too old to be answered, each with its time and place.
        """
        late_args: list[str | bytes] = []
        for id_, at_ms, place in late:
            late_args += (id_, b"%d %s" % (at_ms, _place().dump_json(place)))
        await self._scripts.run(
            "inbox_done",
            token=reader.token,
            accepted=accepted,
            skipped=skipped,
            late=late_args,
            provider=reader.provider,
            account=reader.account,
            deadline=math.inf,
        )

    async def late_messages(self, reader: ReplyReader) -> list[LateMessages]:
        """Return the late messages of which their chats have not been told yet, by place."""
        key = keys.late_messages(reader.provider, reader.account)
        stored = await self._scripts.call(self._scripts.client.hgetall, key, deadline=math.inf)
        return [
            LateMessages(_place().validate_json(place), summary.decode())
            for place, summary in stored.items()
        ]

    async def late_told(self, reader: ReplyReader, late: LateMessages) -> None:
        """Forget late messages, because their chat was told of them."""
        await self._scripts.run(
            "late_told",
            token=reader.token,
            place=_place().dump_json(late.place),
            summary=late.summary,
            provider=reader.provider,
            account=reader.account,
            deadline=math.inf,
        )


def readable(report: Incoming) -> Incoming:
    """Return a report as it will be read from the inbox.

    UTF-8 has no lone surrogates, which a platform's JSON can have, so they become question marks.
    Raises `ValueError` if the adapter has given a field a value of a wrong type.
    """
    try:
        content = _adapter().dump_json(report, exclude_defaults=True, warnings=False)
    except PydanticSerializationError:
        fields = _adapter().dump_python(report, exclude_defaults=True, warnings=False)
        try:
            content = json.dumps(fields, ensure_ascii=False).encode("utf-8", "replace")
        except TypeError as error:
            raise ValueError(str(error)) from None
    try:
        return _adapter().validate_json(content)
    except ValidationError as error:
        raise ValueError(error.errors(include_url=False, include_input=False)) from None


@functools.cache
def _adapter() -> TypeAdapter[Incoming]:
    return TypeAdapter(Incoming)


@functools.cache
def _place() -> TypeAdapter[Place]:
    return TypeAdapter(Place)
