"""Commands that choose who answers, where, and what is shown: /model, /agent, /project, /quiet."""

from pydantic import ValidationError

from remoteclaw.commands.call import Answer, Asked
from remoteclaw.config.model import AgentConfig
from remoteclaw.protocols import conversation_name
from remoteclaw.runtimes import create_cli_runtime, detect_runtime

#: The names that take a session's own model, and its project, away.
DEFAULT, NONE = "default", "none"
NO_PROJECTS = (
    "There are no projects: `[projects]` in the configuration names directories, such as "
    '`web = "~/code/web"`.'
)


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


async def project(asked: Asked) -> Answer:
    """List the projects, or have the session work in one."""
    view, projects = await asked.fleet.sessions.view(asked.session.sid), asked.config.projects
    bound, own = view and view.project, f"the workspace of {asked.session.agent}"
    if not (wanted := asked.rest):
        lines = [
            f"- `{name}`{', where this chat works' if name == bound else ''}: `{directory}`"
            for name, directory in projects.items()
        ]
        if not bound:
            lines += ["", f"This chat works in {own}."]
        return Answer("\n".join(lines) if projects else NO_PROJECTS)
    chosen = {name.casefold(): name for name in projects}.get(wanted.casefold())
    if wanted in projects:
        chosen = wanted
    if chosen is None and wanted.casefold() not in (NONE, "-"):
        listed = ", ".join(f"`{name}`" for name in projects)
        return Answer(f"There is no such project: there are {listed}." if projects else NO_PROJECTS)
    if chosen == bound:
        return Answer(f"This chat works in {f'`{chosen}`' if chosen else own} already.")
    await asked.fleet.sessions.bind(asked.session, chosen)
    directory = await asked.workspace()
    where = f"`{chosen}` (`{directory}`)" if chosen else f"{own} (`{directory}`)"
    told = [f"From the next turn on, this chat works in {where}, in new conversations too."]
    if not directory.is_dir():
        told.append("That directory is not on this computer.")
    if view and view.turn:
        told.append("What runs goes on where it is.")
    if view and view.session_ids:
        there = conversation_name(asked.runtime, str(directory)) in view.session_ids
        notes = ", with notes of this one" if asked.config.record.keep_ms else ""
        told.append(
            "The conversation that it had there goes on."
            if there
            else f"A new conversation begins there{notes}."
        )
    return Answer(" ".join(told))


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
