"""How people's texts are kept: as Slack's text, and as the blocks that their clients send."""

import re
from typing import Any

_PART = re.compile(
    r"```(?P<pre>.+?)```|`(?P<code>[^`\n]+)`|<@(?P<user>\w+)>|<#(?P<channel>\w+)(?:\|[^>]*)?>"
    r"|<!(?P<range>channel|here|everyone)>|<(?P<url>https?:[^>|]+)(?:\|(?P<label>[^>]*))?>",
    re.DOTALL,
)
_PINGS = re.compile(r"<(@\w+|!channel|!here|!everyone|!subteam\^\w+)(?:\|[^>]*)?>")


def rich_text(text: str) -> dict[str, Any]:
    """Return the block that a person's client sends for a text in Slack's form."""
    parts: list[dict[str, Any]] = []
    inline: list[dict[str, Any]] = []
    end = 0

    def section() -> None:
        if inline:
            parts.append({"type": "rich_text_section", "elements": list(inline)})
            inline.clear()

    def words(between: str) -> None:
        if between:
            inline.append({"type": "text", "text": plain(between)})

    for found in _PART.finditer(text):
        words(text[end : found.start()])
        end = found.end()
        content = found[found.lastgroup or 0]
        if found["pre"]:
            section()
            code = {"type": "text", "text": plain(found["pre"].strip("\n"))}
            parts.append({"type": "rich_text_preformatted", "elements": [code], "border": 0})
        elif found["code"]:
            inline.append({"type": "text", "text": plain(content), "style": {"code": True}})
        elif found["url"]:
            label = {"text": plain(found["label"])} if found["label"] else {}
            inline.append({"type": "link", "url": plain(found["url"]), **label})
        elif found["range"]:
            inline.append({"type": "broadcast", "range": content})
        else:
            kind = "user" if found["user"] else "channel"
            inline.append({"type": kind, f"{kind}_id": content})
    words(text[end:])
    section()
    return {"type": "rich_text", "block_id": "rt", "elements": parts}


def plain(text: str) -> str:
    """Return a text without Slack's escapes."""
    return text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")


def mentions_in(message: dict[str, Any]) -> list[str]:
    """Return what in a message notifies people, in its text and in its blocks."""
    texts = [str(message.get("text", ""))]
    texts += [str(block.get("text", "")) for block in message.get("blocks", ())]
    return [name for text in texts for name in _PINGS.findall(text)]
