"""JSON Web Tokens, which another application signs with a key of the configuration.

A token's `kid` names the key. Its scope and agents are limited to those of the key. A client never
learns why its token is not valid; the log does, at most once a minute for each reason.
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
from remoteclaw.gateway.auth.principals import Claims, Operator
from remoteclaw.host.tokens import is_same
from remoteclaw.tools.base import SCOPES, Id, Scope

#: The only accepted algorithm. It is symmetric: the secret that checks tokens can also sign them.
ALGORITHM = "HS256"
AUDIENCE = "remoteclaw"
#: The minimum and maximum length of a secret, in bytes.
MIN_SECRET_BYTES, MAX_SECRET_BYTES = 32, 4096
LEEWAY_S = JWT_LEEWAY_MS // 1000
#: The fields that a token's header may have. Others, such as `crit`, `jku` and `jwk`, would require
#: or name another way to check it.
ALLOWED_HEADER_FIELDS = frozenset(("alg", "kid", "typ"))
#: The minimum time between two log lines with the same reason, in seconds: anybody can send tokens.
REPORT_S = 60.0
#: The reasons of the library, in our words: its own texts may contain parts of a token.
_REASONS = {
    "ExpiredSignatureError": "it has expired",
    "InvalidSignatureError": "its signature does not match secret_file",
    "InvalidAudienceError": f"its aud is not {AUDIENCE}",
    "ImmatureSignatureError": "its times are in the future, or not in order",
    "InvalidIssuedAtError": "its iat is not a number",
    "MissingRequiredClaimError": "it lacks one of exp, iat, aud, sub and scope",
    "InvalidAlgorithmError": f"its alg is not {ALGORITHM}",
}
#: The form of a JSON Web Token. Tokens of agents and operators contain no dot.
_FORM = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*\.[A-Za-z0-9_-]*")

log = logging.getLogger(__name__)


class _Invalid(Exception):
    """Raised for a token whose signature, form or times are not valid."""

    def __init__(self, key: str, why: str) -> None:
        super().__init__(why)
        self.key, self.why = key, why


class _Payload(BaseModel):
    """The claims of a token, strictly typed: values of other types are not converted.

    Other claims are ignored.
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


def looks_like_jwt(token: str) -> bool:
    """Whether a token has the form of a JSON Web Token, which no other kind of token has."""
    return _FORM.fullmatch(token) is not None


def check_keys(config: GatewayConfig) -> None:
    """Read the secret of each key. Raises `ConfigError` if a secret can't be used."""
    for name, key in config.jwt.items():
        try:
            _secret_of(key.secret_file)
        except StateDirectoryError as error:
            raise ConfigError(f"[gateway.jwt.{name}] secret_file: {error}") from None


