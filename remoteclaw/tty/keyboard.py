"""The right to type in a terminal, which one user has at a time. (`keys.py` encodes the keys.)"""

from dataclasses import dataclass

from remoteclaw.errors import CallRefused

#: How long a user whose connection is gone keeps the keyboard, in seconds: longer than a browser
#: takes to reload the page, and a gateway to restart.
AWAY_S = 10.0


@dataclass(frozen=True, slots=True)
class Typist:
    """A user who types, or wants to."""

    name: str
    """The name that other users see."""
    credential: str
    """The id of the user's token."""
    connection: int | None = None
    """The user's connection; None for a call that is not made over a lasting connection."""


class Keyboard:
    """The keyboard of one terminal."""

    def __init__(self) -> None:
        self._typist: Typist | None = None
        self._away_since: float | None = None

    @property
    def name(self) -> str:
        """The name of the user who has the keyboard; empty if no user has it."""
        return self._typist.name if self._typist else ""

    def is_held_by(self, typist: Typist) -> bool:
        """Whether this user has the keyboard."""
        if self._typist is None or self._typist.credential != typist.credential:
            return False
        # A call without a connection, and a user who reconnects, are recognized by their token.
        is_elsewhere = self._away_since is None and None not in (
            typist.connection,
            self._typist.connection,
        )
        return not is_elsewhere or typist.connection == self._typist.connection

    def take(self, typist: Typist, *, now: float, force: bool = False) -> None:
        """Give the keyboard to `typist`.

        Raises `CallRefused` while another user has it, unless `force` is set.
        """
        if not force:
            self.check(typist, now=now)
        self._typist = typist
        self._away_since = now if typist.connection is None else None

    def check(self, typist: Typist, *, now: float) -> None:
        """Raise `CallRefused` while another user has the keyboard."""
        self.release_if_away(now=now)
        if self._typist is not None and not self.is_held_by(typist):
            raise CallRefused(
                "CONFLICT", f"{self._typist.name} has the keyboard: take it to type yourself."
            )

    def note_use(self, typist: Typist, *, now: float) -> None:
        """Extend by `AWAY_S` the time for which a user without a connection keeps the keyboard."""
        if self._typist is not None and self._typist.connection is None and self.is_held_by(typist):
            self._away_since = now

    def note_disconnect(self, connection: int, *, now: float, for_good: bool = False) -> None:
        """Note that a connection is gone; with `for_good`, release its keyboard at once."""
        if self._typist is None or self._typist.connection != connection:
            return
        self._away_since = now
        if for_good:
            self._typist = None

    def release_if_away(self, *, now: float) -> None:
        """Release the keyboard if its user has been disconnected for `AWAY_S`."""
        is_away = self._away_since is not None and now - self._away_since >= AWAY_S
        if self._typist is not None and is_away:
            self._typist = None
