"""The answers that a terminal may give its program: an allow list."""

import re

#: Device attributes; status and cursor position; name and version; modes; kitty's keyboard flags;
#: the colours of text, background and palette; capabilities. Each holds digits and names that the
#: emulator has chosen, never text of the program: what is answered is as good as typed.
_ALLOWED = re.compile(
    rb"""(?:
      \x1b\[[?>][0-9;]{1,40}c
    | \x1bP!\|[0-9A-F]{8}\x1b\\
    | \x1b\[0n
    | \x1b\[\??[0-9]{1,5};[0-9]{1,5}(?:;[0-9])?R
    | \x1bP>\|libghostty[ -~]{0,30}\x1b\\
    | \x1b\[\??[0-9]{1,5};[0-4]\$y
    | \x1b\[\?[0-9]{1,3}u
    | \x1b\](?:1[01]|4;[0-9]{1,3});rgb:[0-9a-f]{4}(?:/[0-9a-f]{4}){2}(?:\x07|\x1b\\)
    | \x1bP[01]\+r[0-9A-Fa-f=;]{0,2000}\x1b\\
    )+""",
    re.VERBOSE,
)


def allowed(answer: bytes) -> bool:
    """Return whether the program may be told this."""
    return bool(_ALLOWED.fullmatch(answer))
