"""What the account sends and looks up, judged by a real homeserver and the client of Element."""

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator
from typing import Any

import pytest

from remoteclaw.channels.matrix.adapter import MatrixAdapter
from remoteclaw.channels.matrix.media import dimensions
from remoteclaw.channels.matrix.settings import MatrixAccount
from remoteclaw.errors import PlatformBusy
from remoteclaw.messages import Attachment
from remoteclaw.protocols import Card, Incoming, Live, Operation, Part, Place, Reply
from tests.channels.matrix.conftest import WORST, State, worst
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


@pytest.mark.thorough
async def test_the_homeserver_takes_the_longest_messages(
    bot: Bot, ann: Person, carol: SecurePerson
) -> None:
    """Plain and encrypted, and each as an edit that carries it twice."""
    for person in (ann, carol):
        room = await bot.meet(person, is_encrypted=person is carol)
        for index, text in enumerate(map(worst, WORST)):
            reply, part = reply_to(room, index=index), Part(0, text)
            sent = await bot.adapter.send(reply, part)
            await bot.adapter.replace(reply, part, message_id=str(sent.message_id))
            preview = await bot.adapter.preview(
                Place(room, None), Live(text=text, activity=text, plan=text), message_id=None
            )
            assert preview
        shown = await person.messages(room, of=bot.login.user)
        edited = [message for message in shown if message.edits]
        assert len(edited) == len(WORST)
        assert edited[0].body == worst("<")


CARD = Card("7", (("once", "Allow once"), ("deny", "Deny")))


@pytest.mark.parametrize("may_react", [False, True])
async def test_a_request_is_shown_without_the_right_to_react(
    bot: Bot, ann: Person, *, may_react: bool
) -> None:
    room = await bot.meet(ann, is_direct=False)
    levels = {} if may_react else {"m.reaction": 50}
    await ann.set_power(room, events=levels)
    await bot.adapter.send(reply_to(room, "May I?", card=CARD), Part(0, "May I?"))

    (message,) = await ann.messages(room, of=bot.login.user)
    assert message.body == "May I?"
    assert len(message.reactions) == (2 if may_react else 0)
    assert bot.faults.count("PUT .*/send/m.room.message") == 1


async def test_a_room_is_joined_through_the_server_of_who_invites(bot: Bot, ann: Person) -> None:
    """Older homeservers know another name of the parameter."""
    room = await ann.create(bot.login.user)
    invitation = Incoming(id="1", chat=room, sender=ann.id, at_ms=0, invitation="invited")
    await bot.adapter.answer_invitation(invitation, joins=True)
    assert bot.faults.count("POST .*/join/.*via=localhost.*server_name=localhost") == 1


async def test_a_limit_holds_for_the_whole_account(
    homeserver: Homeserver, bot: Bot, ann: Person
) -> None:
    rooms = [await bot.meet(ann), await bot.meet(ann)]
    await bot.adapter.send(reply_to(rooms[0]), Part(0, "before"))
    await homeserver.limit(bot.login)

    async def say_more() -> None:
        for index in range(1, 9):
            await bot.adapter.send(reply_to(rooms[index % 2], index=index), Part(0, "more"))

    with pytest.raises(PlatformBusy) as raised:
        await say_more()
    assert raised.value.is_account


async def test_a_preview_whose_response_is_lost_is_sent_once(bot: Bot, ann: Person) -> None:
    room = await bot.meet(ann)
    bot.faults.lose("PUT .*/send/m.room.message")
    shown = bot.adapter.preview(Place(room, None), Live(text="I think"), message_id=None)
    sending = asyncio.create_task(shown)
    await bot.faults.is_reached.wait()
    bot.faults.end()
    id_ = await sending

    assert [each.id for each in await ann.messages(room, of=bot.login.user)] == [id_]


PNG = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" + struct.pack(">II", 300, 200)
GIF = b"GIF89a" + struct.pack("<HH", 300, 200)
JFIF = b"\xff\xe0\x00\x10JFIF\x00\x01\x01\x00\x00\x01\x00\x01\x00\x00"
JPEG = b"\xff\xd8" + JFIF + b"\xff\xc2\x00\x11\x08" + struct.pack(">HH", 200, 300)
TURNED = b"\xff\xd8\xff\xe1\x00\x08Exif\x00\x00" + JPEG[2:]


@pytest.mark.parametrize("content", [PNG, GIF, JPEG])
def test_a_picture_has_its_size(content: bytes) -> None:
    assert dimensions(content) == {"w": 300, "h": 200}
    assert dimensions(content[:-1]) == {}


@pytest.mark.parametrize("content", [b"", b"text", TURNED, b"\xff\xd8" + bytes(9)])
def test_a_file_without_a_certain_size_has_none(content: bytes) -> None:
    assert dimensions(content) == {}


async def test_a_picture_is_sent_with_its_size(bot: Bot, ann: Person) -> None:
    room = await bot.meet(ann)
    picture = Attachment(name="a.png", mime_type="image/png", size=len(PNG), blob="0" * 32)
    await bot.adapter.send(reply_to(room), Part(0, attachment=picture), PNG)
    (message,) = await ann.messages(room, of=bot.login.user)
    assert message.content["info"] == {
        "mimetype": "image/png",
        "size": len(PNG),
        "w": 300,
        "h": 200,
    }


async def send_mentions(bot: Bot, room: str, user: str, asked_by: str) -> None:
    """Mention a user and all in each way in which an agent can write."""
    name = user[1:].partition(":")[0]
    ways = (
        f"@room {user} @{name} {name}: look, and [you](https://matrix.to/#/{user}), too",
        f"[you](https://matrix.to/#/%40{user[1:]}) https://matrix.to/#/{user}",
        f'<a href="https://matrix.to/#/{user}">you</a> @ROOM `@room`',
    )
    place = Place(room, None)
    for index, text in enumerate(ways):
        reply, part = reply_to(room, index=index, asked_by=asked_by), Part(0, text)
        sent = await bot.adapter.send(reply, part)
        await bot.adapter.replace(reply, part, message_id=str(sent.message_id))
        await bot.adapter.preview(place, Live(text=text, activity=text), message_id=None)
    file = Part(1, b"a", name=f"@room {user} {name}")
    await bot.adapter.send(reply_to(room, asked_by=asked_by), file, b"a")


async def test_an_agent_notifies_nobody_by_a_mention(
    homeserver: Homeserver, bot: Bot, ann: Person
) -> None:
    async with Person.registered(homeserver, "bob") as bob:
        room = await bot.meet(ann, is_direct=False, invite=[bot.login.user, bob.id])
        await bob.join(room)
        await ann.set_power(room, notifications={"room": 0})
        await send_mentions(bot, room, bob.id, ann.id)
        assert (await bob.call("GET", "notifications", only="highlight"))["notifications"] == []
        await ann.say(room, "Bob!", mentions=[bob.id])
        assert (await bob.call("GET", "notifications", only="highlight"))["notifications"]


async def test_an_agent_notifies_nobody_by_an_encrypted_mention(
    bot: Bot, ann: Person, carol: SecurePerson
) -> None:
    room = await bot.meet(carol, is_encrypted=True)
    await send_mentions(bot, room, carol.id, ann.id)
    ours = [each for each in await carol.timeline(room) if each["sender"] == bot.login.user]
    assert len([each for each in ours if each["type"] == "m.room.message"]) == 10
    assert not [each for each in ours if each["isHighlighted"]]
