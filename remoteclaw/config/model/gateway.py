"""The section `[gateway]`."""

import ipaddress
import re
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from remoteclaw.config.model.section import MAX_S, Section, check_names
from remoteclaw.config.rights import BY_PEOPLE, by_people

WITH_SOCKET = by_people(restart="`remoteclaw up`, or a gateway that runs without it")
WITH_GATEWAY = by_people(
    restart="`remoteclaw up`, for the tools of agents; the page applies it at once"
)


class JwtConfig(Section):
    """A key with which another cockpit signs tokens: JSON Web Tokens whose `kid` is NAME."""

    secret_file: Annotated[Path, BY_PEOPLE]
    """The path of the file with the secret, absolute or beginning with ~. The secret has 32 bytes
    or more; a line end at the end of the file isn't part of it. No other user may read the file
    (`chmod 600`)."""
    scope: Annotated[Literal["read", "write", "terminal", "admin"], BY_PEOPLE] = "read"
    """The maximum scope of the key's tokens. A token that names a wider one has this one."""
    agents: Annotated[tuple[str, ...], BY_PEOPLE] = Field(default=(), max_length=100)
    """The agents to which the key's tokens give access; an empty list is all agents."""
    max_age_s: Annotated[int, BY_PEOPLE] = Field(default=86_400, ge=1, le=MAX_S)
    """The maximum time from a token's `iat` to its `exp`, in seconds; by default a day."""

    @field_validator("secret_file")
    @classmethod
    def _check_file(cls, value: Path) -> Path:
        path = value.expanduser()
        if not path.is_absolute():
            raise ValueError(f"must be absolute or begin with ~, not {str(value)!r}")
        return path


class GatewayConfig(Section):
    """The gateway's address, and the clients that may use it."""

    host: Annotated[str, WITH_SOCKET] = "127.0.0.1"
    """The IP address that the gateway listens on, or `localhost`. An address that other computers
    can reach needs `allow_remote`."""
    port: Annotated[int, WITH_SOCKET] = Field(default=18789, ge=0, le=65535)
    """The TCP port that the gateway listens on; 0 for any free port."""
    allow_remote: Annotated[bool, WITH_SOCKET] = False
    """Whether `host` may be an address that other computers can reach. The gateway speaks plain
    HTTP, so put a proxy in front of it that encrypts."""
    hosts: Annotated[tuple[str, ...], WITH_GATEWAY] = Field(default=(), max_length=50)
    """Additional values of the HTTP header Host that the gateway accepts, such as
    `claw.example.org`, with or without a port. It always accepts its own address and this
    computer's."""
    origins: Annotated[tuple[str, ...], WITH_GATEWAY] = Field(default=(), max_length=50)
    """The origins of web pages, such as `https://claw.example.org`, that may call the gateway and
    read the responses of `/api`. The gateway's own page needs no entry."""
    jwt: Annotated[dict[str, JwtConfig], BY_PEOPLE] = Field(default_factory=dict)
    """Keys with which other cockpits sign tokens, by the key's name (`kid`)."""

    @field_validator("jwt")
    @classmethod
    def _check_jwt(cls, value: dict[str, JwtConfig]) -> dict[str, JwtConfig]:
        return check_names(value)

    @field_validator("host")
    @classmethod
    def _check_host(cls, value: str) -> str:
        try:
            return value if value == "localhost" else str(ipaddress.ip_address(value))
        except ValueError:
            raise ValueError(f"must be an IP address or localhost, not {value!r}") from None

    @field_validator("hosts")
    @classmethod
    def _check_hosts(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for name in value:
            if not re.fullmatch(r"([A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?", name):
                raise ValueError(f"has {name!r}: write a name, or name:port")
        return tuple(name.lower() for name in value)

    @field_validator("origins")
    @classmethod
    def _check_origins(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for origin in value:
            if not re.fullmatch(r"https?://[A-Za-z0-9_.\[\]:-]+", origin):
                raise ValueError(f"has {origin!r}: write an origin, such as https://example.org")
        return tuple(origin.lower() for origin in value)

    @model_validator(mode="after")
    def _check_reach(self) -> Self:
        if not self.allow_remote and not is_loopback(self.host):
            raise ValueError(
                f"has host = {self.host!r}, which other computers reach: use 127.0.0.1, or set "
                "allow_remote = true behind something that encrypts"
            )
        return self


def is_loopback(address: str) -> bool:
    """Whether only this computer can reach an address."""
    if address == "localhost":
        return True
    try:
        ip = ipaddress.ip_address(address)
    except ValueError:
        return False
    mapped = ip.ipv4_mapped if isinstance(ip, ipaddress.IPv6Address) else None
    return (mapped or ip).is_loopback
