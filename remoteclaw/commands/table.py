"""The table of chat commands, with the handlers of the simplest ones."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from remoteclaw.commands import allow_deny, cron, diff, memory, pair, resume, settings, status
from remoteclaw.commands.call import CommandCall, CommandReply
from remoteclaw.runtimes import COMPACT, create_cli_runtime

Scope = Literal["everyone", "owner"]


@dataclass(frozen=True, slots=True)
class CommandSpec:
    """One command."""

    name: str
    help: str
    """A description on one line."""
    handler: Callable[[CommandCall], Awaitable[CommandReply]]
    usage: str = ""
    """The arguments, as the help shows them."""
    scope: Scope = "everyone"
    """The people who may use the command."""
    is_everywhere: bool = True
    """Whether a chat on a platform has it, which is one conversation."""


#: The refusals of commands that would end what belongs to others (`[channels.NAME] commands`).
NOT_YOURS = (
    "What runs here answers somebody else: an owner can stop it, or the person whose message it is."
)
NO_SUMMARIES = (
    "{runtime} can't summarize a conversation when it is asked: `/new` begins an empty one."
)
NO_KEEPING = "{runtime} decides itself what its summary keeps."
FOR_OWNERS = "This conversation belongs to all people here, so only owners can begin a new one."


async def _help(call: CommandCall) -> CommandReply:
    has_several = call.chat_with is not None
    return CommandReply(help_text(is_owner=call.is_owner, has_several=has_several))


async def _stop(call: CommandCall) -> CommandReply:
    sessions, unsent = call.fleet.sessions, 0
    if not call.may_end_all:
        count = await sessions.stop_own(call.session, call.sender, call=call.id)
    else:
        unsent = await call.fleet.replies.unsent(call.session)
        count = await sessions.stop(call.session.sid, call=call.id)
    texts = [NOT_YOURS] if count is None else []
    if call.withdrawn:
        were, them = ("message was", "it") if call.withdrawn == 1 else ("messages were", "them")
        texts.append(f"{call.withdrawn} {were} withdrawn before the agent got {them}.")
    if unsent:
        messages = "message" if unsent == 1 else "messages"
        texts.append(f"I drop what is not sent yet of my answer: {unsent} {messages}.")
    if not texts and not count:
        texts.append("Nothing runs here.")
    # Each stopped message gets a reply of its own that says so.
    return CommandReply(" ".join(texts))


async def _new(call: CommandCall) -> CommandReply:
    if call.may_end_all:
        await call.fleet.inbound.end_conversation(call.session, "new", call=call.id)
    elif await call.fleet.sessions.exists(call.session):
        return CommandReply(FOR_OWNERS)
    return CommandReply("A new conversation.", forward=call.arguments)


async def _take(call: CommandCall) -> CommandReply:
    if await call.fleet.terminals.stop(call.session.sid):
        return CommandReply("The terminal is ended, and what waits is answered.")
    return CommandReply("No terminal is open here.")


async def _compact(call: CommandCall) -> CommandReply:
    """Have the agent's CLI summarize the conversation, in a turn of its own."""
    capabilities = create_cli_runtime(call.runtime).capabilities
    is_own = call.runtime == "acp"  # some of these agents have such a command
    keeps = capabilities.keeps_on_request or is_own
    if capabilities.compacts or is_own:
        text = "" if keeps or not call.arguments else NO_KEEPING.format(runtime=call.runtime)
        command = f"{COMPACT} {call.arguments if keeps else ''}".strip()
        return CommandReply(text, forward=command, is_for_cli=True)
    return CommandReply(NO_SUMMARIES.format(runtime=call.runtime))


