"""Pipes to an agent that says nothing."""

import re

import orjson


class SilentPipes:
    """Pipes that lead nowhere."""

    is_clean = True

    async def read(self) -> bytes | None:
        return None

    async def write(self, line: bytes) -> None:
        orjson.loads(line)  # what we send can be read

    def take_unread(self) -> list[bytes]:
        return []

    def last_errors(self) -> str:
        return ""

    def follow_log(self, log: re.Pattern[bytes], wanted: re.Pattern[bytes]) -> None:
        """No log is kept."""
