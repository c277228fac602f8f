"""Backup and restore: a conversation goes on elsewhere, and nothing old runs or is sent at once."""

import asyncio
import math
import stat
import tarfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from remoteclaw.clock import now_ms
from remoteclaw.config.home import Home
from remoteclaw.cron.schedule import Schedule
from remoteclaw.errors import RedisRefused
from remoteclaw.fleet import Fleet, connection, copying, keys
from remoteclaw.fleet.copying import copy_data
from remoteclaw.fleet.replies.reply import reply_payload
from remoteclaw.fleet.rights import acl_setuser
from remoteclaw.fleet.snapshot import save_snapshot
from remoteclaw.fleet.turns.inbound import Accepted
from remoteclaw.messages import ChatPlace
from remoteclaw.up.embedded import EmbeddedRedis
from tests.support.cron import cron_of
from tests.support.jobs import HOUR_MS, add, job_of
from tests.support.stack import Stack, message, running_stack, said
from tests.support.up import remoteclaw, running
from tests.support.waiting import HANG_S, eventually

CONFIG = """\
# the comment stays
[redis]
maxmemory = "128mb"

[agents.main]
runtime = "demo"
identity = ["SOUL.md"]
env = { KEY = "sk-secret-1" }

[agents.main.mcp_servers.notes]
url = "https://notes.example/sk-secret-2"

[channels.telegram]
token = "123456789:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
"""


@pytest.fixture
async def second(directory: Path) -> Home:
    """The state directory of another machine, which doesn't exist yet."""
    return Home(directory / "second")


@pytest.fixture
async def fleets() -> AsyncIterator[list[Fleet]]:
    opened: list[Fleet] = []
    yield opened
    for fleet in opened:
        await fleet.aclose()


def open_fleet(home: Home, fleets: list[Fleet]) -> Fleet:
    fleets.append(Fleet.open(f"unix://{home.redis_socket}"))
    return fleets[-1]


async def outcome_text(fleet: Fleet, accepted: Accepted) -> str:
    sid, entry = accepted.session.sid, accepted.entry_id
    outcome = await fleet.outcomes.wait(sid, entry, timeout_s=HANG_S)
    assert outcome is not None
    return said(outcome)


async def is_output(fleet: Fleet, accepted: Accepted, *, attempt: int = 1) -> bool:
    outcome = await fleet.outcomes.read(accepted.session.sid, accepted.entry_id)
    steps = outcome.steps if outcome else ()
    return ("output", attempt) in [(step.name, step.attempt) for step in steps]


async def call(home: Home, *arguments: str) -> str:
    """Run a command that succeeds; return what it prints."""
    ended = await asyncio.to_thread(remoteclaw, home, *arguments)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


async def refusal(home: Home, *arguments: str) -> str:
    ended = await asyncio.to_thread(remoteclaw, home, *arguments)
    assert ended.returncode == 1, ended.stdout
    return ended.stderr


async def test_a_conversation_goes_on_from_a_backup_once_the_operator_has_seen_what_waits(
    home: Home, second: Home, directory: Path, fleets: list[Fleet]
) -> None:
    file = directory / "backup.tar"
    soul = home.agent_files("main") / "SOUL.md"
    soul.parent.mkdir(parents=True)
    soul.write_text("Be brief.")
    home.config_file.write_text(CONFIG.partition("\n[channels")[0])
    fleet = open_fleet(home, fleets)
    with running(home):
        first = await fleet.inbound.append(message("hello"), agent="main")
        await outcome_text(fleet, first)
        cut_off = await fleet.inbound.append(message("slow", from_="bob"), agent="main")
        await eventually(lambda: is_output(fleet, cut_off))
        place = ChatPlace("telegram", "default", "7")
        payload = reply_payload(
            place, "the answer", sid=first.session.sid, turn="1-0", attempt=1, index=0
        )
        client = fleet.scripts.client
        await client.xadd(keys.replies("telegram", "default"), {"reply": orjson.dumps(payload)})
        job = await add(fleet, Schedule(every_s=7200))
        printed = await call(home, "backup", str(file))

    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "agents/main/SOUL.md" in printed
    assert "agents.main.env.KEY" in printed
    assert b"sk-secret" not in file.read_bytes()

    assert "is paused" in await call(second, "restore", str(file))
    fleet = open_fleet(second, fleets)
    client = fleet.scripts.client
    shown: list[str] = []
    with running(second, shown):
        assert second.host_id != home.host_id
        assert "paused" in "".join(shown)
        await client.zadd(keys.CRON_DUE, {job.id: now_ms() - 2 * HOUR_MS})  # as if it was due
        new = await fleet.inbound.append(message("memory"), agent="main")
        printed = await call(second, "restore")
        assert "2 conversations have work" in printed
        assert cut_off.session.sid[:8] in printed
        assert "2 replies are not sent" in printed
        status = await asyncio.to_thread(remoteclaw, second, "status")
        assert "paused    the fleet was restored" in status.stdout
        assert "remoteclaw worker" not in status.stdout + status.stderr
        assert "sweeper" not in status.stdout.split("\n", 2)[2]
        assert not await fleet.workers.list()
        view = await fleet.sessions.view(cut_off.session.sid)
        assert view is not None
        assert view.waiting == 1
        assert not await client.xlen(keys.replies("telegram", "default"))
        letters = {each.account: each for each in await fleet.dead_letters.list()}
        assert letters.keys() == {"test/default", "telegram/default"}
        letter = letters["telegram/default"]
        assert letter.text == "the answer"
        assert "may have been delivered since" in letter.why

        printed = await call(second, "restore", "--go")

        assert "1 due times of cron jobs are skipped" in printed
        assert "hello" in await outcome_text(fleet, new)
        await eventually(lambda: is_output(fleet, cut_off, attempt=2))
        assert ((await job_of(fleet, job.id)).next_ms or 0) > now_ms()
        (run,) = await cron_of(fleet).runs()
        assert run.status == "skipped"
        assert "is not paused" in await refusal(second, "restore", "--go")
    assert (second.agent_files("main") / "SOUL.md").read_text() == "Be brief."
    assert second.config_file.read_text().startswith("# the comment stays")
    assert "is in use" in await refusal(second, "restore", str(file))