COMMANDS: Mapping[str, CommandSpec] = {
    spec.name: spec
    for spec in (
        CommandSpec("help", "Show the commands.", _help),
        CommandSpec(
            "stop", "Stop the running turn; drop waiting messages and what is not sent.", _stop
        ),
        CommandSpec(
            "new", "Begin a new conversation; the running turn is stopped.", _new, "[TEXT]"
        ),
        CommandSpec(
            "take",
            "End the terminal that is open here; the messages that waited for it are answered.",
            _take,
            scope="owner",
        ),
        CommandSpec(
            "compact",
            "Summarize the conversation so far, which makes room for more; say what is to be kept.",
            _compact,
            "[WHAT TO KEEP]",
            scope="owner",
        ),
        CommandSpec("status", "Show what the session does now.", status.status),
        CommandSpec(
            "queue",
            "Show how many messages wait, or change how they wait.",
            status.queue,
            "[MODE]",
        ),
        CommandSpec(
            "allow",
            "Allow what the agent asks for; `always`: in this conversation; `edits`: a plan with "
            "its edits; `none` revokes that.",
            allow_deny.allow,
            "[ID] [always|edits|none]",
        ),
        CommandSpec("deny", "Deny what the agent asks for.", allow_deny.deny, "[ID] [WHY]"),
        CommandSpec(
            "answer",
            "Answer a question of the agent, in your own words or with a number.",
            allow_deny.answer,
            "[ID] TEXT",
        ),
        CommandSpec("model", "Show the model, or choose another one.", settings.model, "[NAME]"),
        CommandSpec("agent", "List the agents, or talk to another one.", settings.agent, "[NAME]"),
        CommandSpec(
            "switch",
            "List your conversations, or change to another one.",
            settings.switch,
            "[NAME|new]",
            is_everywhere=False,
        ),
        CommandSpec(
            "project",
            "List the projects, or have this chat work in one.",
            settings.project,
            "[NAME]",
            scope="owner",
        ),
        CommandSpec("quiet", "Show only answers, without tools and plans.", settings.quiet),
        CommandSpec("verbose", "Show tools and plans again while a turn runs.", settings.verbose),
        CommandSpec(
            "diff",
            "Show the changes in the workspace since git's HEAD.",
            diff.diff,
            scope="owner",
        ),
        CommandSpec(
            "resume",
            "List earlier conversations of this workspace, or continue a copy of one.",
            resume.resume,
            "[NUMBER]",
            scope="owner",
        ),
        CommandSpec(
            "memory",
            "Show what the agent remembers, or undo the last change of it.",
            memory.memory,
            "[undo]",
            scope="owner",
        ),
        CommandSpec(
            "cron",
            "List scheduled messages, or add one: `/cron add every weekday at 9: Report news`.",
            cron.cron,
            "[add WHEN: MESSAGE | pause|resume|run|remove JOB]",
            scope="owner",
        ),
        CommandSpec(
            "pair",
            "Approve a pairing code, or give this group access and an agent; else list pairing "
            "requests.",
            pair.pair,
            "[CODE | here as AGENT]",
            scope="owner",
        ),
        CommandSpec("sessions", "List the newest sessions.", status.sessions, scope="owner"),
        CommandSpec("usage", "Show tokens, time, cost and budgets.", status.usage),
        CommandSpec("whoami", "Show who you are here, and what you may do.", status.whoami),
    )
}


#: Other names of commands.
ALIASES = {"clear": "new", "reset": "new", "start": "help"}


def help_text(*, is_owner: bool, has_several: bool) -> str:
    """Return the help: the commands that a person may use, with their descriptions.

    `has_several` tells that the person has several conversations in this chat.
    """
    lines = [
        f"- `{' '.join(filter(None, (f'/{spec.name}', spec.usage)))}` — {spec.help}"
        for spec in COMMANDS.values()
        if (spec.scope == "everyone" or is_owner) and (spec.is_everywhere or has_several)
    ]
    cli = "Other commands are sent to the agent's CLI. " if is_owner else ""
    escape = "To send a text that begins with a slash to the agent, write two slashes."
    return "\n".join([*lines, "", f"{cli}{escape}"])
