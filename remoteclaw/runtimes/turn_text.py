"""The text of a turn: blocks separated by blank lines."""

from remoteclaw.events import AgentEvent, TextEvent, TextResetEvent


class TurnText:
    """The text of one turn. Its last block can be withdrawn."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._block_at = 0
        """The index of the first part of the last block."""
        self._break_due = False
        """Whether the next text begins after a blank line."""

    @property
    def text(self) -> str:
        """The text so far."""
        return "".join(self._parts)

    @property
    def block(self) -> str:
        """The text of the last block so far, without the blank line before it."""
        return "".join(self._parts[self._block_at :]).removeprefix("\n\n")

    def begin_block(self) -> None:
        """Begin a new block, separated from the text so far."""
        self._block_at = len(self._parts)
        self._break_due = bool(self._parts)

    def add(self, chunk: str) -> list[AgentEvent]:
        """Append text to the last block."""
        if not chunk:
            return []
        if self._break_due:
            self._break_due = False
            chunk = "\n\n" + chunk
        self._parts.append(chunk)
        return [TextEvent(chunk)]

    def complete(self, whole: str) -> list[AgentEvent]:
        """Complete the last block, whose final text may differ from what was added so far."""
        so_far = self.block
        if whole.startswith(so_far):
            return self.add(whole[len(so_far) :])
        return [*self.withdraw_block(), *self.add(whole)]

    def withdraw_block(self) -> list[AgentEvent]:
        """Withdraw the last block from the text."""
        gone = "".join(self._parts[self._block_at :])
        del self._parts[self._block_at :]
        self._break_due = bool(self._parts)
        return [TextResetEvent(len(gone))] if gone else []
