"""The command /resume: continues a copy of an earlier conversation of the workspace."""

import asyncio
import contextlib
import functools
import os
import re
from collections.abc import Iterator

import orjson

from remoteclaw.clock import format_duration, now_ms
from remoteclaw.commands.call import CommandCall, CommandReply
from remoteclaw.protocols import conversation_name
from remoteclaw.runtimes.past_conversations import (
    MAX_NOTES_BYTES,
    PastConversation,
    past_conversations,
    title_of,
)

#: At most this many conversations are listed.
MAX_LISTED = 12

NO_RECORD = (
    "{runtime} can't copy a conversation, and RemoteClaw keeps no notes while `[record] keep_days` "
    "is 0: set it to have the agent get notes of the conversation."
)


async def resume(call: CommandCall) -> CommandReply:
    """List earlier conversations of the workspace, or continue a copy of one.

    If the CLI can't copy a conversation, the agent continues from RemoteClaw's notes of it.
    """
    workspace = str(await call.workspace())
    env = {**os.environ, **call.agent.env}
    conversations = await asyncio.to_thread(
        past_conversations, call.runtime, workspace, env, limit=MAX_LISTED + 1
    )
    none_found = f"{call.runtime} has no other conversation of this workspace."
    if conversations is None:
        conversations = await _archived_conversations(call)
        none_found = "This session has no earlier conversation."
    view = await call.fleet.sessions.view(call.session.sid)
    current = view.session_ids.values() if view else ()
    others = [each for each in conversations if each.id not in current][:MAX_LISTED]
    if not others:
        return CommandReply(none_found)
    if not (number := call.arguments):
        lines = [f"{n}. {_description(each)}" for n, each in enumerate(others, 1)]
        return CommandReply("\n".join([*lines, "", "`/resume NUMBER` continues a copy of one."]))
    if not number.isdecimal() or not 0 < int(number) <= len(others):
        return CommandReply(f"Choose a number from 1 to {len(others)}: /resume lists them.")
    chosen = others[int(number) - 1]
    notes = await asyncio.to_thread(chosen.notes) if chosen.notes else None
    if notes is not None and not call.config.record.keep_ms:
        return CommandReply(NO_RECORD.format(runtime=call.runtime))
    name = conversation_name(call.session.agent, call.runtime, workspace)
    await call.fleet.inbound.end_conversation(
        call.session,
        "resume",
        call=call.id,
        copy_of=None if chosen.notes else (name, chosen.id),
        notes=notes,
    )
    how = "with a copy of" if notes is None else "from notes of"
    return CommandReply(
        f"Your next message continues {how} {_description(chosen)}. That one stays as it is."
    )


async def _archived_conversations(call: CommandCall) -> list[PastConversation]:
    """Return the session's ended conversations from RemoteClaw's records."""
    conversations = []
    for ended in await call.fleet.records.ended(call.session.sid):
        notes = functools.partial(ended.record[-MAX_NOTES_BYTES:].decode, "utf-8", "replace")
        title = title_of(_user_texts(ended.record))
        conversations.append(PastConversation("", title, ended.at_ms / 1000, notes))
    return conversations


def _user_texts(record: bytes) -> Iterator[str]:
    """Yield the users' messages of a record (`session.record`)."""
    for line in record.splitlines():
        with contextlib.suppress(orjson.JSONDecodeError):  # the oldest line may have been cut
            message = orjson.loads(line)
            if message.get("role") == "user":
                yield str(message.get("text"))


def _description(past: PastConversation) -> str:
    """Return a conversation's title and age, without Markdown in the title."""
    title = re.sub("[`\x00-\x1f\x7f]", " ", past.title).strip() or past.id
    return f"`{title}`, {format_duration(now_ms() - round(past.at * 1000))} ago"
