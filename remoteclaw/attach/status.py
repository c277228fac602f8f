"""The last line of the window: what a person has to know of the terminal beyond its screen."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from remoteclaw.attach.paint import Run, in_cells, plain

HELP = (
    "Ctrl-] then: d leaves · c takes the keyboard · PageUp looks back · y copies · ] types Ctrl-]"
)
AWAY = "away: the gateway is asked again; what you type is not kept"
_DIM, _LOUD = {"d": 1}, {"v": 1}


@dataclass(slots=True)
class Status:
    """What there is to say."""

    record: Mapping[str, Any]
    """The terminal, as the gateway tells of it."""
    is_reader: bool = False
    """Whether this was started to look only."""
    is_writer: bool = False
    """Whether this viewer is the writer."""
    is_away: bool = False
    """Whether the gateway is."""
    note: str = ""
    """What was just done, or wasn't."""
    cut: str = ""
    is_back: bool = False
    is_waiting: bool = False
    """Whether the terminal waits for a running turn."""

    def line(self, cols: int) -> tuple[Run, ...]:
        """Return it as runs: words on the left, whose terminal it is on the right."""
        words, is_loud = self._words()
        left = in_cells(f" {plain(words)}", cols)
        name = "" if self.record["name"] == "main" else self.record["name"]
        about = [self.record["agent"], name, self._doing(), "Ctrl-] ?", self.cut]
        parts = [plain(part) for part in about if part]
        # What says least is left out first.
        while parts and len(right := f"  {' · '.join(parts)} ") > cols - len(left):
            del parts[0]
        if not parts:
            right = ""
        gap = " " * (cols - len(left) - len(right))
        return ([left, _LOUD if is_loud and words else _DIM], [gap + right, _DIM])

    def _words(self) -> tuple[str, bool]:
        """Return what matters most, and whether it is to catch the eye."""
        record = self.record
        if self.is_away:
            return AWAY, True
        if self.note:
            return self.note, True
        if record["state"] == "starting" and record["reason"]:
            return f"needs you: {record['reason']}", True
        if record["state"] == "starting":
            return ("waits: a turn is running" if self.is_waiting else "starts …"), False
        if self.is_back:
            return "looking back: any other key returns", True
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

    def _doing(self) -> str:
        activity = self.record["activity"]
        return activity if self.record["state"] == "live" and activity != "unknown" else ""
