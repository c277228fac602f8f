"""A push service for tests, and the browser that has subscribed to it."""

import asyncio
import base64
import contextlib
import functools
import ssl
import subprocess
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jwt
import orjson
import pytest
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from remoteclaw.host.fetch import Address, post
from tests.support.waiting import HANG_S

AUTH = bytes(range(16))


@dataclass
class PushService:
    """A push service: decrypts the messages that it receives, and answers with a status."""

    url: str = ""
    status: int = 201
    key: ec.EllipticCurvePrivateKey = field(
        default_factory=lambda: ec.generate_private_key(ec.SECP256R1())
    )
    heads: list[dict[str, str]] = field(default_factory=list)
    told: asyncio.Queue[dict[str, str]] = field(default_factory=asyncio.Queue)
    answers: asyncio.Event = field(default_factory=asyncio.Event)
    """Set while the service answers."""

    def subscription(self, name: str = "secret") -> dict[str, str]:
        """Return the subscription of a browser, as the page sends it."""
        point = self.key.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
        return {
            "endpoint": f"{self.url}/{name}",
            "publicKey": text_of(point),
            "auth": text_of(AUTH),
        }

    async def next(self) -> dict[str, str]:
        """Wait for the next message and return it."""
        async with asyncio.timeout(HANG_S):
            return await self.told.get()

    async def answer(self, request: web.Request) -> web.Response:
        """Receive a message like a push service, and decrypt it like a browser."""
        await self.answers.wait()
        if self.status == 201:
            self.heads.append(dict(request.headers))
            told = orjson.loads(opened_by(self.key, AUTH, await request.read()))
            self.told.put_nowait({"name": request.path[1:], **told})
        return web.Response(status=self.status, headers={"Location": f"{self.url}/elsewhere"})

    def check_signature(self, public: str) -> dict[str, Any]:
        """Return the claims of the last message's signature, verified with the public key."""
        scheme, token, key = self.heads[-1]["Authorization"].replace(",", "").split()
        assert (scheme, token[:2], key) == ("vapid", "t=", f"k={public}")
        point = base64.urlsafe_b64decode(public + "==")
        signer = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), point)
        claims: dict[str, Any] = jwt.decode(token[2:], signer, ["ES256"], audience=self.url)
        return claims


def text_of(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def opened_by(key: ec.EllipticCurvePrivateKey, auth: bytes, message: bytes) -> bytes:
    """Return a message decrypted with a browser's keys (RFC 8291)."""
    salt, size, rest = message[:16], message[20], message[21:]
    theirs, content = rest[:size], rest[size:]
    ours = key.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
    sender = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), theirs)

    def derived(secret: bytes, salt: bytes, info: bytes, length: int) -> bytes:
        return HKDF(SHA256(), length, salt, info).derive(secret)

    info = b"WebPush: info\0" + ours + theirs
    secret = derived(key.exchange(ec.ECDH(), sender), auth, info, 32)
    nonce = derived(secret, salt, b"Content-Encoding: nonce\0", 12)
    aes = AESGCM(derived(secret, salt, b"Content-Encoding: aes128gcm\0", 16))
    return aes.decrypt(nonce, content, None).rstrip(b"\0").removesuffix(b"\2")


def on_loopback(address: Address, port: int) -> bool:
    """Allow connections to loopback only."""
    return str(address) == "127.0.0.1"


@contextlib.asynccontextmanager
async def push_service(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[PushService]:
    """Run a push service on loopback, and let loopback count as a public address."""
    certificate, key = directory / "certificate.pem", directory / "key.pem"
    command = ("openssl", "req", "-x509", "-nodes", "-subj", "/CN=localhost")
    names = ("-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1")
    quick = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")
    files = (*quick, "-keyout", str(key), "-out", str(certificate))
    await asyncio.to_thread(
        subprocess.run, (*command, *names, *files), check=True, capture_output=True
    )
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    monkeypatch.setattr(
        "remoteclaw.gateway.page.notifier.post", functools.partial(post, may_connect=on_loopback)
    )
    service, app = PushService(), web.Application()
    app.router.add_post("/{name}", service.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
        service.url = f"https://127.0.0.1:{runner.addresses[0][1]}"
        service.answers.set()
        yield service
    finally:
        service.answers.set()
        await runner.cleanup()
