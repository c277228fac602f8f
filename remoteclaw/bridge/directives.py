"""Directives in an agent's answer: `[[…]]` tags, and the silent token.

Both are taken out of the answer while it streams, except from code. Text that could still become a
directive is held back, so the deltas of the stream make no difference. Time is linear.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from remoteclaw.bridge.chunks import open_fence

__all__ = ["SILENT_REPLY_TOKEN", "Directives"]

#: The silent token: the whole answer of an agent that has nothing to say.
SILENT_REPLY_TOKEN = "NO_REPLY"  # noqa: S105 - no secret

#: The longest tag that is waited for, and the most that is held back at all, in characters: a
#: message's id has 512 at most.
MOST_HELD = 600
#: The longest tag that names a file, in characters: a path has 4096 bytes at most.
MOST_PATH = 4200

_TAG_BEGINS = re.compile(r"\[\[[ \t]*(?:[ra]|\Z)", re.IGNORECASE)
_CURRENT, _TO, _ATTACH = "reply_to_current", "reply_to:", "attach:"
#: Models set the token in bold or as code; in a fence it is an answer.
_FENCE = "```"
_BEGINNINGS = "|".join(
    SILENT_REPLY_TOKEN[:length] for length in range(len(SILENT_REPLY_TOKEN) - 1, 0, -1)
)
#: Lines with nothing but the token, and what could become one. Every repetition begins with another
#: character than the one before ends with, so that there is one way to match.
_TOKENS = rf"[\s*`]*(?:{SILENT_REPLY_TOKEN}[\s*`.]*)"
_SILENCE = re.compile(rf"{_TOKENS}+")
_MAYBE = re.compile(rf"{_TOKENS}*(?:{_BEGINNINGS})?")
#: The token before an answer that begins without a gap behind it.
_GLUED = re.compile(rf"[\s*`]{{0,80}}{SILENT_REPLY_TOKEN}(?=[^\W_])")
#: The token behind an answer on its last line, and what could become it. In code, or with a full
#: stop behind it, the token is what the answer is about.
_TRAILING = re.compile(rf"\s[\s*]*+(?:{SILENT_REPLY_TOKEN}[\s*]*+)++")
_MAY_TRAIL = re.compile(rf"\s[\s*]*+(?:{SILENT_REPLY_TOKEN}[\s*]*+)*+(?:{_BEGINNINGS})?\Z")
_SILENCE_AT_ALL = re.compile(_SILENCE.pattern, re.IGNORECASE)
_MAYBE_AT_ALL = re.compile(_MAYBE.pattern, re.IGNORECASE)


@dataclass(slots=True)
class _Lines:
    """The position in a text that is being written: in a fence, in code within a line."""

    fence: str = ""
    """The line that opened the fence."""
    _head: str = ""
    """The beginning of the line, as far as it tells a fence."""
    _ticks: int = 0

    @property
    def is_code(self) -> bool:
        return bool(self.fence) or self._ticks % 2 == 1

    def advance(self, text: str) -> None:
        *complete, last = text.split("\n")
        for line in complete:
            self.fence = open_fence((self._head + line[:MOST_HELD])[:MOST_HELD], self.fence)
            self._head, self._ticks = "", 0
        self._head = (self._head + last[:MOST_HELD])[:MOST_HELD]
        self._ticks += last.count("`")


@dataclass(slots=True)
class Directives:
    """Takes the directives out of one answer."""

    reply_to: str | None = None
    """The id of the message that the last tag names; empty for the one that is being answered."""
    is_silent: bool = False
    """Whether the answer, now complete, was the silent token alone."""
    attached: list[str] = field(default_factory=list)
    """The files that tags name, as the agent wrote their paths."""
    _raw: list[str] = field(default_factory=list)
    _clean: int = 0
    """The length of what was passed on, in characters."""
    # -- tags
    _held: str = ""
    """The text that may become a tag."""
    _tagged: _Lines = field(default_factory=_Lines)
    _is_behind_tag: bool = False
    _last: str = ""
    """The last character before a tag that is being taken out."""
    # -- the silent token
    _pending: str = ""
    """The text that may become the token: from the start of a line, or the gap behind a word."""
    _released: _Lines = field(default_factory=_Lines)
    _is_in_line: bool = False
    """Whether a part of the line was passed on."""
    _has_begun: bool = False
    """Whether something was passed on that is no blank."""

    def feed(self, text: str) -> Iterator[str]:
        """Take more of the answer; yield what of it is for the person and can be passed on.

        While a piece is being used, `reply_to` is what the tags before it say.
        """
        self._raw.append(text)
        for piece in self._without_tags(text):
            clean = self._without_token(piece)
            self._clean += len(clean)
            if clean:
                yield clean

    def withdraw(self, characters: int) -> int:
        """Take back the end of what was fed; return how many characters of what was passed on."""
        raw, passed_on = "".join(self._raw), self._clean
        # What is passed on depends on what was fed alone, so the shorter text tells where we were.
        self.__init__()  # type: ignore[misc]
        for _ in self.feed(raw[: max(0, len(raw) - characters)]):
            pass
        return passed_on - self._clean

    def finish(self) -> str:
        """Return the rest, once the answer is complete."""
        held, self._held = self._held, ""
        rest = self._without_token(self._emit(held))
        pending, self._pending = self._pending, ""
        silence = _SILENCE if self._has_begun else _SILENCE_AT_ALL
        if self._is_in_line:
            silence = _TRAILING
        if silence.fullmatch(pending) and _FENCE not in pending:
            self.is_silent = not self._has_begun
            return rest
        return rest + pending

    # -- tags ----------------------------------------------------------------------------------

    def _without_tags(self, text: str) -> Iterator[str]:
        """Yield the text between tags."""
        text, position = self._held + text, 0
        self._held = ""
        piece: list[str] = []
        while (start := text.find("[[", position)) >= 0:
            piece.append(self._emit(text[position:start]))
            position = start
            tag = None if self._tagged.is_code else _tag_at(text, start)
            if tag:
                yield "".join(piece)
                piece = []
                self._note(tag)
                position = tag.end
            elif not self._tagged.is_code and _may_become_tag(text, start):
                break
            else:
                piece.append(self._emit("["))
                position += 1
        end = len(text)
        if start >= 0:
            end = start
        elif text.endswith("[", position):
            end -= 1
        piece.append(self._emit(text[position:end]))
        self._held = text[end:]
        yield "".join(piece)

    def _note(self, tag: "_Tag") -> None:
        self._is_behind_tag = True
        if tag.kind == _ATTACH:
            self.attached += [tag.value] if tag.value else []
        elif tag.kind == _CURRENT:
            self.reply_to = self.reply_to or ""  # an id says more, wherever it stands
        elif tag.value:
            self.reply_to = tag.value

    def _emit(self, text: str) -> str:
        """Pass on text, without the gap that a tag left in it."""
        if self._is_behind_tag:
            text = text.lstrip(" \t") if self._last else text.lstrip()
            if not text:
                return ""
            self._is_behind_tag = False
            if self._last and not self._last.isspace() and not text[0].isspace():
                text = " " + text
        self._last = text[-1:] or self._last
        self._tagged.advance(text)
        return text

    # -- the silent token ----------------------------------------------------------------------

    def _without_token(self, text: str) -> str:
        text, position = self._pending + text, 0
        may_trail = _MAY_TRAIL.search(text, max(0, len(text) - MOST_HELD))
        tail = may_trail.start() if may_trail else len(text)
        out: list[str] = []
        while position < len(text):
            if not self._is_in_line and self._may_be_silence(text, position):
                break
            if position == tail and self._is_in_line and not self._released.is_code:
                break
            if not self._has_begun:
                glued = _GLUED.match(text, position)
                position = glued.end() if glued else position
            end = text.find("\n", position) + 1 or len(text)
            if position < tail:
                end = min(end, tail)
            out.append(text[position:end])
            self._pass(out[-1])
            position = end
        self._pending = text[position:]
        return "".join(out)

    def _pass(self, line: str) -> None:
        """Note that a line, or a part of one, is passed on."""
        self._released.advance(line)
        self._is_in_line = not line.endswith("\n")
        self._has_begun = self._has_begun or not line.isspace()

    def _may_be_silence(self, text: str, position: int) -> bool:
        """Whether all that follows may turn out to be the token alone."""
        if self._released.fence or len(text) - position > MOST_HELD:
            return False
        maybe = _MAYBE if self._has_begun else _MAYBE_AT_ALL
        return maybe.fullmatch(text, position) is not None and _FENCE not in text[position:]


@dataclass(frozen=True, slots=True)
class _Tag:
    """A complete tag."""

    kind: str
    value: str
    """The message's id, or the path."""
    end: int
    """The position of the text behind it."""


