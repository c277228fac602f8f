"""The accounts of the tests on the platforms, and what people see of them.

`remoteclaw channel run` runs the account in the test's own process, with a gateway.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import Any

from remoteclaw.channels.process import Channels, create_adapter
from remoteclaw.config.load import load_config
from remoteclaw.config.reload import CurrentConfig
from remoteclaw.fleet import keys
from remoteclaw.fleet.turns.inbound import decode_entry
from remoteclaw.messages import Entry, SessionKey
from remoteclaw.profiles import profile_of
from tests.support.doors import opened
from tests.support.stack import Stack
from tests.support.waiting import eventually
from tests.support.worlds.matrix import MatrixWorld
from tests.support.worlds.platform import HistoryWorld, PlazaWorld, TestWorld
from tests.support.worlds.slack import SlackWorld
from tests.support.worlds.telegram import TelegramWorld
from tests.support.worlds.web import WebWorld
from tests.support.worlds.webhook import WebhookWorld
from tests.support.worlds.world import OWNER, World

WORLDS = (
    TestWorld,
    HistoryWorld,
    PlazaWorld,
    TelegramWorld,
    MatrixWorld,
    SlackWorld,
    WebhookWorld,
    WebWorld,
)


def configured(world: World) -> dict[str, Any]:
    """Return the section of the platform's channel, with the people who may write."""
    groups: dict[str, Any] = {world.group: {}} if world.group else {}
    may_write = {"owners": [world.person(OWNER)], "allow": [world.person(8)]}
    return {world.provider: {**may_write, **world.settings, "groups": groups}}


@contextlib.asynccontextmanager
async def entered(world: World, stack: Stack) -> AsyncIterator[None]:
    """Run the platform's account, and a gateway."""
    if isinstance(world, WebWorld):
        stack.configure(channels=configured(world))
        async with world.entered():
            yield
        return
    account = world.provider, "default"

    async def is_there() -> bool:
        """Whether the first poll was made, before which everything is old."""
        view = await stack.fleet.accounts.view(*account)
        has_polled = await stack.fleet.scripts.client.exists(keys.cursors(*account))
        return bool(view.name) and bool(has_polled or not profile_of(world.provider).reads_history)

    async with world.there(), opened(stack) as door:
        stack.configure(channels=configured(world))
        config = CurrentConfig(stack.home, load_config(stack.home.config_file))
        if isinstance(world, WebhookWorld):
            world.door = door
        world.fleet = stack.fleet
        world.run = lambda fleet: Channels(fleet, stack.home, config).run()
        world.running = asyncio.create_task(world.run(world.fleet))
        world.adapter = adapter = create_adapter(world.provider, config().accounts()[account])
        try:
            await eventually(is_there)
            yield
        finally:
            world.running.cancel()
            await asyncio.wait((world.running,))
            await adapter.aclose()


def session_of(world: World, by: int, thread: str | None = None) -> SessionKey:
    """Return the session of a person's direct chat, or of a thread there."""
    return SessionKey("main", world.provider, "default", world.chat(by), world.person(by), thread)


async def accepted(
    stack: Stack, world: World, count: int, *, by: int = OWNER, thread: str | None = None
) -> list[Entry]:
    """Return the accepted entries of a person, once there are `count`."""
    stream = keys.inbound(session_of(world, by, thread).sid)
    client: Any = stack.fleet.scripts.client

    async def entries() -> Any:
        found = await client.xrange(stream)
        return found if len(found) >= count else None

    return [decode_entry(*entry) for entry in await eventually(entries)]


async def put_replies(stack: Stack, world: World, texts: Sequence[str], chat: int = OWNER) -> None:
    """Put messages on the account's reply stream."""
    about: Any = {"index": 100 * chat, "chat": world.chat(chat)}
    await stack.put_replies(world.provider, "default", texts, **about)


async def settled(stack: Stack, world: World) -> None:
    """Wait until every reply has its receipt and is visible."""
    stream: Any = keys.replies(world.provider, "default")
    client: Any = stack.fleet.scripts.client

    async def is_empty() -> bool:
        return not await client.xlen(stream)

    await eventually(is_empty)
    await world.is_seen()


def has_texts(world: World, texts: Sequence[str]) -> bool:
    """Whether the owner's chat shows these texts of the bot."""
    return world.texts() == texts
