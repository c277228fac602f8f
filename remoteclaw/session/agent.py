"""A session's agent: attaches to a warm one, starts a new one, parks it, ends it.

The rules are the holder's: only a parked agent can be attached, the record of a parked agent is
written with the turn that it finished, and an agent that remembers another turn is not used.
"""

import asyncio
import contextlib
import logging
import os
import secrets
import shutil
from collections.abc import Awaitable, Callable, Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson

from remoteclaw.config.home import Home, private_directory
from remoteclaw.config.model import FleetConfig
from remoteclaw.errors import AgentUnavailable, ErrorCategory, StateDirectoryError
from remoteclaw.holder.budget import make_room
from remoteclaw.holder.client import Holder, HolderLaunch, LaunchFailed, run_name
from remoteclaw.host.files import share_text
from remoteclaw.host.process import end_orphans
from remoteclaw.messages import OWN_SERVER, McpServerConfig
from remoteclaw.protocols import FILES, AgentProcess, AgentSpec
from remoteclaw.runtimes import create_cli_runtime
from remoteclaw.runtimes.pipes import LinePipes

__all__ = ["LIFELINE", "UP_PREFIX", "AgentKeeper"]

#: Where `up` tells its workers' agents that they belong to it.
LIFELINE = "REMOTECLAW_LIFELINE"
#: How the run directories of those agents begin: `up` waits for them when it ends.
UP_PREFIX = "up"

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
        session finished last; the agent is used only if it knows of the same. `tool_server` returns
        the MCP server for a new agent that may use RemoteClaw's own tools.
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
        self._holder: Holder | None = None
        self._pipes: LinePipes | None = None
        self._agent: AgentProcess | None = None
        self._fingerprint = ""
        self._key = ""
        self._watch: asyncio.Task[None] | None = None
        self._was_warm = False
        self._runtime_name = ""

    # -- for the bridge ------------------------------------------------------------------------

    async def obtain(
        self, spec: AgentSpec, *, session_id: str | None, fork: bool = False
    ) -> AgentProcess:
        """Return an agent of this spec: the attached one, the parked one, or a new one."""
        if self._parked:
            await self._attach(spec)
        if self._agent and not fork and self._is_fit(spec, session_id):
            self._was_warm = True
            return self._agent
        await self.discard()
        return await self._start(spec, session_id, fork=fork)

    async def discard(self) -> None:
        """End the agent's whole tree, whether attached or parked."""
        if self._parked:
            self._holder = await self._attach_holder(self._parked)
            self._parked = None
        holder, self._holder, self._agent = self._holder, None, None
        if holder:
            await self._let_go()
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
        """How the agent came, for people."""
        pid = self._holder.pid if self._holder else 0
        return f"{'warm' if self._was_warm else 'new'} {self._runtime_name}, pid {pid}"

    # -- for the drain -------------------------------------------------------------------------

    def beat(self) -> None:
        """Tell the holder that the lease was renewed."""
        if self._holder:
            self._holder.beat(self._kill_at())

    @property
    def ready(self) -> str | None:
        """The description of an attached agent, as it will be for the next turn; None without."""
        if self._agent is None or self._pipes is None or self._pipes.has_ended:
            return None
        self._was_warm = True
        return self.description

    def record(self) -> dict[str, Any] | None:
        """Return what the session's state has to say about its agent."""
        if self._holder is None:
            return self._parked  # it waits still: nobody has attached it in this turn
        return {"path": str(self._holder.path), "key": self._key}

    def finished(self, turn: str) -> None:
        """Note the turn that the session has finished: an agent that is parked knows of it."""
        self.finished_turn = turn

    async def forget(self) -> None:
        """End the agent, and be as for a session that has finished no turn yet."""
        await self.discard()
        self.finished_turn = None

    async def park(self) -> None:
        """Leave the agent warm for the next worker, or end it if it can't be left."""
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
        await self._let_go()
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
        """Let go without a word, because the lease is lost: the holder ends the agent's tree."""
        if self._holder:
            await self._let_go()
            self._holder.drop()
        self._holder = self._agent = self._parked = None

    # -- coming --------------------------------------------------------------------------------

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

    async def _attach_holder(self, parked: dict[str, Any]) -> Holder | None:
        self._key, path = parked["key"], Path(parked["path"])
        try:
            return await Holder.attach(
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
            await self.discard()
            return
        self._fingerprint = state["fingerprint"]
        try:
            await self._connect(spec, None, fork=False, parked_state=state["agent"])
        except Exception:
            # Whatever another version left there: a new agent goes on with the conversation.
            log.exception("a warm agent can't be taken over and is ended")
            await self.discard()

    async def _start(self, spec: AgentSpec, session_id: str | None, *, fork: bool) -> AgentProcess:
        """Start a new agent, continuing the conversation if it has an id, or a copy of it."""
        self._was_warm = False
        if not os.path.isdir(spec.workspace):  # noqa: ASYNC240 - one stat
            raise AgentUnavailable(
                f"The workspace {spec.workspace} is not there: make it, or correct the agent's "
                "configuration.",
                category=ErrorCategory.NOT_INSTALLED,
            )
        runtime, fingerprint = create_cli_runtime(spec.runtime), spec.fingerprint
        full = await asyncio.to_thread(runtime.fitted, spec)
        if full.tools and self._tool_server:
            if server := await self._tool_server(full.tools):
                full = replace(full, mcp_servers={OWN_SERVER: server, **full.mcp_servers})
            else:
                full = full.without_tools()
                fingerprint = ""  # another one follows it once the gateway is there
        lifeline = os.environ.get(LIFELINE, "")
        name = run_name(UP_PREFIX if lifeline else "")
        try:
            run_dir = await asyncio.to_thread(self._make_run_dir, name)
        except (StateDirectoryError, OSError) as error:
            raise AgentUnavailable(str(error), category=ErrorCategory.NOT_INSTALLED) from None
        try:
            launch = runtime.launch(full, session_id=session_id, fork=fork, run_dir=run_dir)
            if launch.prompt_file:
                text = full.system_prompt.encode("utf-8", "replace")
                own = run_dir / launch.prompt_file.name
                await asyncio.to_thread(share_text, launch.prompt_file, text, own)
        except BaseException as error:
            shutil.rmtree(run_dir, ignore_errors=True)
            if isinstance(error, OSError):
                why = str(error)
                raise AgentUnavailable(why, category=ErrorCategory.NOT_INSTALLED) from None
            raise
        self._key = secrets.token_hex(16)
        holder_launch = HolderLaunch(
            argv=launch.argv,
            env=launch.env,
            cwd=launch.cwd,
            run_dir=run_dir,
            key=self._key,
            lifeline=lifeline,
        )
        try:
            self._holder = await Holder.start(
                holder_launch, epoch=self._epoch, deadline=self._kill_at()
            )
        except (LaunchFailed, OSError, EOFError) as error:
            # TimeoutError is an OSError; EOFError means that the holder itself did not start.
            if isinstance(error, EOFError):
                log.error("a holder failed: %s", _tail(run_dir / "holder.log"))
            shutil.rmtree(run_dir, ignore_errors=True)
            raise AgentUnavailable(
                f"{launch.argv[0]} could not be started: {str(error) or type(error).__name__}.",
                category=ErrorCategory.NOT_INSTALLED,
            ) from None
        self._fingerprint = fingerprint
        try:
            return await self._connect(full, launch.session_id, fork=fork, parked_state=None)
        except AgentUnavailable:
            await self.discard()
            raise

    def _make_run_dir(self, name: str) -> Path:
        fleet = self._budget
        reserve = fleet.reserve_mb * 1024 * 1024
        with make_room(self._home.runs, most=fleet.max_agents, reserve_bytes=reserve):
            run_dir = private_directory(self._home.runs / name)
            (run_dir / FILES).mkdir(mode=0o700)
            return run_dir

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

    async def _watch_holder(self, holder: Holder, pipes: LinePipes) -> None:
        """Notice the end of the agent or of its holder; without a holder, end what is left."""
        status = await holder.gone()
        if status is None:
            _end_orphans(holder.path, holder.pid)
        # What the CLI said before it ended is still in the pipe, and ends with it.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                await pipes.closed()
        pipes.end()

    async def _let_go(self) -> None:
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
    # Nothing is awaited here: who lets go of the agent meanwhile would cancel it.
    if count := end_orphans(path.parent, agent):
        log.warning("an agent's holder was killed or frozen: %d processes were ended", count)


def _tail(file: Path) -> str:
    try:
        return file.read_text(errors="replace")[-500:].strip()
    except OSError:
        return "it left no log"
