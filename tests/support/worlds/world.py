"""A platform with people on it, as the tests that every adapter must pass see it.

People have numbers: 7 is the owner, 8 may write, 9 is a stranger.
"""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Mapping
from types import MappingProxyType
from typing import Any, Protocol

from remoteclaw.fleet import Fleet
from remoteclaw.protocols import ChannelAdapter

OWNER = 7
MEGABYTE = 2**20
#: Tests that some platforms lack.
OUTAGE = "test_what_people_do_during_an_outage_is_answered_once"
DELETED = "test_a_message_that_is_deleted_while_it_waits_is_not_answered"
FLOOD = "test_a_slow_file_and_a_flood_hold_up_nobody_else"
OPENED = "test_a_message_in_a_group_opens_a_thread_in_which_nobody_mentions_the_agent_again"
UNSTORED = "test_a_report_that_is_not_stored_is_not_acknowledged"
FIRST = "test_neither_a_bot_nor_what_was_said_before_the_first_start_is_answered"
NO_FILES: Mapping[str, bytes] = MappingProxyType({})


class World(Protocol):
    """A platform with people on it."""

    provider: str
    settings: dict[str, Any]
    most: int
    """The maximum length of a message, in the platform's units."""
    large: int
    """A size of a file that is too large, in bytes."""
    adapter: ChannelAdapter
    """An adapter like the running one."""
    run: Callable[[Fleet], Coroutine[Any, Any, None]]
    """Runs the account until cancelled."""
    fleet: Fleet
    """The connections to Redis with which it runs."""
    running: "asyncio.Task[None]"
    """The task that runs it."""
    lacks: Mapping[str, str] = MappingProxyType({})
    """The tests that don't apply to the platform, with the reasons."""
    group: str = ""
    """The id of a group that has access; empty if the platform has none."""
    has_threads: bool = False
    """Whether a message can begin a thread."""
    goes_by_time: bool = False
    """Whether a source's cursor is a time, so that no message comes after a newer one."""
    refused: str = ""
    """The refusal that the sender of the last message got at once; empty if it was accepted."""

    def there(self) -> contextlib.AbstractAsyncContextManager[None]:
        """Run what the platform needs, before its account runs."""
        return contextlib.nullcontext()

    def person(self, number: int) -> str:
        """Return the platform's id of a person."""
        return str(number)

    def chat(self, number: int) -> str:
        """Return the platform's id of a person's direct chat."""
        return self.person(number)

    def called(self, number: int) -> str:
        """Return how the agent reads who wrote in a thread."""
        return f"Mx {number} ({number})"

    async def say(
        self,
        text: str,
        *,
        by: int = OWNER,
        name: str = "Ann",
        edits: str = "",
        files: Mapping[str, bytes] = NO_FILES,
        **more: Any,
    ) -> str:
        """Send or edit a message of a person; return the message's id.

        `more` are further fields of an `Incoming`, where the platform has them.
        """

    async def delete(self, message: str) -> None:
        """Delete a message of the owner, as the owner."""

    async def repeat(self) -> None:
        """Let the platform deliver the last message a second time."""

    async def allow(self, request: str, *, by: int = OWNER) -> None:
        """Allow the request in the last message to the owner once, as a person."""

    def texts(self, chat: int = OWNER) -> list[str]:
        """Return the texts of the bot that a chat shows now."""

    def threads(self) -> list[str | None]:
        """Return the thread of each message of the bot in the group."""

    def files(self, chat: int = OWNER) -> Mapping[str, bytes]:
        """Return the files that the bot has sent to a chat."""

    def mention(self, number: int | None) -> str:
        """Return the platform's mention of a person, or of everybody."""

    def mentioned(self, chat: int = OWNER) -> list[str]:
        """Return the mentions in the texts of the bot that notify somebody."""

    def previewed(self) -> list[str]:
        """Return the texts of the bot whose addresses the platform fetches for a preview."""
        return []

    async def is_seen(self) -> None:
        """Wait until people see everything that the platform has."""

    def is_busy(self, after_s: int) -> None:
        """Refuse the next message to the owner because of a rate limit."""

    def forgets(self) -> None:
        """Accept messages but lose the answers, until `is_back()`."""

    def is_away(self) -> None:
        """Take the platform down, until `is_back()`."""

    def holds_files(self) -> None:
        """Return no file that people have sent, until `is_back()`."""

    def is_back(self) -> None:
        """Let the platform work again."""

    async def leave(self) -> None:
        """End the process that runs the account, and so long that the platform gives up."""
        self.running.cancel()
        await asyncio.wait((self.running,))

    async def come_back(self) -> None:
        """Start the process again."""
        self.running = asyncio.create_task(self.run(self.fleet))
