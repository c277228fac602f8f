"""The aside: what an agent is asked beside its running turn, and what its answer means.

Pure functions. The instructions stand in the question: the system prompt, which is the same for all
of the conversation's requests, says nothing of asides.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from remoteclaw.bridge.task_lines import work_of
from remoteclaw.bridge.turn_prompt import about_entry, clock, meanwhile_of, note_of, with_header
from remoteclaw.bridge.untrusted import clean
from remoteclaw.messages import AsideVerdict, Entry, ReplyPayload, Work

#: What the agent is told to do. The key is new for each question: so a tag that a person has
#: written, or that the agent quotes, means nothing.
INSTRUCTIONS = (
    "This message came while you work on `running`. Answer it now, beside that work, in a few "
    "sentences, from what you know: no tool can be used here, and nothing that you promise here "
    "is done. End with one of these tags, alone on the last line. "
    "[[answered:{key}]]: the text before it is the whole answer. "
    "[[work:{key}]]: it concerns the running work, which gets the message; say before it in a few "
    "words that you take it in, which is sent at once. "
    "[[stop:{key}]]: the running work is to stop. "
    "[[branch:{key}]]: it needs something to be looked up, in files or on the web, and nothing to "
    "be changed: it gets a turn of its own now, on a copy of this conversation; a text before it "
    "is sent at once. "
    "[[later:{key}]]: it needs more than that, or what comes of the running work, and is answered "
    "when that is done."
)
#: How much is shown of the messages that the turn is about and of those that wait, in characters,
#: and of what the agent has said.
MAX_ABOUT, MAX_SAID = 500, 1000
#: How many messages that wait are told.
MAX_WAITING = 10


@dataclass(frozen=True, slots=True)
class Running:
    """The running turn at the moment of the question, and what waits or works beside it."""

    about: Sequence[str] = ()
    """The messages that the running turn answers."""
    since_ms: int = 0
    """The start of the turn, in milliseconds since 1970."""
    doing: str = ""
    """The tool that runs, or ran last."""
    said: str = ""
    """The words of the agent in the turn so far, or the end of them."""
    waiting: Sequence[str] = ()
    """The texts of other messages that wait for an answer."""
    requests: Sequence[str] = ()
    """The requests to people that are open, in words."""
    tasks: Sequence[Work] = ()
    """The tasks and branches of the session."""
    beside: Sequence[Mapping[str, Any]] = ()
    """The exchanges beside turns of which the agent has not been told (`Asides.beside`)."""


@dataclass(frozen=True, slots=True)
class Aside:
    """The answer of an agent to a question beside its turn."""

    verdict: AsideVerdict
    payloads: Sequence[ReplyPayload] = ()
    """Its words for the chat."""


def build_question(
    entry: Entry,
    running: Running,
    *,
    key: str,
    zone: str | None,
    now_ms: int,
    history: Sequence[Mapping[str, str]] = (),
) -> str:
    """Return what the agent is asked about an entry, behind one line about it and what goes on.

    `key` closes its tags, `now_ms` is now, and `history` are notes of the conversation, for an
    agent that is asked in another one.
    """
    zone = entry.message.timezone or zone
    told: dict[str, Any] = {
        "about": [clean(text, longest=MAX_ABOUT) for text in running.about],
        "since": clock(running.since_ms, zone),
        "now": clock(now_ms, zone),
        "minutes": max(0, now_ms - running.since_ms) // 60_000,
    }
    if running.doing:
        told["doing"] = clean(running.doing, longest=MAX_ABOUT)
    if running.said:
        told["you_said"] = clean(running.said[-MAX_SAID:], longest=MAX_SAID)
    header: dict[str, Any] = {
        "aside": INSTRUCTIONS.format(key=key),
        **about_entry(entry, zone),
        "running": told,
    }
    if running.waiting:
        waiting = running.waiting[:MAX_WAITING]
        header["waiting"] = [clean(text, longest=MAX_ABOUT) for text in waiting]
    if running.requests:
        asked = [clean(text, longest=MAX_ABOUT) for text in running.requests]
        header["waits_for_a_person"] = asked
    if working := work_of(running.tasks, zone=zone):
        header["work"] = working
    if running.beside:
        header["meanwhile"] = meanwhile_of(running.beside, zone)
    if history:
        header["conversation_before"] = [*map(note_of, history)]
    return with_header(header, entry.message.text)


def read_verdict(answer: str, key: str) -> tuple[AsideVerdict, str]:
    """Return what an answer says becomes of the message, and the text before its closing tag.

    Without the one tag at its end, it is no answer: the agent wanted a tool, or the CLI reports a
    failure in its place.
    """
    tag = rf"\[\[[ \t]*({'|'.join(get_args(AsideVerdict))}):{re.escape(key)}[ \t]*\]\]"
    found = [*re.finditer(tag, answer, re.IGNORECASE)]
    if len(found) != 1 or answer[found[0].end() :].strip(" \t\n`*_."):
        return "later", ""
    verdict: AsideVerdict = found[0][1].lower()  # type: ignore[assignment]  # the pattern has no other
    before, _, line = answer[: found[0].start()].rpartition("\n")
    has_words = bool(line.strip(" \t`*_"))  # models set tags in bold, or as code
    return verdict, (f"{before}\n{line}" if has_words else before).strip()
