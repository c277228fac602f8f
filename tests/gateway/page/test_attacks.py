"""Attacks with foreign pages, used links and stolen cookies."""

from dataclasses import replace

import orjson
import pytest
from websockets.exceptions import InvalidStatus

from remoteclaw.channels.rate import MAX_PER_MINUTE
from tests.support.doors import Door, Refused, RpcClient, opened
from tests.support.pages import OWN, chat_key, login, paged
from tests.support.stack import Stack

EVIL, FRIEND = "https://evil.example", "https://friend.example"


async def code_of(stack: Stack) -> bytes:
    return orjson.dumps({"code": await stack.fleet.logins.create("ada", "admin", 3_600_000)})


async def test_a_login_link_works_once(stack: Stack) -> None:
    async with opened(stack) as door:
        body = await code_of(stack)
        first = await door.post("/page/login", None, body, Origin=door.url, **OWN)
        second = await door.post("/page/login", None, body, Origin=door.url, **OWN)

    assert first.status == 200
    assert second.status == 401
    assert b"`remoteclaw open` prints a new one" in second.body
    assert "Set-Cookie" not in second.headers


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": EVIL, **OWN},
        {"Origin": "null", **OWN},
        {"Origin": "OWN"},
        {**OWN},
        {"Origin": "OWN", "X-RemoteClaw-Page": "yes"},
    ],
    ids=["foreign origin", "null origin", "no page header", "no origin", "wrong page header"],
)
async def test_a_login_that_is_not_from_the_page_does_not_use_up_the_code(
    stack: Stack, headers: dict[str, str]
) -> None:
    async with opened(stack) as door:
        body = await code_of(stack)
        sent = {name: door.url if value == "OWN" else value for name, value in headers.items()}
        refused = await door.post("/page/login", None, body, **sent)
        taken = await door.post("/page/login", None, body, Origin=door.url, **OWN)

    assert refused.status == 403
    assert taken.status == 200


async def upgrade(door: Door, path: str, origin: str | None, cookie: str) -> int:
    headers = {"Cookie": cookie} if cookie else {}
    try:
        url = f"{door.ws_url.removesuffix('/ws')}{path}"
        async with door.socket_at(url, origin=origin, additional_headers=headers):
            return 101
    except InvalidStatus as refusal:
        return refusal.response.status_code


async def test_a_foreign_page_cannot_connect_with_the_browsers_cookie(
    stack: Stack,
) -> None:
    stack.configure(gateway={"origins": [FRIEND]})
    async with opened(stack) as door:
        ada = await login(stack, door)

        assert await upgrade(door, "/page/ws", EVIL, ada.cookie) == 403
        assert await upgrade(door, "/page/ws", FRIEND, ada.cookie) == 403  # no other origin
        assert await upgrade(door, "/ws", FRIEND, "") == 101  # this path needs a token instead
        assert await upgrade(door, "/page/ws", None, ada.cookie) == 403
        assert await upgrade(door, "/page/ws", door.url, "") == 403
        assert await upgrade(door, "/ws", door.url, ada.cookie) == 403  # that one is for programs
        assert await upgrade(door, "/page/ws", door.url, ada.cookie) == 101


async def test_a_forged_cookie_is_refused(stack: Stack) -> None:
    async with opened(stack) as door:
        ada = await login(stack, door)
        for made_up in (
            replace(ada, cookie=f"{ada.cookie[:-4]}ffff"),
            replace(ada, key=f"{ada.key[:-4]}ffff"),
        ):
            with pytest.raises(Refused, match="UNAUTHORIZED"):
                async with paged(door, made_up):
                    pass
            assert (await door.get("/page/whoami", **made_up.headers)).status == 401


async def test_a_page_is_disconnected_when_its_token_is_revoked(stack: Stack) -> None:
    async with opened(stack) as door:
        ada = await login(stack, door)
        async with paged(door, ada) as page:
            (token,) = await stack.fleet.tokens.list()
            assert (token.name, token.scope) == ("ada", "admin")
            await stack.fleet.tokens.revoke(token.id)
            code, _ = await page.closed()

    assert code == 1008


async def test_logging_out_deletes_the_token(stack: Stack) -> None:
    async with opened(stack) as door:
        ada = await login(stack, door)
        answer = await door.post("/page/logout", None, b"", Origin=door.url, **ada.headers)

        assert answer.status == 200
        assert await stack.fleet.tokens.list() == []


async def test_a_file_is_downloaded_and_never_displayed(stack: Stack) -> None:
    async with opened(stack) as door:
        ada = await login(stack, door)
        async with paged(door, ada) as page:
            here = await page.call("chat.open")
        evil = b"<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'/>"
        path = f"/page/files?session={here['sessionKey']}&name=../../x%22%3Cscript%3E.svg"
        stored = await door.post(path, None, evil, Origin=door.url, **ada.headers)
        file = stored.json
        where = f"/page/files/{here['sid']}/{file['blob']}?size={file['size']}"
        given = await door.get(where, **ada.headers)
        without = await door.get(where, Cookie=ada.cookie)

    assert given.body == evil
    assert given.headers["Content-Type"] == "application/octet-stream"
    assert given.headers["Content-Disposition"] == "attachment"
    assert "default-src 'none'" in given.headers["Content-Security-Policy"]
    assert without.status == 403
    assert "/" not in file["name"]


async def test_the_pages_headers_forbid_framing_and_foreign_scripts(stack: Stack) -> None:
    async with opened(stack) as door:
        page = await door.get("/")
        again = await door.get("/", **{"If-None-Match": page.headers["ETag"]})
        missing = await door.get("/page/..%2f..%2fdoor.py")

    policy = page.headers["Content-Security-Policy"]
    for rule in (
        "default-src 'none'",
        "script-src 'self'",
        "frame-ancestors 'none'",
        "base-uri 'none'",
        "require-trusted-types-for 'script'",
    ):
        assert rule in policy
    assert "unsafe" not in policy
    assert page.headers["X-Content-Type-Options"] == "nosniff"
    assert page.headers["Referrer-Policy"] == "no-referrer"
    assert again.status == 304
    assert missing.status == 404


async def test_a_login_with_the_scope_write_is_never_an_owner(stack: Stack) -> None:
    """A person's id includes the scope, so that a name cannot imitate another person."""
    async with opened(stack) as door:
        ada = await login(stack, door, name="admin.ada", scope="write")
        async with paged(door, ada) as page:
            here = await page.call("chat.open")

    assert here["person"] == "user.admin.ada"


async def flood(page: RpcClient) -> None:
    """Exceed the limit of two minutes, as one may end during the test; use new conversations."""
    for number in range(2 * MAX_PER_MINUTE + 1):
        name = f"{number:x}"
        await page.call(
            "chat.send",
            {
                "sessionKey": chat_key("user.flood", conversation=name),
                "messageId": name,
                "text": "x",
            },
        )


async def test_a_person_cannot_fill_redis_with_messages(stack: Stack) -> None:
    """In any number of conversations; and no message is stored while Redis is full."""
    client = stack.fleet.scripts.client
    async with opened(stack) as door:
        ada = await login(stack, door, name="flood", scope="write")
        async with paged(door, ada) as page:
            await client.config_set("maxmemory", 1_000_000)
            with pytest.raises(Refused, match="Redis has filled"):
                await page.call(
                    "chat.send",
                    {"sessionKey": chat_key("user.flood"), "messageId": "full", "text": "x"},
                )
            await client.config_set("maxmemory", 0)
            assert await stack.fleet.web.before("user.flood") == []
            with pytest.raises(Refused, match="more than 120 messages"):
                await flood(page)
