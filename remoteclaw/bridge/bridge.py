"""`ChannelBridge.handle()`: one turn, in the ten steps of the channel bridge, a method each."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from remoteclaw.bridge.activity import label_of
from remoteclaw.bridge.attachments import GivenFile, TurnFiles, left_out
from remoteclaw.bridge.chunks import Unit
from remoteclaw.bridge.data import as_data
from remoteclaw.bridge.delivery import Delivered, DeliveryAdapter
from remoteclaw.bridge.freshness import kind_of
from remoteclaw.bridge.hooks import (
    AfterRuntimeExit,
    AgentEnd,
    BeforeRuntimeSpawn,
    Hooks,
    MessageReceived,
    SessionResumed,
    SpawnOverride,
)
from remoteclaw.bridge.outgoing import Outgoing
from remoteclaw.bridge.pace import Limits, Pace
from remoteclaw.bridge.prompt import build_system_prompt, build_turn_prompt, local_time
from remoteclaw.bridge.scrubber import Scrubber, secrets_of_agent
from remoteclaw.bridge.side_effects import SideEffectsReader, repeats_of, side_effects_of
from remoteclaw.config.home import Home
from remoteclaw.config.model import ChannelConfig
from remoteclaw.errors import (
    AgentUnavailable,
    ErrorCategory,
    Overdue,
    RedisRefused,
    RedisUnavailable,
    RemoteClawError,
    sentence,
)
from remoteclaw.events import AgentRunResult, ErrorEvent, PermissionEvent, ToolUseEvent
from remoteclaw.host.logs import frames_of
from remoteclaw.messages import (
    OWN_SERVER,
    AgentDeliveryResult,
    ChannelMessage,
    Entry,
    Image,
    McpServerConfig,
    McpSideEffects,
    ReplyPayload,
    SessionKey,
    Turn,
)
from remoteclaw.protocols import (
    FORK_OF,
    AgentProcess,
    Agents,
    AgentSpec,
    AttachmentStore,
    BridgeCallbacks,
    Decision,
    Effects,
    History,
    Newcomers,
    Runtime,
    SessionMap,
    conversation_name,
)

__all__ = ["ChannelBridge"]

#: Characters per message where the channel names no limit of its own.
DEFAULT_CHUNK_LIMIT = 4000
#: From which length a message may itself be what a model finds too long, in characters.
LONG_MESSAGE = 50_000
#: How much of an answer hooks are given, in characters.
HOOK_OUTPUT = 64_000
#: How long an agent may take to stop a turn, in seconds; then its process is ended.
ABORT_S = 5.0
#: How often it is told, in seconds: the first time it may not have begun yet, and an agent that
#: reads nothing can't be told at all.
INTERRUPT_EVERY_S = 0.5

#: What an agent is told that may not use a tool.
NOBODY_TO_ASK = (
    "This needs a permission, and nobody can be asked for one here. "
    "Say so in your answer, and go on without it."
)
NOT_ALLOWED = "This agent is not allowed to use tools that need a permission."
#: What the person is told where the agent can't know why.
WAS_DENIED = "(It wanted to use {tools}, which needs a permission that nobody can give here.)"

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Run:
    """What the steps of one turn hand on to each other."""

    turn: Turn
    delivery: DeliveryAdapter
    callbacks: BridgeCallbacks
    abort: asyncio.Event
    started: float
    workspace: str
    env: Mapping[str, str]
    messages: dict[str, ChannelMessage]
    """What the agent was shown, by entry."""
    session_id: str | None = None
    note: str = ""
    """What the last process of the conversation has noted for the next one."""
    fork_of: str | None = None
    """The conversation of which this one is to begin as a copy."""
    is_new: bool = False
    """Whether the agent begins a conversation with this turn."""
    system_prompt: str = ""
    mcp_servers: Mapping[str, McpServerConfig] | None = None
    effects: Effects | None = None
    side_effects: SideEffectsReader | None = None
    run: AgentRunResult = field(default_factory=AgentRunResult)
    error: ErrorEvent | None = None
    delivered: Delivered = field(default_factory=Delivered)
    is_ending: bool = False
    """Whether the agent is being ended because it did not stop."""
    newcomers: Newcomers | None = None
    history: History | None = None
    used_s: float = 0.0
    agent: AgentProcess | None = None
    pace: Pace = field(default_factory=Pace)
    overdue: Overdue | None = None
    """Which limit the turn has passed; nothing if none."""
    deciding: set[asyncio.Task[None]] = field(default_factory=set)
    """Permissions that the agent waits for."""
    is_unanswered: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when it will get no answer to one of them."""
    files: TurnFiles | None = None
    lost: dict[str, list[GivenFile]] = field(default_factory=dict)
    """Files that did not reach the agent, by the entry that joined the turn with them."""
    scrubber: Scrubber | None = None
    """Hides what is secret for the turn's agent."""
    mcp: McpSideEffects = field(default_factory=McpSideEffects)
    repeats: frozenset[int] = frozenset()
    """Messages of the answer that a tool has sent to the same chat already, by their index."""


