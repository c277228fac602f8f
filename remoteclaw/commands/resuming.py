"""The command /resume: the CLI's own conversations of the workspace, continued as copies."""

import asyncio
import os
import re

from remoteclaw.clock import in_words, now_ms
from remoteclaw.commands.asked import Answer, Asked
from remoteclaw.protocols import conversation_name
from remoteclaw.runtimes import create_cli_runtime
from remoteclaw.runtimes.past import PastConversation, past_conversations

__all__ = ["resume"]

#: How many are listed.
MOST = 12


async def resume(asked: Asked) -> Answer:
    """List conversations of the workspace, or continue a copy of one."""
    found = await asyncio.to_thread(_found, asked)
    if found is None:
        return Answer(
            f"{asked.runtime} has no conversations that could be continued here. What was said in "
            f"this session before: `remoteclaw sessions archive {asked.session.sid[:8]}`."
        )
    view = await asked.fleet.sessions.view(asked.session.sid)
    current = view.session_ids.values() if view else ()
    others = [each for each in found if each.id not in current][:MOST]
    if not others:
        return Answer(f"{asked.runtime} has no other conversation of this workspace.")
    if not (wanted := asked.rest):
        lines = [f"{number}. {_about(each)}" for number, each in enumerate(others, 1)]
        return Answer("\n".join([*lines, "", "`/resume NUMBER` goes on with a copy of one."]))
    if not wanted.isdecimal() or not 0 < int(wanted) <= len(others):
        return Answer(f"Choose a number from 1 to {len(others)}: /resume lists them.")
    chosen = others[int(wanted) - 1]
    workspace = str(asked.home.workspace(asked.session.agent, asked.agent))
    await asked.fleet.inbound.end_conversation(
        asked.session,
        "resume",
        call=asked.id,
        copy_of=(conversation_name(asked.runtime, workspace), chosen.id),
    )
    return Answer(f"Your next message goes on with a copy of {_about(chosen)}. It stays as it is.")


def _found(asked: Asked) -> list[PastConversation] | None:
    """Return the newest conversations; None if they can't be found, or not be copied."""
    if not create_cli_runtime(asked.runtime).capabilities.forks:
        return None
    workspace = str(asked.home.workspace_path(asked.session.agent, asked.agent))
    env = {**os.environ, **asked.agent.env}
    return past_conversations(asked.runtime, workspace, env, most=MOST + 1)


def _about(past: PastConversation) -> str:
    """Return a conversation in words, of which none is Markdown."""
    title = re.sub("[`\x00-\x1f\x7f]", " ", past.title).strip() or past.id
    return f"`{title}`, {in_words(now_ms() - round(past.at * 1000))} ago"
