"""The agent of a session: attached if one is warm, else started; later parked or ended.

Only a parked agent can be attached. Its record is written with the turn that it finished, and an
agent that remembers another turn is not used.
"""

import asyncio
import contextlib
import logging
import os
from collections.abc import Awaitable, Callable, Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson

from remoteclaw.config.home import Home
from remoteclaw.config.model import FleetConfig
from remoteclaw.errors import AgentUnavailable, ErrorCategory
from remoteclaw.holder.client import HolderClient
from remoteclaw.host.logs import frames_of
from remoteclaw.host.process import end_orphans
from remoteclaw.messages import OWN_SERVER, McpServerConfig
from remoteclaw.protocols import FILES, AgentProcess, AgentSpec
from remoteclaw.runtimes import create_cli_runtime
from remoteclaw.runtimes.pipes import LinePipes
from remoteclaw.session.launch import launch_agent

#: Returns the MCP server that has these tools; None if it can't be reached.
ToolServer = Callable[[Collection[str]], Awaitable[McpServerConfig | None]]

log = logging.getLogger(__name__)


class AgentKeeper:
    """The bridge's source of agents for one session under one lease."""

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
        tool_server: ToolServer | None = None,
    ) -> None:
        """`kill_at` tells until when the lease lets an agent live, on `boottime()`.

        `parked` is the record of the session's warm agent and `finished_turn` the turn that the
        session finished last; the agent is used only if it remembers the same. `tool_server`
        returns the MCP server for a new agent that may use RemoteClaw's own tools.
        """
        self._tool_server = tool_server
        self._home = home
        self._epoch = epoch
        self._kill_at = kill_at
        self._warm_s = warm_s
        self._budget = budget
        self._parked = parked
        self.finished_turn = finished_turn
        """The turn that the session finished last; None before its first."""
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
        """Return an agent of this spec: the one on its way or at hand, the parked, or a new one."""
        if self._warm_up and self._warm_up[0] == (spec, session_id, fork):
            (_, starting), self._warm_up = self._warm_up, None
            agent = await starting  # a stop that cancels us cancels this as well
            if self._pipes and not self._pipes.has_ended:
                return agent
        await self._cancel_warm_up()
        return await self._obtain(spec, session_id, fork=fork)

    async def warm_up(self, spec: AgentSpec, *, session_id: str | None, fork: bool = False) -> None:
        """Begin to get the agent that the next `obtain()` asks for; what fails, that one raises."""
        await self._cancel_warm_up()
        task = asyncio.create_task(self._obtain(spec, session_id, fork=fork))
        self._warm_up = (spec, session_id, fork), task

    async def discard(self) -> None:
        """End the agent's whole tree, whether on its way, attached or parked."""
        await self._cancel_warm_up()
        await self._discard()

    async def _cancel_warm_up(self) -> bool:
        """Forget an agent on its way; return whether what there is of it has to be discarded."""
        if self._warm_up is None:
            return False
        (_, starting), self._warm_up = self._warm_up, None
        starting.cancel()
        await asyncio.wait((starting,))
        return starting.cancelled() or starting.exception() is not None

    async def _obtain(self, spec: AgentSpec, session_id: str | None, *, fork: bool) -> AgentProcess:
        if self._parked:
            await self._attach(spec)
        if self._agent and not fork and self._is_fit(spec, session_id):
            self._was_warm = True
            return self._agent
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
    def heard_at(self) -> float:
        """When the agent last printed anything."""
        return self._pipes.heard_at if self._pipes else 0.0

    @property
    def files_dir(self) -> Path:
        """The part of it in which the agent may read."""
        return self.run_dir / FILES

    @property
    def is_new(self) -> bool:
        """Whether the agent was started for the running turn."""
        return not self._was_warm

    @property
    def description(self) -> str:
        """The agent's origin, runtime and process, for people."""
        pid = self._holder.pid if self._holder else 0
        return f"{'warm' if self._was_warm else 'new'} {self._runtime_name}, pid {pid}"

    # -- for the drain -------------------------------------------------------------------------

    def beat(self) -> None:
        """Tell the holder that the lease was renewed."""
        if self._holder:
            self._holder.beat(self._kill_at())

    @property
    def ready(self) -> str | None:
        """The description of an attached agent, as it will be for the next turn; None without.

        The place of an agent that is still starting is recorded by its turn.
        """
        if self._warm_up or self._agent is None or self._pipes is None or self._pipes.has_ended:
            return None
        self._was_warm = True
        return self.description

    def record(self) -> dict[str, Any] | None:
        """Return what the session's state has to say about its agent."""
        if self._holder is None:
            return self._parked  # it still waits: this turn has not attached it
        return {"path": str(self._holder.path), "key": self._key}

    def finished(self, turn: str) -> None:
        """Note the turn that the session has finished: a parked agent remembers it."""
        self.finished_turn = turn

    async def forget(self) -> None:
        """End the agent, and forget the turn that the session finished last."""
        await self.discard()
        self.finished_turn = None

    async def park(self) -> None:
        """Leave the agent warm for the next worker, or end it if it can't be left."""
        if await self._cancel_warm_up():
            await self._discard()
        if self._holder is None or self._agent is None:
            return
        if self._pipes:  # what is read behind that look would be lost with the pipes
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
        """Drop the connection without parking: the holder ends the agent's tree."""
        await self._cancel_warm_up()
        if self._holder:
            await self._disconnect()
            self._holder.drop()
        self._holder = self._agent = self._parked = None

    # -- attach and start ------------------------------------------------------------------------

    def _is_fit(self, spec: AgentSpec, session_id: str | None) -> bool:
        """Whether the attached agent is alive, was started like this, and has this conversation."""
        return (
            self._agent is not None
            and self._pipes is not None
            and not self._pipes.has_ended
            and self._fingerprint == spec.fingerprint
            and session_id is not None
            and self._agent.session_id == session_id
        )

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
        """Take over the parked agent, unless it is gone or remembers another turn."""
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
        """Start a new agent, continuing the conversation if it has an id, or a copy of it."""
        self._was_warm = False
        if not os.path.isdir(spec.workspace):  # noqa: ASYNC240 - one stat
            raise AgentUnavailable(
                f"The workspace {spec.workspace} is not there: make it, or correct the agent's "
                "configuration.",
                category=ErrorCategory.NOT_INSTALLED,
            )
        fingerprint = spec.fingerprint
        wants_tools = bool(spec.tools)
        spec = await self.equipped(spec)
        if wants_tools and not spec.tools:
            fingerprint = ""  # another one follows it once the gateway is there
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

    async def equipped(self, spec: AgentSpec) -> AgentSpec:
        """Return a spec as it can be had now, with the server of RemoteClaw's tools.

        The tokens of earlier agent processes are refused from now on.
        """
        spec = await asyncio.to_thread(create_cli_runtime(spec.runtime).fitted, spec)
        if not spec.tools or not self._tool_server:
            return spec
        if server := await self._tool_server(spec.tools):
            return replace(spec, mcp_servers={OWN_SERVER: server, **spec.mcp_servers})
        return spec.without_tools()

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
        """Notice the end of the agent or of its holder; without a holder, end what is left."""
        status = await holder.gone()
        if status is None:
            _end_orphans(holder.path, holder.pid)
        # What the CLI said before it ended is still in the pipe, and ends with it.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                await pipes.closed()
        pipes.end()

    async def _disconnect(self) -> None:
        """Stop reading; the pipes that the holder keeps are not touched."""
        if self._watch:
            self._watch.cancel()
            # Until it has ended, it reads the connection that is needed next.
            await asyncio.wait((self._watch,))
            self._watch = None
        if self._pipes:
            self._pipes.end()
            self._pipes = None


def _end_orphans(path: Path, agent: int | None = None) -> None:
    """End the holder that listens at a path, which is frozen or was killed, and what it held."""
    # Nothing is awaited here: a caller that disconnects meanwhile would cancel it.
    if count := end_orphans(path.parent, agent):
        log.warning("an agent's holder was killed or frozen: %d processes were ended", count)
