"""Notices behind an answer: lost files, denied tools, cancelled forms, missing MCP servers."""

from remoteclaw.bridge.conduct import Conduct, remedies_of
from remoteclaw.bridge.failures import missing_server
from remoteclaw.bridge.run import Run
from remoteclaw.messages import OWN_SERVER

#: How much of a CLI's reason for a failure a person is shown who can fix it, in characters.
MOST_REASON = 300
#: What the person is told where the agent can't know why it was denied a tool.
WAS_DENIED = "It wanted to use {tools}, which needs a permission that no person can give here."
#: What the person is told of a form that an MCP server, or the agent, wanted filled in.
FORM = "({who} asked: `{message}`. Its forms can't be answered here yet: this one was cancelled.)"
#: How much of such a sentence is said, in characters.
MOST_DENIED = 2_000


def notices_of(run: Run, conduct: Conduct) -> list[str]:
    """Return what the person can't know from the answer."""
    joined = [file for key in run.delivered.steered for file in run.given.get(key, ())]
    notices = [file.words for file in joined if file.problem]
    denials = dict.fromkeys(run.delivered.run.permission_denials)
    denied = [tool for tool in denials if tool not in conduct.people_decide]
    if denied and not run.setup.runtime.capabilities.explains_denial:
        remedies = remedies_of(run.turn.session.agent, conduct.remedies)
        words = f"({WAS_DENIED.format(tools=', '.join(denied))} {remedies}".strip()
        notices.append(run.scrubber.text(f"{words})", MOST_DENIED))
    for server, message in run.delivered.forms.items():
        name, asked = (
            run.scrubber.line(words, MOST_REASON).replace("`", "'") for words in (server, message)
        )
        who = f"The MCP server `{name}`" if name else "The agent"
        notices.append(FORM.format(who=who, message=asked))
    if run.setup.agents.is_new and run.error is None:
        notices += _missing_servers(run)
    return notices


def _missing_servers(run: Run) -> list[str]:
    if run.agent is None or not run.is_local:
        return []
    return [
        missing_server(
            run.turn.session.agent,
            run.scrubber.line(name, MOST_REASON),
            why=run.scrubber.line(why, MOST_REASON),
            runtime=run.setup.runtime.name,
        )
        for name, why in run.agent.missing_servers.items()
        if name != OWN_SERVER
    ]
