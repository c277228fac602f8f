"""Messages that may be commands: runs a command, and says what the agent gets of the message."""

from collections.abc import Callable
from dataclasses import dataclass

from remoteclaw.commands import allow_deny
from remoteclaw.commands.call import CommandCall, CommandReply
from remoteclaw.commands.parse import parse, unescaped
from remoteclaw.commands.table import ALIASES, COMMANDS, FOR_OWNERS, NOT_YOURS
from remoteclaw.errors import RedisRefused, RedisUnavailable, RemoteClawError
from remoteclaw.runtimes import create_cli_runtime


async def run_command(name: str, call: CommandCall) -> CommandReply | None:
    """Run the command `name` and return its reply.

    Return None if the message is text for the agent: an unknown command of a person who is no
    owner. Raises `RedisUnavailable` and `RedisRefused`; any other error becomes the reply.
    """
    spec = COMMANDS.get(ALIASES.get(name, name))
    if spec is None:
        return await _forward_to_cli(name, call) if call.is_owner else None
    if spec.scope == "owner" and not call.is_owner:
        return CommandReply(f"/{spec.name} is for owners of this installation.")
    try:
        return await spec.handler(call)
    except (RedisUnavailable, RedisRefused):
        raise
    except RemoteClawError as error:
        return CommandReply(str(error))


@dataclass(frozen=True, slots=True)
class MessageOutcome:
    """The outcome of a message that may have been a command."""

    reply: CommandReply | None
    """The reply to the command; None if the message was none."""
    text: str
    """The text to send to the agent; empty if there is none."""
    is_command: bool | None
    """Whether `text` is a command of the agent's CLI; None if the queue decides that."""


async def handle_message(
    text: str, call_of: Callable[[str], CommandCall], *, has_files: bool
) -> MessageOutcome:
    """Run the message `text` if it is a command or answers a request.

    `call_of` returns the call for a command's arguments. Raises `RedisUnavailable` and
    `RedisRefused`.
    """
    command = parse(text)
    if has_files:  # a caption may begin with /new, which the queue handles
        if not command or ALIASES.get(command.name, command.name) not in ("new", "stop"):
            return MessageOutcome(None, unescaped(text), False)
        if call_of(command.arguments).may_end_all:
            with_slash = f"/{command.name} {command.arguments}".strip()
            return MessageOutcome(None, with_slash, None)
        refusal = NOT_YOURS if command.name == "stop" else FOR_OWNERS
        return MessageOutcome(CommandReply(refusal), text, False)
    if command:
        reply = await run_command(command.name, call_of(command.arguments))
    else:
        reply = await allow_deny.answer_by_message(text.strip(), call_of(""))
    if reply is None:
        return MessageOutcome(None, unescaped(text), False)
    return MessageOutcome(reply, reply.forward, reply.is_for_cli)


async def _forward_to_cli(name: str, call: CommandCall) -> CommandReply:
    """Forward an owner's unknown command to the agent's CLI, if the CLI has commands."""
    if create_cli_runtime(call.runtime).capabilities.takes_commands:
        return CommandReply("", forward=f"/{name} {call.arguments}".strip(), is_for_cli=True)
    return CommandReply(
        f"There is no command /{name}, and {call.runtime} has none of its own here. /help lists "
        f"the commands; //{name} sends it to the agent as text."
    )
