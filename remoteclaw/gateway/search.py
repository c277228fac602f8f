"""The search in what was said: through the records of the newest sessions, within bounds."""

import asyncio
import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from remoteclaw.fleet import Fleet
from remoteclaw.fleet.sessions import SessionView
from remoteclaw.session.record import read_lines
from remoteclaw.tools.oversight import Excerpt

#: The most sessions that a list or a search looks through.
MAX_LOOKED_AT = 1000
#: How much is searched at most, in bytes: that takes a quarter of a second.
MAX_BYTES = 64 * 1024 * 1024
#: How many records are read in one step.
AT_ONCE = 10
#: Searches wait for each other here: many at once would take the time of all who ask for anything.
_LOOKING = ThreadPoolExecutor(1, thread_name_prefix="search")
#: How much is shown before and behind what was found, in characters.
BEFORE, BEHIND = 60, 140


@dataclass(frozen=True, slots=True)
class Found:
    """What a search has found."""

    views: Sequence[SessionView]
    excerpts: Mapping[str, Excerpt]
    """The newest place of each, by the session's id."""
    searched: int | None
    """How many sessions were searched, if the others would have been too much."""


async def search_records(
    fleet: Fleet, views: Sequence[SessionView], words: str, *, most: int
) -> Found:
    """Return those of some sessions, in their order, in which words were said: `most` of them."""
    sizes = await fleet.records.sizes([view.sid for view in views])
    room, within = MAX_BYTES, len(views)
    for place, size in enumerate(sizes):
        if (room := room - size) < 0:
            within = place
            break
    found: dict[str, Excerpt] = {}
    for first in range(0, within, AT_ONCE):
        sids = [view.sid for view in views[first : min(first + AT_ONCE, within)]]
        records = await fleet.records.of_all(sids)
        # It takes a while, and others are answered meanwhile.
        loop = asyncio.get_running_loop()
        excerpts = await loop.run_in_executor(_LOOKING, _excerpts, records, words)
        found |= {sid: one for sid, one in zip(sids, excerpts, strict=True) if one}
        if len(found) >= most:
            break
    fitting = [view for view in views if view.sid in found][:most]
    is_cut = within < len(views) and len(found) < most
    return Found(fitting, found, within if is_cut else None)


def _excerpts(records: Sequence[bytes], words: str) -> list[Excerpt | None]:
    return [_excerpt(record, words) for record in records]


def _excerpt(record: bytes, words: str) -> Excerpt | None:
    """Return the newest place of a record where a person or the agent has said something."""
    wanted = words.casefold()
    for line in reversed([*read_lines(record)]):
        text = str(line.get("text") or "")
        if wanted in text.casefold():
            return Excerpt(
                at=int(line.get("at") or 0),
                who=str(line.get("from") or line.get("role")),
                text=_around(text, words),
            )
    return None


def _around(text: str, words: str) -> str:
    match = re.search(re.escape(words), text, re.IGNORECASE)
    at = match.start() if match else 0
    first, last = max(0, at - BEFORE), at + BEHIND
    part = " ".join(text[first:last].split())
    return f"{'… ' if first else ''}{part}{' …' if last < len(text) else ''}"
