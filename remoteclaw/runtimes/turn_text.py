"""The text of a turn: blocks with a blank line between them."""

from remoteclaw.events import AgentEvent, TextEvent, TextResetEvent


class Prose:
    """The text of one turn. A block that turns out to be none can be taken back."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._block_at = 0
        """Which of the parts the last block begins with."""
        self._break_due = False

    @property
    def text(self) -> str:
        """The text so far."""
        return "".join(self._parts)

    @property
    def block(self) -> str:
        """The text of the last block so far, without the break before it."""
        return "".join(self._parts[self._block_at :]).removeprefix("\n\n")

    def begin_block(self) -> None:
        """Let what follows stand apart from what was said."""
        self._block_at = len(self._parts)
        self._break_due = bool(self._parts)

    def add(self, words: str) -> list[AgentEvent]:
        """Take more of the last block."""
        if not words:
            return []
        if self._break_due:
            self._break_due = False
            words = "\n\n" + words
        self._parts.append(words)
        return [TextEvent(words)]

    def complete(self, whole: str) -> list[AgentEvent]:
        """Take the last block as it is in the end; what was said of it before may differ."""
        said = self.block
        if whole.startswith(said):
            return self.add(whole[len(said) :])
        return [*self.take_back(), *self.add(whole)]

    def take_back(self) -> list[AgentEvent]:
        """Withdraw the last block."""
        gone = "".join(self._parts[self._block_at :])
        del self._parts[self._block_at :]
        self._break_due = bool(self._parts)
        return [TextResetEvent(len(gone))] if gone else []
