"""What an agent writes for RemoteClaw and not for the person: reply tags, and the word for silence.

Both are taken out of the answer while it streams.
Whatever could still become one is held back until it has, or hasn't; so where the stream is cut
into deltas makes no difference.
"""

import re
from dataclasses import dataclass, field

__all__ = ["SILENT_REPLY_TOKEN", "Directives"]

#: What an agent answers, and nothing else, when there is nothing to say.
SILENT_REPLY_TOKEN = "NO_REPLY"  # noqa: S105 - no secret

#: The longest tag that is waited for, in characters: a message's id has 512 at most.
MOST_TAG = 600

_CURRENT, _TO = "reply_to_current", "reply_to:"
_TAG = re.compile(
    rf"\[\[[ \t]*(?:{_CURRENT}|{_TO}[ \t]*(?P<id>[^\]\n]*?))[ \t]*\]\]", re.IGNORECASE
)
#: What may stand around the token: models like to set it in bold.
_AROUND = " \t\r\n*`"
_BEGINNINGS = "|".join(
    re.escape(SILENT_REPLY_TOKEN[:length]) for length in range(len(SILENT_REPLY_TOKEN) - 1, 0, -1)
)
#: A token at the end of a text, or what could become one. Behind a letter it is a part of a word.
_TAIL = re.compile(
    rf"(?<![^\s*`])(?:{SILENT_REPLY_TOKEN}[\s*`]+)*"
    rf"(?:{SILENT_REPLY_TOKEN}[\s*`]*|(?:{_BEGINNINGS}))\Z"
)
_FULL_TAIL = re.compile(rf"(?<![^\s*`])(?:{SILENT_REPLY_TOKEN}[\s*`]*)+\Z")
_TOKENS = re.compile(rf"(?:{SILENT_REPLY_TOKEN}[\s*`.]*)+", re.IGNORECASE)
_JSON = re.compile(rf'\{{\s*"action"\s*:\s*"{SILENT_REPLY_TOKEN}"\s*\}}', re.IGNORECASE)
#: The same without its blanks: what could become it is told by that.
_JSON_BARE = f'{{"action":"{SILENT_REPLY_TOKEN}"}}'


@dataclass(slots=True)
class Directives:
    """Takes the directives out of one answer."""

    reply_to: str | None = None
    """The id of the message that the last tag names; empty for the one that is being answered."""
    is_silent: bool = False
    """Whether the answer, now complete, was the token for silence and nothing else."""
    _raw: list[str] = field(default_factory=list)
    _clean: int = 0
    """How much was passed on, in characters."""
    _held: str = ""
    """What may become a tag."""
    _is_behind_tag: bool = False
    _last: str = ""
    """The last character before a tag that is being taken out."""
    _pending: str = ""
    """What may become the token."""
    _has_begun: bool = False
    """Whether something was passed on that is no blank."""
    _before: str = ""
    """The character before what is pending."""

    def feed(self, text: str) -> str:
        """Take more of the answer; return what of it is for the person and can be passed on."""
        self._raw.append(text)
        clean = self._without_token(self._without_tags(text))
        self._clean += len(clean)
        return clean

    def withdraw(self, characters: int) -> int:
        """Take back the end of what was fed; return how many characters of what was passed on."""
        raw, passed_on = "".join(self._raw), self._clean
        # What is passed on depends on what was fed alone, so the shorter text tells where we were.
        self.__init__()  # type: ignore[misc]
        self.feed(raw[: max(0, len(raw) - characters)])
        return passed_on - self._clean

    def finish(self) -> str:
        """Return the rest, once the answer is complete."""
        held, self._held = self._held, ""
        rest = self._without_token(self._emit(held))
        pending, self._pending = self._pending, ""
        bare = pending.strip(_AROUND)
        if not self._has_begun and (_TOKENS.fullmatch(bare) or _JSON.fullmatch(bare)):
            self.is_silent = True
            return rest
        if match := _FULL_TAIL.search(self._before + pending, len(self._before)):
            pending = pending[: match.start() - len(self._before)]
            self.is_silent = not self._has_begun and not pending.strip()
        return rest + pending

    # -- tags ----------------------------------------------------------------------------------

    def _without_tags(self, text: str) -> str:
        self._held += text
        out = []
        while (start := self._held.find("[[")) >= 0:
            out.append(self._emit(self._held[:start]))
            self._held = self._held[start:]
            if match := _TAG.match(self._held, 0, MOST_TAG):
                self._held = self._held[match.end() :]
                self._note(match["id"])
            elif _may_become_tag(self._held):
                return "".join(out)
            else:
                out.append(self._emit("["))
                self._held = self._held[1:]
        keep = int(self._held.endswith("["))
        out.append(self._emit(self._held[: len(self._held) - keep]))
        self._held = self._held[len(self._held) - keep :]
        return "".join(out)

    def _note(self, named: str | None) -> None:
        self._is_behind_tag = True
        if named is None:
            self.reply_to = self.reply_to or ""  # an id says more, wherever it stands
        elif named:
            self.reply_to = named

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
        return text

    # -- the token for silence -----------------------------------------------------------------

    def _without_token(self, text: str) -> str:
        self._pending += text
        if not self._has_begun:
            begun = self._pending.lstrip(_AROUND)
            if not begun or _may_be_silence(begun):
                return ""
            self._has_begun = True
            rest = begun.removeprefix(SILENT_REPLY_TOKEN)
            if rest is not begun and rest[:1].isalnum():  # glued to an answer
                self._pending = rest
        context = self._before + self._pending
        match = _TAIL.search(context, len(self._before))
        end = match.start() if match else len(context)
        released, self._pending = context[len(self._before) : end], context[end:]
        self._before = context[end - 1 : end] if end else ""
        return released


def _may_become_tag(text: str) -> bool:
    """Whether a text that begins with two brackets may be the start of a tag."""
    body = text[2:].lstrip(" \t").lower()
    if len(text) >= MOST_TAG or "\n" in body:
        return False
    if _CURRENT.startswith(body) or _TO.startswith(body):
        return True
    for name in (_CURRENT, _TO):
        if body.startswith(name):
            rest = body.removeprefix(name)
            if name == _CURRENT and rest.strip(" \t") not in ("", "]"):
                return False
            return "]" not in rest[:-1]
    return False


def _may_be_silence(text: str) -> bool:
    """Whether an answer that begins so may turn out to be the token alone."""
    tokens = _TOKENS.match(text)
    if SILENT_REPLY_TOKEN.startswith(text[tokens.end() if tokens else 0 :].upper()):
        return True
    bare = re.sub(r"\s", "", text).rstrip("*`")
    return _JSON_BARE.upper().startswith(bare.upper())
