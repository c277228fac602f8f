"""Texts of Slack: what people write, as Markdown, and what agents write, without mentions.

Source: https://docs.slack.dev/messaging/formatting-message-text
"""

import re
from collections.abc import Awaitable, Callable

from remoteclaw.messages import without_mentions

#: A reference to a person, channel or group, or a link: `<@U123>`, `<#C123|name>`, `<!here>`,
#: `<https://…|label>`.
_REFERENCE = re.compile(r"<([@#!]?)([^<>|\s][^<>|]*)(?:\|([^<>]*))?>")
#: A mention as Slack reads it, behind its sign.
_PERSON = re.compile(r"<@(?P<who>[UW][A-Z0-9]+)[^<>]*>")
_TO_ALL = re.compile(
    r"<!(?P<who>[a-z]+(?:\^\w+)?)[^<>]*>|(?<!\w)@(?P<name>here|channel|everyone)\b"
)

NameOf = Callable[[str], Awaitable[str]]


async def read(text: str, name_of: NameOf) -> str:
    """Return a person's text as Markdown, with names instead of ids."""
    found, at = "", 0
    for match in _REFERENCE.finditer(text):
        found += _unescaped(text[at : match.start()]) + await _shown(match, name_of)
        at = match.end()
    return found + _unescaped(text[at:])


async def _shown(match: re.Match[str], name_of: NameOf) -> str:
    sign, target, label = match[1], match[2], _unescaped(match[3] or "")
    match sign:
        case "@":
            return f"@{label or await name_of(target)}"
        case "#":
            return f"#{label or await name_of(target)}"
        case "!":
            return label or f"@{target.partition('^')[0]}"
    address = _unescaped(target)
    if not label or label == address or address in (f"mailto:{label}", f"http://{label}"):
        return label or address
    return f"[{label}]({address})"


def _unescaped(text: str) -> str:
    return text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")


def mentions(text: str, user: str) -> bool:
    """Whether a text as Slack has it mentions a person."""
    return f"<@{user}>" in text or f"<@{user}|" in text


def without_mention(text: str, user: str) -> str:
    """Return a text as Slack has it without a mention of the account at its beginning."""
    return re.sub(rf"^\s*<@{user}(?:\|[^<>]*)?>[\s:,]*", "", text)


def quiet(text: str, *, stays: str | None = None) -> str:
    """Return an agent's text without mentions, except those of the person who has asked."""
    text = without_mentions(text, _PERSON, stays=stays)
    return _TO_ALL.sub(lambda found: found[0][:1] + "\N{WORD JOINER}" + found[0][1:], text)
