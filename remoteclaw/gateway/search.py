"""The search for text in the records of the newest sessions, within limits."""

import asyncio
import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from remoteclaw.fleet.sessions.records import Records
from remoteclaw.fleet.sessions.sessions import SessionView
from remoteclaw.session.record import read_lines
from remoteclaw.tools.sessions import Excerpt

#: A list or a search covers at most this many of the newest sessions.
MAX_SESSIONS = 1000
#: A search reads at most this many bytes of records, which takes a quarter of a second.
MAX_SEARCHED_BYTES = 64 * 1024 * 1024
#: The number of records that are read and searched in one step.
BATCH = 10
#: Runs one search step at a time: many searches at once would delay all other calls.
_EXECUTOR = ThreadPoolExecutor(1, thread_name_prefix="search")
#: The number of characters that an excerpt shows before and after the start of a match.
CHARS_BEFORE, CHARS_AFTER = 60, 140


@dataclass(frozen=True, slots=True)
class RecordMatches:
    """The matches of a search for a text in records."""

    excerpts: Mapping[str, Excerpt]
    """The newest match of each session that has one, by the session's id."""
    searched: int | None
    """How many sessions were searched; None if the limit did not cut the search short."""


async def search_records(
    records: Records, views: Sequence[SessionView], query: str, *, limit: int
) -> RecordMatches:
    """Search the records of some sessions for `query`, in their order, until `limit` have it."""
    sizes = await records.sizes([view.sid for view in views])
    bytes_left, searchable = MAX_SEARCHED_BYTES, len(views)
    for index, size in enumerate(sizes):
        if (bytes_left := bytes_left - size) < 0:
            searchable = index
            break
    excerpts: dict[str, Excerpt] = {}
    for first in range(0, searchable, BATCH):
        if len(excerpts) >= limit:
            break
        sids = [view.sid for view in views[first : min(first + BATCH, searchable)]]
        contents = await records.of_all(sids)
        # Searching is slow, so it runs in a thread and does not block the event loop.
        loop = asyncio.get_running_loop()
        found = await loop.run_in_executor(_EXECUTOR, _excerpts, contents, query)
        excerpts |= {sid: excerpt for sid, excerpt in zip(sids, found, strict=True) if excerpt}
    is_cut = searchable < len(views) and len(excerpts) < limit
    return RecordMatches(excerpts, searchable if is_cut else None)


def _excerpts(records: Sequence[bytes], query: str) -> list[Excerpt | None]:
    return [_excerpt(record, query) for record in records]


def _excerpt(record: bytes, query: str) -> Excerpt | None:
    """Return an excerpt around the newest match in a record; None if there is no match."""
    wanted = query.casefold()
    for line in reversed([*read_lines(record)]):
        text = str(line.get("text") or "")
        if wanted in text.casefold():
            return Excerpt(
                at=int(line.get("at") or 0),
                who=str(line.get("from") or line.get("role")),
                text=_around(text, query),
            )
    return None


def _around(text: str, query: str) -> str:
    match = re.search(re.escape(query), text, re.IGNORECASE)
    start = match.start() if match else 0
    first, last = max(0, start - CHARS_BEFORE), start + CHARS_AFTER
    part = " ".join(text[first:last].split())
    return f"{'… ' if first else ''}{part}{' …' if last < len(text) else ''}"
