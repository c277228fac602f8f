"""`ChannelBridge.handle()`: one turn, in the ten steps of the channel bridge, a method each."""

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypedDict

from remoteclaw.bridge.activity import label_of, shown_of_tools
from remoteclaw.bridge.asides import Aside, Running, build_question, read_verdict
from remoteclaw.bridge.attachments import GivenFile, TurnFiles, left_out
from remoteclaw.bridge.conduct import Conduct, remedies_of
from remoteclaw.bridge.delivery import Delivered, DeliveryAdapter, Listeners
from remoteclaw.bridge.failures import (
    error_of,
    failure_words,
    is_fatal_to_conversation,
    missing_server,
    remedy_of,
)
from remoteclaw.bridge.hooks import (
    AfterRuntimeExit,
    AgentEnd,
    BeforeRuntimeSpawn,
    Hooks,
    SessionResumed,
    SpawnOverride,
)
from remoteclaw.bridge.outgoing import Outgoing
from remoteclaw.bridge.pace import Limits, Pace
from remoteclaw.bridge.prompt import build_system_prompt
from remoteclaw.bridge.scrubber import Scrubber, secrets_of_agent
from remoteclaw.bridge.side_effects import SideEffectsReader, repeats_of, side_effects_of
from remoteclaw.bridge.turn_prompt import build_turn_prompt
from remoteclaw.bridge.wanted import as_shown
from remoteclaw.bridge.work import work_of
from remoteclaw.clock import now_ms
from remoteclaw.config.home import Home
from remoteclaw.config.model import ChannelConfig
from remoteclaw.errors import AgentUnavailable, AsideFailed, ErrorCategory, Overdue, RemoteClawError
from remoteclaw.events import AgentRunResult, ErrorEvent, PermissionEvent, ToolUseEvent
from remoteclaw.host.logs import frames_of
from remoteclaw.messages import (
    OWN_SERVER,
    AgentDeliveryResult,
    ChannelMessage,
    Entry,
    Image,
    McpSideEffects,
    ReplyPayload,
    SessionKey,
    Turn,
)
from remoteclaw.profiles import profile_of
from remoteclaw.protocols import (
    FORK_OF,
    AgentProcess,
    Agents,
    AgentSpec,
    AttachmentStore,
    BridgeCallbacks,
    Denials,
    Effects,
    History,
    Newcomers,
    Runtime,
    SessionMap,
    Working,
    conversation_name,
)

__all__ = ["ChannelBridge", "Prepared"]

#: How much of an answer hooks are given, in characters.
HOOK_OUTPUT = 64_000

#: How much of a CLI's reason for a failure a person is shown who can mend it, in characters.
MOST_REASON = 300

#: What the person is told where the agent can't know why it was denied a tool.
WAS_DENIED = "It wanted to use {tools}, which needs a permission that no person can give here."
#: What the person is told of a form that an MCP server, or the agent, wanted filled in.
FORM = "({who} asked: `{message}`. Its forms can't be answered here yet: this one was cancelled.)"
#: How much of such a sentence is said, in characters.
MOST_DENIED = 2_000

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Run:
    """The state of one turn, which its steps share."""

    turn: Turn
    spec: AgentSpec
    """The bridge's template of the agent, completed by steps 1 to 3; step 5 updates its note."""
    delivery: DeliveryAdapter
    callbacks: BridgeCallbacks
    messages: dict[str, ChannelMessage]
    """The messages that the agent was shown, by entry."""
    abort: asyncio.Event = field(default_factory=asyncio.Event)
    newcomers: Newcomers | None = None
    history: History | None = None
    effects: Effects | None = None
    denials: Denials | None = None
    working: Working | None = None
    beside: Effects | None = None
    used_s: float = 0.0
    started: float = field(default_factory=time.monotonic)
    session_id: str | None = None
    """The CLI's own id of the conversation; None if the conversation has none yet."""
    fork_of: str | None = None
    """The id of the conversation of which this one begins as a copy."""
    begins_conversation: bool = False
    """Whether the agent begins a conversation with this turn."""
    scrubber: Scrubber = field(default_factory=Scrubber)
    """Hides what is secret for the turn's agent."""
    agent: AgentProcess | None = None
    side_effects: SideEffectsReader | None = None
    delivered: Delivered = field(default_factory=Delivered)
    result: AgentRunResult = field(default_factory=AgentRunResult)
    error: ErrorEvent | None = None
    reason: str = ""
    """The error's, for a person who can mend it."""
    overdue: Overdue | None = None
    """The limit that the turn has passed."""
    given: dict[str, list[GivenFile]] = field(default_factory=dict)
    """The files of messages that joined the turn, by entry."""
    tool_effects: McpSideEffects = field(default_factory=McpSideEffects)
    repeated_by_tool: frozenset[int] = frozenset()
    """The indexes of answer messages that a tool has sent to the same chat already."""


