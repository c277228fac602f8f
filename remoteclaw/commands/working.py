"""Commands that act on a session's work: /stop, /new, and those of agents' own CLIs."""

from remoteclaw.commands.asked import Answer, Asked
from remoteclaw.runtimes import create_cli_runtime


async def stop(asked: Asked) -> Answer:
    """Stop what the session does, and drop what it has waiting."""
    count = await asked.fleet.sessions.stop(asked.session.sid, call=asked.id)
    # What is stopped says so itself, in its place.
    return Answer("" if count else "Nothing runs here.")


async def new(asked: Asked) -> Answer:
    """End the conversation: what runs is stopped, and the next message begins another one."""
    await asked.fleet.inbound.end_conversation(asked.session, "new", call=asked.id)
    return Answer("A new conversation.", forward=asked.rest)


async def take(asked: Asked) -> Answer:
    """End the terminal that is open in this session, so that the chat goes on."""
    if await asked.fleet.terminals.stop(asked.session.sid):
        return Answer("The terminal is ended, and what waits is answered.")
    return Answer("No terminal is open here.")


async def of_cli(name: str, asked: Asked) -> Answer:
    """Have an owner's command that is none of ours taken by the agent's CLI, as its own."""
    if create_cli_runtime(asked.runtime).capabilities.takes_commands:
        return Answer("", forward=f"/{name} {asked.rest}".strip(), is_for_cli=True)
    return Answer(
        f"There is no command /{name}, and {asked.runtime} has none of its own here. /help shows "
        f"those there are; //{name} sends the words."
    )
