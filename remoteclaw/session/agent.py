"""The agent of a session: attached if one is warm, else started; later parked or ended.

Only a parked agent can be attached. It is parked together with the id of the session's last
finished turn, and is not used if the session has finished another turn since.
"""

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson

from remoteclaw.config.home import Home
from remoteclaw.config.model import FleetConfig
from remoteclaw.errors import AgentUnavailable, ErrorCategory
from remoteclaw.holder.client import HolderClient
from remoteclaw.host.environment import past_proxies
from remoteclaw.host.logs import frames_of
from remoteclaw.host.process import end_orphans
from remoteclaw.messages import OWN_SERVER
from remoteclaw.protocols import FILES, AgentProcess, AgentSpec
from remoteclaw.runtimes import create_cli_runtime
from remoteclaw.runtimes.pipes import LinePipes
from remoteclaw.session.launch import launch_agent
from remoteclaw.session.tool_access import ToolAccess

log = logging.getLogger(__name__)


class AgentKeeper:
    """Provides the bridge with agents for one session under one lease."""

    def __init__(
        self,
        home: Home,
        *,
        epoch: int,
        kill_at: Callable[[], float],
        warm_s: float,
        budget: FleetConfig,
        parked: dict[str, Any] | None,
        finished_turn: str | None,
        tool_access: ToolAccess | None = None,
    ) -> None:
        """`kill_at` returns the time, on `boottime()`, until which the lease lets an agent live.

        `parked` names the holder of the session's warm agent, and `finished_turn` is the session's
        last finished turn. The warm agent is used only if it was parked after that same turn.
        `tool_access` provides new agents with RemoteClaw's own tools.
        """
        self._tool_access = tool_access
        self._wants_tools = False
        self._home = home
        self._epoch = epoch
        self._kill_at = kill_at
        self._warm_s = warm_s
        self._budget = budget
        self._parked = parked
        self.finished_turn = finished_turn
        """The session's last finished turn; None before the first one is finished."""
        self._holder: HolderClient | None = None
        self._pipes: LinePipes | None = None
        self._agent: AgentProcess | None = None
        self._fingerprint = ""
        self._key = ""
        self._watch: asyncio.Task[None] | None = None
        self._warm_up: tuple[tuple[object, ...], asyncio.Task[AgentProcess]] | None = None
        self._was_warm = False
        self._runtime_name = ""

    # -- for the bridge ------------------------------------------------------------------------

    async def obtain(
        self, spec: AgentSpec, *, session_id: str | None, fork: bool = False
    ) -> AgentProcess:
        """Return an agent that matches `spec`: a starting, attached, parked or new one."""
        if self._warm_up and self._warm_up[0] == (spec, session_id, fork):
            (_, starting), self._warm_up = self._warm_up, None
            agent = await starting  # cancelling this call also cancels the start
            if self._pipes and not self._pipes.has_ended:
                return agent
        await self._cancel_warm_up()
        return await self._obtain(spec, session_id, fork=fork)

    async def warm_up(self, spec: AgentSpec, *, session_id: str | None, fork: bool = False) -> None:
        """Start getting the agent for the next `obtain()`, which raises the error if this fails."""
        await self._cancel_warm_up()
        task = asyncio.create_task(self._obtain(spec, session_id, fork=fork))
        self._warm_up = (spec, session_id, fork), task

    async def discard(self) -> None:
        """End the agent's whole process tree, whether it is starting, attached or parked."""
        await self._cancel_warm_up()
        await self._discard()

    async def _cancel_warm_up(self) -> bool:
        """Cancel a pending start; return whether a partly started agent has to be discarded."""
        if self._warm_up is None:
            return False
        (_, starting), self._warm_up = self._warm_up, None
        starting.cancel()
        await asyncio.wait((starting,))
        return starting.cancelled() or starting.exception() is not None

    async def _obtain(self, spec: AgentSpec, session_id: str | None, *, fork: bool) -> AgentProcess:
        if self._parked:
            await self._attach(spec)
        agent = None if fork else self._fit_agent(spec, session_id)
        if agent and await agent.set_model(spec.model):
            self._was_warm = True
            return agent
        await self._discard()
        return await self._start(spec, session_id, fork=fork)

    async def _discard(self) -> None:
        if self._parked:
            self._holder = await self._attach_holder(self._parked)
            self._parked = None
        holder, self._holder, self._agent = self._holder, None, None
        if holder:
            await self._disconnect()
            if not await holder.end():
                _end_orphans(holder.path, holder.pid)

    @property
    def run_dir(self) -> Path:
        """The agent's own directory."""
        assert self._holder is not None, "obtain() comes first"
        return self._holder.path.parent

    @property
    def last_output_at(self) -> float:
        """The time of the agent's last output, on `time.monotonic()`; 0 without an agent."""
        return self._pipes.last_output_at if self._pipes else 0.0

    @property
    def files_dir(self) -> Path:
        """The subdirectory of `run_dir` that the agent may read."""
        return self.run_dir / FILES

    @property
    def is_new(self) -> bool:
        """Whether the agent was started for the running turn."""
        return not self._was_warm

    async def lacks_tools(self) -> bool:
        """Whether the new agent could not reach its tools, and this turn is to report that."""
        return bool(
            self._tool_access and self._wants_tools and await self._tool_access.are_missing()
        )

    @property
    def description(self) -> str:
        """A description of the agent for people: warm or new, its runtime and its pid."""
        pid = self._holder.pid if self._holder else 0
        return f"{'warm' if self._was_warm else 'new'} {self._runtime_name}, pid {pid}"

    # -- for the drain -------------------------------------------------------------------------

    def beat(self) -> None:
        """Send the holder a beat, after each renewal of the lease."""
        if self._holder:
            self._holder.beat(self._kill_at())

    @property
    def ready(self) -> str | None:
        """The description of the attached agent for the next turn; None without a live agent.

        None also for an agent that is still starting: its turn records it.
        """
        if self._warm_up or self._agent is None or self._pipes is None or self._pipes.has_ended:
            return None
        self._was_warm = True
        return self.description

    def record(self) -> dict[str, Any] | None:
        """Return the agent's holder (`path`, `key`) for the session's state; None without one."""
        if self._holder is None:
            return self._parked  # a parked agent that this turn has not attached
        return {"path": str(self._holder.path), "key": self._key}

    def note_finished_turn(self, turn: str) -> None:
        """Note the session's last finished turn, which is stored with a parked agent."""
        self.finished_turn = turn

    async def forget(self) -> None:
        """End the agent, and forget the session's last finished turn."""
        await self.discard()
        self.finished_turn = None

    async def park(self) -> None:
        """Leave the agent warm for the next worker, or end it if it can't be parked."""
        if await self._cancel_warm_up():
            await self._discard()
        if self._holder is None or self._agent is None:
            return
        if self._pipes:  # output that is read after `parked_state()` would be lost
            self._pipes.hold()
        state = self._agent.parked_state() if self._warm_s > 0 else None
        if state is None:
            await self.discard()
            return
        record = self.record()
        state = {"turn": self.finished_turn, "fingerprint": self._fingerprint, "agent": state}
        await self._disconnect()
        try:
            parked = await self._holder.park(
                epoch=self._epoch, warm_s=self._warm_s, state=orjson.dumps(state)
            )
        except TimeoutError:
            _end_orphans(self._holder.path, self._holder.pid)
            parked = False
        self._parked = record if parked else None
        self._holder = self._agent = None

    async def abandon(self) -> None:
        """Drop the connection without parking; the holder then ends the agent's process tree."""
        await self._cancel_warm_up()
        if self._holder:
            await self._disconnect()
            self._holder.drop()
        self._holder = self._agent = self._parked = None

    # -- attach and start ------------------------------------------------------------------------

    def _fit_agent(self, spec: AgentSpec, session_id: str | None) -> AgentProcess | None:
        """Return the attached agent if it is alive, matches `spec` and has this conversation."""
        is_fit = (
            self._agent is not None
            and self._pipes is not None
            and not self._pipes.has_ended
            and self._fingerprint == spec.fingerprint
            and session_id is not None
            and self._agent.session_id == session_id
        )
        return self._agent if is_fit else None

    async def _attach_holder(self, parked: dict[str, Any]) -> HolderClient | None:
        self._key, path = parked["key"], Path(parked["path"])
        try:
            return await HolderClient.attach(
                path, key=self._key, epoch=self._epoch, deadline=self._kill_at()
            )
        except TimeoutError:
            _end_orphans(path)
            return None

    async def _attach(self, spec: AgentSpec) -> None:
        """Attach the parked agent, unless it is gone or was parked after another turn."""
        assert self._parked is not None, "there is nothing to attach to"
        self._holder = await self._attach_holder(self._parked)
        self._parked = None
        if self._holder is None:
            return
        state = orjson.loads(self._holder.state)
        if state["turn"] != self.finished_turn or state["fingerprint"] != spec.fingerprint:
            log.info("a warm agent does not fit any more and is ended")
            await self._discard()
            return
        self._fingerprint = state["fingerprint"]
        try:
            await self._connect(spec, None, fork=False, parked_state=state["agent"])
        except Exception as error:  # noqa: BLE001 - another version may have left the state
            log.error("a warm agent can't be taken over and is ended: %s", frames_of(error))
            await self._discard()

    async def _start(self, spec: AgentSpec, session_id: str | None, *, fork: bool) -> AgentProcess:
        """Start a new agent that continues conversation `session_id`, or copies it if `fork`."""
        self._was_warm = False
        if not os.path.isdir(spec.workspace):  # noqa: ASYNC240 - one stat
            raise AgentUnavailable(
                f"The workspace {spec.workspace} is not there: make it, or correct the agent's "
                "configuration.",
                category=ErrorCategory.NOT_INSTALLED,
            )
        fingerprint = spec.fingerprint
        wants_tools = bool(spec.tools)
        spec = await self.with_tool_server(spec)
        if wants_tools and not spec.tools:
            fingerprint = ""  # matches no spec, so a restart follows once the gateway is back
        launched = await launch_agent(
            self._home,
            self._budget,
            spec,
            session_id=session_id,
            fork=fork,
            epoch=self._epoch,
            deadline=self._kill_at,
        )
        self._holder, self._key, self._fingerprint = launched.holder, launched.key, fingerprint
        try:
            return await self._connect(spec, launched.session_id, fork=fork, parked_state=None)
        except AgentUnavailable:
            await self._discard()
            raise

    async def with_tool_server(self, spec: AgentSpec) -> AgentSpec:
        """Return `spec` fitted to its workspace, with the MCP server of RemoteClaw's tools.

        The result has none of these tools if the gateway can't be reached. Revokes the tokens of
        earlier agent processes.
        """
        spec = await asyncio.to_thread(create_cli_runtime(spec.runtime).fitted, spec)
        server = None
        self._wants_tools = bool(spec.tools and self._tool_access) and spec.runtime != "demo"
        if spec.tools and self._tool_access:
            server = await self._tool_access.server(spec.tools)
            spec = spec if server else spec.without_tools()
        spec = replace(spec, env=past_proxies(spec.env, server.url if server else None))
        return (
            replace(spec, mcp_servers={OWN_SERVER: server, **spec.mcp_servers}) if server else spec
        )

    async def _connect(
        self,
        spec: AgentSpec,
        session_id: str | None,
        *,
        fork: bool,
        parked_state: dict[str, Any] | None,
    ) -> AgentProcess:
        assert self._holder is not None, "there is no holder"
        self._pipes = LinePipes(self._holder.take_pipes(), unread=self._holder.output)
        self._watch = asyncio.create_task(self._watch_holder(self._holder, self._pipes))
        self._runtime_name = spec.runtime
        self._agent = await create_cli_runtime(spec.runtime).connect(
            self._pipes,
            spec,
            session_id=session_id,
            fork=fork,
            parked_state=parked_state,
            run_dir=self.run_dir,
        )
        return self._agent

    async def _watch_holder(self, holder: HolderClient, pipes: LinePipes) -> None:
        """Wait for the end of the agent or its holder; end the orphans of a dead holder."""
        status = await holder.gone()
        if status is None:
            _end_orphans(holder.path, holder.pid)
        # The CLI's last output may still be in the pipe, so reading continues for a second.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                await pipes.closed()
        pipes.end()

    async def _disconnect(self) -> None:
        """Stop reading. The holder keeps its ends of the pipes open."""
        if self._watch:
            self._watch.cancel()
            # The watch reads the connection that the next request needs, so it must end first.
            await asyncio.wait((self._watch,))
            self._watch = None
        if self._pipes:
            self._pipes.end()
            self._pipes = None


def _end_orphans(path: Path, agent: int | None = None) -> None:
    """End a frozen or killed holder that listens at `path`, and its processes."""
    # Not async: a caller that disconnects could cancel it halfway.
    if count := end_orphans(path.parent, agent):
        log.warning("an agent's holder was killed or frozen: %d processes were ended", count)
