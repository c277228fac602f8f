"""`ChannelBridge.handle()`: runs one turn in ten steps, a function each.

Steps 1 to 5 are in `start.py`, step 6 in `exchange.py`, steps 7 to 10 in `end.py`.
"""

import asyncio
import contextlib
import logging
import secrets
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from remoteclaw.bridge.asides import Aside, RunningTurn, build_question, read_verdict
from remoteclaw.bridge.compaction import compact
from remoteclaw.bridge.delivery import DeliveryAdapter
from remoteclaw.bridge.end import (
    classify_error,
    collect_side_effects,
    run_exit_hooks,
    update_session,
)
from remoteclaw.bridge.exchange import ask_and_deliver
from remoteclaw.bridge.hooks import Hooks
from remoteclaw.bridge.run import Run, Setup
from remoteclaw.bridge.start import (
    build_system_prompts,
    collect_secrets,
    look_up_session,
    run_hooks_before_spawn,
    start_agent,
    warm_up_agent,
    with_program,
)
from remoteclaw.bridge.time_limits import Limits
from remoteclaw.clock import now_ms
from remoteclaw.config.home import Home
from remoteclaw.config.model import ChannelConfig
from remoteclaw.errors import AgentUnavailable, AsideFailed, ErrorCategory, RemoteClawError
from remoteclaw.events import Compacted, ContextSize, ErrorEvent
from remoteclaw.host.logs import frames_of
from remoteclaw.messages import AgentDeliveryResult, ChannelMessage, Entry, SessionKey, Turn
from remoteclaw.profiles import profile_of
from remoteclaw.protocols import (
    Agents,
    AgentSpec,
    AttachmentStore,
    BridgeCallbacks,
    IdentitySource,
    ModelSetting,
    Runtime,
    SessionMap,
    TurnSources,
)

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Prepared:
    """The launch parameters of an agent's terminal program for a conversation."""

    spec: AgentSpec
    root: str
    """The agent's workspace; the program works in it or below it."""
    session_id: str | None
    """The CLI's own id of the conversation; None if it has none yet."""
    name: str
    """The conversation's name in the session map."""
    is_fork: bool
    """Whether the conversation begins as a copy of another one."""


