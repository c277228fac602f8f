"""Asides: the question that an agent is asked during its turn, and the verdict in its answer.

Pure functions. The instructions are a part of the question, because the system prompt is the same
for all of a conversation's requests and does not mention asides.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from remoteclaw.bridge.task_lines import describe_tasks
from remoteclaw.bridge.turn_prompt import about_entry, aside_notes_of, clock, note_of, with_header
from remoteclaw.bridge.untrusted import clean
from remoteclaw.events import AsideAnswer
from remoteclaw.messages import AsideVerdict, Entry, ReplyPayload, TaskStatus

#: The instructions for the agent. Each question has a new key, so that a tag which a person has
#: written, or the agent quotes, has no effect.
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
#: The maximum lengths of each quoted message, and of the agent's text so far, in characters.
MAX_QUOTE_CHARS, MAX_TEXT_CHARS = 500, 1000
#: The question lists at most this many waiting messages, the oldest.
MAX_WAITING = 10


@dataclass(frozen=True, slots=True)
class RunningTurn:
    """The running turn at the time of the question, and the session's other messages and tasks."""

    about: Sequence[str] = ()
    """The messages that the running turn answers."""
    since_ms: int = 0
    """The start of the turn, in milliseconds since 1970."""
    current_tool: str = ""
    """The running or last tool; empty if no tool was used."""
    current_text: str = ""
    """The agent's last text in the turn."""
    waiting: Sequence[str] = ()
    """The texts of other messages that wait for an answer."""
    requests: Sequence[str] = ()
    """The texts of the open requests to people."""
    tasks: Sequence[TaskStatus] = ()
    """The tasks and branches of the session."""
    aside_notes: Sequence[Mapping[str, Any]] = ()
    """The notes of earlier asides that no prompt has contained yet (`Asides.notes`)."""


@dataclass(frozen=True, slots=True)
class Aside:
    """An agent's answer to an aside."""

    verdict: AsideVerdict
    payloads: Sequence[ReplyPayload] = ()
    """Its messages for the chat."""
    answer: AsideAnswer | None = None
    """The whole answer, and what it used; None if the agent gave none."""


def build_question(
    entry: Entry,
    running: RunningTurn,
    *,
    key: str,
    zone: str | None,
    now_ms: int,
    history: Sequence[Mapping[str, str]] = (),
) -> str:
    """Return the question about an entry: its text, after a header line that describes the turn.

    `key` is a part of the tags, `now_ms` is the current time, and `history` are notes of the
    conversation, for an agent that is asked in another conversation.
    """
    zone = entry.message.timezone or zone
    about_turn: dict[str, Any] = {
        "about": [clean(text, max_chars=MAX_QUOTE_CHARS) for text in running.about],
        "since": clock(running.since_ms, zone),
        "now": clock(now_ms, zone),
        "minutes": max(0, now_ms - running.since_ms) // 60_000,
    }
    if running.current_tool:
        about_turn["doing"] = clean(running.current_tool, max_chars=MAX_QUOTE_CHARS)
    if running.current_text:
        about_turn["you_said"] = clean(
            running.current_text[-MAX_TEXT_CHARS:], max_chars=MAX_TEXT_CHARS
        )
    header: dict[str, Any] = {
        "aside": INSTRUCTIONS.format(key=key),
        **about_entry(entry, zone),
        "running": about_turn,
    }
    if running.waiting:
        waiting = running.waiting[:MAX_WAITING]
        header["waiting"] = [clean(text, max_chars=MAX_QUOTE_CHARS) for text in waiting]
    if running.requests:
        requests = [clean(text, max_chars=MAX_QUOTE_CHARS) for text in running.requests]
        header["waits_for_a_person"] = requests
    if tasks := describe_tasks(running.tasks, zone=zone):
        header["work"] = tasks
    if running.aside_notes:
        header["meanwhile"] = aside_notes_of(running.aside_notes, zone)
    if history:
        header["conversation_before"] = [*map(note_of, history)]
    return with_header(header, entry.message.text)


def read_verdict(answer: str, key: str) -> tuple[AsideVerdict, str]:
    """Return the verdict of an answer, and the text before its closing tag.

    An answer without exactly one tag, at its end, has the verdict "later" and no text: the agent
    wanted a tool, or the CLI reports a failure instead.
    """
    tag = rf"\[\[[ \t]*({'|'.join(get_args(AsideVerdict))}):{re.escape(key)}[ \t]*\]\]"
    tags = [*re.finditer(tag, answer, re.IGNORECASE)]
    if len(tags) != 1 or answer[tags[0].end() :].strip(" \t\n`*_."):
        return "later", ""
    verdict: AsideVerdict = tags[0][1].lower()  # type: ignore[assignment]
    before, _, line = answer[: tags[0].start()].rpartition("\n")
    has_text = bool(line.strip(" \t`*_"))  # models set tags in bold, or as code
    return verdict, (f"{before}\n{line}" if has_text else before).strip()
