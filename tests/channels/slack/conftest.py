"""A person and a channel of the tests' Slack, and an account there."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest

from remoteclaw.channels.process import Channels
from remoteclaw.channels.slack.adapter import SlackAdapter
from remoteclaw.channels.slack.manifest import BOT_SCOPES, EVENTS
from remoteclaw.channels.slack.settings import SlackAccount
from remoteclaw.config.load import load_config
from remoteclaw.config.reload import CurrentConfig
from remoteclaw.fleet import keys
from remoteclaw.fleet.account_states import configured_accounts
from remoteclaw.fleet.turns.inbound import decode_entry
from remoteclaw.messages import SessionKey
from tests.support.failpoints import Proxy
from tests.support.slack import SlackWorkspace
from tests.support.stack import Stack
from tests.support.waiting import eventually


@pytest.fixture
def ann(team: SlackWorkspace) -> str:
    """A person."""
    return str(team.person("ann"))


@pytest.fixture
def room(team: SlackWorkspace, ann: str) -> str:
    """A channel with her and the app."""
    return str(team.channel("room", members=[ann]))


@dataclass
class Account:
    """The account of RemoteClaw in a workspace, with its owner Ann and a channel."""

    team: SlackWorkspace
    stack: Stack
    ann: str
    direct: str
    """Ann's direct chat with the app."""
    room: str
    proxy: Proxy
    """What is between the account and Redis."""
    _running: "asyncio.Task[None] | None" = None

    def configure(self, **settings: Any) -> None:
        """Configure the account, which is read at its start."""
        basic = {
            "api_url": self.team.api_url,
            "token": self.team.bot_token,
            "app_token": self.team.app_token,
            "owners": [self.ann],
            "groups": {self.room: {}},
        }
        self.stack.configure(channels={"slack": {**basic, **settings}})

    def run(self) -> None:
        """Run the account."""
        config = CurrentConfig(self.stack.home, load_config(self.stack.home.config_file))
        run = Channels(self.stack.open_at(self.proxy.url), self.stack.home, config).run()
        self._running = asyncio.create_task(run)

    async def start(self) -> None:
        """Run the account, and wait until it has polled."""
        self.run()
        cursors = keys.cursors("slack", "default")
        await eventually(lambda: self.stack.fleet.scripts.client.exists(cursors))
        await eventually(self.team.sockets)

    async def stop(self) -> None:
        """End it."""
        if self._running:
            self._running.cancel()
            await asyncio.wait((self._running,))
            self._running = None

    async def state(self) -> tuple[str, str]:
        """Return the state of the account, and its problem."""
        config = load_config(self.stack.home.config_file)
        (state,) = await configured_accounts(self.stack.fleet, config)
        return state.state, state.problem

    async def accepted(self, chat: str, who: str, thread: str | None = None) -> list[str]:
        """Return the texts of the accepted messages of a conversation."""
        session = SessionKey("main", "slack", "default", chat, who, thread)
        client: Any = self.stack.fleet.scripts.client
        entries = await client.xrange(keys.inbound(session.sid))
        return [decode_entry(*entry).message.text for entry in entries]

    async def until_accepted(
        self, chat: str, who: str, *texts: str, thread: str | None = None
    ) -> None:
        """Wait until these are the accepted messages of a conversation."""

        async def are_accepted() -> bool:
            return await self.accepted(chat, who, thread) == [*texts]

        await eventually(are_accepted)

    async def deliver(self, text: str, *, chat: str, **about: Any) -> None:
        """Have an agent write, and wait until that is delivered or given up."""
        await self.stack.put_reply("slack", "default", text, chat=chat, **about)
        stream: Any = keys.replies("slack", "default")

        async def is_empty() -> bool:
            return not await self.stack.fleet.scripts.client.xlen(stream)

        await eventually(is_empty)


@pytest.fixture
async def account(stack: Stack, team: SlackWorkspace) -> AsyncIterator[Account]:
    """An account with the scopes and events of the app's manifest, that has not started."""
    team.set(scopes=[*BOT_SCOPES], events=[*EVENTS], limit_scale=100)
    ann = team.person("ann")
    room, proxy = team.channel("room", members=[ann]), await stack.proxied()
    account = Account(team, stack, ann, team.direct(ann), room, proxy)
    account.configure()
    yield account
    await account.stop()


@pytest.fixture
async def adapter(account: Account) -> AsyncIterator[SlackAdapter]:
    """The adapter alone, connected to the account's workspace."""
    team = account.team
    settings = {"api_url": team.api_url, "token": team.bot_token, "app_token": team.app_token}
    adapter = SlackAdapter(SlackAccount(**settings))
    await adapter.connect()
    yield adapter
    await adapter.aclose()
