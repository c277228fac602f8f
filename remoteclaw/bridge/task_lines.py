"""Descriptions of a session's tasks and branches, for its agent's prompts and for chats."""

from collections.abc import Sequence
from typing import Any, Literal

import orjson

from remoteclaw.bridge.activity import bare_name
from remoteclaw.bridge.untrusted import clean
from remoteclaw.clock import format_duration, local_time
from remoteclaw.host.terminal import one_line
from remoteclaw.messages import TaskStatus

#: A prompt has at most this many tasks, in at most this many bytes of JSON.
MAX_ITEMS, MAX_BYTES = 10, 4096
#: The maximum length of each text, in characters.
MAX_LABEL_CHARS, MAX_TOOL_CHARS, MAX_TEXT_CHARS, MAX_PROGRESS_CHARS = 64, 120, 200, 256


def describe_tasks(items: Sequence[TaskStatus], *, zone: str | None = None) -> list[dict[str, Any]]:
    """Return descriptions of a session's unfinished tasks for its agent, with times in `zone`.

    If they exceed the limits, a last item has the number of further tasks.
    """
    unfinished = [item for item in items if not item.is_over]
    described: list[dict[str, Any]] = []
    room = MAX_BYTES - len(orjson.dumps(_more(len(unfinished))))
    for item in unfinished[:MAX_ITEMS]:
        about = _about(item, zone)
        room -= len(orjson.dumps(about)) + 1  # 1 for the comma
        if room < 0:
            break
        described.append(about)
    left = len(unfinished) - len(described)
    return [*described, _more(left)] if left else described


def _more(count: int) -> dict[str, Any]:
    return {"more": count}


def _about(item: TaskStatus, zone: str | None) -> dict[str, Any]:
    since = local_time(item.since_ms, zone).strftime("%H:%M")
    about = {
        "run": item.run,
        "label": clean(item.label or "", max_chars=MAX_LABEL_CHARS),
        "kind": item.kind,
        "state": item.state,
        "since": f"{since} ({format_duration(item.age_ms)})",
        "doing": clean(doing_of(item), max_chars=MAX_TOOL_CHARS),
        "said": clean(item.last_text, max_chars=MAX_TEXT_CHARS),
        "progress": clean(item.progress, max_chars=MAX_PROGRESS_CHARS),
    }
    return {name: value for name, value in about.items() if value}


def doing_of(item: TaskStatus) -> str:
    """Return a task's last tool with its main argument; empty if it has used none."""
    return f"{item.tool}: {item.argument}" if item.argument else item.tool


def in_a_chat(item: TaskStatus, shown: Literal["arguments", "names", "off"]) -> str:
    """Return a line of Markdown about a task, with as much of its tool as `shown` allows."""
    name = one_line(item.label or f"a {item.kind}", max_chars=MAX_LABEL_CHARS)
    if item.state == "waiting":
        return f"{name}: waits ({format_duration(item.age_ms)})"
    tools = {"arguments": doing_of(item), "names": bare_name(item.tool) if item.tool else ""}
    tool = one_line(tools.get(shown, ""), max_chars=MAX_TOOL_CHARS).replace("`", "'")
    details = " · ".join(filter(None, (one_line(item.progress), tool and f"`{tool}`")))
    return f"{name}: {details or 'works'} ({format_duration(item.age_ms)})"
