"""The memories of agents: a text of lines for each, the same on every host.

Redis has the memory, because the agents of a fleet work on several hosts. The file MEMORY.md of a
host shows it, and a person may edit that file: the edit is taken over before the memory is read or
written there. Every change is logged, and can be undone.
"""

import asyncio
import contextlib
import logging
import os
import re
import secrets
from collections.abc import AsyncIterator, Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self

import orjson

from remoteclaw.clock import now_ms
from remoteclaw.config.home import Home
from remoteclaw.config.identity import MAX_MEMORY_BYTES, read_memory
from remoteclaw.errors import CallRefused, ConfigError
from remoteclaw.fleet import keys
from remoteclaw.fleet.connection import Scripts
from remoteclaw.fleet.turns.caller import Caller
from remoteclaw.fleet.turns.calls import ToolCalls
from remoteclaw.host.locks import lock_async, replace_file
from remoteclaw.locations import MEMORY_FILE

#: The number of changes that can be undone.
MAX_LOG = 30
#: How often a change is tried again after others' changes. Each try loses to another change only.
MAX_TRIES = 20
#: How long another process may write the file, in seconds.
LOCK_S = 5.0
#: Who makes the changes that no turn makes.
OPERATOR = "an operator"
EDITED, REMOVED = "an edit", "removed: "
#: The date of a line, and who wrote it, where.
_STAMP = re.compile(r"- \d{4}-\d\d-\d\d \(.*?\): ")

IS_FULL = (
    "Nothing was written: the memory of {agent} would have {size} bytes, and {most} are the most. "
    "{what_to_do}"
)
REPLACE = (
    "Replace what matters least: `replaces` takes words of a line, and an empty text removes the "
    "line. The oldest line is: {oldest}"
)
SHORTEN = "Shorten it."
REPLACE_THERE = "Have an owner replace a line in a direct chat: this one is read by others."
NO_LINE = "Nothing was written: no line of the memory has {words!r}. Leave out replaces to add one."
MANY_LINES = (
    "Nothing was written: {count} lines of the memory have {words!r}. Use more of its words."
)
BUSY = "Nothing was written: others change the memory of {agent} all the time. Try again later."

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Memory:
    """An agent's memory."""

    text: str
    """The lines, without a line end after the last one."""
    version: int
    """The number of changes so far."""


@dataclass(frozen=True, slots=True)
class MemoryChange:
    """A change of an agent's memory."""

    what: str
    """The change, as people read it."""
    by: str
    """Who made it, and where."""
    at_ms: int
    before: str
    """The text before it."""

    @property
    def words(self) -> str:
        """The change and who made it, such as `“Tea, not coffee.”, by alice, telegram:7`."""
        if self.what.startswith(EDITED):
            return f"{self.what} by {self.by}"
        text = f"“{_STAMP.sub('', self.what.removeprefix(REMOVED))}”, by {self.by}"
        return f"the removal of {text}" if self.what.startswith(REMOVED) else text

    @classmethod
    def decode(cls, stored: str | bytes) -> Self:
        """Return a change from its stored form."""
        return cls(**orjson.loads(stored))


