"""The connection over which Slack pushes: what begins wrongly, ends at once, or has to wait."""

import time
from collections.abc import AsyncIterator
from types import SimpleNamespace

import pytest

from remoteclaw.channels.slack import socket as slack_socket
from remoteclaw.channels.slack.api import WebApi
from remoteclaw.channels.slack.socket import Socket
from remoteclaw.errors import AccountRefused, PlatformAway
from tests.channels.slack.conftest import Account
from tests.support.slack import SlackWorkspace
from tests.support.waiting import eventually


@pytest.fixture
async def socket(team: SlackWorkspace) -> AsyncIterator[Socket]:
    """A connection that is not open yet."""
    team.set(limit_scale=100)
    api = WebApi(team.api_url.rstrip("/"), team.app_token)
    socket = Socket(api)
    yield socket
    await socket.close()
    await api.aclose()


@pytest.mark.parametrize("first", ["", "[]", "{", '{"type": "disconnect"}', "null"])
async def test_a_connection_that_does_not_begin_is_closed(
    team: SlackWorkspace, socket: Socket, monkeypatch: pytest.MonkeyPatch, first: str
) -> None:
    """Slack would send it every second event."""
    monkeypatch.setattr(slack_socket, "OPEN_S", 1.0 if first else 0.1)
    team.set(is_mute=True, first=first)
    with pytest.raises(PlatformAway):
        await socket.ensure()
    await eventually(lambda: not team.sockets())
    assert team.connected() == 1


async def test_socket_mode_that_is_off_from_the_beginning_is_named(
    team: SlackWorkspace, socket: Socket
) -> None:
    team.set(first='{"type": "disconnect", "reason": "link_disabled"}')
    with pytest.raises(AccountRefused, match="Socket Mode is switched off"):
        await socket.ensure()


async def test_connections_that_end_at_once_are_opened_less_and_less_often(
    team: SlackWorkspace, socket: Socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten minutes; Slack lets an app open about one a minute."""
    start = time.monotonic()
    for second in range(600):
        now = SimpleNamespace(monotonic=lambda at=start + second: at)
        monkeypatch.setattr(slack_socket, "time", now)
        try:
            await socket.ensure()
        except PlatformAway:
            continue
        await eventually(team.sockets)
        team.drop()
        await socket.envelopes(10.0)
    assert team.connected() <= 20


async def test_what_is_nested_too_deeply_does_not_deafen_the_account(account: Account) -> None:
    await account.start()
    account.team.say_raw("[" * 100_000)
    account.team.say(account.direct, account.ann, "hello")
    await account.until_accepted(account.direct, account.ann, "hello")


async def test_a_connection_that_ends_soon_is_read_while_no_other_may_be_opened(
    account: Account,
) -> None:
    team = account.team
    await account.start()
    team.fault("apps.connections.open", "limited", after_s=600, times=10**6)
    team.disconnect("warning")
    await eventually(lambda: len(team.calls("apps.connections.open")) > 1)
    team.say(account.direct, account.ann, "hello")
    await account.until_accepted(account.direct, account.ann, "hello")


async def test_replies_do_not_wait_until_a_connection_may_be_opened(account: Account) -> None:
    """`up` right behind `channel add` opens a second one within the minute."""
    account.team.fault("apps.connections.open", "limited", after_s=600, times=10**6)
    account.run()
    await account.deliver("hello", chat=account.direct)
    assert account.team.texts(account.direct) == ["hello"]
