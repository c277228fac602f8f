"""The prompt of a turn: a header line about the messages, and their text.

The header has senders and times. Text from people in it, such as names and ids, is in JSON strings
on one line, without control characters, so that it can't imitate a part of the prompt.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from remoteclaw.bridge.attachments import GivenFile, left_out_files
from remoteclaw.bridge.side_effects import without_undelivered
from remoteclaw.bridge.untrusted import clean, clean_name
from remoteclaw.clock import local_time
from remoteclaw.messages import Entry, Reaction, Turn

#: The maximum length of the summary of a message, in characters.
MAX_SUMMARY_CHARS = 160
#: The maximum length of a session's key, in characters.
MAX_KEY_CHARS = 2000

#: The maximum length of the reason of a denial, in characters.
MAX_REASON_CHARS = 2000

#: The maximum length of each text in a note of an aside, in characters.
MAX_NOTE_CHARS = 2000

#: A header has at most this many effects of an earlier attempt, and as many denials, the last ones.
MAX_EFFECTS = 50

#: Line ends, and characters that change the writing direction, which JSON does not escape.
_BREAKS = re.compile("\r\n|[\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")
_ODD = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")

#: The instructions of a branch, which otherwise looks exactly like the conversation to its agent.
BRANCH = (
    "You are a copy of this conversation only for what follows; the conversation itself goes on "
    "elsewhere, with `conversation_now`, which is not yours to do. You work in the same directory: "
    "look, read and think. What changes something may be refused; say then what is to be done."
)
REPORTS = "Nobody can answer questions. Your answer goes to the conversation as a result."
ANSWERS = "Your answer goes to the chat, to the person who waits for it."
#: The instructions after an attempt at the same message that was cut off.
INTERRUPTED = (
    "Your earlier attempt at this message was cut off, perhaps after you had done part of the "
    "work. Look at what is already done before you repeat anything."
)


def build_turn_prompt(
    turn: Turn,
    *,
    zone: str | None = None,
    begins_conversation: bool = False,
    history: Sequence[Mapping[str, str]] = (),
    memory: str = "",
    files: Mapping[str, Sequence[GivenFile]] | None = None,
    effects: Sequence[Mapping[str, Any]] = (),
    denials: Sequence[Mapping[str, str]] = (),
    tasks: Sequence[Mapping[str, Any]] = (),
    aside_notes: Sequence[Mapping[str, Any]] = (),
) -> str:
    """Return the prompt of a turn: the text of its messages after a header line.

    For several messages, the header has the number of lines of each, so that no message can imitate
    another one. Times are in the sender's zone, else in the agent's `zone`, else in the host's.

    If the agent `begins_conversation`, the header has the earlier messages of the chat thread.
    `history` are notes of a lost conversation, `memory` is the agent's memory, and `files` are the
    messages' files, by entry.
    `effects` are the side effects of an earlier attempt, and `denials` the denials that the agent
    does not know yet. `tasks` are the session's tasks (`describe_tasks()`), and `aside_notes` the
    notes of asides since the agent's last turn.
    """
    files = files or {}
    first, *more = (about_entry(entry, zone, files.get(entry.id)) for entry in turn.entries)
    header: dict[str, Any] = first
    if more:
        header = {"messages": [first, *more]}
        for about, entry in zip(header["messages"], turn.entries, strict=True):
            about["lines"] = len(_in_lines(entry.message.text).split("\n"))
    if turn.left_out:
        header["left_out"] = [
            {
                **about_entry(entry, zone),
                "begins": clean(entry.message.text, max_chars=MAX_SUMMARY_CHARS),
            }
            for entry in turn.left_out
        ]
    if turn.was_interrupted:
        header["note"] = INTERRUPTED
    header |= _about_branch(turn.entries)
    if effects:
        header["already_done"] = [*map(_about_effect, without_undelivered(effects)[-MAX_EFFECTS:])]
    if denials:
        header["denied"] = [*map(_about_denial, denials[-MAX_EFFECTS:])]
    if tasks:
        header["work"] = [*tasks]
    if aside_notes:
        header["meanwhile"] = aside_notes_of(aside_notes, zone)
    if begins_conversation and (thread := turn.entries[0].message.thread_context):
        header["thread_before"] = thread
    if history:
        header["conversation_before"] = [*map(note_of, history)]
    if memory:
        header["memory"] = memory
    text = turn.entries[0].message.text
    if more:
        text = "\n".join(_in_lines(entry.message.text) for entry in turn.entries)
    return with_header(header, text)


def with_header(header: Mapping[str, Any], text: str) -> str:
    """Return a text after RemoteClaw's header line."""
    return f"[remoteclaw {_on_one_line(orjson.dumps(header).decode())}]\n\n{text}"


def aside_notes_of(notes: Sequence[Mapping[str, Any]], zone: str | None) -> list[dict[str, Any]]:
    """Return notes about the chat for the agent: of asides, edits, and messages of others."""
    cleaned = []
    for note in notes:
        about: dict[str, Any] = {"at": clock(int(note["at"]), zone)}
        if "from" in note:
            about["from"] = clean_name(str(note["from"]))
        for name in ("id", "said", "you", "sent", "edited"):
            if note.get(name):
                about[name] = clean(str(note[name]), max_chars=MAX_NOTE_CHARS)
        cleaned.append(about)
    return cleaned


