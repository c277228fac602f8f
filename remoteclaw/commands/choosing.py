"""Commands that choose who answers, and what is shown of it: /model, /agent, /quiet, /verbose."""

from pydantic import ValidationError

from remoteclaw.commands.asked import Answer, Asked
from remoteclaw.config.model import AgentConfig
from remoteclaw.runtimes import create_cli_runtime, detect_runtime

__all__ = ["agent", "model", "quiet", "verbose"]

#: The name that takes a session's own model away.
DEFAULT = "default"


async def model(asked: Asked) -> Answer:
    """Show the session's model, or choose another one for it."""
    view = await asked.fleet.sessions.view(asked.session.sid)
    own, configured = view and view.model, asked.agent.model
    theirs = (
        f"`{configured}`, the model of {asked.session.agent}"
        if configured
        else (f"the one that {asked.runtime} chooses")
    )
    if not (wanted := asked.rest):
        said = f"`{own}`, chosen for this session" if own else theirs
        return Answer(f"The model is {said}. `/model NAME` chooses another one.")
    if not asked.is_owner:
        return Answer("The model is chosen by owners of this installation.")
    if wanted == DEFAULT:
        await asked.fleet.sessions.choose_model(asked.session, None)
        return Answer(f"From the next turn on, the model is {theirs}.")
    if not create_cli_runtime(asked.runtime).capabilities.chooses_model:
        return Answer(
            f"The agent {asked.session.agent} is run by {asked.runtime}, which has no "
            "models to choose from."
        )
    try:
        AgentConfig(model=wanted)
    except ValidationError:
        return Answer("A model's name has no spaces, and no - at its beginning.")
    await asked.fleet.sessions.choose_model(asked.session, wanted)
    return Answer(
        f"From the next turn on, the model is `{wanted}`, in new conversations too. "
        f"`/model {DEFAULT}` goes back to {theirs}."
    )


async def agent(asked: Asked) -> Answer:
    """List the agents, or have the chat be with another one."""
    here = asked.session.agent
    if not (wanted := asked.rest):
        lines = [
            f"- `{name}`{', who answers here' if name == here else ''}: "
            f"{settings.runtime or detect_runtime()[0]} "
            f"in `{asked.home.workspace_path(name, settings)}`"
            for name, settings in asked.config.agents.items()
        ]
        return Answer("\n".join(lines))
    name, _ = asked.config.agent(wanted)
    if asked.chat_with is None:
        return Answer(f"This chat is with {here}: a terminal's chat can be moved to another agent.")
    if name == here:
        return Answer(f"This chat is with {name} already.")
    return Answer(f"This is the chat with {name} now.", session=asked.chat_with(name))


async def quiet(asked: Asked) -> Answer:
    """Show answers alone, and typing."""
    await asked.fleet.sessions.quieten(asked.session, is_quiet=True)
    return Answer(
        "From the next turn on, only answers are shown here, and no tools and plans. "
        "`/verbose` shows them again."
    )


async def verbose(asked: Asked) -> Answer:
    """Show what goes on while a turn runs."""
    await asked.fleet.sessions.quieten(asked.session, is_quiet=False)
    return Answer("From the next turn on, tools, plans and answers in the making are shown here.")
