"""Tasks and branches of a session, as a turn's line tells them to the agent."""

from collections.abc import Sequence
from typing import Any, Literal

import orjson

from remoteclaw.bridge.activity import bare_name
from remoteclaw.bridge.untrusted import clean
from remoteclaw.clock import in_words, local_time
from remoteclaw.host.terminal import one_line
from remoteclaw.messages import Work

#: How many items a turn's line has, and how many bytes of JSON they take together at most.
MAX_ITEMS, MAX_BYTES = 10, 4096
#: The longest text of each kind, in characters.
MAX_LABEL, MAX_DOING, MAX_SAID, MAX_PROGRESS = 64, 120, 200, 256


def work_of(items: Sequence[Work], *, zone: str | None = None) -> list[dict[str, Any]]:
    """Return what works for a session as an agent is told it; times are in the zone.

    Only what has not ended is in it. What finds no room is only counted, in a last item.
    """
    unfinished = [item for item in items if not item.is_over]
    told: list[dict[str, Any]] = []
    room = MAX_BYTES - len(orjson.dumps(_more(len(unfinished))))
    for item in unfinished[:MAX_ITEMS]:
        about = _about(item, zone)
        room -= len(orjson.dumps(about)) + 1  # and the comma
        if room < 0:
            break
        told.append(about)
    left = len(unfinished) - len(told)
    return [*told, _more(left)] if left else told


def _more(count: int) -> dict[str, Any]:
    return {"more": count}


def _about(item: Work, zone: str | None) -> dict[str, Any]:
    since = local_time(item.since_ms, zone).strftime("%H:%M")
    about = {
        "run": item.run,
        "label": clean(item.label or "", longest=MAX_LABEL),
        "kind": item.kind,
        "state": item.state,
        "since": f"{since} ({in_words(item.age_ms)})",
        "doing": clean(doing_of(item), longest=MAX_DOING),
        "said": clean(item.said, longest=MAX_SAID),
        "progress": clean(item.progress, longest=MAX_PROGRESS),
    }
    return {name: value for name, value in about.items() if value}


def doing_of(item: Work) -> str:
    """Return what a turn does: its last tool, with the argument that tells most."""
    return f"{item.tool}: {item.argument}" if item.argument else item.tool


def in_a_chat(item: Work, shown: Literal["arguments", "names", "off"]) -> str:
    """Return a line of Markdown about what works, with as much of its tool as is `shown`."""
    name = one_line(item.label or f"a {item.kind}", most=MAX_LABEL)
    if item.state == "waiting":
        return f"{name}: waits ({in_words(item.age_ms)})"
    doing = {"arguments": doing_of(item), "names": bare_name(item.tool) if item.tool else ""}
    tool = one_line(doing.get(shown, ""), most=MAX_DOING).replace("`", "'")
    told = " · ".join(filter(None, (one_line(item.progress), tool and f"`{tool}`")))
    return f"{name}: {told or 'works'} ({in_words(item.age_ms)})"