class Memories:
    """The memories of all agents."""

    def __init__(self, scripts: Scripts, calls: ToolCalls) -> None:
        self._scripts = scripts
        self._calls = calls

    async def read(self, home: Home, agent: str) -> Memory:
        """Return an agent's memory, after a person's edits of its file on this host."""
        async with self._file(home, agent):
            return await self._read(agent)

    async def log(self, agent: str) -> list[MemoryChange]:
        """Return the latest changes, newest first."""
        client = self._scripts.client
        stored = await self._scripts.call(client.lrange, keys.memory_log(agent), 0, -1)
        return [MemoryChange.decode(each) for each in stored]

    async def write_line(
        self,
        home: Home,
        agent: str,
        line: str,
        *,
        replaces: str,
        by: str,
        call: str,
        caller: Caller | None = None,
        effect: dict[str, Any] | None = None,
        is_private: bool = True,
    ) -> Memory:
        """Add a line, or put it in the place of the one that has the words `replaces`.

        An empty line removes that one. Unless the chat `is_private`, a refusal quotes no line.
        Calls with the same `call` have one effect. Raises
        `CallRefused` if the memory is full, the words are not found, or the turn is over.
        """

        def changed(text: str) -> tuple[str, str]:
            return with_line(text, line, replaces, agent=agent, is_private=is_private)

        return await self._change(
            home, agent, changed, by=by, call=call, caller=caller, effect=effect
        )

    async def replace(self, home: Home, agent: str, text: str, *, base: str, by: str) -> Memory:
        """Replace the text, which was `base`, with a person's `text`; keep what others added."""

        def changed(now: str) -> tuple[str, str]:
            merged = merge(base, text.strip(), now)
            check_size(agent, merged, SHORTEN)
            return merged, EDITED

        return await self._change(home, agent, changed, by=by, call=secrets.token_hex(16))

    async def undo(self, home: Home, agent: str, *, call: str) -> MemoryChange | None:
        """Undo the last change and return it; None if there is none to undo."""
        async with self._file(home, agent):
            for _ in range(MAX_TRIES):
                memory = await self._read(agent)
                status, values = await self._run(agent, memory, call)
                if status == "nothing":
                    return None
                if status != "stale":
                    return MemoryChange.decode(values["undone"])
        raise CallRefused("UNAVAILABLE", BUSY.format(agent=agent))

    # -- writing -------------------------------------------------------------------------------

    async def _change(
        self,
        home: Home,
        agent: str,
        changed: Callable[[str], tuple[str, str]],
        *,
        by: str,
        call: str,
        caller: Caller | None = None,
        effect: dict[str, Any] | None = None,
    ) -> Memory:
        async with self._file(home, agent):
            for _ in range(MAX_TRIES):
                memory = await self._read(agent)
                if await self._calls.result_of(caller, call) is not None:
                    return memory  # a repeated call, whose words may be gone by now
                text, what = changed(memory.text)
                change = MemoryChange(what, by, now_ms(), memory.text)
                status, _ = await self._run(
                    agent,
                    memory,
                    call,
                    caller=caller,
                    effect=effect,
                    text=text,
                    change=orjson.dumps(asdict(change)),
                    detail=what,
                )
                if status != "stale":
                    return await self._read(agent)
        raise CallRefused("UNAVAILABLE", BUSY.format(agent=agent))

    async def _run(
        self,
        agent: str,
        base: Memory,
        call: str,
        *,
        caller: Caller | None = None,
        effect: dict[str, Any] | None = None,
        **values: Any,
    ) -> tuple[str, dict[str, Any]]:
        return await self._calls.perform(
            caller,
            call,
            effect,
            "call_memory",
            base=base.version,
            memory=keys.memory(agent),
            memory_log=keys.memory_log(agent),
            max_log=MAX_LOG,
            **values,
        )

    async def _read(self, agent: str) -> Memory:
        client = self._scripts.client
        text, version = await self._scripts.call(
            client.hmget, keys.memory(agent), "text", "version"
        )
        return Memory((text or b"").decode(), int(version or 0))

    # -- the file ------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def _file(self, home: Home, agent: str) -> AsyncIterator[None]:
        """Take over a person's edits of this host's file; write the file again at the end.

        A file that can't be used stays as it is, and the memory is as Redis has it.
        """
        directory = home.agent_files(agent)
        try:
            await asyncio.to_thread(partial(directory.mkdir, 0o700, parents=True, exist_ok=True))
            descriptor = await lock_async(directory / f".{MEMORY_FILE}.lock", wait_s=LOCK_S)
        except OSError as error:
            log.error("the file of the memory of %s can't be written: %s", agent, error)
            descriptor = None
        if descriptor is None:
            yield
            return
        file = _MemoryFile(directory, f"view {home.host_id}")
        try:
            is_usable = await self._take_over(file, agent)
            yield
            if is_usable:
                await self._show(file, agent)
        finally:
            os.close(descriptor)

    async def _take_over(self, file: "_MemoryFile", agent: str) -> bool:
        """Take over an edit of the file; return whether the file may be written again."""
        try:
            edited = await asyncio.to_thread(file.read)
        except ConfigError as problem:
            log.error("%s The memory stays as it was.", problem)
            return False
        shown = await self._scripts.call(self._scripts.client.hget, keys.memory(agent), file.field)
        base = (shown or b"").decode()
        for _ in range(MAX_TRIES):
            memory = await self._read(agent)
            if edited in (base, memory.text):
                return True
            text = merge(base, edited, memory.text)
            if len(text.encode()) > MAX_MEMORY_BYTES:  # with what others have added
                log.error("%s is too large: the memory stays as it was.", file.path)
                return False
            change = MemoryChange(f"{EDITED} of {file.path}", OPERATOR, now_ms(), memory.text)
            status, _ = await self._run(
                agent,
                memory,
                secrets.token_hex(16),
                text=text,
                change=orjson.dumps(asdict(change)),
            )
            if status != "stale":
                return True
        return False

    async def _show(self, file: "_MemoryFile", agent: str) -> None:
        """Write the memory to the file, and note what it shows."""
        memory = await self._read(agent)
        client = self._scripts.client
        try:
            await asyncio.to_thread(file.write, memory.text)
        except OSError as error:
            log.error("%s can't be written: %s", file.path, error)
            return
        # Noted after the write: a kill between the two leaves a file that equals the memory, or
        # whose lines are in the memory or its log.
        await self._scripts.call(client.hset, keys.memory(agent), file.field, memory.text)


