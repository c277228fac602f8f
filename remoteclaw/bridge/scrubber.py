"""The scrubber: removes secrets from a text before people see it.

It knows the values that are declared secret, those of the agent's environment, and the forms of
well-known keys. It does not recognise values computed from a secret, such as its base64.
"""

import json
import os
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

#: How much of a text is scanned beyond the shown part, in characters: never a whole file.
MAX_READ_CHARS = 1000
#: The minimum length of a hidden value, in characters: shorter ones also occur as harmless words
#: and numbers. A lower minimum applies to a value whose name marks it as a secret.
MIN_CHARS, MIN_NAMED_CHARS = 8, 4
#: A value of at least this length is also hidden within a longer word, in characters.
MIN_WITHIN_WORD_CHARS = 16
#: Only this much of a long value is compared, in characters; all of the text after it is hidden.
MAX_COMPARED_CHARS = 256

_SECRET_NAME = re.compile(r"token|secret|passw|credential|auth|cookie|(^|[_-])key$", re.IGNORECASE)
#: Names of variables with paths, addresses, user names and preferences.
_HARMLESS_NAME = re.compile(
    r"(^|_)(PATH|HOME|DIR|TMPDIR|FILE|SHELL|USER|LOGNAME|LANG|LANGUAGE|TZ|TERM|COLOR|MODEL|REGION"
    r"|LOCATION|PROJECT|BASE_URL|ENDPOINT|NO_PROXY)$|^(LC|XDG)_",
    re.IGNORECASE,
)
_WORD = re.compile(r"\S+")
#: A plain word or number, which also occurs in harmless texts.
_PLAIN = re.compile(r"[a-z]+|[0-9.:]+")

#: The forms of well-known keys, as patterns that match at the beginning of a word.
_KEYS = (
    r"sk-[\w-]{16,}",  # OpenAI, Anthropic, OpenRouter
    r"[rsp]k_(?:live|test)_\w{16,}",  # Stripe
    r"gh[pousr]_\w{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}",
    r"xox[a-z]-[\w-]{10,}|xapp-[\w-]{10,}",  # Slack
    r"(?:AKIA|ASIA)[0-9A-Z]{16}",  # AWS
    r"AIza[\w-]{30,}|ya29\.[\w-]{16,}",  # Google
    r"hf_\w{20,}|npm_\w{30,}|pypi-[\w-]{16,}",
    r"[0-9]{8,10}:[\w-]{35}",  # Telegram
    r"syt_[\w-]{16,}|m[ac]t_[\w-]{16,}",  # Matrix: Synapse, and its authentication service
    r"eyJ[\w-]{8,}\.[\w-]{8,}(?:\.[\w-]*)?",  # a JSON Web Token
    r"rc[at]_[0-9a-f]+_[0-9a-f]{16,}",  # RemoteClaw's own
)
#: These consist of letters, digits and the signs `-_.:` only, so none can hide an operator.
_WORDS = tuple(rf"(?<![A-Za-z0-9])(?:{form})" for form in _KEYS)
_FORMS = (
    *_WORDS,
    r"(?<![A-Za-z0-9])[0-9a-f]{64}",  # a token of RemoteClaw's; also the hash of a file
    r"-{5}BEGIN [A-Z ]*PRIVATE KEY-{5}.*?(?:-{5}END [A-Z ]*-{5}|\Z)",
    r"(?<=://)[^/\s\"']+(?=@)",
    r"(?P<scheme>(?i:bearer|authorization:\s*basic)\s+)[^\s\"']{8,}",
)
#: Compiled at import, before a work-horse is forked, because it takes 4 ms.
_ANY_FORM = re.compile("|".join(_FORMS), re.DOTALL)


