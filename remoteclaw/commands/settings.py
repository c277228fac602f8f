"""Commands that change a chat: /model, /agent, /switch, /project, /quiet and /verbose."""

import hashlib
from dataclasses import replace

from pydantic import ValidationError

from remoteclaw.commands.call import CommandCall, CommandReply
from remoteclaw.config.budgets import lacks_price
from remoteclaw.config.model import AgentConfig
from remoteclaw.protocols import conversation_name
from remoteclaw.runtimes import create_cli_runtime, detect_runtime

#: The argument of /model that resets the session's model, and that of /project for no project.
DEFAULT, NONE = "default", "none"
#: `/switch` finds a person's conversations among this many sessions with the newest messages.
MAX_LISTED = 1000
ONE_CONVERSATION = "Other conversations are opened in a terminal, with `chat`, or on the page."
SWITCH = "`/switch NAME` continues one of them, `/switch new` begins another one."
NO_CONVERSATION = "You have no such conversation: `/switch` lists them."
NO_PROJECTS = (
    "There are no projects: `[projects]` in the configuration names directories, such as "
    '`web = "~/code/web"`.'
)


async def model(call: CommandCall) -> CommandReply:
    """Show the session's model, or choose another one."""
    view = await call.fleet.sessions.view(call.session.sid)
    own, configured = view and view.model, call.agent.model
    default = (
        f"`{configured}`, the model of {call.session.agent}"
        if configured
        else (f"the one that {call.runtime} chooses")
    )
    if not (name := call.arguments):
        current = f"`{own}`, chosen for this session" if own else default
        return CommandReply(f"The model is {current}. `/model NAME` chooses another one.")
    if not call.is_owner:
        return CommandReply("Only owners of this installation can choose the model.")
    if name.lower() == DEFAULT:
        await call.fleet.sessions.choose_model(call.session, None)
        return CommandReply(f"From the next turn on, the model is {default}.")
    if not create_cli_runtime(call.runtime).capabilities.chooses_model:
        return CommandReply(
            f"The agent {call.session.agent} is run by {call.runtime}, which has no "
            "models to choose from."
        )
    try:
        AgentConfig(model=name)
    except ValidationError:
        return CommandReply("A model's name has no spaces, and no - at its beginning.")
    if lacks_price(call.config, call.session.agent, name):
        return CommandReply(
            f"A budget in dollars limits {call.session.agent}, and `{name}` has no price: add it "
            "to [prices] in the configuration first."
        )
    await call.fleet.sessions.choose_model(call.session, name)
    return CommandReply(
        f"From the next turn on, the model is `{name}`, in new conversations too. "
        f"`/model {DEFAULT}` goes back to {default}."
    )


async def agent(call: CommandCall) -> CommandReply:
    """List the agents, or switch the chat to another one."""
    current = call.session.agent
    if not (argument := call.arguments):
        lines = [
            f"- `{name}`{', who answers here' if name == current else ''}: "
            f"{settings.runtime or detect_runtime()[0]} "
            f"in `{call.home.workspace_path(name, settings)}`"
            for name, settings in call.config.agents.items()
        ]
        return CommandReply("\n".join(lines))
    name, _ = call.config.agent(argument)
    if call.chat_with is None and call.is_group and call.is_owner and name != current:
        return CommandReply(f"This group is with {current}: `/pair as {name}` gives it to {name}.")
    if call.chat_with is None:
        return CommandReply(f"This chat is with {current}. {ONE_CONVERSATION}")
    if name == current:
        return CommandReply(f"This is the chat with {name} already.")
    return CommandReply(f"This is the chat with {name} now.", session=await call.chat_with(name))


async def switch(call: CommandCall) -> CommandReply:
    """List the sender's conversations, or change to another one."""
    own = replace(call.session, agent="", thread=None)
    views = [
        view
        for view in await call.fleet.sessions.list(limit=MAX_LISTED)
        if replace(view.key, agent="", thread=None) == own and view.key.agent in call.config.agents
    ]
    if not (argument := call.arguments):
        names = [f"- {view.name or view.sid[:8]} ({view.key.agent})" for view in views]
        return CommandReply("\n".join([*names, "", SWITCH]))
    if call.chat_with is None:
        return CommandReply(ONE_CONVERSATION)
    if argument.lower() == "new":
        digest = hashlib.sha256(call.id.encode()).hexdigest()[:12]
        new = replace(call.session, thread=f"{call.session.agent}.{digest}")
        return CommandReply("This is a new conversation.", session=new)
    for view in views:
        if argument == view.name or view.sid.startswith(argument):
            return CommandReply(f"This is {view.name or view.sid[:8]}.", session=view.key)
    return CommandReply(NO_CONVERSATION)


async def project(call: CommandCall) -> CommandReply:
    """List the projects, or have the session work in one."""
    view, projects = await call.fleet.sessions.view(call.session.sid), call.config.projects
    current, own = view and view.project, f"the workspace of {call.session.agent}"
    if not (argument := call.arguments):
        lines = [
            f"- `{name}`{', where this chat works' if name == current else ''}: `{directory}`"
            for name, directory in projects.items()
        ]
        if not current:
            lines += ["", f"This chat works in {own}."]
        return CommandReply("\n".join(lines) if projects else NO_PROJECTS)
    chosen = {name.casefold(): name for name in projects}.get(argument.casefold())
    if argument in projects:
        chosen = argument
    if chosen is None and argument.casefold() not in (NONE, "-"):
        listed = ", ".join(f"`{name}`" for name in projects)
        return CommandReply(
            f"There is no such project: there are {listed}." if projects else NO_PROJECTS
        )
    if chosen == current:
        return CommandReply(f"This chat works in {f'`{chosen}`' if chosen else own} already.")
    await call.fleet.sessions.bind(call.session, chosen)
    directory = await call.workspace()
    where = f"`{chosen}` (`{directory}`)" if chosen else f"{own} (`{directory}`)"
    sentences = [f"From the next turn on, this chat works in {where}, in new conversations too."]
    if not directory.is_dir():
        sentences.append("That directory is not on this computer.")
    if view and view.turn:
        sentences.append("The running turn stays where it is.")
    if view and view.session_ids:
        name = conversation_name(call.session.agent, call.runtime, str(directory))
        notes = ", with notes of this one" if call.config.record.keep_ms else ""
        sentences.append(
            "The conversation that it had there continues."
            if name in view.session_ids
            else f"A new conversation begins there{notes}."
        )
    return CommandReply(" ".join(sentences))


async def quiet(call: CommandCall) -> CommandReply:
    """Show only answers and typing in the chat."""
    await call.fleet.sessions.quieten(call.session, is_quiet=True)
    return CommandReply(
        "From the next turn on, only answers are shown here, without tools and plans. "
        "`/verbose` shows them again."
    )


async def verbose(call: CommandCall) -> CommandReply:
    """Show tools, plans and partial answers in the chat while a turn runs."""
    await call.fleet.sessions.quieten(call.session, is_quiet=False)
    return CommandReply("From the next turn on, tools, plans and partial answers are shown here.")
