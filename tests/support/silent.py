"""Pipes to an agent that says nothing."""

import re

import orjson


class SilentPipes:
    """Pipes that discard all lines and return none."""

    is_clean = True

    async def read(self) -> bytes | None:
        return None

    async def write(self, line: bytes) -> None:
        orjson.loads(line)  # fails if the line is not JSON

    def take_unread(self) -> list[bytes]:
        return []

    def last_errors(self) -> str:
        return ""

    def follow_log(self, log: re.Pattern[bytes], wanted: re.Pattern[bytes]) -> None:
        """Do nothing: there is no log."""
