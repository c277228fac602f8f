"""The page's requests, made as a browser makes them."""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from http.cookies import SimpleCookie
from typing import Any

import orjson

from remoteclaw.host.terminal import login_name
from remoteclaw.messages import SessionKey
from remoteclaw.tools.base import Scope
from tests.support.doors import Door, RpcClient, hello
from tests.support.stack import Stack

#: The person of a state directory's token file.
OPERATOR = f"admin.{login_name()}"
OWN = {"X-RemoteClaw-Page": "1"}
#: The header with the half of a login that the page stores.
KEY_HEADER = "X-RemoteClaw-Key"


@dataclass(frozen=True)
class Login:
    """The two halves of a browser's login."""

    cookie: str
    """NAME=VALUE."""
    key: str

    @property
    def headers(self) -> dict[str, str]:
        """The headers of the page's requests."""
        return {"Cookie": self.cookie, KEY_HEADER: self.key, **OWN}


def chat_key(
    person: str = "admin.ada", *, conversation: str | None = None, agent: str = "main"
) -> str:
    """Return the key of a person's conversation."""
    return str(SessionKey(agent, "web", "default", person, person, conversation))


async def login(
    stack: Stack,
    door: Door,
    *,
    name: str = "ada",
    scope: Scope = "admin",
) -> Login:
    """Log in as the page does."""
    code = await stack.fleet.logins.create(name, scope, 3_600_000)
    body = orjson.dumps({"code": code})
    answer = await door.post("/page/login", None, body, Origin=door.url, **OWN)
    assert answer.status == 200, answer.body
    cookie = SimpleCookie(answer.headers["Set-Cookie"])
    (morsel,) = cookie.values()
    assert (morsel["httponly"], morsel["samesite"], morsel["path"]) == (True, "strict", "/page/")
    return Login(f"{morsel.key}={morsel.value}", answer.json["key"])


@contextlib.asynccontextmanager
async def paged(door: Door, login: Login, **options: Any) -> AsyncIterator[RpcClient]:
    """Connect as the page does."""
    url = f"{door.ws_url.removesuffix('/ws')}/page/ws"
    headers = {"Cookie": login.cookie}
    async with door.socket_at(
        url, origin=door.url, additional_headers=headers, **options
    ) as client:
        assert (await client.frame())["event"] == "connect.challenge"
        client.hello = await client.call("connect", hello(login.key))
        yield client
