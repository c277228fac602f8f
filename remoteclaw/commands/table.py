"""The table of commands: the name of each, who may use it, what it does, and its handler."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from remoteclaw.commands import allow_deny, diff, pair, resume, settings, status
from remoteclaw.commands.call import Answer, Asked
from remoteclaw.commands.parse import Command, parse, unescaped
from remoteclaw.errors import RedisRefused, RedisUnavailable, RemoteClawError
from remoteclaw.runtimes import create_cli_runtime

Scope = Literal["everyone", "owner"]


@dataclass(frozen=True, slots=True)
class CommandSpec:
    """One command."""

    name: str
    help: str
    """What it does, on one line."""
    handler: Callable[[Asked], Awaitable[Answer]]
    usage: str = ""
    """What may stand behind its name."""
    scope: Scope = "everyone"
    """Who may use it."""


async def _help(asked: Asked) -> Answer:
    return Answer(help_text(is_owner=asked.is_owner))


async def _stop(asked: Asked) -> Answer:
    count = await asked.fleet.sessions.stop(asked.session.sid, call=asked.id)
    # What is stopped says so itself, in its place.
    return Answer("" if count else "Nothing runs here.")


async def _new(asked: Asked) -> Answer:
    await asked.fleet.inbound.end_conversation(asked.session, "new", call=asked.id)
    return Answer("A new conversation.", forward=asked.rest)


async def _take(asked: Asked) -> Answer:
    if await asked.fleet.terminals.stop(asked.session.sid):
        return Answer("The terminal is ended, and what waits is answered.")
    return Answer("No terminal is open here.")


async def _of_cli(name: str, asked: Asked) -> Answer:
    """Have an owner's command that is none of ours taken by the agent's CLI, as its own."""
    if create_cli_runtime(asked.runtime).capabilities.takes_commands:
        return Answer("", forward=f"/{name} {asked.rest}".strip(), is_for_cli=True)
    return Answer(
        f"There is no command /{name}, and {asked.runtime} has none of its own here. /help shows "
        f"those there are; //{name} sends the words."
    )


COMMANDS: Mapping[str, CommandSpec] = {
    spec.name: spec
    for spec in (
        CommandSpec("help", "Show the commands.", _help),
        CommandSpec("stop", "Stop what runs, and drop what waits.", _stop),
        CommandSpec("new", "Begin a new conversation; what runs is stopped.", _new, "[TEXT]"),
        CommandSpec(
            "take",
            "End the terminal that is open here; what was written meanwhile is answered.",
            _take,
            scope="owner",
        ),
        CommandSpec("status", "Show what the session does now.", status.status),
        CommandSpec(
            "queue", "Show what waits, or change how messages wait.", status.queue, "[MODE]"
        ),
        CommandSpec(
            "allow",
            "Allow what the agent asks for; `always` in this conversation, `edits` with a plan; "
            "`none` takes that back.",
            allow_deny.allow,
            "[ID] [always|edits|none]",
        ),
        CommandSpec("deny", "Deny what the agent asks for.", allow_deny.deny, "[ID] [WHY]"),
        CommandSpec(
            "answer",
            "Answer a question of the agent's, in your own words or with a number.",
            allow_deny.in_words,
            "[ID] TEXT",
        ),
        CommandSpec("model", "Show the model, or choose another one.", settings.model, "[NAME]"),
        CommandSpec("agent", "List the agents, or talk to another one.", settings.agent, "[NAME]"),
        CommandSpec(
            "project",
            "List the projects, or have this chat work in one.",
            settings.project,
            "[NAME]",
            scope="owner",
        ),
        CommandSpec("quiet", "Show answers alone, without tools and plans.", settings.quiet),
        CommandSpec("verbose", "Show tools and plans again while a turn runs.", settings.verbose),
        CommandSpec(
            "diff",
            "Show what has changed in the workspace since git's HEAD.",
            diff.diff,
            scope="owner",
        ),
        CommandSpec(
            "resume",
            "List the CLI's conversations of this workspace, or go on with a copy of one.",
            resume.resume,
            "[NUMBER]",
            scope="owner",
        ),
        CommandSpec(
            "pair",
            "Let in who was told a code, or this group; else show who asks.",
            pair.pair,
            "[CODE]",
            scope="owner",
        ),
        CommandSpec("sessions", "List the newest sessions.", status.sessions, scope="owner"),
        CommandSpec("usage", "Show tokens, time and cost.", status.usage),
        CommandSpec("whoami", "Show who you are here, and what you may do.", status.whoami),
    )
}


#: What people write instead.
ALIASES = {"clear": "new", "reset": "new", "start": "help"}


def help_text(*, is_owner: bool) -> str:
    """Return the commands that a person may use, each with what it does."""
    lines = [
        f"- `{' '.join(filter(None, (f'/{spec.name}', spec.usage)))}` — {spec.help}"
        for spec in COMMANDS.values()
        if spec.scope == "everyone" or is_owner
    ]
    own = "Other commands are those of the agent's own CLI. " if is_owner else ""
    words = f"{own}Two slashes before a word send it to the agent with one."
    return "\n".join([*lines, "", words])


async def answer(command: Command, asked: Asked) -> Answer | None:
    """Return the answer to a command; None if it is text, as an unknown one of no owner is.

    Raises `RedisUnavailable` and `RedisRefused`; any other problem is the answer.
    """
    spec = COMMANDS.get(ALIASES.get(command.name, command.name))
    if spec is None:
        return await _of_cli(command.name, asked) if asked.is_owner else None
    if spec.scope == "owner" and not asked.is_owner:
        return Answer(f"/{spec.name} is for owners of this installation.")
    try:
        return await spec.handler(asked)
    except (RedisUnavailable, RedisRefused):
        raise
    except RemoteClawError as error:
        return Answer(str(error))


@dataclass(frozen=True, slots=True)
class Taken:
    """What comes of a message."""

    answer: Answer | None
    """The answer to its command, if it is one."""
    text: str
    """What the agent is sent; nothing if the answer is all."""
    is_command: bool | None
    """Whether that is a command for the agent's CLI; None if the queue is to look."""


async def take(text: str, asked: Callable[[str], Asked], *, has_files: bool) -> Taken:
    """Take a message, and do it if it is a command; `asked` is given what follows its name.

    Raises `RedisUnavailable` and `RedisRefused`.
    """
    if has_files:  # the caption of a file is looked at by the queue, which knows /new there
        return Taken(None, unescaped(text), None)
    if command := parse(text):
        told = await answer(command, asked(command.rest))
    else:
        told = await allow_deny.in_passing(text.strip(), asked(""))
    if told is None:
        return Taken(None, unescaped(text), False)
    return Taken(told, told.forward, told.is_for_cli)
