"""Compactions of claude's conversation, read from its lines."""

from dataclasses import replace
from typing import Any

from remoteclaw.events import CompactionEvent
from remoteclaw.runtimes.wire import count, mapping, mappings, text

#: The beginning of claude's instructions after the summary, which are for claude only.
_AFTER_SUMMARY = "\n\nIf you need specific details from before compaction"


class Compactions:
    """The compactions of one turn."""

    def __init__(self) -> None:
        self._boundary: CompactionEvent | None = None
        """The finished compaction whose summary has not arrived yet."""

    def read(self, message: dict[str, Any]) -> list[CompactionEvent]:
        """Return the events of a line."""
        match message.get("type"), message.get("subtype"):
            case "system", "status" if message.get("status") == "compacting":
                return [CompactionEvent("began")]
            case "system", "status" if message.get("compact_result") == "failed":
                return [CompactionEvent("failed")]
            case "system", "compact_boundary":
                self._boundary = _compaction_of(mapping(message.get("compact_metadata")))
            case ("user", _) | ("result", _) if boundary := self._boundary:
                self._boundary = None
                return [replace(boundary, summary=_summary_of(message))]
        return []


def _compaction_of(metadata: dict[str, Any]) -> CompactionEvent:
    return CompactionEvent(
        "done",
        trigger="manual" if metadata.get("trigger") == "manual" else "auto",
        before=count(metadata.get("pre_tokens")) or None,
        after=count(metadata.get("post_tokens")) or None,
    )


def _summary_of(message: dict[str, Any]) -> str:
    if not message.get("isSynthetic"):
        return ""
    content = mapping(message.get("message")).get("content")
    # A summary on request is a text; one that claude makes unasked is a list of blocks.
    whole = text(content) or "".join(text(block.get("text")) for block in mappings(content))
    return whole.partition(_AFTER_SUMMARY)[0]
