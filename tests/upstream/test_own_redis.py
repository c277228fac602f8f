"""A Redis of one's own: TLS with a private authority, and a user with the smallest rights."""

import re
from pathlib import Path

import pytest
import redis

from remoteclaw.config.model import TerminalsConfig
from remoteclaw.cron.schedule import Schedule
from remoteclaw.errors import RedisUnavailable, RedisUnfit
from remoteclaw.fleet.connection import open_redis
from remoteclaw.fleet.fitness import check_fitness
from remoteclaw.fleet.lua import Script
from remoteclaw.fleet.rights import COMMANDS, acl_setuser
from remoteclaw.messages import SessionKey, TerminalWish
from tests.support.channel import TestChannel
from tests.support.command import ROOT, run_command
from tests.support.cron import scheduler_of
from tests.support.jobs import add
from tests.support.servers import Server, installed_servers, running_server
from tests.support.stack import Stack, message
from tests.support.tls import Authority, tls_in_front_of
from tests.support.waiting import eventually

PASSWORD = "a-password-that-nobody-sees"


# -- TLS ------------------------------------------------------------------------------------------


async def test_a_turn_runs_over_tls_with_a_private_authority_and_a_clients_certificate(
    stack: Stack, directory: Path
) -> None:
    ours = Authority(directory / "ours")
    client = ours.certificate("client")
    options = f"ssl_ca_certs={ours.file}&ssl_certfile={client}&ssl_keyfile={client}"
    async with tls_in_front_of(stack.redis.socket, ours, wants_client=True) as port:
        stack.configure(redis_url=f"rediss://127.0.0.1:{port}?{options}")
        await stack.start_worker()

        assert "demo agent" in await stack.ask("hello")

        await stack.end_processes()


async def test_a_certificate_that_nobody_vouches_for_is_reported_as_such(
    stack: Stack, directory: Path
) -> None:
    ours, others = Authority(directory / "ours"), Authority(directory / "others")
    async with tls_in_front_of(stack.redis.socket, ours, wants_client=True) as port:
        for option, why in (
            (f"ssl_ca_certs={others.file}", "its certificate is not trusted .*ssl_ca_certs="),
            ("ssl_ca_certs=/nowhere", "No such file"),
            (f"ssl_ca_certs={ours.file}", "it may want a certificate of yours, .ssl_certfile="),
        ):
            url = f"rediss://127.0.0.1:{port}?{option}"
            client = open_redis(url)
            with pytest.raises((RedisUnfit, RedisUnavailable), match=why):
                await check_fitness(client, url)
            await client.aclose()


# -- a user with the smallest rights --------------------------------------------------------------


def give_rights(server: Server, *less: str) -> str:
    """Make the documented user on a server, without some rights; return its address."""
    with redis.Redis(unix_socket_path=str(server.socket)) as admin:
        admin.execute_command(*acl_setuser(PASSWORD).split(), *less)
    return f"unix://remoteclaw:{PASSWORD}@{server.socket}"


async def test_the_documented_rights_are_enough_and_the_password_is_never_shown(
    stack: Stack, monkeypatch: pytest.MonkeyPatch, directory: Path
) -> None:
    url = give_rights(stack.redis)
    channel = TestChannel.installed(monkeypatch, stack)
    stack.configure(channels={"test": {**channel.settings, "owners": ["alice"]}}, redis_url=url)
    fleet = stack.open_at(url)

    worker, account = await stack.start_worker(), channel.start()
    channel.platform.say("alice", "alice", "hello")
    await eventually(lambda: any("demo agent" in text for text in channel.texts("alice")))
    await add(fleet, Schedule(every_s=60), next_ms=await fleet.scripts.now_ms())
    await scheduler_of(fleet).tick()
    await eventually(lambda: any("demo agent" in text for text in channel.texts("chat-1")))
    session = SessionKey.of(message("hello", provider="web"), agent="main")
    opened = await fleet.terminals.open(
        session,
        TerminalWish(by="alice", cols=80, rows=24),
        people=["test:alice"],
        call="1",
        host=stack.home.host_id,
        name="a terminal",
        limits=TerminalsConfig(),
    )
    assert await fleet.terminals.record(opened.session.sid)
    doctor = run_command("doctor", env=stack.env())

    assert "reachable and fit" in doctor.stdout
    with redis.Redis(unix_socket_path=str(stack.redis.socket)) as admin:
        denied = {entry["object"].partition("|")[0] for entry in admin.acl_log()}
    assert denied <= {"client", "config"}  # an address for RQ's list, and `appendfsync`
    commands = [Path(f"/proc/{each.pid}/cmdline").read_text() for each in (worker, account)]
    logs = [file.read_text() for file in stack.home.logs.glob("*.log")]
    assert PASSWORD not in "".join((*commands, *logs, doctor.stdout, doctor.stderr))
    channel.end()


@pytest.mark.parametrize(
    ("less", "lacks"),
    [
        (("-xadd",), "run XADD"),
        (("resetkeys", "~rc:*"), r"run EXISTS with the keys rq:\*"),
        (("resetchannels", "&rc:*"), r"run PUBLISH on the channels rq:\*"),
        (("-info",), "'info' command"),
    ],
)
async def test_a_right_that_a_user_lacks_is_named(
    directory: Path, less: tuple[str, ...], lacks: str
) -> None:
    with running_server(installed_servers()[0], directory) as server:
        url = give_rights(server, *less)
        client = open_redis(url)
        with pytest.raises(RedisUnfit, match=f"{lacks}.*: `ACL SETUSER` in docs/operations") as why:
            await check_fitness(client, url)
        await client.aclose()
        assert PASSWORD not in str(why.value)


def test_the_rights_have_each_command_of_the_scripts_and_are_in_the_documentation() -> None:
    call = re.compile(r"redis\.p?call\('(\w+)'(?:, '(USAGE|NUMSUB)')?")
    used = {
        "|".join(filter(None, found)).lower()
        for name in Script.names()
        for found in call.findall(Script.named(name).source)
    }
    assert used <= {*COMMANDS}
    assert f"\n{acl_setuser('PASSWORD')}\n" in (ROOT / "docs/operations.md").read_text()