class Jwt:
    """Checks JSON Web Tokens, without a cache, so that a removed key stops working at once."""

    def __init__(self, tokens: Tokens, config: Callable[[], GatewayConfig]) -> None:
        self._tokens = tokens
        self._config = config
        self._reported: set[str] = set()
        """The keys whose unusable secret was logged."""
        self._refused_at: dict[tuple[str, str], float] = {}
        """When a refusal was logged, by key and reason."""

    async def principal(self, token: str) -> Operator | None:
        """Return the operator that `token` authenticates; None if it is not valid.

        Raises `RedisUnavailable` or `RedisRefused`.
        """
        try:
            claims = self._claims(token)
        except _Invalid as invalid:
            self._log_refusal(invalid.key, invalid.why)
            return None
        return await self.operator_of(claims) if claims else None

    async def operator_of(self, claims: Claims) -> Operator | None:
        """Return the operator of a token with these claims; None if it is not valid any more.

        Raises `RedisUnavailable` or `RedisRefused`.
        """
        key = self._config().jwt.get(claims.key)
        if key is None or claims.expires_s + LEEWAY_S <= time.time():
            return None
        if claims.expires_s - claims.issued_s > key.max_age_s:
            why = f"it is valid for longer than max_age_s ({key.max_age_s:.0f} s)"
            self._log_refusal(claims.key, why)
            return None
        secret = self._secret(claims.key, key)
        if secret is None or not is_same(_digest(secret), claims.secret):
            return None
        name, issued_ms = f"{claims.key}/{claims.subject}", claims.issued_s * 1000
        if await self._tokens.is_jwt_revoked(claims.id, user=name, issued_ms=issued_ms):
            self._log_refusal(claims.key, "it was revoked")
            return None
        agents = _common_agents(claims.agents, key.agents or None)
        if agents == ():
            self._log_refusal(claims.key, "the key is for none of its agents")
            return None
        scope = min(claims.scope, key.scope, key=SCOPES.index)
        return Operator(name, scope, f"jwt:{name}", agents, claims)

    def _claims(self, token: str) -> Claims | None:
        """Return a token's claims; None if its key can't be used. Raises `_Invalid`."""
        import jwt  # slow, because it imports cryptography if that is installed

        name = ""
        try:
            header = jwt.get_unverified_header(token)
            kid = header.get("kid")
            if not isinstance(kid, str) or kid not in self._config().jwt:
                raise _Invalid("", "its kid names no key of [gateway.jwt]")
            name = kid
            if not header.keys() <= ALLOWED_HEADER_FIELDS:
                raise _Invalid(name, "its header has fields other than alg, kid and typ")
            secret = self._secret(name, self._config().jwt[name])
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
        except ValidationError as error:
            claim = ".".join(map(str, error.errors()[0]["loc"][:1]))
            raise _Invalid(name, f"its claim {claim} is not valid") from None
        except jwt.PyJWTError as error:
            raise _Invalid(
                name, _REASONS.get(type(error).__name__, "it can't be decoded")
            ) from None
        except (ValueError, TypeError, OverflowError):
            raise _Invalid(name, "it can't be decoded") from None
        if max(payload.iat, payload.nbf) > time.time() + LEEWAY_S or payload.exp <= payload.iat:
            raise _Invalid(name, "its times are in the future, or not in order")
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

    def _log_refusal(self, key: str, why: str) -> None:
        """Log why a token was refused, at most once in `REPORT_S` for each key and reason."""
        about, now = (key, why), time.monotonic()
        if now - self._refused_at.get(about, -REPORT_S) >= REPORT_S:
            self._refused_at[about] = now
            of = f" of [gateway.jwt.{key}]" if key else ""
            log.warning("a JSON Web Token%s is refused: %s", of, why)

    def _secret(self, name: str, key: JwtConfig) -> bytes | None:
        """Return a key's secret; None, with an error in the log, while it can't be used."""
        try:
            secret = _secret_of(key.secret_file)
        except StateDirectoryError as error:
            if name not in self._reported:
                log.error("[gateway.jwt.%s] secret_file: %s", name, error)
            self._reported.add(name)
            return None
        self._reported.discard(name)
        return secret


def _common_agents(
    one: Iterable[str] | None, other: Iterable[str] | None
) -> tuple[str, ...] | None:
    """Return the agents that are in both collections. None stands for all agents."""
    if one is None or other is None:
        narrower = one if other is None else other
        return None if narrower is None else tuple(sorted(narrower))
    return tuple(sorted(set(one) & set(other)))


def _digest(secret: bytes) -> str:
    return hashlib.sha256(secret).hexdigest()


def _secret_of(path: Path) -> bytes:
    """Return the secret in a file. Raises `StateDirectoryError` if it can't be used."""
    try:
        with open(path, "rb", opener=_open_without_blocking) as file:
            stat, secret = os.fstat(file.fileno()), file.read(MAX_SECRET_BYTES + 3).rstrip(b"\r\n")
    except OSError as error:
        raise StateDirectoryError(f"{path} can't be read ({error.strerror}).") from None
    if stat.st_uid != os.getuid() or stat.st_mode & 0o077:
        raise StateDirectoryError(f"{path} can be read by others: `chmod 600` it.")
    if not MIN_SECRET_BYTES <= len(secret) <= MAX_SECRET_BYTES:
        size = min(len(secret), MAX_SECRET_BYTES)
        raise StateDirectoryError(
            f"{path} has {size} bytes: a secret has at least {MIN_SECRET_BYTES}, such as "
            f"`openssl rand -hex 32` prints, and at most {MAX_SECRET_BYTES}."
        )
    return secret


def _open_without_blocking(path: str, flags: int) -> int:
    """Open a file. Opening a FIFO does not wait for a writer."""
    return os.open(path, flags | os.O_NONBLOCK)
