"""What people do, in the order in which RemoteClaw gets it: live, and from histories.

An envelope is acknowledged once its report is stored. Slack repeats those of a time without a
connection after a minute at the earliest, so histories are read then; a live event waits only while
the history of its own conversation is read. While Slack has another connection of the app, it may
have sent what was before an event there, so the history is read before each.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Mapping, Sequence
from email.utils import mktime_tz, parsedate_tz
from typing import Any

from remoteclaw.channels.slack.api import WebApi
from remoteclaw.channels.slack.blocks import reason_view
from remoteclaw.channels.slack.catch_up import CatchUp, Found
from remoteclaw.channels.slack.events import MALFORMED, WITH_REASON, Reader
from remoteclaw.channels.slack.socket import Envelope, Socket
from remoteclaw.errors import PlatformBusy, RemoteClawError
from remoteclaw.protocols import Incoming, PollResult

#: How long a poll waits for envelopes, in seconds.
POLL_S = 25.0

#: A conversation without a cursor is read from so long before the newest one, in seconds: Slack
#: repeats within it what it has sent elsewhere.
BEFORE_S = 60.0
#: This many deleted messages are remembered.
MAX_DELETED = 1000
#: The source whose cursor is the account's first start; Slack can push what is older.
START = "start"

log = logging.getLogger(__name__)


class Feed:
    """The reports of an account."""

    def __init__(self, api: WebApi, socket: Socket, reader: Reader) -> None:
        self._api, self._socket, self._reader = api, socket, reader
        self._catch_up = CatchUp(api)
        self._returned: Mapping[str, str | None] = {}
        """The cursors of the last result."""
        self._cursors: Mapping[str, str] = {}
        self._start = 0.0
        self._is_behind = True
        """Whether the histories have messages that Slack won't push."""
        self._held: list[tuple[str, Envelope]] = []
        """What waits for the history of a source."""
        self._deleted: dict[tuple[str, str], None] = {}
        """Messages that were deleted, newest last: what Slack repeats comes in no order."""
        self._opening: set[asyncio.Task[None]] = set()

    async def connect(self) -> None:
        """Open the connection, which checks the app-level token.

        Slack lets an app open about one a minute: replies don't wait for that, and polls do.
        """
        with contextlib.suppress(PlatformBusy):
            await self._socket.ensure()

    async def poll(self, cursors: Mapping[str, str]) -> PollResult:
        """Wait for what people do."""
        if not self._is_stored(cursors):  # Slack repeats the envelopes, the histories have the rest
            await self.close()
        self._is_behind |= self._socket.was_lost
        await self._socket.ensure()
        if not cursors:  # the first start
            self._is_behind = self._socket.was_lost = False
            answered = parsedate_tz(self._api.answered)  # the host's clock can be fast
            now_s = min(time.time(), mktime_tz(answered) + 1) if answered else time.time()
            now = f"{now_s:.6f}"
            return self._result([], [], {"": now, START: now})
        self._cursors, self._start = cursors, float(cursors.get(START, 0))
        if self._is_behind:
            self._socket.was_lost = False
            moved = await self._catch_up.begin(cursors)
            self._is_behind = False
            return self._result([], [], moved)
        wait_s = POLL_S if self._catch_up.is_over else self._catch_up.wait_s
        arrived = await self._socket.envelopes(wait_s)
        if arrived:
            return await self._taken(arrived)
        is_due = not self._catch_up.is_over and self._catch_up.wait_s <= 0
        if is_due and (found := await self._catch_up.step()):
            return await self._read(found)
        return PollResult()

    def _is_stored(self, cursors: Mapping[str, str]) -> bool:
        """Whether the last result was stored; another process may have had the account then."""
        return all(
            float(cursors.get(source, 0)) >= float(cursor)
            for source, cursor in self._returned.items()
            if cursor is not None
        )

    async def _taken(self, arrived: Sequence[Envelope], *, is_read: bool = False) -> PollResult:
        """Return the reports of envelopes, except those that wait for a history.

        `is_read` says that it is read.
        """
        reports: list[Incoming] = []
        cursors: dict[str, str] = {}
        taken = []
        for envelope in sorted(arrived, key=lambda each: each.kind != "interactive"):
            report, moved = await self._report_of(envelope)
            source, ts = next(iter(moved.items()), ("", ""))
            if ts and float(ts) < self._start:
                report, moved = None, {}
            elif not is_read and (
                self._catch_up.has(source) or (ts and self._may_lack(source, ts))
            ):
                self._catch_up.hasten(source, self._cursor_of(source))
                self._held.append((source, envelope))
                continue
            taken.append(envelope)
            reports += [report] if report and not self._is_deleted(report) else []
            for each, cursor in moved.items():
                cursors[each] = max(cursor, cursors.get(each, ""), key=lambda at: float(at or 0))
        if cursors:
            cursors[""] = max(cursors.values(), key=float)
        return self._result(reports, taken, cursors)

    def _may_lack(self, source: str, ts: str) -> bool:
        """Whether Slack may have sent elsewhere what was written before a message.

        If no call may be made, the message doesn't wait for one: most have their order anyway.
        """
        is_new = float(ts) > float(self._cursor_of(source))
        return self._socket.is_shared and is_new and self._catch_up.wait_s <= 0

    def _cursor_of(self, source: str) -> str:
        if found := self._cursors.get(source):
            return found
        newest, began = float(self._cursors.get("", 0)), float(source.partition("/")[2] or 0)
        return f"{max(newest - BEFORE_S, began, self._start):.6f}"

    def _is_deleted(self, report: Incoming) -> bool:
        """Whether a message has been deleted before it was reported."""
        if report.deletes is not None:
            self._deleted[report.chat, report.deletes] = None
            while len(self._deleted) > MAX_DELETED:
                del self._deleted[next(iter(self._deleted))]
        return (report.chat, report.id) in self._deleted

    async def _read(self, found: Found) -> PollResult:
        """Return the reports of a history, then the live ones that have waited for it."""
        waited = [each for source, each in self._held if source == found.source]
        self._held = [each for each in self._held if each[0] != found.source]
        if found.is_gone:
            return self._result([], [], {found.source: None})
        is_group = not found.chat.startswith("D")
        reports = []
        for message in found.messages:
            report = await self._message(message, found.chat, is_group=is_group)
            reports += [report] if report else []
        cursor = found.messages[-1]["ts"] if found.messages else found.after
        live = await self._taken(waited, is_read=True)
        cursors = {**found.begun, found.source: cursor, **live.cursors}
        return self._result([*reports, *live.incoming], waited, cursors)

    async def _message(
        self, message: Mapping[str, Any], chat: str, *, is_group: bool
    ) -> Incoming | None:
        try:
            return await self._reader.message(message, chat, is_group=is_group)
        except MALFORMED as error:
            log.warning("a message in %s is malformed: %s", chat, type(error).__name__)
            return None

    async def _report_of(self, envelope: Envelope) -> tuple[Incoming | None, dict[str, str]]:
        """Return the report of an envelope, if anybody expects something of it, and its cursor."""
        try:
            match envelope.kind:
                case "events_api":
                    return await self._reader.event(envelope.payload)
                case "slash_commands":
                    report = self._reader.command(envelope.payload)
                    if isinstance(report, str):
                        envelope.answer["text"] = report
                        return None, {}
                    return report, {}
                case "interactive":
                    return await self._interaction(envelope), {}
        except MALFORMED as error:
            log.warning("a report of Slack is malformed: %s", type(error).__name__)
        return None, {}

    async def _interaction(self, envelope: Envelope) -> Incoming | None:
        payload = envelope.payload
        if payload["type"] == "view_submission":
            return await self._reader.submitted(payload)
        if payload["type"] != "block_actions":
            return None
        if payload["actions"][0]["action_id"] == WITH_REASON:  # there are three seconds for it
            task = asyncio.create_task(self._ask_reason(payload))
            self._opening.add(task)
            task.add_done_callback(self._opening.discard)
        return await self._reader.pressed(payload)

    async def _ask_reason(self, payload: Mapping[str, Any]) -> None:
        view = reason_view(payload["actions"][0]["value"], payload["container"])
        try:
            await self._api.call("views.open", trigger_id=payload["trigger_id"], view=view)
        except RemoteClawError as error:
            log.warning("nobody is asked for a reason: %s", error)

    def _result(
        self,
        reports: Sequence[Incoming],
        envelopes: Sequence[Envelope],
        cursors: Mapping[str, str | None],
    ) -> PollResult:
        async def acknowledge() -> None:
            for envelope in envelopes:
                await envelope.acknowledge()

        self._returned = cursors
        return PollResult(tuple(reports), cursors, acknowledge if envelopes else None)

    async def close(self) -> None:
        """Close the connection; what was not stored comes again."""
        self._returned, self._held, self._is_behind = {}, [], True
        self._catch_up = CatchUp(self._api)
        for task in [*self._opening]:
            task.cancel()
        await self._socket.close()
