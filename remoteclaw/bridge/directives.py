"""Directives in an agent's answer: `[[…]]` tags, and the silent token.

Both are removed from the answer while it streams. Text that could still become a directive is held
back, so the result does not depend on how the stream divides the text. It takes linear time.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

#: The silent token: the whole answer of an agent that has nothing to say.
SILENT_REPLY_TOKEN = "NO_REPLY"  # noqa: S105 - no secret

#: A tag. A path in it has at most 4096 bytes and no `[[`, so that all searches together take linear
#: time.
_TAG = re.compile(
    r"\[\[[ \t]{0,9}(reply_to_current|reply_to:|attach:)((?:[^\n\[]|\[(?!\[)){0,4096}?)\]\]",
    re.IGNORECASE,
)
#: The beginning of a text that may become a tag, and the maximum length of a tag, in characters.
_MAYBE_TAG = re.compile(r"\[\[[ \t]{0,9}(?:[ra][^\n]*)?", re.IGNORECASE)
MAX_TAG_CHARS = 4200

#: At most this much of an answer's end is held back as a possible token, in characters.
MAX_HELD_CHARS = 100
_BEGINNINGS = "|".join(
    SILENT_REPLY_TOKEN[:length] for length in range(len(SILENT_REPLY_TOKEN) - 1, 0, -1)
)
#: An answer that is only the token, in upper or lower case, and a text that may become one. Models
#: also write the token in bold or as code.
_SILENCE = re.compile(rf"[\s*`]*(?:{SILENT_REPLY_TOKEN}[\s*`.]*)+", re.IGNORECASE)
_MAYBE_SILENCE = re.compile(
    rf"[\s*`]*(?:{SILENT_REPLY_TOKEN}[\s*`.]*)*(?:{_BEGINNINGS})?", re.IGNORECASE
)
#: The token after an answer, and a text that may become it. In code, or before a full stop, the
#: token is a part of the answer.
_TRAILING = re.compile(rf"\s[\s*]*+(?:{SILENT_REPLY_TOKEN}[\s*]*+)++")
_MAYBE_TRAILING = re.compile(rf"\s[\s*]*+(?:{SILENT_REPLY_TOKEN}[\s*]*+)*+(?:{_BEGINNINGS})?\Z")


@dataclass(slots=True)
class Directives:
    """Removes the directives from one message of an answer."""

    reply_to: str | None = None
    """The id of the message to quote; empty for the message that is answered, None for no quote."""
    is_silent: bool = False
    """Whether the complete answer was only the silent token."""
    attached: list[str] = field(default_factory=list)
    """The files that tags name, as the agent wrote their paths."""
    _maybe_tag: str = ""
    """The end of the text, which may become a tag."""
    _is_after_tag: bool = False
    """Whether the last tag was followed by nothing but spaces so far."""
    _maybe_token: str = ""
    """The text before `_maybe_tag` that may become the token."""
    _has_begun: bool = False
    """Whether any text was passed on."""

    def feed(self, text: str) -> Iterator[str]:
        """Add text of the answer; yield the parts without directives that can be passed on.

        When a part is yielded, `reply_to` reflects the tags before it.
        """
        text, position = self._maybe_tag + text, 0
        for tag in _TAG.finditer(text) if "]]" in text else ():
            if self._is_tag(tag):
                yield self._without_token(text[position : tag.start()])
                self._note(tag)
                position = tag.end()
        end = _maybe_tag_at(text, position)
        self._maybe_tag = text[end:]
        yield self._without_token(text[position:end])

    def finish(self) -> str:
        """Return the remaining text of the complete answer."""
        remaining = self._without_token(self._maybe_tag)
        pending, self._maybe_tag, self._maybe_token = self._maybe_token, "", ""
        self.is_silent = not self._has_begun and _SILENCE.fullmatch(pending) is not None
        if self.is_silent or (self._has_begun and _TRAILING.fullmatch(pending)):
            return remaining
        return remaining + pending

    @staticmethod
    def _is_tag(tag: re.Match[str]) -> bool:
        kind, value = tag[1].lower(), tag[2]
        return kind == "attach:" or (not value.strip() if kind[-1] != ":" else "]" not in value)

    def _note(self, tag: re.Match[str]) -> None:
        kind, value = tag[1].lower(), tag[2].strip()
        self._is_after_tag = True
        if kind == "reply_to_current":
            self.reply_to = self.reply_to or ""  # an id takes precedence
        elif kind == "reply_to:":
            self.reply_to = value or self.reply_to
        elif value:
            self.attached.append(value)

    def _without_token(self, text: str) -> str:
        """Return the part of a text without tags that can be passed on."""
        if self._is_after_tag:  # the space after a tag is removed with it
            text = text.lstrip(" \t") if self._has_begun else text.lstrip()
            self._is_after_tag = not text
        text, self._maybe_token = self._maybe_token + text, ""
        if not self._has_begun and len(text) <= MAX_HELD_CHARS and _MAYBE_SILENCE.fullmatch(text):
            self._maybe_token = text
            return ""
        self._has_begun = True
        trailing = _MAYBE_TRAILING.search(text, max(0, len(text) - MAX_HELD_CHARS))
        end = trailing.start() if trailing else len(text)
        self._maybe_token = text[end:]
        return text[:end]


def _maybe_tag_at(text: str, start: int) -> int:
    """Return the position of a possible tag at the end of a text; without one, the text's end."""
    at = text.rfind("[[", start)
    may_grow = at >= 0 and len(text) - at < MAX_TAG_CHARS and "]]" not in text[at:]
    if may_grow and _MAYBE_TAG.fullmatch(text, at):
        return at
    return len(text) - text.endswith("[", start)
