"""Mentions in texts of agents, made ineffective: a text that an agent writes notifies nobody.

An agent repeats what others wrote, and an injected prompt can make it mention everybody. A person
who waits for an answer is notified of the answer itself.
"""

import re

__all__ = ["without_mentions"]

#: Put into a mention, so that the platform sees none. It is invisible, and no line is broken there.
_WORD_JOINER = "\u2060"


def without_mentions(text: str, mention: re.Pattern[str], *, stays: str | None = None) -> str:
    """Return a text in which a platform sees no mention, except those of one person.

    `mention` matches a mention as the platform writes it; its group `who` begins behind the sign,
    such as `@`, and is the id or name that the text mentions. `stays` is that of the person whose
    mentions stay, such as `Reply.asked_by`.
    """

    def joined(found: re.Match[str]) -> str:
        if found["who"] == stays:
            return found[0]
        sign = found.start("who") - found.start()
        return f"{found[0][:sign]}{_WORD_JOINER}{found[0][sign:]}"

    return mention.sub(joined, text)
