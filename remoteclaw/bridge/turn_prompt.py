"""The prompt of a turn: one line about who wrote what and when, and the text of the messages.

Everything that comes from people (names, ids) is written as JSON strings on one line, without
control characters, so that it can't pretend to be a part of the prompt.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from remoteclaw.bridge.attachments import GivenFile, left_out
from remoteclaw.bridge.side_effects import arrived
from remoteclaw.bridge.untrusted import clean, clean_name
from remoteclaw.clock import local_time
from remoteclaw.messages import Entry, Reaction, Turn

#: How much is shown of a message that was left out, in characters.
SUMMARY = 160
#: How much is shown of a session's key, in characters.
LONGEST_KEY = 2000

#: How much is shown of the reason of a denial, in characters.
LONGEST_REASON = 2000

#: How much is shown of each thing that was said beside a turn, in characters.
MAX_BESIDE = 2000

#: How many effects of an earlier attempt are told, and how many denials.
MAX_EFFECTS = 50

#: Ends of lines, and marks of direction, that JSON leaves as they are.
_BREAKS = re.compile("\r\n|[\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")
_ODD = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")

#: What a branch is told with its task: nothing else tells it from the conversation itself.
BRANCH = (
    "You are a copy of this conversation for what follows alone; the conversation itself goes on "
    "elsewhere, with `conversation_now`, which is not yours to do. You work in the same directory: "
    "look, read and think. What changes something may be refused; say then what is to be done."
)
REPORTS = "Nobody can answer questions. Your answer goes to the conversation as a result."
ANSWERS = "Your answer goes to the chat, to the person who waits for it."
#: What an agent is told whose earlier attempt at the same message was cut off.
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
    files: Mapping[str, Sequence[GivenFile]] | None = None,
    effects: Sequence[Mapping[str, Any]] = (),
    denials: Sequence[Mapping[str, str]] = (),
    work: Sequence[Mapping[str, Any]] = (),
    meanwhile: Sequence[Mapping[str, Any]] = (),
) -> str:
    """Return what the agent is asked, behind one line about who wrote it and when.

    Of several messages that line tells the number of lines of each, so that none of them can
    pretend to be another one. Times are in the sender's zone, else in the agent's `zone`, else in
    the host's. An agent that `begins_conversation` is shown the thread so far, and what is recorded
    of a conversation that was lost (`history`). `files` are those that came with the messages, by
    entry; `effects` is what tools did in an earlier attempt, and `denials` what people have said to
    earlier ones; `work` is what works for the session (`work_of()`), and `meanwhile` was said in
    the chat beside the turns before.
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
            {**about_entry(entry, zone), "begins": clean(entry.message.text, longest=SUMMARY)}
            for entry in turn.left_out
        ]
    if turn.was_interrupted:
        header["note"] = INTERRUPTED
    header |= _about_branch(turn.entries)
    if effects:
        header["already_done"] = [*map(_about_effect, arrived(effects)[-MAX_EFFECTS:])]
    if denials:
        header["denied"] = [*map(_about_denial, denials[-MAX_EFFECTS:])]
    if work:
        header["work"] = [*work]
    if meanwhile:
        header["meanwhile"] = meanwhile_of(meanwhile, zone)
    if begins_conversation and (thread := turn.entries[0].message.thread_context):
        header["thread_before"] = thread
    if history:
        header["conversation_before"] = [*map(note_of, history)]
    text = turn.entries[0].message.text
    if more:
        text = "\n".join(_in_lines(entry.message.text) for entry in turn.entries)
    return with_header(header, text)


def with_header(header: Mapping[str, Any], text: str) -> str:
    """Return a text behind RemoteClaw's line about it."""
    return f"[remoteclaw {_on_one_line(orjson.dumps(header).decode())}]\n\n{text}"