async def test_secrets_are_in_a_backup_only_if_asked_for(
    home: Home, second: Home, directory: Path
) -> None:
    (home.path / "tokens").mkdir()
    (home.path / "tokens" / "telegram-default").write_text("token-3")
    home.config_file.write_text(CONFIG)
    without, complete = directory / "without.tar", directory / "with.tar"
    server = EmbeddedRedis(home)
    await server.start()
    url = {"REMOTECLAW__REDIS__URL": f"unix://{home.redis_socket}"}
    plain = await asyncio.to_thread(remoteclaw, home, "backup", str(without), **url)
    full = await asyncio.to_thread(
        remoteclaw, home, "backup", str(complete), "--with-secrets", **url
    )
    await server.stop()

    assert (plain.returncode, full.returncode) == (0, 0), plain.stderr + full.stderr
    for name in ("channels.telegram.token", "tokens/telegram-default", "agents.main.mcp_servers"):
        assert name in plain.stdout
    for secret in (b"sk-secret", b"123456789:", b"token-3"):
        assert secret not in without.read_bytes()
        assert secret in complete.read_bytes()
    await call(second, "restore", str(complete))
    assert second.config_file.read_text() == CONFIG
    assert (second.path / "tokens" / "telegram-default").read_text() == "token-3"


async def test_a_file_that_is_no_sound_backup_is_refused_and_leaves_nothing(
    home: Home, second: Home, directory: Path
) -> None:
    file, foreign, cut, newer = (directory / name for name in ("a.tar", "b.tar", "c.tar", "d.tar"))
    server = EmbeddedRedis(home)
    await server.start()
    url = {"REMOTECLAW__REDIS__URL": f"unix://{home.redis_socket}"}
    await asyncio.to_thread(remoteclaw, home, "backup", str(file), **url)
    await server.stop()
    foreign.write_text("no archive")
    content = file.read_bytes()
    at = content.index(b"redis.rdb\0") + 512
    cut.write_bytes(content[:at] + b"x" + content[at + 1 :])
    newer.write_bytes(content.replace(b'"format":1', b'"format":9'))

    assert "is no backup" in await refusal(second, "restore", str(foreign))
    assert "is damaged, so nothing was restored" in await refusal(second, "restore", str(cut))
    assert "update it, and restore again" in await refusal(second, "restore", str(newer))
    assert tarfile.is_tarfile(file)
    await call(second, "restore", str(file))


@pytest.fixture
async def shared(home: Home, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Stack]:
    """A Redis with more databases than usual."""
    async with running_stack(home, monkeypatch, options=("--databases", "32")) as stack:
        yield stack


async def test_a_backup_of_one_database_is_restored_to_another_redis(
    shared: Stack, second: Home, directory: Path, fleets: list[Fleet]
) -> None:
    """A Redis that other programs use as well has their data in other databases."""
    stack = shared

    def at(database: int) -> str:
        return f"unix://{stack.redis.socket}?db={database}"

    fleets += [Fleet.open(at(31)), Fleet.open(at(5))]
    old, new = fleets
    accepted = await old.inbound.append(message("hello"), agent="main")
    client, file = stack.fleet.scripts.client, directory / "backup.tar"
    await client.set("theirs", "1")
    url = {"REMOTECLAW__REDIS__URL": at(31)}
    backup = await asyncio.to_thread(remoteclaw, stack.home, "backup", str(file), **url)
    assert backup.returncode == 0, backup.stderr
    await new.scripts.client.set("used", "1")
    into = ("restore", str(file), "--redis", at(5))
    assert "That Redis has 1 keys, and a backup needs an empty" in await refusal(second, *into)
    await new.scripts.client.delete("used")

    printed = await call(second, *into)

    assert "is paused" in printed
    assert await new.restores.paused_from() is not None
    assert await new.scripts.client.keys("theirs") == []
    view = await new.sessions.view(accepted.session.sid)
    assert view is not None
    assert view.waiting == 1
    assert at(5) in second.config_file.read_text()
    assert "1 conversation has work" in await call(second, "restore")
    third = Home(directory / "third")
    await call(third, "restore", str(file))
    server = EmbeddedRedis(third)
    await server.start()
    own = open_fleet(third, fleets)
    assert await own.sessions.view(accepted.session.sid) is not None
    assert (await own.scripts.client.info("keyspace")).keys() == {"db0"}
    assert await own.scripts.client.keys("theirs") == []
    await server.stop()


