"""The command /resume: earlier conversations of the workspace, continued as copies."""

import asyncio
import contextlib
import functools
import os
import re
from collections.abc import Iterator

import orjson

from remoteclaw.clock import in_words, now_ms
from remoteclaw.commands.call import Answer, Asked
from remoteclaw.protocols import conversation_name
from remoteclaw.runtimes.past_conversations import (
    MAX_NOTES,
    PastConversation,
    past_conversations,
    title_of,
)

#: How many are listed.
MOST = 12

NOTED = "from notes of"
NO_RECORD = (
    "{runtime} can't copy a conversation, and RemoteClaw keeps no notes while `[record] keep_days` "
    "is 0: set it to have the agent told what was said."
)


async def resume(asked: Asked) -> Answer:
    """List conversations of the workspace, or continue a copy of one."""
    workspace = str(await asked.workspace())
    env = {**os.environ, **asked.agent.env}
    found = await asyncio.to_thread(
        past_conversations, asked.runtime, workspace, env, most=MOST + 1
    )
    whose = f"{asked.runtime} has no other conversation of this workspace."
    if found is None:
        found, whose = await _ended(asked), "This session has no earlier conversation."
    view = await asked.fleet.sessions.view(asked.session.sid)
    current = view.session_ids.values() if view else ()
    others = [each for each in found if each.id not in current][:MOST]
    if not others:
        return Answer(whose)
    if not (wanted := asked.rest):
        lines = [f"{number}. {_about(each)}" for number, each in enumerate(others, 1)]
        return Answer("\n".join([*lines, "", "`/resume NUMBER` goes on with a copy of one."]))
    if not wanted.isdecimal() or not 0 < int(wanted) <= len(others):
        return Answer(f"Choose a number from 1 to {len(others)}: /resume lists them.")
    chosen = others[int(wanted) - 1]
    notes = await asyncio.to_thread(chosen.notes) if chosen.notes else None
    if notes is not None and not asked.config.record.keep_ms:
        return Answer(NO_RECORD.format(runtime=asked.runtime))
    await asked.fleet.inbound.end_conversation(
        asked.session,
        "resume",
        call=asked.id,
        copy_of=None if chosen.notes else (conversation_name(asked.runtime, workspace), chosen.id),
        notes=notes,
    )
    how = "with a copy of" if notes is None else NOTED
    return Answer(f"Your next message goes on {how} {_about(chosen)}. That one stays as it is.")


async def _ended(asked: Asked) -> list[PastConversation]:
    """Return the session's own conversations that have ended, of a CLI that lists none."""
    found = []
    for ended in await asked.fleet.records.ended(asked.session.sid):
        notes = functools.partial(ended.record[-MAX_NOTES:].decode, "utf-8", "replace")
        title = title_of(_said(ended.record))
        found.append(PastConversation("", title, ended.at_ms / 1000, notes))
    return found


def _said(record: bytes) -> Iterator[str]:
    """Yield what people have said, of a record (`session.record`)."""
    for line in record.splitlines():
        with contextlib.suppress(orjson.JSONDecodeError):  # the oldest one may have been cut
            noted = orjson.loads(line)
            if noted.get("role") == "user":
                yield str(noted.get("text"))


def _about(past: PastConversation) -> str:
    """Return a conversation in words, of which none is Markdown."""
    title = re.sub("[`\x00-\x1f\x7f]", " ", past.title).strip() or past.id
    return f"`{title}`, {in_words(now_ms() - round(past.at * 1000))} ago"
