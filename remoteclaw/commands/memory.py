"""The command /memory: shows the agent's memory, or undoes its last change."""

from remoteclaw.commands.call import CommandCall, CommandReply
from remoteclaw.config.identity import MAX_MEMORY_BYTES
from remoteclaw.host.terminal import fenced

EMPTY = "The memory of {agent} is empty. Ask it to remember something."
NONE = (
    "{agent} has no memory: with `memory = true` in [agents.{agent}], it keeps what you ask it to "
    "remember."
)
UNDONE = "Undone: {what}. `/memory` shows what is left."
UNDONE_HERE = "The last change of the memory is undone."
NOT_HERE = "All people here would read the memory: send /memory in a direct chat."
USAGE = "`/memory` shows the memory, and `/memory undo` takes back its last change."


async def memory(call: CommandCall) -> CommandReply:
    """Show the memory of the session's agent, or undo its last change."""
    agent, settings = call.config.agent(call.session.agent)
    memories, wanted = call.fleet.memories, call.arguments.strip().lower()
    if wanted == "undo":
        change = await memories.undo(call.home, agent, call=f"{call.session.sid} undo {call.id}")
        if change is None:
            return CommandReply("There is no change of the memory to undo.")
        if call.is_group:
            return CommandReply(UNDONE_HERE)
        return CommandReply(UNDONE.format(what=change.words))
    if wanted not in ("", "show"):
        return CommandReply(USAGE)
    if call.is_group:
        return CommandReply(NOT_HERE)
    text = (await memories.read(call.home, agent)).text
    if not text:
        return CommandReply((EMPTY if settings.memory else NONE).format(agent=agent))
    used = f"{len(text.encode()):,} of {MAX_MEMORY_BYTES:,} bytes"
    off = "" if settings.memory else f" {agent} doesn't read it: its `memory` is off."
    return CommandReply(
        f"{fenced(text)}\n\n{used}.{off} `/memory undo` takes back the last change."
    )