class ChannelBridge:
    """Takes a turn through an agent and returns what there is to deliver.

    It never repeats a turn: it reports a failure's category, and its caller decides.
    """

    def __init__(
        self,
        *,
        runtime: Runtime,
        agents: Agents,
        session_map: SessionMap,
        command: Sequence[str],
        workspace_dir: str,
        env: Mapping[str, str],
        model: str | None = None,
        permissions: str = "ask",
        inherit_mcp: bool = True,
        trust_workspace: bool = False,
        mcp_servers: Mapping[str, McpServerConfig] | None = None,
        chunk_limit: int = DEFAULT_CHUNK_LIMIT,
        chunk_unit: Unit = "characters",
        zone: str | None = None,
        facts: ChannelConfig | None = None,
        hooks: Hooks | None = None,
        attachments: AttachmentStore | None = None,
        limits: Limits | None = None,
        tools: Collection[str] | None = None,
        own_server: str = "",
        secrets: Collection[str] = (),
        home: Home | None = None,
    ) -> None:
        """`zone` is the agent's IANA time zone; `facts` is what is configured of the channel.

        `chunk_limit` is how long a message of the answer may be, in `chunk_unit`. `attachments`
        keeps the files that come with messages and answers; without it there are none. `tools`
        are those of RemoteClaw's own that the agent is offered, or None if they can't be given;
        `own_server` is a name of their server that no other can have. `secrets` are values that
        are shown to nobody, besides those of the agent's environment and of its MCP servers.
        `home` is the state directory, from which the agent sends no files; by default this user's.
        """
        self._home = home or Home.default()
        self._own_server = own_server
        self._tools = None if tools is None else tuple(sorted(tools))
        self._secrets = secrets
        self._runtime = runtime
        self._agents = agents
        self._session_map = session_map
        self._command = tuple(command)
        self._workspace = workspace_dir
        self._env = dict(env)
        self._model = model
        self._permissions = permissions
        self._inherit_mcp = inherit_mcp
        self._trust_workspace = trust_workspace
        self._mcp_servers = dict(mcp_servers or {})
        self._chunk_limit = chunk_limit
        self._chunk_unit = chunk_unit
        self._zone = zone
        self._facts = facts or ChannelConfig()
        self._attachments = attachments
        self._limits = limits or Limits()
        self._told: set[str] = set()
        """Files of which the person knows that they did not reach the agent."""
        self._ending: set[asyncio.Task[None]] = set()
        """Hooks of turns that are over."""
        self._hooks = hooks or Hooks()

    @property
    def can_steer(self) -> bool:
        """Whether the agent takes up messages while it works."""
        return self._runtime.capabilities.steers

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
        used_s: float = 0.0,
    ) -> AgentDeliveryResult:
        """Run one turn to its end; failures are in the result, not raised.

        Setting `abort` stops it. An agent without a conversation is told what `history` returns.
        What `newcomers` yields is given to the agent while it works; the
        result names those that it took up. `effects` returns what the turn's tools did. `used_s` is
        what earlier tries have taken of the time that the turn may take, in seconds.
        The payloads are numbered from `first_index`; those that a callback took are marked
        delivered.
        """
        callbacks = callbacks or BridgeCallbacks()
        if self._facts.activity == "off":
            callbacks = replace(callbacks, on_activity=None)
        turn = message if isinstance(message, Turn) else _turn_of(message)
        messages = {entry.id: entry.message for entry in (*turn.left_out, *turn.entries)}
        run = _Run(
            turn=turn,
            delivery=DeliveryAdapter(
                chunk_limit=self._chunk_limit,
                chunk_unit=self._chunk_unit,
                callbacks=callbacks,
                first_index=first_index,
                messages=messages,
                on_steered=lambda key: self._tell_of_message(turn, messages[key]),
                take_files=lambda paths: self._files_of(run).take(paths),
                on_permission=lambda event: self._begin_to_decide(run, event),
                label=lambda event: self._label(run, event),
                scrub=lambda text, most: self._scrubber_of(run).text(text, most),
            ),
            messages=messages,
            callbacks=callbacks,
            abort=abort or asyncio.Event(),
            started=time.monotonic(),
            workspace=self._workspace,
            env=self._env,
            newcomers=newcomers,
            history=history,
            effects=effects,
            used_s=used_s,
        )
        for entry in turn.entries:
            await self._tell_of_message(turn, entry.message)
        await self._look_up_session(run)
        await self._run_before_spawn_hooks(run)
        self._prepare_mcp(run)
        self._build_system_prompt(run)
        await self._run_agent(run)
        # By our own clock: few CLIs tell it, and none counts its start.
        duration_ms = round((time.monotonic() - run.started) * 1000)
        run.run = replace(run.run, duration_ms=duration_ms)
        await self._classify_error(run)
        await self._collect_side_effects(run)
        await self._update_session(run)
        ending = asyncio.create_task(self._run_exit_hooks(run))
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)
        payloads = tuple(p for p in run.delivery.payloads if p.index not in run.repeats)
        return AgentDeliveryResult(
            payloads=payloads,
            run=run.run,
            mcp=run.mcp,
            error=run.error.detail if run.error else None,
            error_category=run.error.category if run.error else None,
            retry_at_ms=run.error.retry_at_ms if run.error else None,
            steered=run.delivered.steered,
            is_silent=run.delivered.is_silent or bool(run.repeats),
            tool_calls=run.delivered.tool_calls,
            answered=run.delivered.answered,
        )

    async def _run_agent(self, run: _Run) -> None:
        """Take steps 5 and 6; an agent that failed in a way that nobody foresaw is ended."""
        try:
            if agent := await self._start_unless_stopped(run):
                await self._ask_and_deliver(run, agent)
        except AgentUnavailable as failure:
            run.error = ErrorEvent(failure.category, str(failure))
        except RemoteClawError:
            raise  # a lost lease, or no Redis: what the callbacks raise is not about the agent
        except Exception as error:  # noqa: BLE001 - an agent's output is another program's
            log.error("turn %s: %s", run.turn.reference, frames_of(error))
            what = f"unforeseen: {type(error).__name__}"
            run.error = ErrorEvent(ErrorCategory.FATAL, what, ends_agent=True)
            await run.delivery.flush()
        if run.delivered.ends_agent or (run.error and run.error.ends_agent):
            await self._agents.discard()

    def _label(self, run: _Run, event: ToolUseEvent) -> tuple[str, str]:
        """Return what is shown of a tool that runs."""
        is_direct = kind_of(run.turn.session) == "direct"
        shown = self._facts.activity or ("arguments" if is_direct else "names")
        return label_of(event, shown, self._scrubber_of(run), run.workspace)

    def _scrubber_of(self, run: _Run) -> Scrubber:
        # Not before a tool is used: most turns use none, and hooks add to the environment.
        if run.scrubber is None:
            of_agent = secrets_of_agent(run.env, self._mcp_servers)
            run.scrubber = Scrubber((*self._secrets, *of_agent))
        return run.scrubber

    async def _tell_of_message(self, turn: Turn, message: ChannelMessage) -> None:
        event = MessageReceived(turn.session, message, turn.attempt)
        await self._hooks.run("message_received", event)

    # -- 1: session lookup ---------------------------------------------------------------------

    async def _look_up_session(self, run: _Run) -> None:
        known = await self._session_map.get(self._map_name(run))
        run.note = await self._session_map.note(self._map_name(run)) if known else ""
        is_fork = known is not None and known.startswith(FORK_OF)
        run.session_id = None if is_fork else known
        run.fork_of = known.removeprefix(FORK_OF) if known and is_fork else None
        run.is_new = known is None

    def _map_name(self, run: _Run) -> str:
        return conversation_name(self._runtime.name, run.workspace)

    # -- 2: system prompt ----------------------------------------------------------------------

    def _build_system_prompt(self, run: _Run) -> None:
        run.system_prompt = self._system_prompt(run, self._tools or ())

    def _system_prompt(self, run: _Run, tools: Collection[str]) -> str:
        """Return the system prompt of an agent that has these of RemoteClaw's own tools."""
        return build_system_prompt(
            run.turn.session,
            workspace=run.workspace,
            runtime=self._runtime.name,
            zone=self._zone,
            facts=self._facts,
            has_files=self._attachments is not None,
            sends_files=self._permissions != "deny",
            tools=tools,
        )

    # -- 3: MCP servers and run directory ------------------------------------------------------

    def _prepare_mcp(self, run: _Run) -> None:
        """Name the servers; the run directory is made with the process that they are for."""
        run.mcp_servers = self._mcp_servers

    # -- 4: hooks before the spawn -------------------------------------------------------------

    async def _run_before_spawn_hooks(self, run: _Run) -> None:
        """Let hooks choose another directory and add to the environment; the last one wins.

        They come before the steps that use the directory.
        """
        event = BeforeRuntimeSpawn(run.turn.session, self._runtime.name, run.workspace)
        for override in await self._hooks.run("before_runtime_spawn", event):
            if not isinstance(override, SpawnOverride):
                log.error("a before_runtime_spawn hook returned %s", type(override).__name__)
                continue
            run.workspace = override.workspace or run.workspace
            run.env = {**run.env, **override.env}
        if run.workspace != self._workspace:
            await self._look_up_session(run)

    # -- 5: runtime ----------------------------------------------------------------------------

    async def _start_unless_stopped(self, run: _Run) -> AgentProcess | None:
        """Get an agent; None if the turn was stopped before it was there.

        A new one can take a minute to come, where an MCP server of its own hangs.
        """
        starting = asyncio.create_task(self._start_agent(run))
        stop = asyncio.create_task(run.abort.wait())
        try:
            done, _ = await asyncio.wait(
                (starting, stop),
                timeout=self._limits.start_s,
                return_when=asyncio.FIRST_COMPLETED,
            )
        finally:
            stop.cancel()
            # Whether it is too late for it, or we are being cancelled: half an agent is none.
            if not starting.done():
                starting.cancel()
                await asyncio.wait((starting,))
        if starting.cancelled():
            await self._agents.discard()
            if not done:
                run.overdue = Overdue("start_s", self._limits.start_s)
            return None
        return await starting

    async def _start_agent(self, run: _Run) -> AgentProcess:
        """Get an agent that fits, warm or new, and remember its conversation before it is asked."""
        program = self._runtime.find(self._command[0], run.env.get("PATH"))
        if program is None:
            raise AgentUnavailable(
                f"{self._command[0]!r} was not found: install it, or correct the agent's command.",
                category=ErrorCategory.NOT_INSTALLED,
            )
        spec = AgentSpec(
            runtime=self._runtime.name,
            command=(program, *self._command[1:]),
            workspace=run.workspace,
            env=run.env,
            system_prompt=run.system_prompt,
            model=self._model,
            permissions=self._permissions,
            inherit_mcp=self._inherit_mcp,
            trust_workspace=self._trust_workspace,
            mcp_servers=run.mcp_servers or {},
            tools=self._tools,
            plain_prompt=self._system_prompt(run, ()),
            own_server=self._own_server,
            note=run.note,
        )
        agent = await self._agents.obtain(
            spec, session_id=run.session_id or run.fork_of, fork=run.fork_of is not None
        )
        if run.session_id and self._agents.is_new:
            resumed = SessionResumed(run.turn.session, self._runtime.name, run.session_id)
            await self._hooks.run("session_resumed", resumed)
        run.side_effects = SideEffectsReader(self._agents.run_dir)
        # A copy is noted with its first turn, when the CLI has certainly written it down.
        if agent.session_id and agent.session_id != run.session_id and not run.fork_of:
            await self._session_map.set(self._map_name(run), agent.session_id, agent.note)
            run.session_id, run.note = agent.session_id, agent.note
        if run.callbacks.on_phase:
            await run.callbacks.on_phase("spawned", self._agents.description)
        return agent

    # -- 6: delivery ---------------------------------------------------------------------------

    async def _ask_and_deliver(self, run: _Run, agent: AgentProcess) -> None:
        """Ask the agent and deliver what it says, as it says it."""
        if run.abort.is_set():
            return
        run.agent = agent
        run.files = TurnFiles(
            self._attachments,
            self._facts,
            files_dir=self._agents.files_dir,
            outgoing=Outgoing(
                self._home, self._permissions, Path(run.workspace), self._agents.files_dir
            ),
            image_types=self._runtime.image_types,
        )
        run.pace = Pace(heard=lambda: self._agents.heard_at, used_s=run.used_s)
        # Not in a TaskGroup: what a callback raises (a lost lease) has to arrive as it is.
        watch = asyncio.create_task(self._stop_when_asked(run, agent))
        steering = asyncio.create_task(self._steer(run, agent))
        try:
            history = await run.history() if run.history and run.is_new else ()
            files, images = await self._give_files(run, run.turn.entries)
            not_given = [file for given in files.values() for file in given]
            not_given += [file for entry in run.turn.left_out for file in left_out(entry)]
            if words := self._unsaid(not_given):
                notice = ReplyPayload("\n".join(words), is_ours=True)
                await run.delivery.say(notice, is_last=False)
            effects = await run.effects() if run.effects and run.turn.was_interrupted else ()
            prompt = build_turn_prompt(
                run.turn,
                zone=self._zone,
                is_new=run.is_new,
                history=history,
                files=files,
                effects=effects,
            )
            async with contextlib.aclosing(agent.turn(prompt, images)) as events:
                run.delivered = await run.delivery.process(run.pace.noting(events))
        finally:
            if not run.is_ending:
                watch.cancel()
            steering.cancel()
            for deciding in run.deciding:
                deciding.cancel()
            await asyncio.wait((watch, steering, *run.deciding))
        joined = [file for key in run.delivered.steered for file in run.lost.get(key, ())]
        notices = self._unsaid(joined)
        denied = run.delivered.run.permission_denials
        if denied and not self._runtime.capabilities.explains_denial:
            notices.append(WAS_DENIED.format(tools=", ".join(dict.fromkeys(denied))))
        if notices:
            await run.delivery.say(ReplyPayload("\n".join(notices), is_ours=True))
        run.run, run.error = run.delivered.run, run.delivered.error
        for done in (steering, *run.deciding):
            if not done.cancelled():
                done.result()
        if not run.delivered.has_ended and run.error is None:
            why = "the agent's output ended without a result"
            run.error = ErrorEvent(ErrorCategory.FATAL, why, ends_agent=True)

    def _begin_to_decide(self, run: _Run, event: PermissionEvent) -> None:
        # Beside the turn: the agent may say more while somebody is being asked.
        run.deciding.add(asyncio.create_task(self._decide_or_end(run, event)))

    async def _decide_or_end(self, run: _Run, event: PermissionEvent) -> None:
        """Answer a request for a permission; an agent that can't be answered is ended."""
        try:
            await self._decide(run, event)
        except Exception:
            run.is_unanswered.set()  # it would wait for the answer as long as a turn may take
            raise

    async def _decide(self, run: _Run, event: PermissionEvent) -> None:
        """Answer a request for a permission, by the configuration or by whoever can be asked."""
        assert run.agent is not None, "it asked"
        decision = Decision("deny", NOT_ALLOWED)
        # The operator chose those servers, and so allowed their tools.
        is_ours = event.server in self._mcp_servers or event.server == OWN_SERVER
        try:
            if self._permissions == "auto" or (self._permissions == "ask" and is_ours):
                decision = Decision("allow")
            elif self._permissions == "ask":
                decision = Decision("deny", NOBODY_TO_ASK)
                if run.callbacks.on_permission:
                    decision = await run.callbacks.on_permission(event)
        except Exception:
            log.exception("turn %s: who was asked could not answer", run.turn.reference)
        finally:
            run.pace.decided(decision)
        await run.agent.answer(event.id, decision)

    def _files_of(self, run: _Run) -> TurnFiles:
        assert run.files is not None, "they come with an agent"
        return run.files

    async def _give_files(
        self, run: _Run, entries: Sequence[Entry]
    ) -> tuple[dict[str, list[GivenFile]], list[Image]]:
        """Put what came with the messages where the agent can read it."""
        files: dict[str, list[GivenFile]] = {}
        images: list[Image] = []
        for entry in entries:
            files[entry.id], shown = await self._files_of(run).give(entry)
            images += shown
        return files, images

    def _unsaid(self, files: Sequence[GivenFile]) -> list[str]:
        """Return what people are to hear of files that did not reach the agent, each once."""
        lost = [file for file in files if file.problem and file.attachment.blob not in self._told]
        self._told.update(file.attachment.blob for file in lost)
        return [file.words for file in lost]

    async def _steer(self, run: _Run, agent: AgentProcess) -> None:
        """Give the agent what arrives while it works."""
        if run.newcomers is None or not self.can_steer:
            return
        try:
            async with contextlib.aclosing(run.newcomers()) as entries:
                async for entry in entries:
                    run.messages[entry.id] = entry.message
                    alone = Turn(run.turn.session, (entry,))
                    files, images = await self._give_files(run, (entry,))
                    run.lost |= files
                    prompt = build_turn_prompt(alone, zone=self._zone, files=files)
                    await agent.steer(prompt, entry.id, images)
        except (RedisRefused, RedisUnavailable) as error:
            log.warning("turn %s: nothing joins it any more: %s", run.turn.reference, error)

    async def _stop_when_asked(self, run: _Run, agent: AgentProcess) -> None:
        """Interrupt the agent once the turn is to stop, and end it if it does not."""
        asked = asyncio.create_task(run.abort.wait())
        late = asyncio.create_task(self._wait_until_overdue(run))
        unanswered = asyncio.create_task(run.is_unanswered.wait())
        reasons = (asked, late, unanswered)
        try:
            await asyncio.wait(reasons, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for reason in reasons:
                reason.cancel()
        if not run.is_unanswered.is_set():
            await self._interrupt(agent)
        run.is_ending = True
        await self._agents.discard()

    async def _interrupt(self, agent: AgentProcess) -> None:
        """Tell the agent to stop, for as long as it may take; the end of its turn cancels this."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ABORT_S):
                while True:
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(INTERRUPT_EVERY_S):
                            await agent.interrupt()
                    await asyncio.sleep(INTERRUPT_EVERY_S)
        log.warning("the agent did not stop within %d s and is ended", ABORT_S)

    async def _wait_until_overdue(self, run: _Run) -> None:
        """Wait until the turn has passed a limit; tell the person meanwhile what is waited for."""
        while not (overdue := run.pace.overdue(self._limits)):
            if notice := run.pace.notice(self._limits):
                run.delivery.show(notice)
            await asyncio.sleep(run.pace.next_look_s(self._limits))
        log.warning("turn %s: %s", run.turn.reference, overdue.detail)
        run.overdue = overdue

    # -- 7: errors -----------------------------------------------------------------------------

    async def _classify_error(self, run: _Run) -> None:
        """Give a failure its category on the result, and the person a sentence about it."""
        # An answer that was complete when the stop came is an answer.
        is_complete = run.delivered.has_ended and not run.run.aborted and run.error is None
        if run.overdue and not is_complete:
            run.error = ErrorEvent(ErrorCategory.TIMEOUT, run.overdue.detail)
        elif run.abort.is_set() and not is_complete:
            run.error = ErrorEvent(ErrorCategory.ABORTED, "stopped by request")
            run.run = replace(run.run, aborted=True)
        if run.error is None:
            return
        category = run.error.category
        subtype = "context_window" if category is ErrorCategory.CONTEXT_OVERFLOW else str(category)
        run.run = replace(run.run, error_subtype=subtype)
        agent, reference = run.turn.session.agent, run.turn.reference
        words = sentence(
            category,
            agent=agent,
            reference=reference,
            until=_until(run.error.retry_at_ms, self._zone),
            overdue=run.overdue,
        )
        answered = run.delivered.answered
        if answered and not run.abort.is_set():
            # The first of its messages have their answer: the failure is about the others.
            rest = [m.text for key, m in run.messages.items() if key not in answered]
            words = f"(About {as_data(rest[0], longest=60)}:) {words}" if rest else words
        # A CLI's own words may quote what people wrote: the outcome has them, no log.
        log.warning("turn %s: %s", reference, category)
        is_error = category is not ErrorCategory.ABORTED
        await run.delivery.say(ReplyPayload(words, is_error=is_error, is_ours=True))

    # -- 8: side effects -----------------------------------------------------------------------

    async def _collect_side_effects(self, run: _Run) -> None:
        """Take what is noted with the turn, and what only tools of other servers wrote down."""
        written = run.side_effects.read() if run.side_effects else []
        noted = await run.effects() if run.effects else []
        run.mcp = side_effects_of([*noted, *written])
        if run.turn.entries[-1].deliver == "channel":
            run.repeats = repeats_of(run.delivery.payloads, [*noted, *written], run.turn.session)

    # -- 9: session update ---------------------------------------------------------------------

    async def _update_session(self, run: _Run) -> None:
        """Keep the conversation's id, also of a turn that was stopped; drop one that is dead."""
        name = self._map_name(run)
        if run.error and _ends_conversation(run.error, run.turn):
            await self._session_map.delete(name)
            await self._agents.discard()
        elif run.fork_of and run.error and not run.run.text and not run.delivered.tool_calls:
            pass  # it may not have made the copy: the next turn begins with one again
        elif session_id := run.run.session_id:
            note = run.agent.note if run.agent else ""
            if (session_id, note) != (run.session_id, run.note):
                await self._session_map.set(name, session_id, note)

    # -- 10: hooks after the exit --------------------------------------------------------------

    async def settle(self) -> None:
        """Wait for the hooks of turns that are over: nobody waits for them with an answer."""
        while self._ending:
            await asyncio.wait(self._ending)

    async def _run_exit_hooks(self, run: _Run) -> None:
        session = run.turn.session
        exited = AfterRuntimeExit(
            session,
            run.run.text[:HOOK_OUTPUT],
            run.mcp,
            usage=run.run.usage,
            duration_ms=run.run.duration_ms,
            total_cost_usd=run.run.total_cost_usd,
        )
        await self._hooks.run("after_runtime_exit", exited)
        success = run.error is None
        await self._hooks.run(
            "agent_end", AgentEnd(session, run.turn.reference, success, run.run.duration_ms)
        )


def _until(at_ms: int | None, zone: str | None) -> str:
    """Return in words when the provider takes requests again; nothing if it's not known.

    What is over in two minutes is not worth a time of day.
    """
    if at_ms is None or at_ms / 1000 < time.time() + 120:
        return ""
    at, now = local_time(at_ms, zone), local_time(round(time.time() * 1000), zone)
    return at.strftime("%H:%M %Z" if at.date() == now.date() else "%A, %d %B, %H:%M %Z")


def _ends_conversation(error: ErrorEvent, turn: Turn) -> bool:
    """Whether a CLI's conversation can't be gone on with.

    A picture that the model can't read stays in it and fails each further turn, and so does its
    length, unless the CLI has mended it. A long message may have been too long by itself: if not,
    the next one tells.
    """
    if error.category is ErrorCategory.CONTEXT_OVERFLOW:
        length = sum(len(entry.message.text) for entry in turn.entries)
        return length < LONG_MESSAGE and not error.is_mended
    if error.category is ErrorCategory.UNFIT_IMAGE:
        return not error.is_mended
    return error.category is ErrorCategory.SESSION_EXPIRED


def _turn_of(message: ChannelMessage) -> Turn:
    """Return a turn of one message that stands on no stream."""
    session = SessionKey.of(message, agent="main")
    return Turn(session, (Entry(id=f"{message.timestamp}-0", message=message),))
