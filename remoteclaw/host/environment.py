"""The environment of child processes: only the variables that they need."""

import re
from collections.abc import Collection, Mapping, Sequence
from urllib.parse import urlsplit

#: The hosts of this machine. Not "[::1]": Python's httpx fails at it.
_LOOPBACK = ("localhost", "127.0.0.1", "::1")

#: The environment variables of proxies and certificates.
NETWORK = tuple(
    "HTTP_PROXY HTTPS_PROXY NO_PROXY ALL_PROXY http_proxy https_proxy no_proxy all_proxy "
    "SSL_CERT_FILE SSL_CERT_DIR NODE_EXTRA_CA_CERTS REQUESTS_CA_BUNDLE".split()
)
#: The environment variables of the directories in which programs keep settings and data.
DIRECTORIES = tuple("XDG_CONFIG_HOME XDG_DATA_HOME XDG_CACHE_HOME XDG_STATE_HOME".split())
#: The environment variables that each session of a user sets by itself.
SESSION = tuple("HOME SHELL USER LOGNAME LANG LANGUAGE TZ TERM TMPDIR XDG_RUNTIME_DIR".split())
#: The environment variables that any program may need.
_COMMON = frozenset(("PATH", *SESSION, *NETWORK, *DIRECTORIES))


def inherit(
    inherited: Mapping[str, str],
    *,
    prefixes: Sequence[str] = (),
    without: Collection[str] = (),
) -> dict[str, str]:
    """Return the common variables and those that begin with one of `prefixes`, but for `without`.

    RemoteClaw's own variables, which have the address of Redis and tokens, are never included.
    """
    return {
        name: value
        for name, value in inherited.items()
        if (name in _COMMON or name.startswith(("LC_", *prefixes)))
        and name not in without
        and not name.startswith("REMOTECLAW_")
    }


def past_proxies(env: Mapping[str, str], url: str | None = None) -> dict[str, str]:
    """Return `env` with this machine, and the host of `url`, among the hosts that need no proxy.

    The entries of `env` stay first. Programs read NO_PROXY or no_proxy, so both get the same value.
    They get it without a proxy in `env`, too, because CLIs read proxies from their own settings.
    """
    listed = re.split(r"[\s,]+", f"{env.get('NO_PROXY', '')},{env.get('no_proxy', '')}")
    host = urlsplit(url or "").hostname or ""
    brackets = f"[{host}]" if ":" in host else ""
    names = dict.fromkeys(filter(None, (*listed, *_LOOPBACK, host, brackets)))
    value = "*" if "*" in names else ",".join(names)
    return {**env, "NO_PROXY": value, "no_proxy": value}
