"""Directives in an agent's answer: `[[…]]` tags, and the silent token.

Both are taken out of the answer while it streams. Text that could still become a directive is held
back, so the deltas of the stream make no difference. Time is linear.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

#: The silent token: the whole answer of an agent that has nothing to say.
SILENT_REPLY_TOKEN = "NO_REPLY"  # noqa: S105 - no secret

#: A tag. A path has 4096 bytes at most, and there are no two opening brackets in it: so all
#: searches together take linear time.
_TAG = re.compile(
    r"\[\[[ \t]{0,9}(reply_to_current|reply_to:|attach:)((?:[^\n\[]|\[(?!\[)){0,4096}?)\]\]",
    re.IGNORECASE,
)
#: What may become one, and how long it is then at most, in characters.
_MAYBE_TAG = re.compile(r"\[\[[ \t]{0,9}(?:[ra][^\n]*)?", re.IGNORECASE)
MAX_TAG = 4200

#: How much of an answer's end is held back as the token at most, in characters.
MAX_HELD = 100
_BEGINNINGS = "|".join(
    SILENT_REPLY_TOKEN[:length] for length in range(len(SILENT_REPLY_TOKEN) - 1, 0, -1)
)
#: An answer of nothing but the token, in any case, and what could become one. Models set the token
#: in bold or as code.
_SILENCE = re.compile(rf"[\s*`]*(?:{SILENT_REPLY_TOKEN}[\s*`.]*)+", re.IGNORECASE)
_MAYBE_SILENCE = re.compile(
    rf"[\s*`]*(?:{SILENT_REPLY_TOKEN}[\s*`.]*)*(?:{_BEGINNINGS})?", re.IGNORECASE
)
#: The token behind an answer, and what could become it. In code, or with a full stop behind it, the
#: token is what the answer is about.
_TRAILING = re.compile(rf"\s[\s*]*+(?:{SILENT_REPLY_TOKEN}[\s*]*+)++")
_MAYBE_TRAILING = re.compile(rf"\s[\s*]*+(?:{SILENT_REPLY_TOKEN}[\s*]*+)*+(?:{_BEGINNINGS})?\Z")


@dataclass(slots=True)
class Directives:
    """Takes the directives out of one answer."""

    reply_to: str | None = None
    """The id of the message that the last tag names; empty for the one that is being answered."""
    is_silent: bool = False
    """Whether the answer, now complete, was the silent token alone."""
    attached: list[str] = field(default_factory=list)
    """The files that tags name, as the agent wrote their paths."""
    _maybe_tag: str = ""
    """The end of the text, which may become a tag."""
    _is_behind_tag: bool = False
    _maybe_token: str = ""
    """The end of the text before that, which may become the token."""
    _has_begun: bool = False
    """Whether something was passed on."""

    def feed(self, text: str) -> Iterator[str]:
        """Take more of the answer; yield what of it is for the person and can be passed on.

        While a piece is being used, `reply_to` is what the tags before it say.
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
        """Return the rest, once the answer is complete."""
        rest = self._without_token(self._maybe_tag)
        pending, self._maybe_tag, self._maybe_token = self._maybe_token, "", ""
        self.is_silent = not self._has_begun and _SILENCE.fullmatch(pending) is not None
        if self.is_silent or (self._has_begun and _TRAILING.fullmatch(pending)):
            return rest
        return rest + pending

    @staticmethod
    def _is_tag(found: re.Match[str]) -> bool:
        kind, value = found[1].lower(), found[2]
        return kind == "attach:" or (not value.strip() if kind[-1] != ":" else "]" not in value)

    def _note(self, tag: re.Match[str]) -> None:
        kind, value = tag[1].lower(), tag[2].strip()
        self._is_behind_tag = True
        if kind == "reply_to_current":
            self.reply_to = self.reply_to or ""  # an id says more, wherever it stands
        elif kind == "reply_to:":
            self.reply_to = value or self.reply_to
        elif value:
            self.attached.append(value)

    def _without_token(self, text: str) -> str:
        """Return what can be passed on of a text without tags."""
        if self._is_behind_tag:  # the gap that it left goes with it
            text = text.lstrip(" \t") if self._has_begun else text.lstrip()
            self._is_behind_tag = not text
        text, self._maybe_token = self._maybe_token + text, ""
        if not self._has_begun and len(text) <= MAX_HELD and _MAYBE_SILENCE.fullmatch(text):
            self._maybe_token = text
            return ""
        self._has_begun = True
        trailing = _MAYBE_TRAILING.search(text, max(0, len(text) - MAX_HELD))
        end = trailing.start() if trailing else len(text)
        self._maybe_token = text[end:]
        return text[:end]


def _maybe_tag_at(text: str, start: int) -> int:
    """Return the position of what may become a tag at the end of a text; else the text's end."""
    at = text.rfind("[[", start)
    may_grow = at >= 0 and len(text) - at < MAX_TAG and "]]" not in text[at:]
    if may_grow and _MAYBE_TAG.fullmatch(text, at):
        return at
    return len(text) - text.endswith("[", start)
