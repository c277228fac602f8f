"""JSON Web Tokens of another cockpit, valid and invalid ones."""

import base64
import hashlib
import hmac
import os
import secrets
import time
from pathlib import Path
from typing import Any

import orjson


def part(value: bytes) -> str:
    """Return one of the three parts of a token."""
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()


def secret_file(directory: Path, name: str = "cockpit", secret: bytes | None = None) -> Path:
    """Write a secret like `openssl rand -hex 32 > FILE`, readable by its owner only."""
    path = directory / f"{name}.secret"
    path.write_bytes(secret if secret is not None else secrets.token_hex(32).encode() + b"\n")
    os.chmod(path, 0o600)
    return path


def signed(path: Path, header: dict[str, Any] | None = None, **claims: Any) -> str:
    """Return a token for Ada, valid for a minute, signed with the secret in a file.

    A claim or header field whose value is `...` is left out.
    """
    now = int(time.time())
    told = {"aud": "remoteclaw", "sub": "ada", "scope": "write", "iat": now, "exp": now + 60}
    head = {"alg": "HS256", "typ": "JWT", "kid": "cockpit", **(header or {})}
    parts = [
        part(orjson.dumps({name: value for name, value in one.items() if value is not ...}))
        for one in (head, {**told, **claims})
    ]
    body = ".".join(parts)
    secret = path.read_bytes().rstrip(b"\r\n")
    return f"{body}.{part(hmac.new(secret, body.encode(), hashlib.sha256).digest())}"