@dataclass(frozen=True, slots=True)
class _MemoryFile:
    """The file of one agent's memory on this host."""

    directory: Path
    field: str
    """The field of the memory that has what the file showed last."""

    @property
    def path(self) -> Path:
        return self.directory / MEMORY_FILE

    def read(self) -> str:
        """Return the text; empty if the file is absent. Raises `ConfigError` if it is unusable."""
        return read_memory(self.directory)

    def write(self, text: str) -> None:
        """Write the text, unless the file has it; make no file for an empty memory."""
        content = f"{text}\n".encode() if text else b""
        if not self.path.exists():
            if not content:
                return
        elif self.path.read_bytes() == content:
            return
        replace_file(self.path, content)


def with_line(
    text: str, line: str, replaces: str, *, agent: str, is_private: bool = True
) -> tuple[str, str]:
    """Return the text with a line added or replaced, and the change in words.

    Raises `CallRefused` if it gets too large, or if `replaces` doesn't name one line.
    """
    lines = text.splitlines()
    if not replaces:
        changed, what = [*lines, line], line
    else:
        found = [number for number, each in enumerate(lines) if replaces in each]
        if not found:
            raise CallRefused("NOT_FOUND", NO_LINE.format(words=replaces))
        if len(found) > 1:
            raise CallRefused("NOT_FOUND", MANY_LINES.format(count=len(found), words=replaces))
        (number,) = found
        before = lines[number]
        changed = [*lines[:number], *([line] if line else []), *lines[number + 1 :]]
        what = f"{line} (instead of: {before})" if line else f"{REMOVED}{before}"
    result = "\n".join(changed)
    oldest = lines[0] if lines and is_private else None
    check_size(agent, result, REPLACE.format(oldest=oldest) if oldest else REPLACE_THERE)
    return result, what


def check_size(agent: str, text: str, what_to_do: str) -> None:
    """Raise `CallRefused` if a memory is too large; its text ends with `what_to_do`."""
    size = len(text.encode())
    if size <= MAX_MEMORY_BYTES:
        return
    raise CallRefused(
        "INVALID_REQUEST",
        IS_FULL.format(
            agent=agent, size=f"{size:,}", most=f"{MAX_MEMORY_BYTES:,}", what_to_do=what_to_do
        ),
    )


def merge(base: str, edited: str, now: str) -> str:
    """Return a person's edit of `base`, with the lines that `now` has added or lost since."""
    old, new, current = base.splitlines(), edited.splitlines(), now.splitlines()
    kept = [line for line in new if line not in old or line in current]
    added = [line for line in current if line not in old and line not in new]
    return "\n".join((*kept, *added))