class _Conversation(TypedDict):
    """With which conversation an agent goes on (`Agents.obtain`)."""

    session_id: str | None
    fork: bool


@dataclass(frozen=True, slots=True)
class Prepared:
    """What a program of a conversation is to be started with."""

    spec: AgentSpec
    root: str
    """The agent's workspace, below which it works."""
    session_id: str | None
    """The CLI's own id of the conversation; None if it has none yet."""
    name: str
    """The conversation's name in the session map."""
    is_fork: bool
    """Whether the conversation is to begin as a copy of another one."""


class ChannelBridge:
    """Takes a turn through an agent and returns what there is to deliver.

    It never repeats a turn: it reports a failure's category, and its caller decides.
    """

    def __init__(
        self,
        spec: AgentSpec,
        *,
        runtime: Runtime,
        agents: Agents,
        session_map: SessionMap,
        channel: ChannelConfig | None = None,
        zone: str | None = None,
        hooks: Hooks | None = None,
        attachments: AttachmentStore | None = None,
        limits: Limits | None = None,
        secrets: Collection[str] = (),
        home: Home | None = None,
        launch_of: SessionKey | None = None,
    ) -> None:
        """`spec` is the template of the agent: the bridge adds the prompts and finds the program.

        `channel` is the channel's configuration, and `zone` the agent's IANA time zone.
        `attachments` keeps the files that come with messages and answers; without it there are
        none. `secrets` are values to hide, in addition to those of the agent's environment and
        of its MCP servers. `home` is the state directory, from which the agent
        sends no files; by default this user's. `launch_of` is the session that agents are
        launched like: a branch's have the prompt of the conversation that it is a copy of.
        """
        self._spec = spec
        self._runtime = runtime
        self._agents = agents
        self._session_map = session_map
        self._channel = channel or ChannelConfig()
        self._zone = zone
        self._hooks = hooks or Hooks()
        self._attachments = attachments
        self._limits = limits or Limits()
        self._secrets = secrets
        self._home = home or Home.default()
        self._launch_of = launch_of
        self._ending: set[asyncio.Task[None]] = set()
        """Hooks of turns that are over."""
        self._asked: AgentProcess | None = None
        """The agent of the turn that runs, or ran last."""

    @property
    def can_steer(self) -> bool:
        """Whether the agent takes up messages while it works."""
        return self._runtime.capabilities.steers

    @property
    def asides(self) -> Literal["", "copy", "notes"]:
        """The way in which the agent answers beside its turn; empty if it can't."""
        return self._runtime.capabilities.asides

    @property
    def explains_denial(self) -> bool:
        """Whether the agent hears the reason of a denial with it."""
        return self._runtime.capabilities.explains_denial

    async def handle(
        self,
        message: Turn | ChannelMessage,
        callbacks: BridgeCallbacks | None = None,
        abort: asyncio.Event | None = None,
        *,
        first_index: int = 0,
        newcomers: Newcomers | None = None,
        history: History | None = None,
        effects: Effects | None = None,
        denials: Denials | None = None,
        working: Working | None = None,
        beside: Effects | None = None,
        used_s: float = 0.0,
        model: str | None = None,
        workspace: str | None = None,
    ) -> AgentDeliveryResult:
        """Run one turn to its end; failures are in the result, not raised.

        Setting `abort` stops it. An agent without a conversation is told what `history` returns.
        What `newcomers` yields is given to the agent while it works; the result names those that it
        took up. `effects` returns what the turn's tools did, `denials` the reasons that it has
        yet to hear, `working` what works for the session, and `beside` what was said in the chat
        beside its turns. `used_s` is how much of the turn's time limit earlier tries have used, in
        seconds. `model` is asked for instead of the agent's, which works in `workspace` instead of
        its own.
        The payloads are numbered from `first_index`; those that a callback took are marked
        as delivered.
        """
        turn = message if isinstance(message, Turn) else _turn_of(message)
        run = self._new_run(turn, callbacks or BridgeCallbacks(), first_index)
        run.abort = abort or run.abort
        workspace = workspace or run.spec.workspace
        run.spec = replace(run.spec, model=model or run.spec.model, workspace=workspace)
        run.newcomers, run.history, run.effects, run.used_s = newcomers, history, effects, used_s
        run.denials, run.working, run.beside = denials, working, beside
        self._asked = None

        await self._look_up_session(run)  # 1
        await self._run_hooks_before_spawn(run)  # 2
        self._build_system_prompt(run)  # 3
        self._collect_secrets(run)  # 4
        async with self._agent_failures(run):
            if await self._start_agent(run):  # 5
                await self._ask_and_deliver(run)  # 6
        await self._classify_error(run)  # 7
        await self._collect_side_effects(run)  # 8
        await self._update_session(run)  # 9
        self._begin_exit_hooks(run)  # 10
        return _result_of(run)

    async def warm_up(
        self, turn: Turn, *, model: str | None = None, workspace: str | None = None
    ) -> None:
        """Begin to start the agent of a turn that is about to come: steps 1 to 5, without step 2.

        Nothing is stored and nothing raised: the turn does it again, with the agent that is there.
        Where a hook may choose another directory, only the turn starts an agent.
        """
        if "before_runtime_spawn" in self._hooks:
            return
        run = self._new_run(turn, BridgeCallbacks(), 0)
        workspace = workspace or run.spec.workspace
        run.spec = replace(run.spec, model=model or run.spec.model, workspace=workspace)
        await self._look_up_session(run)
        self._build_system_prompt(run)
        with contextlib.suppress(AgentUnavailable):
            await self._agents.warm_up(self._found(run.spec), **_conversation(run))

    async def prepared(
        self,
        turn: Turn,
        *,
        model: str | None = None,
        workspace: str | None = None,
        subdir: str | None = None,
    ) -> Prepared:
        """Return what a turn's agent is to be started with: steps 1 to 3.

        With a `subdir`, it works there, below its workspace, in a conversation of its own.
        Raises `AgentUnavailable`.
        """
        run = self._new_run(turn, BridgeCallbacks(), 0)
        root = workspace or run.spec.workspace
        run.spec = replace(run.spec, model=model or run.spec.model, workspace=root)
        await self._run_hooks_before_spawn(run)
        root = run.spec.workspace
        if subdir and (parts := Path(subdir).parts):
            run.spec = replace(run.spec, workspace=str(Path(root, *parts)))
        await self._look_up_session(run)
        self._build_system_prompt(run)
        return Prepared(
            spec=self._found(run.spec),
            root=root,
            session_id=run.session_id,
            name=self._map_name(run),
            is_fork=run.fork_of is not None,
        )

    async def aside(
        self, entry: Entry, running: Running, history: Sequence[Mapping[str, str]] = ()
    ) -> Aside:
        """Ask the agent of the running turn about an entry, beside what is `running`.

        It may be awaited beyond the turn's end, until the next one begins. An agent that is asked
        in another conversation is told `history`. Raises `AsideFailed`.
        """
        if self._asked is None:
            raise AsideFailed("no agent is at work")
        key = secrets.token_hex(3)
        question = build_question(
            entry, running, key=key, zone=self._zone, now_ms=now_ms(), history=history
        )
        answer = await self._asked.aside(question)
        verdict, text = read_verdict(answer, key)
        delivery = self._delivery(BridgeCallbacks(), 0, {entry.id: entry.message})
        return Aside(verdict, await delivery.whole(text))

    def _new_run(self, turn: Turn, callbacks: BridgeCallbacks, first_index: int) -> _Run:
        if self._channel.activity == "off":
            callbacks = replace(callbacks, on_activity=None)
        messages = {entry.id: entry.message for entry in (*turn.left_out, *turn.entries)}
        delivery = self._delivery(callbacks, first_index, messages)
        return _Run(turn, self._spec, delivery, callbacks, messages)

    def _delivery(
        self, callbacks: BridgeCallbacks, first_index: int, messages: Mapping[str, ChannelMessage]
    ) -> DeliveryAdapter:
        return DeliveryAdapter(
            chunk_limit=self._channel.chunk_limit,
            chunk_unit=self._channel.chunk_unit,
            callbacks=callbacks,
            first_index=first_index,
            messages=messages,
        )

    # -- 1: session lookup ---------------------------------------------------------------------

    async def _look_up_session(self, run: _Run) -> None:
        name = self._map_name(run)
        known = await self._session_map.get(name)
        note = await self._session_map.note(name) if known else ""
        run.spec = replace(run.spec, note=note)
        run.begins_conversation = known is None
        is_fork = known is not None and known.startswith(FORK_OF)
        run.session_id = None if is_fork else known
        run.fork_of = known.removeprefix(FORK_OF) if known and is_fork else None

    def _map_name(self, run: _Run) -> str:
        return conversation_name(self._runtime.name, run.spec.workspace)

    # -- 2: hooks before the spawn -------------------------------------------------------------

    async def _run_hooks_before_spawn(self, run: _Run) -> None:
        """Let hooks choose another directory and add to the environment; the last hook wins."""
        before = run.spec.workspace
        event = BeforeRuntimeSpawn(run.turn.session, self._runtime.name, before)
        for override in await self._hooks.run("before_runtime_spawn", event):
            if not isinstance(override, SpawnOverride):
                log.error("a before_runtime_spawn hook returned %s", type(override).__name__)
                continue
            workspace = override.workspace or run.spec.workspace
            env = {**run.spec.env, **override.env}
            run.spec = replace(run.spec, workspace=workspace, env=env)
        if run.spec.workspace != before:
            await self._look_up_session(run)

    # -- 3: system prompt ----------------------------------------------------------------------

    def _build_system_prompt(self, run: _Run) -> None:
        """Build two prompts: the plain one is for an agent that can't have RemoteClaw's tools."""
        with_tools, without_tools = (
            build_system_prompt(
                self._launch_of or run.turn.session,
                workspace=run.spec.workspace,
                runtime=self._runtime.name,
                zone=self._zone,
                channel=self._channel,
                has_files=self._attachments is not None,
                sends_files=run.spec.permissions != "deny",
                tools=tools,
            )
            for tools in (run.spec.tools or (), ())
        )
        run.spec = replace(run.spec, system_prompt=with_tools, plain_prompt=without_tools)

    # -- 4: MCP servers and run directory ------------------------------------------------------

    def _collect_secrets(self, run: _Run) -> None:
        """Collect the secrets to hide, those of the agent's environment and MCP servers included.

        Step 5 makes the run directory, together with the agent process.
        """
        of_agent = secrets_of_agent(run.spec.env, run.spec.mcp_servers)
        run.scrubber = Scrubber((*self._secrets, *of_agent))

    # -- 5: agent ------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def _agent_failures(self, run: _Run) -> AsyncIterator[None]:
        """Record a failure of steps 5 and 6; end an agent that can't be trusted after it."""
        try:
            yield
        except AgentUnavailable as failure:
            run.error = ErrorEvent(failure.category, str(failure))
        except RemoteClawError:
            raise  # a lost lease, or no Redis: the callbacks' errors are not about the agent
        except Exception as error:  # noqa: BLE001 - an agent's output is another program's
            log.error("turn %s: %s", run.turn.reference, frames_of(error))
            what = f"unforeseen: {type(error).__name__}"
            run.error = ErrorEvent(ErrorCategory.FATAL, what, ends_agent=True)
            await run.delivery.flush()
        if run.delivered.ends_agent or (run.error and run.error.ends_agent):
            await self._agents.discard()

    async def _start_agent(self, run: _Run) -> bool:
        """Get an agent; False if the turn was stopped before the agent had started.

        A new agent can take a minute to start, where an MCP server of its own hangs.
        """
        starting = asyncio.create_task(self._obtain_agent(run))
        stop = asyncio.create_task(run.abort.wait())
        try:
            done, _ = await asyncio.wait(
                (starting, stop),
                timeout=self._limits.start_s,
                return_when=asyncio.FIRST_COMPLETED,
            )
        finally:
            stop.cancel()
            # On a stop, timeout or cancellation, drop the agent that is still starting.
            if not starting.done():
                starting.cancel()
                await asyncio.wait((starting,))
        if starting.cancelled():
            await self._agents.discard()
            if not done:
                run.overdue = Overdue("start_s", self._limits.start_s)
            return False
        run.agent = await starting
        return not run.abort.is_set()

    async def _obtain_agent(self, run: _Run) -> AgentProcess:
        """Get an agent that fits, warm or new; store its conversation's id before it is asked."""
        agent = await self._agents.obtain(self._found(run.spec), **_conversation(run))
        if run.session_id and self._agents.is_new:
            resumed = SessionResumed(run.turn.session, self._runtime.name, run.session_id)
            await self._hooks.run("session_resumed", resumed)
        run.side_effects = SideEffectsReader(self._agents.run_dir)
        # A fork's id is stored after its first turn; before, the CLI may not have saved the fork.
        if agent.session_id and agent.session_id != run.session_id and not run.fork_of:
            await self._session_map.set(self._map_name(run), agent.session_id, agent.note)
            run.session_id, run.spec = agent.session_id, replace(run.spec, note=agent.note)
        if run.callbacks.on_phase:
            await run.callbacks.on_phase("spawned", self._agents.description)
        return agent

    def _found(self, spec: AgentSpec) -> AgentSpec:
        """Return the spec with its program. Raises `AgentUnavailable` if it isn't there."""
        command = spec.command
        program = self._runtime.find(command[0], spec.env.get("PATH"))
        if program is None:
            way = self._runtime.remedies.install if command == self._runtime.command else ""
            way = f" (`{way}`)" if way else ""
            raise AgentUnavailable(
                f"{command[0]!r} was not found: install it{way}, or correct the agent's command.",
                category=ErrorCategory.NOT_INSTALLED,
            )
        return replace(spec, command=(program, *command[1:]))

    # -- 6: delivery ---------------------------------------------------------------------------

    async def _ask_and_deliver(self, run: _Run) -> None:
        """Ask the agent and deliver its answer while it writes."""
        assert run.agent is not None, "_start_agent() came first"
        files = self._files_of(run)
        pace = Pace(heard=lambda: self._agents.heard_at, used_s=run.used_s)
        conduct = Conduct(
            run.agent,
            spec=run.spec,
            limits=self._limits,
            pace=pace,
            abort=run.abort,
            callbacks=run.callbacks,
            as_shown=lambda event: as_shown(event, run.scrubber),
            show=run.delivery.show,
            discard=self._agents.discard,
            files=self._agents.files_dir,
            turn=run.turn,
        )
        listeners = Listeners(
            take_files=files.take,
            on_permission=partial(self._decide, run, conduct),
            on_withdrawn=conduct.withdraw,
            label=lambda event: self._label(run, event),
            head=lambda event: label_of(event, "arguments", run.scrubber, run.spec.workspace),
            scrub=run.scrubber.text,
        )
        try:
            async with conduct.over(self._steering(run, files)):
                is_command = self._is_command(run)
                prompt, images = await self._turn_prompt(run, files)
                if is_command:
                    prompt, images = run.turn.entries[0].message.text, []
                answering = run.agent.turn(prompt, images, is_command=is_command)
                self._asked = run.agent
                async with contextlib.aclosing(answering) as events:
                    run.delivered = await run.delivery.process(pace.noting(events), listeners)
                run.result, run.error = run.delivered.run, run.delivered.error
        finally:
            run.overdue = conduct.overdue
        await self._say_notices(run, conduct)
        if not run.delivered.has_ended and run.error is None:
            why = "the agent's output ended without a result"
            run.error = ErrorEvent(ErrorCategory.FATAL, why, ends_agent=True)

    async def _decide(
        self,
        run: _Run,
        conduct: Conduct,
        event: PermissionEvent,
        say_all: Callable[[], Awaitable[None]],
    ) -> None:
        """Begin to decide about a permission; the next attempt knows that the agent plans."""
        note = run.agent.note if run.agent else ""
        if event.plan is not None and run.session_id and note != run.spec.note:
            await self._session_map.set(self._map_name(run), run.session_id, note)
            run.spec = replace(run.spec, note=note)
        await conduct.decide(event, say_all)

    def _is_command(self, run: _Run) -> bool:
        """Whether the turn is a command that the agent gets as it is."""
        return run.turn.is_command and self._runtime.capabilities.takes_commands

    def _files_of(self, run: _Run) -> TurnFiles:
        directory, workspace = self._agents.files_dir, Path(run.spec.workspace)
        return TurnFiles(
            self._attachments,
            self._channel,
            files_dir=directory,
            outgoing=Outgoing(self._home, run.spec.permissions, workspace, directory),
            image_types=self._runtime.image_types,
        )

    async def _turn_prompt(self, run: _Run, files: TurnFiles) -> tuple[str, list[Image]]:
        """Return the prompt of the turn, with the pictures that the agent is shown.

        Puts the files that came with the messages where the agent can read them.
        """
        history = await run.history() if run.history and run.begins_conversation else ()
        given: dict[str, list[GivenFile]] = {}
        images: list[Image] = []
        for entry in run.turn.entries:
            given[entry.id], shown = await files.give(entry)
            images += shown
        all_files = [file for of_entry in given.values() for file in of_entry]
        all_files += [file for entry in run.turn.left_out for file in left_out(entry)]
        if words := [file.words for file in all_files if file.problem]:
            notice = ReplyPayload("\n".join(words), is_ours=True)
            await run.delivery.say(notice, is_last=False)
        effects = await run.effects() if run.effects and run.turn.was_interrupted else ()
        prompt = build_turn_prompt(
            run.turn,
            zone=self._zone,
            begins_conversation=run.begins_conversation,
            history=history,
            files=given,
            effects=effects,
            denials=await run.denials() if run.denials and not self._is_command(run) else (),
            work=await self._work_of(run),
            meanwhile=await run.beside() if run.beside and not self._is_command(run) else (),
        )
        return prompt, images

    async def _work_of(self, run: _Run) -> list[dict[str, Any]]:
        """Return what works for the session, as its agent is told it."""
        if run.working is None or self._is_command(run):
            return []
        zone = run.turn.entries[-1].message.timezone or self._zone
        return work_of(await run.working(), zone=zone)

    async def _steering(
        self, run: _Run, files: TurnFiles
    ) -> AsyncGenerator[tuple[str, str, Sequence[Image]], None]:
        """Yield the messages that join the turn: prompt, entry's id and pictures of each."""
        if run.newcomers is None or not self.can_steer:
            return
        async with contextlib.aclosing(run.newcomers()) as entries:
            async for entry in entries:
                run.messages[entry.id] = entry.message
                run.given[entry.id], images = await files.give(entry)
                alone = Turn(run.turn.session, (entry,))
                given = {entry.id: run.given[entry.id]}
                yield build_turn_prompt(alone, zone=self._zone, files=given), entry.id, images

    def _label(self, run: _Run, event: ToolUseEvent) -> tuple[str, str]:
        """Return the line that is shown about a running tool."""
        shown = shown_of_tools(self._channel, run.turn.session, run.messages.values())
        return label_of(event, shown, run.scrubber, run.spec.workspace)

    async def _say_notices(self, run: _Run, conduct: Conduct) -> None:
        """Say what the person can't know from the answer: lost files, denied tools, and forms."""
        joined = [file for key in run.delivered.steered for file in run.given.get(key, ())]
        notices = [file.words for file in joined if file.problem]
        denials = dict.fromkeys(run.delivered.run.permission_denials)
        denied = [tool for tool in denials if tool not in conduct.people_decide]
        if denied and not self._runtime.capabilities.explains_denial:
            remedies = remedies_of(run.turn.session.agent, conduct.remedies)
            words = f"({WAS_DENIED.format(tools=', '.join(denied))} {remedies}".strip()
            notices.append(run.scrubber.text(f"{words})", MOST_DENIED))
        for server, message in run.delivered.forms.items():
            name, asked = (
                run.scrubber.line(words, MOST_REASON).replace("`", "'")
                for words in (server, message)
            )
            who = f"The MCP server `{name}`" if name else "The agent"
            notices.append(FORM.format(who=who, message=asked))
        if self._agents.is_new and run.error is None:
            notices += self._missing_servers(run)
        if notices:
            await run.delivery.say(ReplyPayload("\n".join(notices), is_ours=True))

    def _missing_servers(self, run: _Run) -> list[str]:
        """Return what a person who can mend it reads of MCP servers that were not connected."""
        if run.agent is None or not profile_of(run.turn.session.provider).is_local:
            return []
        return [
            missing_server(
                run.turn.session.agent,
                run.scrubber.line(name, MOST_REASON),
                why=run.scrubber.line(why, MOST_REASON),
                runtime=self._runtime.name,
            )
            for name, why in run.agent.missing_servers.items()
            if name != OWN_SERVER
        ]

    # -- 7: errors -----------------------------------------------------------------------------

    async def _classify_error(self, run: _Run) -> None:
        """Give a failure its category on the result, and the person a sentence about it."""
        # Measured here: few CLIs report a duration, and none includes its start.
        duration_ms = round((time.monotonic() - run.started) * 1000)
        run.result = replace(run.result, duration_ms=duration_ms)
        # An answer that was complete when the stop came is delivered as one.
        is_complete = run.delivered.has_ended and not run.result.aborted and run.error is None
        if not is_complete:
            run.error = error_of(run.error, overdue=run.overdue, is_stopped=run.abort.is_set())
        if run.error is None:
            return
        category = run.error.category
        is_stop = category is ErrorCategory.ABORTED
        # The subtype speaks the vocabulary of `AgentRunResult`, which says context_window.
        subtype = "context_window" if category is ErrorCategory.CONTEXT_OVERFLOW else str(category)
        aborted = run.result.aborted or is_stop
        run.result = replace(run.result, aborted=aborted, error_subtype=subtype)
        remedy = None
        if profile_of(run.turn.session.provider).is_local:
            run.reason = run.scrubber.line(run.error.detail, MOST_REASON)
            remedy = remedy_of(
                run.error, run.turn, reason=run.reason, spec=run.spec, runtime=self._runtime
            )
        words = failure_words(
            run.error, run.turn, overdue=run.overdue, zone=self._zone, remedy=remedy
        )
        # A CLI's own words may quote people's messages: they are kept in the outcome, not logged.
        log.warning("turn %s: %s", run.turn.reference, category)
        await run.delivery.say(ReplyPayload(words, is_error=not is_stop, is_ours=True))

    # -- 8: side effects -----------------------------------------------------------------------

    async def _collect_side_effects(self, run: _Run) -> None:
        """Collect the side effects recorded with the turn, and those in the run directory."""
        written = run.side_effects.read() if run.side_effects else []
        noted = await run.effects() if run.effects else []
        run.tool_effects = side_effects_of([*noted, *written])
        if run.turn.entries[-1].deliver == "channel":
            run.repeated_by_tool = repeats_of(
                run.delivery.payloads, [*noted, *written], run.turn.session
            )

    # -- 9: session update ---------------------------------------------------------------------

    async def _update_session(self, run: _Run) -> None:
        """Store the conversation's id, also after a stop; delete that of a broken conversation."""
        name = self._map_name(run)
        if run.error and is_fatal_to_conversation(run.error, run.turn):
            await self._session_map.delete(name)
            await self._agents.discard()
        elif run.fork_of and run.error and not run.result.text and not run.delivered.tool_calls:
            pass  # the CLI may not have saved the fork: the next turn forks again
        elif session_id := run.result.session_id:
            note = run.agent.note if run.agent else ""
            if (session_id, note) != (run.session_id, run.spec.note):
                await self._session_map.set(name, session_id, note)

    # -- 10: hooks after the exit --------------------------------------------------------------

    def _begin_exit_hooks(self, run: _Run) -> None:
        ending = asyncio.create_task(self._run_exit_hooks(run))
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)

    async def _run_exit_hooks(self, run: _Run) -> None:
        session = run.turn.session
        exited = AfterRuntimeExit(
            session,
            run.result.text[:HOOK_OUTPUT],
            run.tool_effects,
            usage=run.result.usage,
            duration_ms=run.result.duration_ms,
            total_cost_usd=run.result.total_cost_usd,
        )
        await self._hooks.run("after_runtime_exit", exited)
        success = run.error is None
        ended = AgentEnd(session, run.turn.reference, success, run.result.duration_ms)
        await self._hooks.run("agent_end", ended)

    async def settle(self) -> None:
        """Wait for the hooks of turns that are over, which run after the answer."""
        while self._ending:
            await asyncio.wait(self._ending)


def _conversation(run: _Run) -> _Conversation:
    """Return with which conversation the turn's agent goes on."""
    return {"session_id": run.session_id or run.fork_of, "fork": run.fork_of is not None}


def _result_of(run: _Run) -> AgentDeliveryResult:
    return AgentDeliveryResult(
        payloads=tuple(p for p in run.delivery.payloads if p.index not in run.repeated_by_tool),
        run=run.result,
        mcp=run.tool_effects,
        error=run.error.detail if run.error else None,
        reason=run.reason,
        error_category=run.error.category if run.error else None,
        retry_at_ms=run.error.retry_at_ms if run.error else None,
        steered=run.delivered.steered,
        is_silent=run.delivered.is_silent or bool(run.repeated_by_tool),
        tool_calls=run.delivered.tool_calls,
        answered=run.delivered.answered,
    )


def _turn_of(message: ChannelMessage) -> Turn:
    """Return a turn of one message, for a bridge outside a fleet."""
    session = SessionKey.of(message, agent="main")
    return Turn(session, (Entry(id=f"{message.timestamp}-0", message=message),))
