"""An account on the tests' Slack, compared with the bare client of Slack's library.

Slack spreads an app's events over its connections, so each of both has a workspace of its own, of
the same server.
"""

import asyncio
import contextlib
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

from slack_sdk.socket_mode.aiohttp import SocketModeClient
from slack_sdk.socket_mode.async_client import AsyncBaseSocketModeClient
from slack_sdk.socket_mode.request import SocketModeRequest
from slack_sdk.socket_mode.response import SocketModeResponse
from slack_sdk.web.async_client import AsyncWebClient

from remoteclaw.channels.slack.manifest import BOT_SCOPES, EVENTS
from remoteclaw.fleet import keys
from remoteclaw.messages import SessionKey
from tests.bench.accounts import channel_process, resident_mb
from tests.bench.gateway import RowParts
from tests.bench.load import Figure, workers
from tests.support.slack import Slack, SlackWorkspace
from tests.support.stack import Stack
from tests.support.waiting import eventually

ACCOUNT = "slack", "default"
#: A message with a button, whose request is over.
_BUTTON: dict[str, Any] = {"type": "button", "action_id": "once", "value": "k7m2q9xa"}
_BUTTON |= {"text": {"type": "plain_text", "text": "Allow once"}}
CARD = [{"type": "actions", "block_id": "b", "elements": [_BUTTON]}]


async def bench_slack(stack: Stack, rounds: int) -> tuple[list[RowParts], list[Figure]]:
    """Measure when a message is accepted, when a press is acknowledged, and the memory."""
    with tempfile.TemporaryDirectory(prefix="rc-") as name:
        directory = Path(name) / "slack"
        with Slack.shared(directory) as slack:
            ours, bare = _Workspace(slack.workspace()), _Workspace(slack.workspace())
            async with bare.client() as arrived:
                measured = await _measured(stack, ours, bare, arrived, rounds)
        await eventually(lambda: not (directory / "url").exists())
    return measured


async def _measured(
    stack: Stack,
    ours: "_Workspace",
    bare: "_Workspace",
    arrived: "asyncio.Queue[float]",
    rounds: int,
) -> tuple[list[RowParts], list[Figure]]:
    agent, team = {"runtime": "demo"}, ours.team
    about = {"api_url": team.api_url, "token": team.bot_token, "app_token": team.app_token}
    await workers(stack, 0, agent, channels={})
    client: Any = stack.fleet.scripts.client
    stream = keys.inbound(SessionKey("main", *ACCOUNT, ours.direct, ours.ann, None).sid)
    last = "0"

    async def accepted() -> float:
        nonlocal last
        while not (found := await client.xread({stream: last}, count=1, block=30_000)):
            pass
        last = found[0][1][-1][0]
        return time.perf_counter()

    with channel_process(stack, "slack") as (pid, log):
        await eventually(lambda: "Waiting." in log.read_text())
        alone = resident_mb(pid)
        stack.configure(agent, channels={"slack": {**about, "owners": [ours.ann]}})
        await eventually(lambda: client.exists(keys.cursors(*ACCOUNT)))
        pairs = [
            (await ours.said(accepted), await bare.said(arrived.get)) for _ in range(rounds + 1)
        ][1:]
        added = resident_mb(pid) - alone
        presses = [(await ours.pressed(), await bare.pressed()) for _ in range(rounds + 1)][1:]
    name, baseline = "Slack, accepted", "the push to slack-sdk"
    rows: list[RowParts] = [(name, baseline, *_columns(pairs), "≤ 30 ms added")]
    name, baseline = "Slack, a press acknowledged", "slack-sdk, which stores nothing"
    rows.append((name, baseline, *_columns(presses), "≤ 300 ms"))
    return rows, [Figure("Slack: memory added", added, "MB", "≤ 12 MB")]


def _columns(pairs: list[tuple[float, float]]) -> tuple[list[float], list[float]]:
    return [pair[0] for pair in pairs], [pair[1] for pair in pairs]


class _Workspace:
    """A workspace with one person, who writes to the app and presses its buttons."""

    def __init__(self, team: SlackWorkspace) -> None:
        self.team = team
        team.set(scopes=[*BOT_SCOPES], events=[*EVENTS], limit_scale=1000)
        self.ann = team.person("ann")
        self.direct = team.direct(self.ann)

    @contextlib.asynccontextmanager
    async def client(self) -> "AsyncIterator[asyncio.Queue[float]]":
        """Connect slack-sdk, which acknowledges all; yield the times at which messages arrive."""
        arrived = asyncio.Queue[float]()
        web = AsyncWebClient(self.team.bot_token, base_url=self.team.api_url)
        client = SocketModeClient(self.team.app_token, web_client=web)

        async def take(of: AsyncBaseSocketModeClient, request: SocketModeRequest) -> None:
            if request.type == "events_api":
                arrived.put_nowait(time.perf_counter())
            await of.send_socket_mode_response(SocketModeResponse(request.envelope_id))

        client.socket_mode_request_listeners.append(take)
        await client.connect()
        await eventually(self.team.sockets)
        try:
            yield arrived
        finally:
            await client.close()

    async def said(self, arrival: Callable[[], Awaitable[float]]) -> float:
        """Return the seconds from a message to its arrival."""
        started = time.perf_counter()
        saying = asyncio.to_thread(self.team.say, self.direct, self.ann, "A message.")
        at, _ = await asyncio.gather(arrival(), saying)
        return at - started

    async def pressed(self) -> float:
        """Return the seconds from a press to its acknowledgement, on Slack's clock."""
        card = self.team.say(self.direct, self.team.bot, blocks=CARD)
        key = self.team.press(self.direct, card, self.ann, "once")
        seconds: list[float] = []

        def is_acknowledged() -> bool:
            after_s = self.team.envelope(key)["acked_after_s"]
            seconds.extend(() if after_s is None else (after_s,))
            return after_s is not None

        await eventually(is_acknowledged)
        return seconds[0]
