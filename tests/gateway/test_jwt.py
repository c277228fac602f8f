"""JSON Web Tokens that another cockpit signs: validity, scope, agents and revocation."""

import asyncio
import base64
import hashlib
import hmac
import os
import time
from pathlib import Path
from typing import Any

import jwt as pyjwt
import orjson
import pytest

from remoteclaw.errors import ConfigError
from remoteclaw.gateway.auth.jwt import check_keys
from remoteclaw.gateway.auth.principals import Operator
from remoteclaw.gateway.gateway import Gateway
from tests.support.cli import run
from tests.support.doors import Door, gateway_process, opened
from tests.support.signed import part, secret_file, signed
from tests.support.stack import Stack

NOW = int(time.time())


@pytest.fixture
def secret(stack: Stack, directory: Path) -> Path:
    """The secret of a key that may write."""
    path = secret_file(directory)
    configure(stack, path)
    return path


def configure(stack: Stack, path: Path, **more: Any) -> None:
    key = {"secret_file": str(path), "scope": "write", **more}
    stack.configure(gateway={"jwt": {"cockpit": key}})


async def operator_of(door: Door, token: str) -> Operator | None:
    assert isinstance(door.gateway, Gateway)
    found = await door.gateway.authenticator.principal(token)
    assert found is None or isinstance(found, Operator)
    return found


async def test_a_signed_token_is_an_operator_named_after_its_key(
    stack: Stack, secret: Path
) -> None:
    async with opened(stack) as door:
        found = await operator_of(door, signed(secret, jti="1", nbf=NOW - 1, x="not asked"))
        assert found is not None
        assert (found.name, found.scope, found.agents) == ("cockpit/ada", "write", None)
        assert found.name == "cockpit/ada"
        answer = await door.invoke(signed(secret), "sessions_list")
        assert answer.status == 200
        async with door.connected(signed(secret, scope="read")) as client:
            assert client.hello["auth"]["scopes"] == ["read"]


