"""The address of a Redis server: its valid forms, and the form that shows no secrets."""

import re
from urllib.parse import urlsplit

__all__ = ["redis_address"]

#: An option behind the `?` of an address. Everything else would become an argument of redis-py's
#: connection, where it fails late or changes what we rely on (time limits, decoding).
OPTION = re.compile(
    r"db=\d{1,9}|(username|password)=.+|ssl_cert_reqs=(required|optional|none)"
    r"|ssl_(ca_certs|ca_path|certfile|keyfile|password|check_hostname)=.+",
    re.ASCII,
)


def redis_address(url: str) -> str:
    """Return the address of a Redis without what may be secret in it: login and options.

    Raises ValueError, whose text completes "[redis] url …" and quotes nothing, if redis-py can't
    use it, or would take a part of the password for something else.
    """
    try:
        parts = urlsplit(url)
        place = parts.netloc.rpartition("@")[2]
        if parts.scheme == "unix":
            is_usable = not place and len(parts.path) > 1
        else:
            is_usable = parts.scheme in ("redis", "rediss") and " " not in place
            is_usable &= bool(parts.hostname) and parts.port != 0
            is_usable &= re.fullmatch(r"/?|/\d{1,9}", parts.path, re.ASCII) is not None
    except ValueError:  # a port that is none, half an IPv6 address
        is_usable = False
    options = url.partition("?")[2]
    is_usable &= not options or all(map(OPTION.fullmatch, options.split("&")))
    if not is_usable or "#" in url or not url.isprintable():
        raise ValueError(
            "must be redis://[USER:PASSWORD@]HOST[:PORT][/DATABASE], the same with rediss:// for "
            "TLS, or unix://[USER:PASSWORD@]/PATH[?db=DATABASE]; where a password has them, "
            "write / as %2F, # as %23, ? as %3F, @ as %40, % as %25"
        )
    return f"{parts.scheme}://{place}{parts.path}"
