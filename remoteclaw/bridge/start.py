"""The start of a turn's agent: steps 1 to 5 of the bridge.

They look up the conversation, complete the agent's spec with hooks and prompts, and get an agent: a
warm one that matches the spec, or a new one.
"""

import asyncio
import logging
from dataclasses import replace

from remoteclaw.bridge.hooks import BeforeRuntimeSpawn, SessionResumed, SpawnOverride
from remoteclaw.bridge.prompt import build_system_prompt
from remoteclaw.bridge.run import Run
from remoteclaw.bridge.scrubber import Scrubber, secrets_of_agent
from remoteclaw.bridge.side_effects import SideEffectsReader
from remoteclaw.errors import AgentUnavailable, ErrorCategory, Overdue
from remoteclaw.protocols import FORK_OF, UNTOLD, AgentProcess, AgentSpec

log = logging.getLogger(__name__)


# -- 1: session lookup -------------------------------------------------------------------------


async def look_up_session(run: Run) -> None:
    """Look up the conversation that the agent continues."""
    name, session_map = run.map_name, run.setup.session_map
    run.known = None if run.begins_anew else await session_map.get(name)
    run.spec = replace(run.spec, note=run.known.note if run.known else "")
    run.begins_conversation = run.known is None
    known_id = run.known.id if run.known else None
    is_fork = known_id is not None and known_id.startswith(FORK_OF)
    run.session_id = None if is_fork else known_id
    run.fork_of = known_id.removeprefix(FORK_OF) if known_id and is_fork else None


# -- 2: hooks before the spawn -----------------------------------------------------------------


async def run_hooks_before_spawn(run: Run) -> None:
    """Let hooks change the directory and the environment; the last hook takes precedence."""
    setup, before = run.setup, run.spec.workspace
    event = BeforeRuntimeSpawn(run.turn.session, setup.runtime.name, before)
    for override in await setup.hooks.run("before_runtime_spawn", event):
        if not isinstance(override, SpawnOverride):
            log.error("a before_runtime_spawn hook returned %s", type(override).__name__)
            continue
        workspace = override.workspace or run.spec.workspace
        env = {**run.spec.env, **override.env}
        run.spec = replace(run.spec, workspace=workspace, env=env)
    if run.spec.workspace != before:
        await look_up_session(run)


# -- 3: system prompt --------------------------------------------------------------------------


async def build_system_prompts(run: Run, *, is_public: bool = False) -> None:
    """Build the system prompts of an agent with RemoteClaw's tools, and of one without them.

    If they are `is_public`, they have nothing of the agent's identity.
    """
    setup = run.setup
    await _choose_identity(run)
    with_tools, without_tools = (
        build_system_prompt(
            setup.launch_of or run.turn.session,
            workspace=run.spec.workspace,
            runtime=setup.runtime.name,
            zone=setup.zone,
            channel=setup.channel,
            has_files=setup.attachments is not None,
            sends_files=run.spec.permissions != "deny",
            tools=tools,
            identity=None if is_public else run.identity,
        )
        for tools in (run.spec.tools or (), ())
    )
    run.spec = replace(run.spec, system_prompt=with_tools, plain_prompt=without_tools)


async def _choose_identity(run: Run) -> None:
    """Choose the identity that the conversation has, else the current one."""
    if (source := run.setup.identity) is None:
        return
    stored = run.known.identity if run.known else ""
    digest = stored.removeprefix(UNTOLD)
    identity = await source.find(digest) if digest else None
    if identity is not None:
        run.identity, run.identity_mark, run.is_identity_kept = identity, stored, True
    else:
        messages = [entry.message for entry in run.turn.entries]
        run.identity = await source.current(messages)
        run.identity_mark = f"{UNTOLD}{run.identity.digest}"
    run.tells_memory = run.identity_mark.startswith(UNTOLD)


# -- 4: MCP servers and run directory ----------------------------------------------------------


def collect_secrets(run: Run) -> None:
    """Collect the secrets to hide, those of the agent's environment and MCP servers included.

    Step 5 makes the run directory, together with the agent process.
    """
    of_agent = secrets_of_agent(run.spec.env, run.spec.mcp_servers)
    run.scrubber = Scrubber((*run.setup.secrets, *of_agent))


# -- 5: agent ----------------------------------------------------------------------------------


async def start_agent(run: Run) -> bool:
    """Get an agent; False if a stop or `start_s` has ended the start.

    A new agent can take a minute to start if one of its MCP servers hangs.
    """
    start_s = run.setup.limits.start_s
    starting = asyncio.create_task(_obtain_agent(run))
    stop = asyncio.create_task(run.abort.wait())
    try:
        done, _ = await asyncio.wait(
            (starting, stop), timeout=start_s, return_when=asyncio.FIRST_COMPLETED
        )
    finally:
        stop.cancel()
        # On a stop, timeout or cancellation, drop the agent that is still starting.
        if not starting.done():
            starting.cancel()
            await asyncio.wait((starting,))
    if starting.cancelled():
        await run.setup.agents.discard()
        if not done:
            run.overdue = Overdue("start_s", start_s)
        return False
    run.agent = await starting
    return not run.abort.is_set()


async def _obtain_agent(run: Run) -> AgentProcess:
    """Get a matching agent, warm or new; store its conversation's id before it is asked."""
    setup = run.setup
    agents = setup.agents
    agent = await agents.obtain(
        with_program(run),
        session_id=run.session_id or run.fork_of,
        fork=run.fork_of is not None,
    )
    if run.session_id and agents.is_new and agent.session_id == run.session_id:
        resumed = SessionResumed(run.turn.session, setup.runtime.name, run.session_id)
        await setup.hooks.run("session_resumed", resumed)
    run.side_effects = SideEffectsReader(agents.run_dir)
    # A fork's id is stored only after its first turn, because the CLI may not save it earlier.
    is_tried = run.fork_of is not None or run.begins_anew
    if agent.session_id and agent.session_id != run.session_id and not is_tried:
        await run.remember(agent.session_id, agent.note)
        run.session_id, run.spec = agent.session_id, replace(run.spec, note=agent.note)
    if run.callbacks.on_phase:
        await run.callbacks.on_phase("spawned", agents.description)
    return agent


async def warm_up_agent(run: Run) -> None:
    """Begin to get the agent. Raises `AgentUnavailable` if its program is not found."""
    await run.setup.agents.warm_up(
        with_program(run),
        session_id=run.session_id or run.fork_of,
        fork=run.fork_of is not None,
    )


def with_program(run: Run) -> AgentSpec:
    """Return the spec with its program's path. Raises `AgentUnavailable` if it is not found."""
    command, runtime = run.spec.command, run.setup.runtime
    program = runtime.find(command[0], run.spec.env.get("PATH"))
    if program is None:
        install = runtime.remedies.install if command == runtime.command else ""
        install = f" (`{install}`)" if install else ""
        raise AgentUnavailable(
            f"{command[0]!r} was not found: install it{install}, or correct the agent's command.",
            category=ErrorCategory.NOT_INSTALLED,
        )
    return replace(run.spec, command=(program, *command[1:]))