def invalid_tokens(secret: Path) -> dict[str, str]:
    """Return tokens that are not valid, by what is wrong with them."""
    good, now = signed(secret), int(time.time())
    head, payload, _ = good.split(".")

    def with_head(**header: Any) -> str:
        return signed(secret, header)

    def headed(header: Any) -> str:
        body = f"{part(orjson.dumps(header))}.{payload}"
        mac = hmac.new(secret.read_bytes().rstrip(), body.encode(), hashlib.sha256)
        return f"{body}.{part(mac.digest())}"

    claims = orjson.loads(base64.urlsafe_b64decode(payload + "=="))
    key = secret.read_bytes().rstrip()
    none = part(orjson.dumps({"alg": "none", "kid": "cockpit"}))
    return {
        "none": f"{none}.{payload}.",
        "None, signed": with_head(alg="None"),
        "none, as a library has it": pyjwt.encode(claims, "", "none", {"kid": "cockpit"}),
        "another length": pyjwt.encode(claims, key, "HS512", {"kid": "cockpit"}),
        "no algorithm": with_head(alg=...),
        "another algorithm": with_head(alg="HS512"),
        "a public key's": with_head(alg="RS256"),
        "elliptic": with_head(alg="ES256"),
        "algorithm in lower case": with_head(alg="hs256"),
        "no kid": with_head(kid=...),
        "unknown kid": with_head(kid="other"),
        "a path as kid": with_head(kid="../../../../dev/null"),
        "its own path as kid": with_head(kid=str(secret)),
        "kid is a list": with_head(kid=["cockpit"]),
        "kid is null": with_head(kid=None),
        "kid with a line end": with_head(kid="cockpit\n"),
        "crit": with_head(crit=["exp"]),
        "crit is empty": with_head(crit=[]),
        "b64": with_head(b64=False),
        "jku": with_head(jku="https://evil.example/keys"),
        "a key of its own": with_head(jwk={"kty": "oct", "k": part(b"x" * 32)}),
        "header is a list": headed(["HS256"]),
        "header is text": headed("HS256"),
        "expired": signed(secret, iat=now - 100, exp=now - 11),
        "from the future": signed(secret, iat=now + 60, exp=now + 120),
        "not yet": signed(secret, nbf=now + 60),
        "too long": signed(secret, iat=now, exp=now + 86_401),
        "ends before it begins": signed(secret, iat=now + 5, exp=now + 5),
        "no exp": signed(secret, exp=...),
        "no iat": signed(secret, iat=...),
        "no aud": signed(secret, aud=...),
        "no sub": signed(secret, sub=...),
        "no scope": signed(secret, scope=...),
        "another's": signed(secret, aud="other"),
        "a list of audiences": signed(secret, aud=["remoteclaw"]),
        "aud begins so": signed(secret, aud="remoteclaw2"),
        "exp is text": signed(secret, exp=str(now + 60)),
        "exp is true": signed(secret, exp=True),
        "exp is a fraction": signed(secret, exp=now + 60.5),
        "exp is huge": signed(secret, exp=10**30 // 10**12),
        "exp is null": signed(secret, exp=None),
        "iat is text": signed(secret, iat=str(now)),
        "iat is negative": signed(secret, iat=-1),
        "iat is false": signed(secret, iat=False),
        "nbf is text": signed(secret, nbf=str(now)),
        "unknown scope": signed(secret, scope="root"),
        "scopes in a line": signed(secret, scope="read write"),
        "scope is a list": signed(secret, scope=["read"]),
        "sub is empty": signed(secret, sub=""),
        "sub is a number": signed(secret, sub=1),
        "sub has a line end": signed(secret, sub="a\nb"),
        "sub is long": signed(secret, sub="x" * 101),
        "agents is text": signed(secret, agents="main"),
        "agents is empty": signed(secret, agents=[]),
        "agents of numbers": signed(secret, agents=[1]),
        "jti is a number": signed(secret, jti=1),
        "another secret": signed(secret.with_name("other.secret")),
        "unsigned": f"{head}.{payload}.",
        "cut": good[:-1],
        "two signatures": f"{good}.{good.rpartition('.')[2]}",
        "another payload": f"{head}.{part(b'{}')}.{good.rpartition('.')[2]}",
        "no JSON": f"{part(b'{')}.{payload}.x",
        "empty": "..",
        "huge": signed(secret, x="x" * 20_000),
        "deep": f"{part(b'[' * 2000)}.{payload}.x",
    }


async def test_an_invalid_signed_token_is_refused(
    stack: Stack, secret: Path, directory: Path
) -> None:
    secret_file(directory, "other")
    async with opened(stack) as door:
        tokens = invalid_tokens(secret)
        accepted = {
            why for why, token in tokens.items() if await operator_of(door, token) is not None
        }
        assert accepted == set()
        # Nothing in the answer says why.
        answers = {
            (answer.status, answer.body)
            for token in (*tokens.values(), "0" * 64)
            if len(token) < 4096
            for answer in [await door.invoke(token, "sessions_list")]
        }
        assert len(answers) == 1
        assert (await operator_of(door, signed(secret))) is not None, "a valid token is accepted"


async def test_scope_and_agents_are_the_narrower_of_token_and_key(
    stack: Stack, secret: Path
) -> None:
    async with opened(stack) as door:
        for scope, key, expected in (
            ("admin", "read", "read"),
            ("read", "admin", "read"),
            ("admin", "terminal", "terminal"),
        ):
            configure(stack, secret, scope=key)
            found = await operator_of(door, signed(secret, scope=scope))
            assert found is not None
            assert found.scope == expected
        for claimed, mine, have in (
            (["main", "x"], ["main"], ("main",)),
            (["main"], [], ("main",)),
            (..., ["main"], ("main",)),
        ):
            configure(stack, secret, agents=mine)
            found = await operator_of(door, signed(secret, agents=claimed))
            assert found is not None
            assert found.agents == have
        configure(stack, secret, agents=["main"])
        assert await operator_of(door, signed(secret, agents=["x"])) is None
        refused = await door.invoke(signed(secret), "cron_list")
        assert "This token is only for 'main'" in refused.json["error"]["message"]


@pytest.mark.parametrize("end", ["revoked", "lost", "removed", "rotated", "narrowed", "expired"])
async def test_connections_close_when_their_signed_token_becomes_invalid(
    stack: Stack, secret: Path, end: str
) -> None:
    now = int(time.time())
    soon: dict[str, Any] = {"iat": now - 60, "exp": now - 8} if end == "expired" else {}
    token = signed(secret, jti="j-1", **soon)
    async with opened(stack) as door, door.connected(token) as client:
        match end:
            case "revoked":
                done = await asyncio.to_thread(run, stack, "token", "revoke", "--jwt", "j-1")
                assert "It is revoked" in done.stdout
            case "lost":
                await stack.fleet.tokens.revoke_jwts_of("cockpit/ben")
                assert await operator_of(door, token) is not None
                done = await asyncio.to_thread(
                    run, stack, "token", "revoke", "--jwt-user", "cockpit/ada"
                )
                assert "signed for this user until now are revoked" in done.stdout
                user, later = "cockpit/ada", (now + 60) * 1000
                assert not await stack.fleet.tokens.is_jwt_revoked(None, user=user, issued_ms=later)
            case "removed":
                stack.configure()
            case "rotated":
                secret_file(secret.parent)
            case "narrowed":
                configure(stack, secret, scope="read")
        assert (await client.closed())[0] == 1008
        found = await operator_of(door, token)
        assert found is None or (end, found.scope) == ("narrowed", "read")


async def test_a_token_in_jwt_form_is_never_accepted_as_another_kind(
    stack: Stack, secret: Path
) -> None:
    """Not even if the gateway's own token has the form of a JWT."""
    async with opened(stack) as door:
        token = f"{'a' * 20}.{'b' * 20}.{'c' * 20}"
        own = stack.home.path / "gateway-token"
        own.write_text(token)
        assert await operator_of(door, token) is None
        own.write_text(token.replace(".", "_"))
        assert await operator_of(door, token.replace(".", "_")) is not None


@pytest.mark.parametrize(
    ("content", "mode", "why"),
    [
        (b"x" * 31, 0o600, "has 31 bytes: a secret has at least 32"),
        (b"x" * 31 + b"\r\n", 0o600, "has 31 bytes"),
        (b"x" * 5000, 0o600, "at most 4096"),
        (b"x" * 32, 0o640, "can be read by others: `chmod 600` it."),
        (None, 0o600, "can't be read (No such file or directory)."),
    ],
)
async def test_an_unusable_secret_file_is_reported_in_a_sentence(
    stack: Stack, directory: Path, content: bytes | None, mode: int, why: str
) -> None:
    path = secret_file(directory, secret=content or b"x" * 32)
    os.chmod(path, mode)
    configure(stack, path)
    token = signed(path)
    if content is None:
        path.unlink()
    async with opened(stack) as door:
        assert door.gateway is not None
        assert await operator_of(door, token) is None
        with pytest.raises(ConfigError) as problem:
            check_keys(door.gateway.config().gateway)
    assert f"[gateway.jwt.cockpit] secret_file: {path}" in str(problem.value)
    assert why in str(problem.value)


async def test_a_gateway_does_not_start_with_an_unusable_secret_file(
    stack: Stack, directory: Path
) -> None:
    configure(stack, secret_file(directory, secret=b"short"))

    with pytest.raises(AssertionError, match="has 5 bytes: a secret has at least 32"):
        async with gateway_process(stack):
            pass


async def test_the_log_says_once_why_a_token_is_refused(
    stack: Stack, secret: Path, directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (directory / "other").mkdir()
    forged = signed(secret_file(directory / "other"))
    tokens = [
        signed(secret, exp=NOW - 300),
        signed(secret, aud="other"),
        signed(secret, agents=[]),
        signed(secret, exp=NOW + 10**6),
        forged,
        forged,
        "a.b.c",
    ]
    async with opened(stack) as door:
        for token in tokens:
            assert await operator_of(door, token) is None

    lines = [each.getMessage() for each in caplog.records if "JSON Web Token" in each.message]
    begin = "a JSON Web Token of [gateway.jwt.cockpit] is refused: "
    assert lines == [
        f"{begin}it has expired",
        f"{begin}its aud is not remoteclaw",
        f"{begin}its claim agents is not valid",
        f"{begin}it is valid for longer than max_age_s (86400 s)",
        f"{begin}its signature does not match secret_file",
        "a JSON Web Token is refused: it can't be decoded",
    ]
    assert not any(token in caplog.text for token in tokens)
