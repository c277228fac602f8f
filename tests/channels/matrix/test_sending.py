"""What the account sends and looks up, judged by a real homeserver and the client of Element."""

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from remoteclaw.channels.matrix.adapter import MatrixAdapter
from remoteclaw.channels.matrix.settings import MatrixAccount
from remoteclaw.protocols import Operation, Part, Place, Reply
from tests.channels.matrix.conftest import State
from tests.support.matrix import Faults, Homeserver, Login, Person, Second, SecurePerson


class Bot:
    """An adapter of the account, and its rooms with Ann."""

    def __init__(self, adapter: MatrixAdapter, login: Login, faults: Faults) -> None:
        self.adapter, self.login, self.faults = adapter, login, faults
        self._cursors: dict[str, str] = {}

    async def meet(self, ann: Person, *, is_encrypted: bool = False, **more: Any) -> str:
        """Return a room of Ann's in which the account is."""
        room = await ann.create(self.login.user, is_encrypted=is_encrypted, **more)
        async with Person.at(self.faults.url, self.login) as person:
            await person.join(room)
        await self.poll()
        return room

    async def poll(self) -> None:
        """Take what has happened."""
        moved = (await self.adapter.poll(self._cursors)).cursors
        self._cursors = {source: value for source, value in moved.items() if value}

    async def read(self, room: str, thread: str | None = None) -> list[str]:
        """Return the texts of a room or thread, oldest first, as an agent reads them."""
        operation = Operation("read", room, thread, {"limit": 20}, 0)
        found = (await self.adapter.operate(operation))["messages"]
        return [message["text"] for message in found]


@contextlib.asynccontextmanager
async def connected(faults: Faults, login: Login, state: State) -> AsyncIterator[Bot]:
    """Run an adapter until exit."""
    adapter = MatrixAdapter(MatrixAccount(api_url=faults.url, token=login.token))
    await adapter.use_state(state)
    try:
        await adapter.connect()
        yield Bot(adapter, login, faults)
    finally:
        await adapter.aclose()


@pytest.fixture
async def faults(homeserver: Homeserver) -> AsyncIterator[Faults]:
    """What is between the account and the homeserver."""
    async with Faults.before(homeserver.url) as between:
        yield between


@pytest.fixture
async def bot(homeserver: Homeserver, faults: Faults) -> AsyncIterator[Bot]:
    """An adapter that is connected."""
    async with connected(faults, await homeserver.register("bot"), State()) as one:
        yield one


@pytest.fixture
async def ann(homeserver: Homeserver) -> AsyncIterator[Person]:
    """A person whose client doesn't encrypt."""
    async with Person.registered(homeserver, "ann") as person:
        yield person


@pytest.fixture
async def carol(homeserver: Homeserver, second: Second) -> AsyncIterator[SecurePerson]:
    """A person whose client encrypts."""
    async with SecurePerson.opened(second, homeserver, "carol") as person:
        yield person


def reply_to(room: str, text: str = "", **more: Any) -> Reply:
    """Return a reply to be sent to a room."""
    fields: dict[str, Any] = {
        "id": "1-0",
        "sid": "5" * 32,
        "turn": "1-0",
        "attempt": 1,
        "index": 0,
        "thread_id": None,
        "is_error": False,
        "reply_to_id": None,
        "attachments": (),
        "is_final": True,
        "entries": (),
    }
    return Reply(channel_id=room, text=text, **fields | more)


async def test_messages_are_read_as_they_were_edited_last(bot: Bot, ann: Person) -> None:
    room = await bot.meet(ann)
    first = await ann.say(room, "helo")
    await ann.say(room, "in a thread, one", thread=first)
    last = await ann.say(room, "in a thred, two", thread=first)
    await bot.poll()
    await ann.say(room, "hello", edits=first)
    await ann.say(room, "in a thread, 2", edits=last)
    await ann.say(room, "in a thread, two", edits=last)

    assert await bot.read(room) == ["hello"]
    assert await bot.read(room, first) == ["hello", "in a thread, one", "in a thread, two"]
    context = await bot.adapter.context(Place(room, first), last, 20)
    assert [each.text for each in context] == ["hello", "in a thread, one"]


async def test_encrypted_messages_are_read_as_they_were_edited_last(
    bot: Bot, carol: SecurePerson
) -> None:
    room = await bot.meet(carol, is_encrypted=True)
    first = await carol.say(room, "helo")
    await carol.say(room, "hello", edits=first)
    await bot.poll()

    assert await bot.read(room) == ["hello"]


@pytest.mark.parametrize("is_encrypted", [False, True])
async def test_a_part_is_found_by_its_mark(
    homeserver: Homeserver, faults: Faults, ann: Person, *, is_encrypted: bool
) -> None:
    """Another login of the account finds it, and takes no other message that ends as it does."""
    login, state = await homeserver.register("bot"), State()
    async with connected(faults, login, state) as bot:
        room = await bot.meet(ann, is_encrypted=is_encrypted)
        reply = reply_to(room, "done")
        part = Part(0, "done")
        file = Part(1, b"a,b", name="table.csv")
        await bot.adapter.send(reply_to(room, "well done", index=1), Part(0, "well done"))
        assert await bot.adapter.find(reply, part, 0, known=()) is None
        sent = await bot.adapter.send(reply, part, is_again=True)
        sent_file = await bot.adapter.send(reply, file, b"a,b")
        await bot.adapter.send(reply_to(room, "done", index=2), Part(0, "done"))

    identifier = {"type": "m.id.user", "user": login.user}
    body = {"type": "m.login.password", "identifier": identifier, "password": login.password}
    again = await ann.call("POST", "login", body={**body, "device_id": login.device})
    async with connected(
        faults, Login(login.user, again["access_token"], login.device, login.password), state
    ) as bot:
        assert await bot.adapter.find(reply, part, 0, known=()) == sent
        assert await bot.adapter.find(reply, file, 0, known=()) == sent_file
        assert await bot.adapter.find(reply, part, 0, known=[str(sent.message_id)]) is None
