"""The events that processes log: one table of their texts, fields and meanings.

No event has a message's text or a secret, only ids, names and numbers.
"""

import asyncio
import contextlib
import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

#: A turn or a message that has waited for this long is logged, in seconds.
LONG_WAIT_S = 30.0
#: A part of an event's text that is left out while one of its fields is None.
_OPTIONAL = re.compile(r"\[([^][]*)\]")


@dataclass(frozen=True, slots=True)
class LogEvent:
    """An event, as logs and the documentation have it."""

    name: str
    text: str
    """The line's text, with the fields in braces; what is in brackets is optional."""
    meaning: str
    by: str
    """The process that logs it."""
    also: tuple[str, ...] = ()
    """The fields that only JSON has."""
    level: int = logging.INFO

    @property
    def fields(self) -> tuple[str, ...]:
        """The names of all fields."""
        return (*re.findall(r"{(\w+)", self.text), *self.also)

    def log(self, logger: logging.Logger, **fields: Any) -> None:
        """Log the event; a field without a value is None."""

        def part(match: re.Match[str]) -> str:
            names = re.findall(r"{(\w+)", match[1])
            return "" if any(fields[name] is None for name in names) else match[1]

        assert {*fields} == {*self.fields}, f"{self.name}: {sorted({*fields} ^ {*self.fields})}"
        text = _OPTIONAL.sub(part, self.text).format(**fields)
        logger.log(self.level, "%s", text, extra={"event": self.name, "fields": fields})


ACCEPTED = LogEvent(
    "message.accepted",
    "{reference}: accepted from {source} for {agent}",
    "A message is stored; `(again)` means that it was known.",
    "what accepted it: an adapter, a gateway, a worker for an agent's call, a sweeper for a cron "
    "job",
    also=("session",),
)
BEGINS = LogEvent(
    "turn.begins",
    "{reference}: begins: {agent} in {channel}, attempt {attempt}, worker {worker} on {host}",
    "A turn begins; a second attempt means that the first was cut off.",
    "the worker",
    also=("session",),
)
ASKS = LogEvent(
    "turn.asks",
    "{reference}: asks {agent}",
    "Another agent or model is asked than before, and why.",
    "the worker",
    also=("session",),
)
PAUSES = LogEvent(
    "turn.pauses",
    "{reference}: waits {reason}",
    "The agent is asked again later, after a failure of this category.",
    "the worker",
    also=("session",),
)
REPEATS = LogEvent(
    "turn.repeats",
    "{reference}: asked again at once: {category}",
    "The agent is asked again, after a failure of this category.",
    "the worker",
    also=("session",),
)
WAITS = LogEvent(
    "turn.waits",
    "{reference}: waits for {what}",
    f"A turn has waited for a person or another session for {LONG_WAIT_S:.0f} seconds.",
    "the worker, or the gateway for an agent's call",
    also=("session", "seconds"),
)
ENDS = LogEvent(
    "turn.ends",
    "{reference}: ends: {agent} in {channel}, {outcome}[ ({category})], {seconds:.1f} s"
    "[, {read} tokens read][, {written} written]",
    "A turn has ended: its outcome, with the category of an error; the seconds of the last attempt;"
    " the tokens of all attempts.",
    "the worker",
    also=("session",),
)
ASIDE = LogEvent(
    "aside.ends",
    "{reference}: aside during {turn}: {verdict}",
    "A message that arrived during a turn has its verdict: `answered`, `later`, `work` (it joins "
    "the turn), `stop` or `moved` (to a branch).",
    "the worker",
    also=("session",),
)
DELIVERED = LogEvent(
    "reply.delivered",
    "{reference}: delivered to {account}",
    "A platform has the last message of a turn.",
    "the adapter; for the page, a gateway",
    also=("session",),
)
UNDELIVERED = LogEvent(
    "reply.undelivered",
    "{reference}: not delivered to {account}: {reason}",
    "A message will not be delivered.",
    "the adapter; for the page, a gateway",
    also=("session",),
    level=logging.WARNING,
)
HINTED = LogEvent(
    "session.hinted",
    "session {session:.8}: hinted again, {reason}",
    "A session with work has no worker: its lease has `expired`, its host is gone or busy "
    "(`moved`), or its hint may be lost (`scheduled`).",
    "the sweeper",
)
SESSION_WAITS = LogEvent(
    "session.waits",
    "session {session:.8}: waits for a worker of {queue}, for {seconds} s",
    f"The messages of a session have waited for a worker for about {LONG_WAIT_S:.0f} seconds.",
    "the sweeper",
    level=logging.WARNING,
)
RESTARTED = LogEvent(
    "process.restarted",
    "{process} ended with status {status} and is started again in {seconds:g} s",
    "A worker, a gateway or the adapters' process has ended.",
    "`up`",
    level=logging.ERROR,
)

EVENTS = (
    *(ACCEPTED, BEGINS, ASKS, PAUSES, REPEATS, WAITS, ENDS, ASIDE, DELIVERED, UNDELIVERED),
    *(HINTED, SESSION_WAITS, RESTARTED),
)


@contextlib.contextmanager
def noting_wait(
    logger: logging.Logger, *, reference: str, session: str, what: str
) -> Iterator[None]:
    """Log `WAITS` once if the block takes longer than `LONG_WAIT_S`."""
    fields = {"reference": reference, "session": session, "what": what, "seconds": LONG_WAIT_S}
    note = asyncio.get_running_loop().call_later(LONG_WAIT_S, lambda: WAITS.log(logger, **fields))
    try:
        yield
    finally:
        note.cancel()
