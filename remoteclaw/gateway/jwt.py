"""JSON Web Tokens: what another cockpit has signed with a key of the configuration.

Its `kid` names the key, its scope and agents are the narrower of what it says and what the key may,
and whoever sends one is never told why it is not valid.
"""

import hashlib
import logging
import os
import re
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from remoteclaw.config.model import GatewayConfig, JwtConfig
from remoteclaw.errors import ConfigError, StateDirectoryError
from remoteclaw.fleet.tokens import JWT_LEEWAY_MS, Tokens
from remoteclaw.gateway.principals import Claims, Operator
from remoteclaw.host.tokens import is_same
from remoteclaw.tools.base import SCOPES, Id, Scope

#: The one algorithm: whoever can check a token could also sign one.
ALGORITHM = "HS256"
AUDIENCE = "remoteclaw"
#: The fewest bytes of a secret, and the most that are read of its file.
FEWEST, MOST = 32, 4096
LEEWAY_S = JWT_LEEWAY_MS // 1000
#: What a header may have. Others, such as `crit`, `jku` and `jwk`, ask for something else.
HEADER = frozenset(("alg", "kid", "typ"))
#: The form of one. Agents' and operators' tokens have no dot.
_FORM = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*\.[A-Za-z0-9_-]*")

log = logging.getLogger(__name__)


class _Payload(BaseModel):
    """The claims as they are written: numbers are whole, and nothing is taken for something else.

    What it says beside that counts for nothing.
    """

    model_config = ConfigDict(strict=True, extra="ignore", hide_input_in_errors=True)

    aud: Literal["remoteclaw"]
    sub: Annotated[Id, Field(max_length=100)]
    scope: Scope
    iat: Annotated[int, Field(ge=0, le=2**53)]
    exp: Annotated[int, Field(ge=0, le=2**53)]
    nbf: Annotated[int, Field(ge=0, le=2**53)] = 0
    jti: Annotated[Id, Field(max_length=200)] | None = None
    agents: Annotated[list[Id], Field(min_length=1, max_length=100)] | None = None


def looks_signed(token: str) -> bool:
    """Whether a token is a JSON Web Token by its form; then it is none of another kind."""
    return _FORM.fullmatch(token) is not None


def check_keys(config: GatewayConfig) -> None:
    """Read the secret of each key. Raises `ConfigError` with the reason if one can't be used."""
    for name, key in config.jwt.items():
        try:
            _secret_of(key.secret_file)
        except StateDirectoryError as error:
            raise ConfigError(f"[gateway.jwt.{name}] secret_file: {error}") from None


class Jwt:
    """Checks tokens; nothing is cached, so a key that is removed counts no more at once."""

    def __init__(self, tokens: Tokens, config: Callable[[], GatewayConfig]) -> None:
        self._tokens = tokens
        self._config = config
        self._told: set[str] = set()

    async def principal(self, token: str) -> Operator | None:
        """Return whose token it is; None if it is not valid. Raises as `holder()` does."""
        claims = self._claims(token)
        return await self.holder(claims) if claims else None

    async def holder(self, claims: Claims) -> Operator | None:
        """Return who holds a token with these claims, by the current configuration; None if no one.

        Raises `RedisUnavailable` or `RedisRefused`.
        """
        key = self._config().jwt.get(claims.key)
        if key is None or claims.expires_s + LEEWAY_S <= time.time():
            return None
        if claims.expires_s - claims.issued_s > key.max_age_s:
            return None
        secret = self._secret(claims.key, key)
        if secret is None or not is_same(_digest(secret), claims.secret):
            return None
        name, issued_ms = f"{claims.key}/{claims.subject}", claims.issued_s * 1000
        if await self._tokens.is_jwt_revoked(claims.id, user=name, issued_ms=issued_ms):
            return None
        agents = _both(claims.agents, key.agents or None)
        if agents == ():
            return None
        scope = min(claims.scope, key.scope, key=SCOPES.index)
        return Operator(name, scope, f"jwt:{name}", agents, claims)

    def _claims(self, token: str) -> Claims | None:
        """Return what a token says, if it was signed with a key of ours and is valid by itself."""
        import jwt  # slow: with cryptography about, it is imported

        try:
            header = jwt.get_unverified_header(token)
            name = header.get("kid")
            if not isinstance(name, str) or not header.keys() <= HEADER:
                return None
            key = self._config().jwt.get(name)
            secret = self._secret(name, key) if key else None
            if secret is None:
                return None
            payload = _Payload.model_validate(
                jwt.decode(
                    token,
                    secret,
                    algorithms=[ALGORITHM],
                    audience=AUDIENCE,
                    leeway=LEEWAY_S,
                    options={"require": ["exp", "iat", "aud", "sub", "scope"]},
                )
            )
        except (jwt.PyJWTError, ValidationError, ValueError, TypeError, OverflowError):
            return None
        if max(payload.iat, payload.nbf) > time.time() + LEEWAY_S or payload.exp <= payload.iat:
            return None
        return Claims(
            key=name,
            secret=_digest(secret),
            subject=payload.sub,
            scope=payload.scope,
            agents=None if payload.agents is None else tuple(sorted(set(payload.agents))),
            issued_s=payload.iat,
            expires_s=payload.exp,
            id=payload.jti,
        )

    def _secret(self, name: str, key: JwtConfig) -> bytes | None:
        """Return a key's secret; None, and a line in the log, while it can't be used."""
        try:
            secret = _secret_of(key.secret_file)
        except StateDirectoryError as error:
            if name not in self._told:
                log.error("[gateway.jwt.%s] secret_file: %s", name, error)
            self._told.add(name)
            return None
        self._told.discard(name)
        return secret


def _both(one: Iterable[str] | None, other: Iterable[str] | None) -> tuple[str, ...] | None:
    """Return the agents that are in both; None stands for all."""
    if one is None or other is None:
        narrower = one if other is None else other
        return None if narrower is None else tuple(sorted(narrower))
    return tuple(sorted(set(one) & set(other)))


def _digest(secret: bytes) -> str:
    return hashlib.sha256(secret).hexdigest()


def _secret_of(path: Path) -> bytes:
    """Return the secret in a file. Raises `StateDirectoryError` if it can't be used."""
    try:
        with open(path, "rb", opener=_opened) as file:
            found, secret = os.fstat(file.fileno()), file.read(MOST + 3).rstrip(b"\r\n")
    except OSError as error:
        raise StateDirectoryError(f"{path} can't be read ({error.strerror}).") from None
    if found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise StateDirectoryError(f"{path} isn't yours alone: `chmod 600` it.")
    if not FEWEST <= len(secret) <= MOST:
        raise StateDirectoryError(
            f"{path} has {min(len(secret), MOST)} bytes: a secret has {FEWEST} at least, such as "
            f"`openssl rand -hex 32` prints, and {MOST} at most."
        )
    return secret


def _opened(path: str, flags: int) -> int:
    """Open a file without waiting for who writes to a FIFO."""
    return os.open(path, flags | os.O_NONBLOCK)
