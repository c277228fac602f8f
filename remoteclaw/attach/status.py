"""The status line of the window: facts about the terminal that its screen does not show."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from remoteclaw.attach.paint import Run, plain, shorten

HELP = (
    "Ctrl-] then: d leaves · c takes the keyboard · PageUp scrolls back · y copies · ] types Ctrl-]"
)
AWAY = "away: connecting to the gateway again; what you type is not kept"
_DIM, _LOUD = {"d": 1}, {"v": 1}


@dataclass(slots=True)
class StatusLine:
    """The content of the status line."""

    record: Mapping[str, Any]
    """The terminal's record, from the gateway."""
    is_reader: bool = False
    """Whether this viewer only watches (`--read-only`)."""
    is_writer: bool = False
    """Whether this viewer has the keyboard."""
    is_away: bool = False
    """Whether the gateway does not answer."""
    note: str = ""
    """A message about the user's last action."""
    cut_note: str = ""
    is_scrolled_back: bool = False
    is_waiting: bool = False
    """Whether the terminal waits for a running turn."""

    def runs(self, cols: int) -> tuple[Run, ...]:
        """Return the line as runs: a message on the left, the terminal's name and state right."""
        message, is_loud = self._message()
        left = shorten(f" {plain(message)}", cols)
        name = "" if self.record["name"] == "main" else self.record["name"]
        about = [self.record["agent"], name, self._activity(), "Ctrl-] ?", self.cut_note]
        parts = [plain(part) for part in about if part]
        # The parts are in increasing order of importance.
        while parts and len(right := f"  {' · '.join(parts)} ") > cols - len(left):
            del parts[0]
        if not parts:
            right = ""
        gap = " " * (cols - len(left) - len(right))
        return ([left, _LOUD if is_loud and message else _DIM], [gap + right, _DIM])

    def _message(self) -> tuple[str, bool]:
        """Return the most important message, and whether it is highlighted."""
        record = self.record
        if self.is_away:
            return AWAY, True
        if self.note:
            return self.note, True
        if record["state"] == "starting" and record["reason"]:
            return f"needs you: {record['reason']}", True
        if record["state"] == "starting":
            return ("waits: a turn is running" if self.is_waiting else "starts …"), False
        if self.is_scrolled_back:
            return "scrolled back: any other key returns", True
        if record["activity"] == "waiting":
            return f"needs you: {record['waitingFor'] or record['title'] or 'it asks'}", True
        if self.is_reader:
            return f"read-only{self._typist(', ')}", False
        if not self.is_writer:
            return f"{self._typist() or 'nobody types'} (Ctrl-] c: you)", True
        return "", False

    def _typist(self, before: str = "") -> str:
        name = self.record["writer"]
        return f"{before}{name} types" if name else ""

    def _activity(self) -> str:
        activity = self.record["activity"]
        return activity if self.record["state"] == "live" and activity != "unknown" else ""
