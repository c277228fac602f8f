"""What the scripted model's requests cost, in tokens."""

from dataclasses import astuple, dataclass

INPUT_TOKENS, OUTPUT_TOKENS = 100, 7


@dataclass(frozen=True, slots=True)
class Charge:
    """The tokens of some requests."""

    requests: int = 0
    input: int = 0
    """Those that the model read and that were in no cache."""
    cached: int = 0
    """Those that it read from the cache."""
    written: int = 0
    """Those that it read and wrote to the cache."""
    output: int = 0

    @classmethod
    def fixed(cls, count: int = 1) -> "Charge":
        """Return the usual charge of some requests: each costs the same."""
        return cls(count, INPUT_TOKENS * count, output=OUTPUT_TOKENS * count)

    @classmethod
    def varied(cls, number: int) -> "Charge":
        """Return the charge of request `number`, by which it can be told from all others."""
        return cls(1, 100 + 3 * number, 1000 + 7 * number, 50 + 11 * number, 5 + number)

    def __add__(self, other: "Charge") -> "Charge":
        return Charge(*(one + two for one, two in zip(astuple(self), astuple(other), strict=True)))

    def __sub__(self, other: "Charge") -> "Charge":
        return Charge(*(one - two for one, two in zip(astuple(self), astuple(other), strict=True)))

    @property
    def read(self) -> int:
        """All tokens that the model read."""
        return self.input + self.cached + self.written
