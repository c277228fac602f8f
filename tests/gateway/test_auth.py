"""Authentication: three kinds of tokens, each accepted only as a whole."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from remoteclaw.errors import RedisUnavailable, StateDirectoryError
from remoteclaw.fleet import keys
from remoteclaw.gateway.auth.principals import Agent, Operator
from remoteclaw.gateway.auth.token_file import TokenFile, token_files
from remoteclaw.host.terminal import login_name
from remoteclaw.host.tokens import digest
from remoteclaw.messages import SessionKey
from tests.support.cli import run
from tests.support.doors import Refused, calling, opened, own_token
from tests.support.pages import login, paged
from tests.support.stack import Stack
from tests.support.waiting import eventually

# -- the gateway's own token ----------------------------------------------------------------------


def test_the_gateways_token_is_created_once_and_only_its_owner_can_read_it(directory: Path) -> None:
    TokenFile(directory).create()
    first = TokenFile(directory).read()

    TokenFile(directory).create()

    assert TokenFile(directory).read() == first
    assert len(bytes.fromhex(first)) == 32
    assert (directory / "gateway-token").stat().st_mode & 0o777 == 0o600
    assert sorted(file.name for file in directory.iterdir()) == [".lock", "gateway-token"]


def _write(content: bytes, mode: int = 0o600) -> Callable[[Path], None]:
    def put(path: Path) -> None:
        path.write_bytes(content)
        path.chmod(mode)

    return put


def _link(path: Path) -> None:
    real = path.with_name("real")
    _write(b"x" * 64)(real)
    path.symlink_to(real)


@pytest.mark.parametrize(
    ("put", "why"),
    [
        (_write(b""), "isn't one word"),
        (_write(b"x" * 31), "isn't one word"),
        (_write(b"x" * 40 + b"\n" + b"y" * 40), "isn't one word"),
        (_write(b"x" * 2000), "isn't one word"),
        (_write(b"x" * 64, 0o640), "can be read by others"),
        (_link, "can't be read"),
        (lambda path: os.mkfifo(path, 0o600), "isn't one word"),
    ],
)
def test_an_unsafe_or_invalid_token_file_is_refused(
    directory: Path, put: Callable[[Path], None], why: str
) -> None:
    put(directory / "gateway-token")

    with pytest.raises(StateDirectoryError) as error:
        TokenFile(directory).create()

    assert f"The gateway's token {directory}/gateway-token {why}" in str(error.value)
    assert "\n" not in str(error.value)
    assert TokenFile(directory).digest() is None


async def test_gateways_that_start_at_the_same_time_use_one_token(directory: Path) -> None:
    files = [TokenFile(directory) for _ in range(20)]

    await asyncio.gather(*(asyncio.to_thread(file.create) for file in files))

    assert len({file.digest() for file in files}) == 1


async def test_a_token_file_that_changes_is_read_again(stack: Stack) -> None:
    async with opened(stack) as door:
        file = TokenFile(stack.home.path)
        old = file.read()
        assert (await door.invoke(old, "sessions_list")).status == 200

        file.rotate()

        assert (await door.invoke(old, "sessions_list")).status == 401
        assert (await door.invoke(file.read(), "sessions_list")).status == 200


@pytest.mark.parametrize("content", [b"", b"short", None])
async def test_the_gateways_token_is_refused_while_its_file_is_invalid(
    stack: Stack, content: bytes | None
) -> None:
    async with opened(stack) as door:
        file = TokenFile(stack.home.path)
        old = file.read()
        operator, _ = await stack.fleet.tokens.create("ada", "read", None)

        file.path.unlink() if content is None else file.path.write_bytes(content)

        for token in (old, "short", "x"):
            assert (await door.invoke(token, "sessions_list")).status == 401
        assert (await door.invoke(operator, "sessions_list")).status == 200


# -- valid and invalid tokens ---------------------------------------------------------------------


async def test_only_a_complete_token_is_accepted(stack: Stack) -> None:
    async with opened(stack) as door, calling(stack) as agent:
        assert door.gateway is not None
        principal_of = door.gateway.authenticator.principal
        own = TokenFile(stack.home.path).read()
        token, view = await stack.fleet.tokens.create("ada", "write", None)

        assert await principal_of(own) == Operator(
            login_name(), "admin", str(TokenFile(stack.home.path).digest())
        )
        assert await principal_of(token) == Operator("ada", "write", f"{view.id}/{view.digest}")
        assert await principal_of(agent.token) == Agent(agent.lease.sid, digest(agent.token))
        for valid in (own, token, agent.token):
            head, _, secret = valid.rpartition("_")
            invalid = [
                *(valid[:-1], valid + "0", f" {valid}", f"{valid}\n", valid.upper(), valid * 2),
                *(valid[:8], head, f"{head}_", f"{head}_{'0' * 64}", f"{head}_{secret[::-1]}"),
            ]
            assert [await principal_of(one) for one in invalid] == [None] * len(invalid), valid
        unknown = [
            *("", "undefined", "null", "0" * 64, "ü" * 64, "\0", "rct_", "rca_", "x" * 100_000),
            *(view.digest, view.id, digest(agent.token), agent.lease.sid, "\ud800"),
            f"rct_{'0' * 12}_{'0' * 64}",
            f"rca_{'0' * 32}_{'0' * 64}",
        ]
        assert [await principal_of(one) for one in unknown] == [None] * len(unknown)


@pytest.mark.parametrize(
    "header",
    ["", "Bearer ", "Basic {}", "{}", "Bearer {}, Bearer {}"],
)
async def test_an_authorization_header_without_one_token_is_refused(
    stack: Stack, header: str
) -> None:
    async with opened(stack) as door:
        token = TokenFile(stack.home.path).read()

        value = header.format(token, token)
        answer = await door.invoke(None, "sessions_list", headers={"Authorization": value})

    assert answer.status == 401
    assert answer.headers["WWW-Authenticate"] == "Bearer"


async def test_without_redis_an_operators_token_is_answered_with_unavailable(stack: Stack) -> None:
    async with opened(stack) as door:
        assert door.gateway is not None
        token, _ = await stack.fleet.tokens.create("ada", "read", None)
        stack.redis.kill()

        answer = await door.invoke(token, "sessions_list")

        assert (answer.status, answer.code) == (503, "UNAVAILABLE")
        with pytest.raises(RedisUnavailable):
            await door.gateway.authenticator.principal(token)
        assert await door.gateway.authenticator.principal("0" * 64) is None


# -- the command line -----------------------------------------------------------------------------


async def test_a_token_is_created_shown_once_used_and_revoked(stack: Stack) -> None:
    made = run(stack, "token", "create", "ada's phone", "--scope", "write", "--days", "3")
    token = made.stdout.strip()
    listed = run(stack, "token", "list").stdout
    token_id = token.split("_")[1]

    assert made.returncode == 0
    assert token_id in listed
    assert "ada's phone" in listed
    assert token.split("_")[2] not in listed
    stored = await stack.fleet.scripts.client.hgetall(keys.TOKENS)
    assert token.split("_")[2] not in str(stored)
    async with opened(stack) as door:
        assert (await door.invoke(token, "sessions_list")).status == 200
        assert run(stack, "token", "revoke", "ada's phone").stdout == "It is revoked.\n"
        assert (await door.invoke(token, "sessions_list")).status == 401
    again = run(stack, "token", "revoke", token_id)
    assert again.returncode == 1
    assert f"'{token_id}' is no token: `remoteclaw token list`" in again.stderr


async def test_an_expired_token_is_listed_as_expired(stack: Stack) -> None:
    await stack.fleet.tokens.create("brief", "read", 1)

    await eventually(lambda: "expired" in run(stack, "token", "list").stdout)


@pytest.mark.parametrize(
    "arguments", [["", "x"], ["a\nb"], ["x" * 65], ["a", "--days", "0"], ["a", "--scope", "root"]]
)
async def test_a_token_with_an_invalid_name_lifetime_or_scope_is_not_created(
    stack: Stack, arguments: list[str]
) -> None:
    result = run(stack, "token", "create", *arguments)

    assert result.returncode == 2
    assert await stack.fleet.tokens.list() == []


async def test_the_gateways_token_can_be_replaced(stack: Stack) -> None:
    file = TokenFile(stack.home.path)
    file.create()
    old = file.read()

    result = run(stack, "token", "rotate")

    assert result.stdout == "".join(
        f"A new token is in {file.path}.\n" for file in token_files(stack.home.path)
    )
    assert file.read() != old
    assert file.path.stat().st_mode & 0o777 == 0o600


async def test_rotate_replaces_an_invalid_token_file(stack: Stack) -> None:
    file = TokenFile(stack.home.path)
    _link(file.path)

    assert run(stack, "token", "rotate").returncode == 0

    assert len(file.read()) == 64
    assert not file.path.is_symlink()
    assert file.path.with_name("real").read_bytes() == b"x" * 64


async def test_the_token_file_stands_for_its_user_who_may_write_as_after_a_login(
    stack: Stack,
) -> None:
    """`[channels.web] person` renames them at once; with owners named, they are none."""
    async with opened(stack) as door:
        for web in ({}, {"person": "ada"}, {"person": "ada", "owners": ["admin.somebody"]}):
            stack.configure(channels={"web": web})
            name = web.get("person", login_name())
            async with door.connected(own_token(stack)) as terminal:
                sent = {"messageId": f"{web}", "text": "hello"}
                chat = await terminal.call("chat.open")
                person = chat["person"]
                await terminal.call("chat.send", {**sent, "sessionKey": chat["sessionKey"]})

            assert person == f"admin.{name}"
            key = SessionKey("main", "web", "default", person, person, None)
            view = await stack.fleet.sessions.view(key.sid)
            assert view is not None
            assert await stack.fleet.pairings.list() == []


async def test_the_page_and_the_terminal_of_one_name_are_one_person(stack: Stack) -> None:
    stack.configure(channels={"web": {"person": "ada"}})
    async with opened(stack) as door:
        page = await login(stack, door, name="ada")
        async with door.connected(own_token(stack)) as terminal, paged(door, page) as browser:
            opened_chats = [await each.call("chat.open") for each in (terminal, browser)]

    assert opened_chats[0]["sessionKey"] == opened_chats[1]["sessionKey"]


async def test_tokens_are_managed_with_the_token_file_only(stack: Stack) -> None:
    admin, _ = await stack.fleet.tokens.create("ada", "admin", None)
    params = {"name": "eve", "scope": "read"}

    async with opened(stack) as door:
        async with door.connected(admin) as client:
            for method, given in (
                ("tokens.create", params),
                ("tokens.list", {}),
                ("tokens.revoke", {"token": "ada"}),
            ):
                with pytest.raises(Refused, match="only for the user of the gateway's host"):
                    await client.call(method, given)
        async with door.connected(own_token(stack)) as client:
            created = await client.call("tokens.create", params)

    assert {view.name for view in await stack.fleet.tokens.list()} == {"ada", "eve"}
    assert await stack.fleet.tokens.find(created["secret"])
