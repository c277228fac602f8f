"""The keyboard of a terminal: one user types at a time. (`keys.py` encodes what is typed.)"""

from dataclasses import dataclass

from remoteclaw.errors import CallRefused

#: How long a user whose connection is gone keeps the keyboard, in seconds: a browser that reloads
#: the page, or a gateway that restarts, takes less.
AWAY_S = 10.0


@dataclass(frozen=True, slots=True)
class Typist:
    """A user who may type."""

    name: str
    """What others are told."""
    credential: str
    """Whose token it is."""
    connection: int | None = None
    """The user's connection; None for calls without one of their own."""


class Keyboard:
    """The keyboard of one terminal, which one user has at a time."""

    def __init__(self) -> None:
        self._who: Typist | None = None
        self._away_since: float | None = None

    @property
    def name(self) -> str:
        """Who types; empty if it is free."""
        return self._who.name if self._who else ""

    def is_held_by(self, who: Typist) -> bool:
        """Whether this user has it."""
        if self._who is None or self._who.credential != who.credential:
            return False
        # Calls without a connection, and a user who comes back, are known by their token.
        is_elsewhere = self._away_since is None and None not in (
            who.connection,
            self._who.connection,
        )
        return not is_elsewhere or who.connection == self._who.connection

    def take(self, who: Typist, *, now: float, force: bool = False) -> None:
        """Give it to a user. Raises `CallRefused` while another one has it."""
        if not force:
            self.check(who, now=now)
        self._who = who
        self._away_since = now if who.connection is None else None

    def check(self, who: Typist, *, now: float) -> None:
        """Raise `CallRefused` while another user has it."""
        self.lapse(now=now)
        if self._who is not None and not self.is_held_by(who):
            raise CallRefused(
                "CONFLICT", f"{self._who.name} has the keyboard: take it to type yourself."
            )

    def used(self, who: Typist, *, now: float) -> None:
        """Note that a user has typed: without a connection, they keep it for a while longer."""
        if self._who is not None and self._who.connection is None and self.is_held_by(who):
            self._away_since = now

    def left(self, connection: int, *, now: float, for_good: bool = False) -> None:
        """Note that a connection is gone; `for_good` if its user has said so."""
        if self._who is None or self._who.connection != connection:
            return
        self._away_since = now
        if for_good:
            self._who = None

    def lapse(self, *, now: float) -> None:
        """Free it if its user has been away for too long."""
        is_away = self._away_since is not None and now - self._away_since >= AWAY_S
        if self._who is not None and is_away:
            self._who = None
