"""A scrubber: takes secrets out of a text before people see it.

It knows the values that were declared secret, those of the agent's environment, and the forms of
well-known keys. What a program computes from a secret, such as its base64, it can't know.
"""

import json
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from remoteclaw.config.model import Config
from remoteclaw.config.secrets import declared_secrets
from remoteclaw.host.terminal import one_line
from remoteclaw.messages import McpServerConfig

#: The replacement of a secret.
SECRET = "[secret]"  # noqa: S105 - no secret

#: How much of a text is read beyond what is shown, in characters: never a whole file.
MAX_READ = 1000
#: How long a value is at least: a shorter one would hide words and numbers that are no secrets.
#: Where the name says that it is a secret, less will do.
SHORTEST, SHORTEST_NAMED = 8, 4
#: A value from this length on is hidden within a longer word, too.
WITHIN_WORDS = 16
#: How much of a long value is compared, in characters; behind it, nothing of the text is shown.
MAX_COMPARED = 256

_SECRET_NAME = re.compile(r"token|secret|passw|credential|auth|cookie|(^|[_-])key$", re.IGNORECASE)
#: Variables that say where things are, who the user is and how to behave.
_HARMLESS_NAME = re.compile(
    r"(^|_)(PATH|HOME|DIR|TMPDIR|FILE|SHELL|USER|LOGNAME|LANG|LANGUAGE|TZ|TERM|COLOR|MODEL|REGION"
    r"|LOCATION|PROJECT|BASE_URL|ENDPOINT|NO_PROXY)$|^(LC|XDG)_",
    re.IGNORECASE,
)
#: A word or a number, which also occurs in harmless texts.
_PLAIN = re.compile(r"[a-z]+|[0-9.:]+")

#: The forms of well-known keys, each as a pattern for what stands at the beginning of a word.
_KEYS = (
    r"sk-[\w-]{16,}",  # OpenAI, Anthropic, OpenRouter
    r"[rsp]k_(?:live|test)_\w{16,}",  # Stripe
    r"gh[pousr]_\w{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}",
    r"xox[a-z]-[\w-]{10,}|xapp-[\w-]{10,}",  # Slack
    r"(?:AKIA|ASIA)[0-9A-Z]{16}",  # AWS
    r"AIza[\w-]{30,}|ya29\.[\w-]{16,}",  # Google
    r"hf_\w{20,}|npm_\w{30,}|pypi-[\w-]{16,}",
    r"[0-9]{8,10}:[\w-]{35}",  # Telegram
    r"eyJ[\w-]{8,}\.[\w-]{8,}(?:\.[\w-]*)?",  # a JSON Web Token
    r"rc[at]_[0-9a-f]+_[0-9a-f]{16,}|[0-9a-f]{64}",  # our own
)
_FORMS = (
    *(rf"(?<![A-Za-z0-9])(?:{form})" for form in _KEYS),
    r"-{5}BEGIN [A-Z ]*PRIVATE KEY-{5}.*?(?:-{5}END [A-Z ]*-{5}|\Z)",
    r"(?<=://)[^/\s\"']+(?=@)",
    r"(?P<scheme>(?i:bearer|authorization:\s*basic)\s+)[^\s\"']{8,}",
)
#: Compiled before a work-horse is forked, which would need 4 ms for it.
_ANY_FORM = re.compile("|".join(_FORMS), re.DOTALL)


class Scrubber:
    """Hides known values, and what has the form of a key, in texts for people."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        self._values = frozenset(values)

    def line(self, text: str, most: int) -> str:
        """Return a text as one line of at most `most` characters, without secrets and controls."""
        return one_line(self.text(text, MAX_READ), most=most)

    def text(self, text: str, most: int) -> str:
        """Return the first `most` characters of a text, without secrets and controls."""
        # First the controls: one within a secret must not save it.
        text = _seen(text[: most + MAX_READ])  # a secret may go on behind them
        return self._pattern.sub(lambda found: f"{found['scheme'] or ''}{SECRET}", text)[:most]

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        if not self._values:
            return _ANY_FORM
        spelled = {_seen(form) for value in self._values for form in _spellings(value)}
        # The longest first: one may begin with another.
        known = map(
            _as_pattern, sorted(filter(str.strip, spelled), key=lambda form: (-len(form), form))
        )
        return re.compile("|".join((*known, *_FORMS)), re.DOTALL)


def secrets_of(config: Config) -> Iterator[str]:
    """Yield the values that a configuration declares secret."""
    for agent in config.agents.values():
        yield from secrets_of_agent(agent.env, agent.servers())
    for section in (*config.channels.values(), config.gateway):
        yield from (text for text in declared_secrets(section) if len(text) >= SHORTEST_NAMED)
    parts = urlsplit(config.redis.url or "")
    password = parts.netloc.rpartition("@")[0].partition(":")[2]
    options = (value for name, value in parse_qsl(parts.query) if "password" in name)
    for value in (password, unquote(password), *options):
        if len(value) >= SHORTEST_NAMED:
            yield value


def secrets_of_agent(
    env: Mapping[str, str], mcp_servers: Mapping[str, McpServerConfig]
) -> Iterator[str]:
    """Yield what is secret of an agent's environment, and of its MCP servers'."""
    for table in (env, *(server.env for server in mcp_servers.values())):
        yield from (value for name, value in table.items() if _is_secret(name, value))
    for server in mcp_servers.values():
        for value in server.headers.values():
            # "Bearer KEY" is also used without its first word.
            yield from (part for part in {value, value.split(" ")[-1]} if len(part) >= SHORTEST)


def _is_secret(name: str, value: str) -> bool:
    if _HARMLESS_NAME.search(name):
        return False
    if _SECRET_NAME.search(name):
        return len(value) >= SHORTEST_NAMED
    return len(value) >= SHORTEST and not _PLAIN.fullmatch(value)


def _seen(text: str) -> str:
    """Return a text without its controls and formats, but newline and tab."""
    if text.replace("\n", "").replace("\t", "").isprintable():
        return text  # most are, and this is quick
    return "".join(c for c in text if c in "\n\t" or unicodedata.category(c) not in ("Cc", "Cf"))


def _spellings(value: str) -> Iterator[str]:
    yield value
    yield json.dumps(value)[1:-1]
    yield json.dumps(value, ensure_ascii=False)[1:-1]
    yield quote(value, safe="")


def _as_pattern(value: str) -> str:
    # A value of several lines may stand on one, or the other way round.
    pattern = r"\s+".join(map(re.escape, value[:MAX_COMPARED].split()))
    if len(value) > MAX_COMPARED:
        return f"{pattern}.*"
    return pattern if len(value) >= WITHIN_WORDS else rf"(?<!\w){pattern}(?!\w)"