async def test_each_key_reaches_a_redis_of_another_kind_that_is_far_away(
    stack: Stack, fleets: list[Fleet], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What one server dumps, another one refuses; and files need longer than other commands may.

    The other one's user has the smallest rights.
    """
    client: Any = stack.fleet.scripts.client
    await client.execute_command(*acl_setuser("pw").split())
    socket = stack.redis.socket
    addresses = f"unix://{socket}?db=3", f"unix://remoteclaw:pw@{socket}?db=5"
    fleets += map(Fleet.open, addresses)
    old, new = (fleet.scripts.client for fleet in fleets)
    await old.set("rq:string", b"\xff", px=HOUR_MS)
    await old.hset("rq:hash", mapping={"a": "1", "b": "2"})
    await old.rpush("rq:list", "b", "a", "b")
    await old.sadd("rq:set", "a", "b")
    await old.zadd("rq:sorted set", {"a": 0.1, "b": 1795820346968, "c": math.inf})
    for stream in ("rq:stream", "rq:empty stream"):
        for number in (1, 2, 3):
            await old.xadd(stream, {"field": str(number)}, id=f"{number}-1")
    await old.xdel("rq:stream", "3-1")
    await old.xtrim("rq:empty stream", 0)
    await client.execute_command("ACL", "SETUSER", "remoteclaw", "-xadd")
    with pytest.raises(RedisRefused, match=r"^Redis refuses: User remoteclaw has no permissions"):
        await copy_data(fleets[0].scripts, fleets[1].scripts)
    assert [name async for name in new.scan_iter()] == []
    await client.execute_command("ACL", "SETUSER", "remoteclaw", "+xadd")
    monkeypatch.setattr(connection, "COMMAND_S", 0.5)
    monkeypatch.setattr(connection, "RETRY_S", 0.5)
    await client.client_pause(1000, all=False)  # holds what writes

    await copy_data(fleets[0].scripts, fleets[1].scripts)

    async def values(client: Any) -> list[Any]:
        streams = [await client.xinfo_stream(name) for name in ("rq:stream", "rq:empty stream")]
        return [
            *(await client.get("rq:string"), await client.hgetall("rq:hash")),
            *(await client.lrange("rq:list", 0, -1), await client.smembers("rq:set")),
            await client.zrange("rq:sorted set", 0, -1, withscores=True),
            *(await client.xrange("rq:stream"), await client.xrange("rq:empty stream")),
            *(stream["last-generated-id"] for stream in streams),
        ]

    await client.execute_command("ACL", "SETUSER", "remoteclaw", "+@all")
    assert await values(new) == await values(old)
    assert await new.dbsize() == 7
    assert HOUR_MS - 60_000 < await new.pttl("rq:string") <= HOUR_MS


async def test_a_restore_to_another_redis_that_is_interrupted_leaves_it_empty(
    stack: Stack, fleets: list[Fleet], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the next try would be refused, because that Redis has keys."""
    monkeypatch.setattr(copying, "COPIED_KEYS", 1)
    fleets += [Fleet.open(f"unix://{stack.redis.socket}?db={number}") for number in (3, 5)]
    old, new = (fleet.scripts.client for fleet in fleets)
    await old.mset({str(number): "value" for number in range(3000)})
    moving = asyncio.create_task(copy_data(fleets[0].scripts, fleets[1].scripts))
    await eventually(new.dbsize)

    moving.cancel()

    with pytest.raises(asyncio.CancelledError):
        await moving
    assert await new.dbsize() == 0


async def test_a_redis_user_that_may_not_sync_is_named(stack: Stack, directory: Path) -> None:
    client: Any = stack.fleet.scripts.client
    await client.execute_command("ACL", "SETUSER", "limited", "on", ">pw", "~*", "+@all", "-sync")
    fleet = stack.open_at(f"unix://limited:pw@{stack.redis.socket}")

    with pytest.raises(RedisRefused, match="needs the right to SYNC"):
        await save_snapshot(fleet.scripts.client, directory / "snapshot")