def _tag_at(text: str, start: int) -> _Tag | None:
    """Return the tag that begins with the two brackets at `start`, if one does.

    No tag has two opening brackets in it: each search ends at the next ones, so that all searches
    together take linear time.
    """
    nested = text.find("[[", start + 2, start + MOST_PATH)
    end = text.find("]]", start + 2, start + MOST_PATH if nested < 0 else nested)
    body = text[start + 2 : end].strip(" \t")
    if end < 0 or "\n" in body:
        return None
    end += 2
    kind = next((kind for kind in (_CURRENT, _TO, _ATTACH) if body.lower().startswith(kind)), "")
    value = body[len(kind) :].strip(" \t")
    if kind == _ATTACH:
        return _Tag(kind, value, end)
    is_whole = (kind == _TO and "]" not in value) or (kind == _CURRENT and not value)
    return _Tag(kind, value, end) if is_whole and end - start <= MOST_HELD else None


def _may_become_tag(text: str, start: int) -> bool:
    """Whether what begins with two brackets may be the start of a tag that is not complete yet."""
    length = len(text) - start
    if length >= MOST_PATH or not _TAG_BEGINS.match(text, start):
        return False
    body = text[start + 2 :].lstrip(" \t").lower()
    if "\n" in body or "[[" in body or (length >= MOST_HELD and not body.startswith(_ATTACH)):
        return False
    if any(tag.startswith(body) for tag in (_CURRENT, _TO, _ATTACH)):
        return True
    if body.startswith(_CURRENT):
        return body.removeprefix(_CURRENT).strip(" \t") in ("", "]")
    if body.startswith(_ATTACH):
        return "]]" not in body
    return body.startswith(_TO) and "]" not in body.removeprefix(_TO)[:-1]
