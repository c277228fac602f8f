"""The order of reports: each waits for the earlier ones of its conversation, except what overtakes.

A choice, a reaction and a `/stop` overtake messages: a person waits for their effect, and an
earlier message may have a slow file. So do a `/pair`, the account's removal from a chat and a
chat's new id, because later reports of all chats wait for them. They don't overtake their own kind.
"""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from remoteclaw import commands
from remoteclaw.channels.arrival import Arrival, Overtaken
from remoteclaw.channels.report import Awaited, InboundContext
from remoteclaw.host.logs import point_of
from remoteclaw.protocols import FileSource, Incoming, Place

#: After waiting this long for an earlier report, in seconds, the log says which one it is.
LONG_S = 30.0

log = logging.getLogger(__name__)


#: What became of a report: `late` is a message that was too old to be answered.
Result = Literal["accepted", "skipped", "late"]


@dataclass(frozen=True, slots=True)
class Handling:
    """A report and the task that handles it."""

    incoming: Incoming
    place: Place
    """The conversation's chat, under its first id, and thread."""
    task: "asyncio.Task[Result]"


class PostedReports:
    """The reports that are posted to this process and not handled yet, in order."""

    def __init__(self) -> None:
        self._handlings: list[Handling] = []

    async def handle(
        self,
        context: InboundContext,
        source: FileSource,
        incoming: Incoming,
        awaited: Awaited | None = None,
    ) -> None:
        """Handle a report after the earlier ones; it may be withdrawn meanwhile.

        Raises the errors of `Arrival.handle()`.
        """

        async def handle_after(earlier: Sequence[Handling]) -> Result:
            overtaken = await wait_for_earlier(incoming, place_of(incoming), earlier)
            await Arrival(context, source, incoming, awaited, overtaken).handle()
            return "accepted"

        task = asyncio.create_task(handle_after([*self._handlings]))
        handling = Handling(incoming, place_of(incoming), task)
        self._handlings.append(handling)
        try:
            await asyncio.wait((task,))
        finally:
            task.cancel()
            self._handlings.remove(handling)
        if not task.cancelled():
            task.result()


async def wait_for_earlier(
    incoming: Incoming, place: Place, earlier: Sequence[Handling]
) -> list[Overtaken]:
    """Wait for the `earlier` reports that a report must not overtake.

    These are the ones of its conversation, `place`. Return the messages that a `/stop` overtakes.
    """
    kind = overtakes_as(incoming)
    of_place = [each for each in earlier if each.place == place]
    waits_for = [each for each in of_place if kind in (None, overtakes_as(each.incoming))]
    for handling in waits_for:
        await _wait_for(handling, incoming)
    return [
        Overtaken(each.incoming, each.task.cancel)
        for each in of_place
        if kind == "stop" and each.incoming.is_message and not each.task.done()
    ]


async def wait_for_pairings(earlier: Sequence[Handling]) -> None:
    """Wait for what changes the access of later reports of all chats, such as earlier `/pair`s."""
    for handling in earlier:
        if overtakes_as(handling.incoming) == "pair":
            await asyncio.wait((handling.task,))


async def _wait_for(earlier: Handling, incoming: Incoming) -> None:
    """Wait for the handling of an earlier report; after a while, log where that is."""
    if (await asyncio.wait((earlier.task,), timeout=LONG_S))[0]:
        return
    log.warning(
        "the message %s in chat %s waits for %s, which is at %s",
        incoming.id,
        incoming.chat,
        earlier.incoming.id,
        point_of(earlier.task),
    )
    await asyncio.wait((earlier.task,))


def place_of(incoming: Incoming) -> Place:
    """Return the chat, under its current id, and thread of a report."""
    return Place(incoming.chat, incoming.thread)


def overtakes_as(
    incoming: Incoming,
) -> Literal["choice", "reaction", "move", "stop", "pair"] | None:
    """Return the kind of a report that overtakes messages; None if it keeps its place."""
    if incoming.choice is not None:
        return "choice"
    if incoming.reaction is not None:
        return "reaction"
    if incoming.moved_to is not None:
        return "move"
    if incoming.invitation == "removed":  # it takes access away
        return "pair"
    # In a thread, a command needs no mention if the agent follows it. Otherwise it has no effect.
    may_be_followed = incoming.thread is not None and commands.is_plain_command(incoming.text)
    is_for_us = incoming.is_for_us or may_be_followed
    command = commands.parse(incoming.text) if is_for_us else None
    if command is None or not incoming.is_message or incoming.files:
        return None
    match command.name:
        case "stop" | "pair" as name:
            return name
    return None
