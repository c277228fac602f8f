"""Accounts on chat platforms: the state that the process of each reports, and its chats' ids."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from remoteclaw.clock import boottime, now_ms
from remoteclaw.fleet import hashes, keys
from remoteclaw.fleet.adapter_state import StoredState
from remoteclaw.fleet.connection import Scripts
from remoteclaw.fleet.replies.reader import ReplyReader
from remoteclaw.fleet.turns.inbound import APPEND_S


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountView:
    """The reported state of an account."""

    name: str = ""
    """The account's name on its platform; empty until it is reported."""
    problem: str = ""
    """Why the account doesn't work, and what to do about it; empty if it works."""
    is_refused: bool = False
    """Whether a person has to solve the problem; else it is tried again until it works."""
    at_ms: int = 0
    """The time of the last report, in milliseconds since 1970; 0 without a report."""
    accepted: int = 0
    """The number of messages that were accepted."""
    skipped: int = 0
    """The number of messages that were skipped: unreadable, or their handling failed."""


@dataclass(frozen=True, slots=True)
class AdapterProcessState:
    """A process that delivers an account's replies, or stands by to take over."""

    pid: int
    host: str


class Accounts:
    """The accounts of chat platforms, as their adapters' processes record them."""

    def __init__(self, scripts: Scripts) -> None:
        self._scripts = scripts

    async def first_id(self, provider: str, account: str, chat: str) -> str:
        """Return the first id of a chat, which names everything that is kept of the chat."""
        client, moved = self._scripts.client, keys.first_chat_ids(provider, account)
        first = await self._scripts.call(client.hget, moved, chat, deadline=boottime() + APPEND_S)
        return chat if first is None else str(first.decode())

    async def move(self, provider: str, account: str, *, chat: str, to: str) -> None:
        """Record that the platform changed a chat's id to `to`; `chat` is the chat's first id."""
        client, moved = self._scripts.client, keys.first_chat_ids(provider, account)
        await self._scripts.call(client.hset, moved, to, chat, deadline=boottime() + APPEND_S)

    async def leave(self, reader: ReplyReader) -> None:
        """Release the claim, so that another process takes over at once, or stop standing by."""
        await self._scripts.run(
            "leave_claim",
            token=reader.token,
            name=reader.name,
            provider=reader.provider,
            account=reader.account,
        )

    def state(self, reader: ReplyReader, key_file: Path) -> StoredState:
        """Return what the adapter of an account keeps; `key_file` has the key of its secrets."""
        return StoredState(self._scripts, reader, key_file)

    async def report(
        self,
        provider: str,
        account: str,
        *,
        name: str = "",
        problem: str = "",
        is_refused: bool = False,
    ) -> None:
        """Store the state of an account. An empty `name` leaves the stored name as it is."""
        fields: dict[str, str | int] = {
            "problem": problem,
            "is_refused": int(is_refused),
            "at_ms": now_ms(),
        }
        fields |= {"name": name} if name else {}
        client = self._scripts.client
        await self._scripts.call(client.hset, keys.account(provider, account), mapping=fields)

    async def processes(
        self, provider: str, account: str, now_ms: int
    ) -> tuple[AdapterProcessState | None, Sequence[AdapterProcessState]]:
        """Return the process that delivers for an account, and the processes that stand by.

        The first one is None if no process delivers, or if its token names none. `now_ms` is the
        time on Redis' clock.
        """
        client = self._scripts.client

        async def read_tokens() -> tuple[Any, Any]:
            standbys = keys.standbys(provider, account)
            reader = await client.get(keys.reader(provider, account))
            return reader, await client.zrangebyscore(standbys, now_ms, "+inf")

        reader, standby_tokens = await self._scripts.call(read_tokens)
        standbys = filter(None, (_process_of(token) for token in standby_tokens))
        return _process_of(reader or b""), sorted(
            standbys, key=lambda process: (process.host, process.pid)
        )

    async def view(self, provider: str, account: str) -> AccountView:
        """Return the reported state of an account."""
        stored = await self._scripts.call(
            self._scripts.client.hgetall, keys.account(provider, account)
        )
        return hashes.decode(AccountView, stored)


def _process_of(token: bytes) -> AdapterProcessState | None:
    """Return the process that a reader's token names; None if the token names no process."""
    match = re.fullmatch(r"pid (\d{1,9}) .*#\w+@(.*)", token.decode(errors="replace"))
    return AdapterProcessState(int(match[1]), match[2]) if match else None
