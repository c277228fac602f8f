"""The address of a Redis server: its valid forms, and the form that shows no secrets."""

import re
from urllib.parse import parse_qsl, urlsplit

__all__ = ["redis_address"]

#: What may stand behind the `?` of a Redis address. Everything else would become an argument of
#: redis-py's connection, where it fails late or changes what we rely on (time limits, decoding).
REDIS_OPTIONS = frozenset(("db", "username", "password", "client_name"))


TLS_OPTIONS = frozenset(
    f"ssl_{name}"
    for name in ("ca_certs", "ca_path", "certfile", "keyfile", "password", "check_hostname")
) | {"ssl_cert_reqs"}


def redis_address(url: str) -> str:
    """Return the address of a Redis without what may be secret in it: login and options.

    Raises ValueError, whose text completes "[redis] url …" and quotes nothing, if redis-py can't
    use it, or would take a part of the password for something else.
    """
    scheme = url.partition("://")[0]
    if scheme not in ("redis", "rediss", "unix") or "://" not in url:
        raise ValueError("must begin with redis://, rediss:// or unix://")
    if not url.isprintable() or (" " in url and scheme != "unix"):
        raise ValueError("must have no space and no control character in it")
    _check_options(scheme, url.partition("?")[2])
    form = "/PATH" if scheme == "unix" else "HOST[:PORT][/DATABASE]"
    try:
        parts = urlsplit(url)
        place = parts.netloc.rpartition("@")[2]
        if scheme == "unix":
            is_usable = not place and len(parts.path) > 1
        else:
            is_usable = bool(parts.hostname) and parts.port != 0
            is_usable &= re.fullmatch(r"/?|/\d{1,9}", parts.path, re.ASCII) is not None
    except ValueError:  # a port that is none, half an IPv6 address
        is_usable = False
    if not is_usable or "#" in url:
        raise ValueError(
            f"must be {scheme}://[USER:PASSWORD@]{form}; where a password has them, "
            "write / as %2F, # as %23, ? as %3F, @ as %40, % as %25"
        )
    return f"{scheme}://{place}{parts.path}"


def _check_options(scheme: str, query: str) -> None:
    known = REDIS_OPTIONS | (TLS_OPTIONS if scheme == "rediss" else frozenset())
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name not in known:
            # Behind an unescaped "?" in a password, this is the rest of it: it is not quoted.
            raise ValueError(
                f"must have no options but {', '.join(map(repr, sorted(known)))}; "
                "a ? in a password is %3F"
            )
        is_usable = bool(value)
        if name == "db":
            is_usable = re.fullmatch(r"\d{1,9}", value, re.ASCII) is not None
        elif name == "ssl_cert_reqs":
            is_usable = value in ("required", "optional", "none")
        if not is_usable:
            raise ValueError(f"must have another value for its option {name!r}")
