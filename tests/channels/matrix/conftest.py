"""An account on a real homeserver, and people who write to it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest

from remoteclaw.channels.matrix.adapter import MAX_BYTES
from remoteclaw.channels.matrix.api import Homeserver as Api
from remoteclaw.channels.process import Channels
from remoteclaw.config.home import Home
from remoteclaw.config.load import load_config
from remoteclaw.config.reload import CurrentConfig
from remoteclaw.fleet import keys
from remoteclaw.fleet.turns.inbound import decode_entry
from remoteclaw.messages import EVERYONE, ChannelMessage, SessionKey
from tests.support.command import REMOTECLAW, Process, start_program
from tests.support.failpoints import Proxy
from tests.support.matrix import Faults, Homeserver, Login, Person, Second, second_client
from tests.support.stack import Stack
from tests.support.waiting import eventually

#: What is longer as HTML, in JSON, or in both.
WORST = (
    "<",
    "😀",
    '"',
    "\\",
    "&",
    "\n",
    "\x01",
    "- <\n",
    "**<** ",
    "```c\n<\n```\n",
    "|<|\n|-|\n\n",
)


def worst(text: str) -> str:
    """Return as much of a text as one message has."""
    return text * (MAX_BYTES // len(text.encode()))


class State(dict[str, bytes]):
    """The state of one device."""

    async def read(self, name: str) -> bytes | None:
        return self.get(name)

    async def write(self, name: str, value: bytes | None, *, is_secret: bool = False) -> None:
        assert is_secret or name != "identity"
        self[name] = value or b""

    async def settle(self) -> None:
        """Do nothing."""


@dataclass
class Account:
    """The account of RemoteClaw, which its own process runs, and its owner Ann."""

    login: Login
    ann: Person
    faults: Faults
    """What is between the account and the homeserver."""
    stack: Stack
    server: Homeserver
    proxy: Proxy
    """What is between the account and Redis."""
    home: Home
    """The state directory of its host."""
    _running: "asyncio.Task[None] | Process | None" = None

    def configure(self, **settings: Any) -> None:
        """Configure the account, which is read at its start."""
        basic = {"api_url": self.faults.url, "token": self.login.token, "owners": [self.ann.id]}
        self.stack.configure(channels={"matrix": {**basic, **settings}})

    async def run(self) -> None:
        """Run the account until cancelled."""
        config = CurrentConfig(self.home, load_config(self.home.config_file))
        await Channels(self.stack.open_at(self.proxy.url), self.home, config).run()

    async def start(self, *, as_process: bool = False) -> None:
        """Run the account, in a process of its own or not, and wait until it has polled."""
        before = self.faults.count("/sync")
        if as_process:
            env = self.stack.env(REMOTECLAW__REDIS__URL=self.proxy.url)
            argv = [REMOTECLAW, "channel", "run"]
            self._running = start_program(argv, env=env, log=self.home.logs / "channel.log")
        else:
            self._running = asyncio.create_task(self.run())

        async def polls() -> bool:
            cursors = keys.cursors("matrix", "default")
            is_first_over = await self.stack.fleet.scripts.client.exists(cursors)
            return bool(is_first_over) and self.faults.count("/sync") > before

        await eventually(polls)

    async def stop(self) -> None:
        """End it; a process with SIGKILL."""
        if isinstance(self._running, Process):
            self._running.kill()
            await asyncio.to_thread(self._running.wait)
        elif self._running:
            self._running.cancel()
            await asyncio.wait((self._running,))
        self._running = None


async def again(homeserver: Homeserver, login: Login) -> Login:
    """Log in with another device."""
    api = Api(homeserver.url)
    identifier = {"type": "m.id.user", "user": login.user}
    body = {"type": "m.login.password", "identifier": identifier, "password": login.password}
    made = await api.post("login", body=body)
    await api.aclose()
    return Login(login.user, made["access_token"], made["device_id"], login.password)


async def messages(account: Account, room: str, *, who: str = "") -> list[ChannelMessage]:
    """Return the waiting messages of a person, or of a group."""
    session = SessionKey("main", "matrix", "default", room, who or EVERYONE, None)
    entries = await account.stack.fleet.inbound.unanswered(session.sid)
    return [entry.message for entry in entries]


async def until_read(account: Account, room: str, text: str, *, who: str = "") -> None:
    """Wait until a message is accepted."""

    async def is_read() -> bool:
        return text in [each.text for each in await messages(account, room, who=who)]

    await eventually(is_read)


async def met(account: Account, *others: Person, **settings: Any) -> str:
    """Return a room with the account, whose messages are all read."""
    room = await account.ann.create(
        account.login.user, *(each.id for each in others), is_direct=not others
    )
    for each in others:
        await each.join(room)
    account.configure(groups={room: {"require_mention": False, "threads": "off"}}, **settings)
    await account.start()

    async def has_joined() -> bool:
        members = await account.ann.call("GET", "rooms", room, "joined_members")
        return account.login.user in members["joined"]

    await eventually(has_joined)
    return room


async def accepted(account: Account, room: str) -> list[str]:
    """Return the texts of Ann's messages in a direct chat that were accepted."""
    session = SessionKey("main", "matrix", "default", room, account.ann.id, None)
    client: Any = account.stack.fleet.scripts.client
    entries = await client.xrange(keys.inbound(session.sid))
    return [decode_entry(*entry).message.text for entry in entries]


async def met_in_secret(account: Account, second: Second) -> str:
    """Return an encrypted room in which Ann and the account have talked."""
    await account.start()
    await second.open(account.server.url, account.ann.login, signed_only=True)
    room = await second.create(account.ann.id, account.login.user)
    await second.say(account.ann.id, room, "hello")

    async def is_accepted() -> bool:
        return await accepted(account, room) == ["hello"]

    await eventually(is_accepted)
    return room


@pytest.fixture
async def account(stack: Stack, homeserver: Homeserver) -> AsyncIterator[Account]:
    """An account that has not started."""
    login = await homeserver.register("bot")
    async with contextlib.AsyncExitStack() as exits:
        ann = await exits.enter_async_context(Person.registered(homeserver, "ann"))
        faults = await exits.enter_async_context(Faults.before(homeserver.url))
        proxy = await stack.proxied()
        account = Account(login, ann, faults, stack, homeserver, proxy, stack.home)
        account.configure()
        yield account
        await account.stop()


@pytest.fixture
async def second() -> AsyncIterator[Second]:
    """People whose clients encrypt."""
    async with second_client() as process:
        yield process