def _about_branch(entries: Sequence[Entry]) -> dict[str, Any]:
    """Return the header fields of a branch, or of a task that knows its parent's conversation."""
    moved = next((entry.moved for entry in entries if entry.moved), None)
    provenance = next((entry.provenance for entry in entries if entry.provenance), None)
    of = moved.of if moved else provenance.branch_of if provenance else None
    now = moved.now if moved else provenance.now if provenance else ()
    about: dict[str, Any] = {}
    if of:
        about["branch_of"] = clean(of, max_chars=MAX_KEY_CHARS)
        about["branch_note"] = f"{BRANCH} {ANSWERS if moved else REPORTS}"
    if now:
        about["conversation_now"] = [
            {"from": _sender(quoted.name, quoted.id), "said": quoted.text} for quoted in now
        ]
    return about


def _in_lines(text: str) -> str:
    """Return a text with newlines as its only line ends, because the header counts lines."""
    return _BREAKS.sub("\n", text)


def _on_one_line(json: str) -> str:
    """Return JSON in which line ends and changes of the writing direction are escaped.

    Such characters occur only in its strings.
    """
    return _ODD.sub(lambda match: f"\\u{ord(match[0]):04x}", json)


def about_entry(
    entry: Entry, zone: str | None, files: Sequence[GivenFile] | None = None
) -> dict[str, Any]:
    """Return the header fields of a message: its sender, time, ids, reactions and files."""
    message = entry.message
    about: dict[str, Any] = {
        "from": _sender(message.user_name, message.from_ if entry.origin == "chat" else None),
        "at": clock(message.timestamp, message.timezone or zone),
    }
    if entry.origin == "chat":
        ids = {
            "id": message.id,
            "quotes": message.reply_to_id,
            "quoted": message.quoted,
            "replaces": message.replaces,
        }
        about |= {name: id_ for name, id_ in ids.items() if id_}
    if message.reactions:
        about["reactions"] = [*map(_about_reaction, message.reactions)]
    about |= _about_session(entry)
    if files is None:
        files = left_out_files(entry)
    return about | ({"attachments": [*map(_about_file, files)]} if files else {})


def _sender(name: str | None, id_: str | None) -> dict[str, str] | str:
    """Return a sender: a person as an object with id and name, any other sender as its name.

    So a person with the name of a cron job can't be taken for it.
    """
    shown = clean_name(name or "")
    if id_ is None:
        return shown
    return {"id": id_, "name": shown} if shown and name != id_ else {"id": id_}


def _about_reaction(reaction: Reaction) -> dict[str, Any]:
    about = {
        "from": _sender(reaction.user_name, reaction.from_),
        "emoji": clean(reaction.emoji),
        "to": reaction.message_id,
    }
    return about | (
        {"begins": clean(reaction.text, max_chars=MAX_SUMMARY_CHARS)} if reaction.text else {}
    )


def note_of(note: Mapping[str, str]) -> dict[str, Any]:
    """Return a note of the record for the agent."""
    if "from" not in note:
        return dict(note)
    return {
        "from": _sender(note["from"], note.get("from_id")),
        **{key: value for key, value in note.items() if key not in ("from", "from_id")},
    }


def _about_session(entry: Entry) -> dict[str, Any]:
    if (source := entry.provenance) is None or entry.origin == "cron":
        return {}
    if entry.origin != "result":
        return {"session": clean(source.by, max_chars=MAX_KEY_CHARS)}
    result = {
        "session": source.by,
        "run": source.run,
        "label": source.label,
        "status": source.status,
    }
    return {
        "result_of": {
            name: clean(value, max_chars=MAX_KEY_CHARS) for name, value in result.items() if value
        }
    }


def _about_effect(effect: Mapping[str, Any]) -> dict[str, Any]:
    about = {
        name: effect[name] for name in ("tool", "to", "jobId", "messageId") if effect.get(name)
    }
    if text := effect.get("text"):
        about["text"] = clean(str(text), max_chars=MAX_SUMMARY_CHARS)
    return about


def _about_denial(denial: Mapping[str, str]) -> dict[str, str]:
    return {
        "tool": denial["tool"],
        "what": clean(denial["what"], max_chars=MAX_SUMMARY_CHARS),
        "by": clean_name(denial["by"]),
        "why": clean(denial["why"], max_chars=MAX_REASON_CHARS),
    }


def _about_file(file: GivenFile) -> dict[str, Any]:
    about: dict[str, Any] = {"name": file.attachment.name, "type": file.attachment.mime_type}
    if file.attachment.is_quoted:
        about["of"] = "the quoted message"
    if file.path is None:
        return {**about, "problem": file.problem}
    return {**about, "bytes": file.attachment.size, "path": str(file.path)}


def clock(timestamp_ms: int, zone: str | None) -> str:
    """Return a formatted time in `zone`, else in the host's zone."""
    return local_time(timestamp_ms, zone).strftime("%a %Y-%m-%d %H:%M %z")