class Scrubber:
    """Hides known values, and everything in the form of a key, in texts for people."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        self._values = frozenset(values)

    def line(self, text: str, max_chars: int) -> str:
        """Return a text as one line of at most `max_chars`, without secrets and controls."""
        return one_line(self.text(text, MAX_READ_CHARS), max_chars=max_chars)

    def text(self, text: str, max_chars: int) -> str:
        """Return the first `max_chars` characters of a text, without secrets and controls."""
        # Controls are removed first, because one within a secret would keep it from being found. A
        # secret may also continue after the shown part.
        text = _without_controls(text[: max_chars + MAX_READ_CHARS])
        hidden = self._pattern.sub(lambda match: f"{match['scheme'] or ''}{SECRET}", text)
        return hidden[:max_chars]

    def secret_words(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield the beginning and end of each word, or part of a word, that is certainly secret.

        None includes a blank or a line end, and only a declared value includes an operator of a
        shell. So what people decide about keeps its meaning without these words.
        """
        for secret in self._word_pattern.finditer(text):
            for word in _WORD.finditer(secret[0]):
                yield secret.start() + word.start(), secret.start() + word.end()

    @cached_property
    def _word_pattern(self) -> re.Pattern[str]:
        spelled = {form for value in self._values for form in _spellings(value)}
        known = (_as_pattern(form, is_complete=True) for form in _longest_first(spelled))
        return re.compile("|".join((*known, *_WORDS)))

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        if not self._values:
            return _ANY_FORM
        spelled = {_without_controls(form) for value in self._values for form in _spellings(value)}
        known = map(_as_pattern, _longest_first(spelled))
        return re.compile("|".join((*known, *_FORMS)), re.DOTALL)


def secrets_of(config: Config) -> Iterator[str]:
    """Yield the values that a configuration declares secret."""
    for agent in config.agents.values():
        yield from secrets_of_agent(agent.variables(os.environ), agent.servers())
    for section in (*config.channels.values(), config.gateway):
        yield from (text for text in declared_secrets(section) if len(text) >= MIN_NAMED_CHARS)
    parts = urlsplit(config.redis.url or "")
    password = parts.netloc.rpartition("@")[0].partition(":")[2]
    options = (value for name, value in parse_qsl(parts.query) if "password" in name)
    for value in (password, unquote(password), *options):
        if len(value) >= MIN_NAMED_CHARS:
            yield value


def secrets_of_agent(
    env: Mapping[str, str], mcp_servers: Mapping[str, McpServerConfig]
) -> Iterator[str]:
    """Yield the secret values of an agent's environment, and of its MCP servers."""
    for table in (env, *(server.env for server in mcp_servers.values())):
        yield from (value for name, value in table.items() if _is_secret(name, value))
    for server in mcp_servers.values():
        for value in server.headers.values():
            # The key of "Bearer KEY" also occurs alone.
            yield from (part for part in {value, value.split(" ")[-1]} if len(part) >= MIN_CHARS)


def _is_secret(name: str, value: str) -> bool:
    if _HARMLESS_NAME.search(name):
        return False
    if _SECRET_NAME.search(name):
        return len(value) >= MIN_NAMED_CHARS
    return len(value) >= MIN_CHARS and not _PLAIN.fullmatch(value)


def _without_controls(text: str) -> str:
    """Return a text without control and format characters, except newlines and tabs."""
    if text.replace("\n", "").replace("\t", "").isprintable():
        return text  # a quick check that is true of most texts
    return "".join(c for c in text if c in "\n\t" or unicodedata.category(c) not in ("Cc", "Cf"))


def _spellings(value: str) -> Iterator[str]:
    """Yield a value as it is, as in JSON, and as in a URL."""
    yield value
    yield json.dumps(value)[1:-1]
    yield json.dumps(value, ensure_ascii=False)[1:-1]
    yield quote(value, safe="")


def _longest_first(values: Iterable[str]) -> list[str]:
    """Return the values that are not blank. One value may begin with another."""
    return sorted(filter(str.strip, values), key=lambda value: (-len(value), value))


def _as_pattern(value: str, *, is_complete: bool = False) -> str:
    # The lines of a value may be joined in the text, or its words be on several lines.
    compared = value if is_complete else value[:MAX_COMPARED_CHARS]
    pattern = r"\s+".join(map(re.escape, compared.split()))
    if len(compared) < len(value):
        return f"{pattern}.*"
    return pattern if len(value) >= MIN_WITHIN_WORD_CHARS else rf"(?<!\w){pattern}(?!\w)"