def meanwhile_of(beside: Sequence[Mapping[str, Any]], zone: str | None) -> list[dict[str, Any]]:
    """Return what was said beside the turns, as the agent reads it."""
    told = []
    for note in beside:
        one: dict[str, Any] = {"at": clock(int(note["at"]), zone)}
        if "from" in note:
            one["from"] = clean_name(str(note["from"]))
        for name in ("said", "you", "sent"):
            if note.get(name):
                one[name] = clean(str(note[name]), longest=MAX_BESIDE)
        told.append(one)
    return told


def _about_branch(entries: Sequence[Entry]) -> dict[str, Any]:
    """Return what a branch is told, and a task that has notes of its parent's conversation."""
    moved = next((entry.moved for entry in entries if entry.moved), None)
    told = next((entry.provenance for entry in entries if entry.provenance), None)
    of = moved.of if moved else told.branch_of if told else None
    now = moved.now if moved else told.now if told else ()
    about: dict[str, Any] = {}
    if of:
        about["branch_of"] = clean(of, longest=LONGEST_KEY)
        about["branch_note"] = f"{BRANCH} {ANSWERS if moved else REPORTS}"
    if now:
        about["conversation_now"] = [
            {"from": _sender(said.name, said.id), "said": said.text} for said in now
        ]
    return about


def _in_lines(text: str) -> str:
    """Return a text with one sign for the end of a line: the header counts lines."""
    return _BREAKS.sub("\n", text)


def _on_one_line(json: str) -> str:
    """Return JSON with an escape for every character that could be read as the end of a line.

    Such characters can only be in strings, and so can what turns the direction of writing.
    """
    return _ODD.sub(lambda match: f"\\u{ord(match[0]):04x}", json)


def about_entry(
    entry: Entry, zone: str | None, files: Sequence[GivenFile] | None = None
) -> dict[str, Any]:
    """Return who wrote a message and when, and what came with it."""
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
        files = left_out(entry)
    return about | ({"attachments": [*map(_about_file, files)]} if files else {})


def _sender(name: str | None, id_: str | None) -> dict[str, str] | str:
    """Return who sent something: a person by id and name, anything else by its name alone.

    So a person who is called like a cron job isn't taken for one.
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
    return about | ({"begins": clean(reaction.text, longest=SUMMARY)} if reaction.text else {})


def note_of(note: Mapping[str, str]) -> dict[str, Any]:
    """Return a note of the record as the agent reads it."""
    if "from" not in note:
        return dict(note)
    return {
        "from": _sender(note["from"], note.get("from_id")),
        **{key: value for key, value in note.items() if key not in ("from", "from_id")},
    }


def _about_session(entry: Entry) -> dict[str, Any]:
    if (told := entry.provenance) is None:
        return {}
    if entry.origin != "result":
        return {"session": clean(told.by, longest=LONGEST_KEY)}
    result = {"session": told.by, "run": told.run, "label": told.label, "status": told.status}
    return {
        "result_of": {
            name: clean(value, longest=LONGEST_KEY) for name, value in result.items() if value
        }
    }


def _about_effect(effect: Mapping[str, Any]) -> dict[str, Any]:
    about = {
        name: effect[name] for name in ("tool", "to", "jobId", "messageId") if effect.get(name)
    }
    if text := effect.get("text"):
        about["text"] = clean(str(text), longest=SUMMARY)
    return about


def _about_denial(denial: Mapping[str, str]) -> dict[str, str]:
    return {
        "tool": denial["tool"],
        "what": clean(denial["what"], longest=SUMMARY),
        "by": clean_name(denial["by"]),
        "why": clean(denial["why"], longest=LONGEST_REASON),
    }


def _about_file(file: GivenFile) -> dict[str, Any]:
    about = {"name": file.attachment.name, "type": file.attachment.mime_type}
    if file.path is None:
        return {**about, "problem": file.problem}
    return {**about, "bytes": file.attachment.size, "path": str(file.path)}


def clock(timestamp_ms: int, zone: str | None) -> str:
    """Return a time in the user's zone, else in the host's."""
    return local_time(timestamp_ms, zone).strftime("%a %Y-%m-%d %H:%M %z")