class ChannelBridge:
    """Runs a turn with an agent and returns the messages to deliver.

    It never repeats a turn: it reports the category of a failure, and its caller decides.
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
        identity: IdentitySource | None = None,
        secrets: Collection[str] = (),
        home: Home | None = None,
        launch_of: SessionKey | None = None,
        agent: str = "",
    ) -> None:
        """`spec` is the template of the agent: the bridge adds the prompts and finds the program.

        `channel` is the channel's configuration, and `zone` the agent's IANA time zone.
        `attachments` stores the files of messages and answers; without it, no file is passed on.
        `identity` provides the operator's texts about the agent.
        `secrets` are values to hide, in addition to those of the agent's environment and of its
        MCP servers. `home` is the state directory, whose files the agent can't send; by default
        this user's. `launch_of` is the session whose system prompt the agent gets, by default the
        turn's: a branch has the prompt of the conversation that it copies. `agent` is the name of
        the agent whose conversation it is, by default the session's: an agent that works in place
        of the session's has one of its own.
        """
        self._setup = Setup(
            spec=spec,
            runtime=runtime,
            agents=agents,
            session_map=session_map,
            channel=channel or ChannelConfig(),
            zone=zone,
            hooks=hooks or Hooks(),
            attachments=attachments,
            limits=limits or Limits(),
            identity=identity,
            secrets=secrets,
            home=home or Home.default(),
            launch_of=launch_of,
            agent=agent,
        )
        self._ending: set[asyncio.Task[None]] = set()
        """The hooks of finished turns."""
        self._newest: Run | None = None
        """The running or last turn."""

    @property
    def can_steer(self) -> bool:
        """Whether the agent accepts messages during its turn."""
        return self._setup.runtime.capabilities.steers

    @property
    def can_compact(self) -> bool:
        """Whether the agent summarizes its conversation on request."""
        return self._setup.runtime.capabilities.compacts

    @property
    def compact_at(self) -> float:
        """The used part of the context from which on an idle conversation is summarized, by
        default; 0 if the agent can't be interrupted in that."""
        return self._setup.runtime.capabilities.compact_at

    @property
    def asides(self) -> Literal["", "copy", "notes"]:
        """How the agent answers asides: in a copy of the conversation, or in another one that has
        notes of it; empty if it can't."""
        return self._setup.runtime.capabilities.asides

    @property
    def explains_denial(self) -> bool:
        """Whether the agent receives the reason together with a denial."""
        return self._setup.runtime.capabilities.explains_denial

    async def handle(
        self,
        message: Turn | ChannelMessage,
        callbacks: BridgeCallbacks | None = None,
        abort: asyncio.Event | None = None,
        *,
        first_index: int = 0,
        sources: TurnSources | None = None,
        used_s: float = 0.0,
        model: str | None = None,
        model_setting: ModelSetting = "/model",
        workspace: str | None = None,
        begins_anew: bool = False,
        repeats: bool = False,
        opening: str = "",
    ) -> AgentDeliveryResult:
        """Run one turn to its end; failures are in the result, not raised.

        Setting `abort` stops it. The result names the newcomers of `sources` that the agent has
        taken up. `used_s` is the part of the turn's time limit that earlier tries have used, in
        seconds. `model` and `workspace` replace those of the agent's configuration; a running agent
        changes its model. `model_setting` says where `model` was chosen. With `begins_anew`, the
        agent gets the turn in a new conversation, which replaces the earlier one once the model has
        answered. `repeats` says that the agent is asked again after a temporary failure before any
        output. `opening` is a notice before the agent's first words.
        The payloads are numbered from `first_index`; those that were passed to a callback are
        marked as delivered.
        """
        turn = message if isinstance(message, Turn) else _turn_of(message)
        run = self._new_run(
            turn, callbacks, first_index, model=model, workspace=workspace, opening=opening
        )
        run.model_setting = model_setting if model else "model"
        run.begins_anew, run.spec = begins_anew, replace(run.spec, repeats=repeats)
        run.abort = abort or run.abort
        run.sources, run.used_s = sources or run.sources, used_s
        self._newest = run

        await look_up_session(run)  # 1
        await run_hooks_before_spawn(run)  # 2
        async with self._agent_failures(run):
            await build_system_prompts(run)  # 3
            collect_secrets(run)  # 4
            if await start_agent(run):  # 5
                await ask_and_deliver(run)  # 6
        await classify_error(run)  # 7
        await collect_side_effects(run)  # 8
        await update_session(run)  # 9
        self._begin_exit_hooks(run)  # 10
        return run.outcome()

    async def compact_last(self, abort: asyncio.Event) -> Compacted:
        """Have the agent summarize the last turn's conversation. Setting `abort` stops it."""
        return await compact(self._newest, abort) if self._newest else Compacted()

    async def compact(
        self,
        turn: Turn,
        abort: asyncio.Event,
        *,
        keep: str = "",
        callbacks: BridgeCallbacks | None = None,
        model: str | None = None,
        workspace: str | None = None,
    ) -> Compacted:
        """Have the agent summarize the conversation that `turn` continues, or has continued.

        `keep` says what the summary is to keep; `callbacks`, of which only `on_phase` is called,
        `model` and `workspace` are those of `handle()`. Setting `abort` stops it.
        """
        run = self._newest = self._new_run(turn, callbacks, model=model, workspace=workspace)
        await look_up_session(run)
        await run_hooks_before_spawn(run)
        try:
            await build_system_prompts(run)
        except AgentUnavailable as failure:
            return Compacted(failure=ErrorEvent(failure.category, str(failure)))
        collect_secrets(run)
        return await compact(run, abort, keep)

    async def context_size(self) -> tuple[str, ContextSize] | None:
        """Return the CLI's id of the last turn's conversation, and its size; None if unknown."""
        agent = self._newest.agent if self._newest else None
        size = await agent.context_size() if agent else None
        return (agent.session_id, size) if agent and size and agent.session_id else None

    async def give_up_conversation(self) -> None:
        """Forget the last turn's conversation: the next turn begins one with notes of it."""
        if self._newest:
            await self._setup.session_map.delete(self._newest.map_name)
            await self._setup.agents.discard()

    async def warm_up(
        self, turn: Turn, *, model: str | None = None, workspace: str | None = None
    ) -> None:
        """Begin to start the agent of a coming turn: steps 1 to 5, without step 2.

        It stores nothing and raises no error about the agent: the turn repeats these steps with the
        started agent. It does nothing if a hook may choose another directory.
        """
        if "before_runtime_spawn" in self._setup.hooks:
            return
        run = self._new_run(turn, model=model, workspace=workspace)
        await look_up_session(run)
        with contextlib.suppress(AgentUnavailable):
            await build_system_prompts(run)
            await warm_up_agent(run)

    async def prepared(
        self,
        turn: Turn,
        *,
        model: str | None = None,
        workspace: str | None = None,
        subdir: str | None = None,
    ) -> Prepared:
        """Return the launch parameters of a terminal's program: steps 1 to 3.

        With a `subdir`, it works there, below its workspace, in a conversation of its own.
        Raises `AgentUnavailable`.
        """
        run = self._new_run(turn, model=model, workspace=workspace)
        await run_hooks_before_spawn(run)
        root = run.spec.workspace
        if subdir and (parts := Path(subdir).parts):
            run.spec = replace(run.spec, workspace=str(Path(root, *parts)))
        await look_up_session(run)
        program = self._setup.runtime.terminal
        await build_system_prompts(run, is_public=program is not None and program.shows_prompt)
        return Prepared(
            spec=with_program(run),
            root=root,
            session_id=run.session_id,
            name=run.map_name,
            is_fork=run.fork_of is not None,
        )

    async def aside(
        self, entry: Entry, running: RunningTurn, history: Sequence[Mapping[str, str]] = ()
    ) -> Aside:
        """Put an entry to the agent of the running turn, and return its answer.

        It may be awaited beyond the turn's end, until the next turn begins. `history` is for an
        agent that is asked in another conversation. Raises `AsideFailed`.
        """
        newest = self._newest
        if newest is None or newest.agent is None or not newest.is_asked:
            raise AsideFailed("no agent is at work")
        key, zone = secrets.token_hex(3), self._setup.zone
        question = build_question(
            entry, running, key=key, zone=zone, now_ms=now_ms(), history=history
        )
        answer = await newest.agent.aside(question)
        verdict, text = read_verdict(answer.text, key)
        delivery = self._delivery(BridgeCallbacks(), 0, {entry.id: entry.message})
        return Aside(verdict, await delivery.deliver_whole(text), answer)

    def _new_run(
        self,
        turn: Turn,
        callbacks: BridgeCallbacks | None = None,
        first_index: int = 0,
        *,
        model: str | None,
        workspace: str | None,
        opening: str = "",
    ) -> Run:
        setup, callbacks = self._setup, callbacks or BridgeCallbacks()
        if setup.channel.activity == "off":
            callbacks = replace(callbacks, on_activity=None)
        messages = {entry.id: entry.message for entry in (*turn.left_out, *turn.entries)}
        max_messages = None
        if turn.entries[-1].deliver == "channel":
            max_messages = profile_of(turn.place.provider).max_messages
        delivery = self._delivery(callbacks, first_index, messages, max_messages, opening)
        spec = replace(
            setup.spec,
            model=model or setup.spec.model,
            workspace=workspace or setup.spec.workspace,
        )
        return Run(setup, turn, spec, delivery, callbacks, messages)

    def _delivery(
        self,
        callbacks: BridgeCallbacks,
        first_index: int,
        messages: Mapping[str, ChannelMessage],
        max_messages: int | None = None,
        opening: str = "",
    ) -> DeliveryAdapter:
        return DeliveryAdapter(
            chunk_limit=self._setup.channel.chunk_limit,
            chunk_unit=self._setup.channel.chunk_unit,
            code_file_lines=self._setup.channel.code_file_lines,
            callbacks=callbacks,
            first_index=first_index,
            messages=messages,
            max_messages=max_messages,
            opening=opening,
        )

    @contextlib.asynccontextmanager
    async def _agent_failures(self, run: Run) -> AsyncIterator[None]:
        """Store a failure of steps 5 and 6 in the run; end an agent that can't be used again."""
        try:
            yield
        except AgentUnavailable as failure:
            run.error = ErrorEvent(failure.category, str(failure))
        except RemoteClawError:
            raise  # from a callback, such as a lost lease: not a failure of the agent
        except Exception as error:  # noqa: BLE001 - an agent's output is another program's
            log.error("turn %s: %s", run.turn.reference, frames_of(error))
            detail = f"unforeseen: {type(error).__name__}"
            run.error = ErrorEvent(ErrorCategory.FATAL, detail, ends_agent=True)
            await run.delivery.flush()
        if run.delivered.ends_agent or (run.error and run.error.ends_agent):
            await self._setup.agents.discard()

    def _begin_exit_hooks(self, run: Run) -> None:
        ending = asyncio.create_task(run_exit_hooks(run))
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)

    async def settle(self) -> None:
        """Wait for the hooks of finished turns, which run after the answer."""
        while self._ending:
            await asyncio.wait(self._ending)


def _turn_of(message: ChannelMessage) -> Turn:
    """Return a turn of one message, for a bridge outside a fleet."""
    session = SessionKey.of(message, agent="main")
    return Turn(session, (Entry(id=f"{message.timestamp}-0", message=message),))
