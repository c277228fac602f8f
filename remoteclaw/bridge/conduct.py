"""The supervision of a running turn: steering, permissions, stops and time limits."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from remoteclaw.bridge.time_limits import Limits, TurnTimer
from remoteclaw.config.permissions.permissions import EDITS, PermissionRuling, decide
from remoteclaw.errors import Overdue, RedisRefused, RedisUnavailable
from remoteclaw.events import PermissionEvent
from remoteclaw.messages import Image, Turn
from remoteclaw.protocols import AgentProcess, AgentSpec, BridgeCallbacks, Decision

#: The maximum time for an agent to stop its turn, in seconds; after that, its process is ended.
ABORT_S = 5.0
#: The pause between two requests to stop, in seconds: the first request may arrive before the turn
#: has begun. It is also the timeout of a request, because the agent may not read its input.
INTERRUPT_EVERY_S = 0.5

#: The messages to an agent with a denial.
NOBODY_TO_ASK = (
    "This needs a permission, and no person can be asked for it here. "
    "Say so in your answer, and go on without it."
)
NOBODY_TO_ANSWER = (
    "No person can be asked a question here. Go on with what is most sensible, and say in your "
    "answer what you have assumed."
)
NOBODY_TO_APPROVE = (
    "No person can approve a plan here, and plan mode is over. If you were asked for a plan, "
    "answer with it and change nothing; else go on with what you may do."
)
NOT_ALLOWED = "This agent is not allowed to use tools that need a permission."

ONLY_READS = (
    "A branch of a conversation only looks: it may read files and the web. Say in your answer what "
    "is to be done, and go on without it."
)

log = logging.getLogger(__name__)


def remedies_of(agent: str, remedies: Iterable[str]) -> str:
    """Return the sentence about the settings that would allow the denied tools; empty without."""
    settings = " and ".join(f"`{remedy}`" for remedy in remedies)
    return f"{settings} in `[agents.{agent}]` would allow it." if settings else ""


class TurnSupervisor:
    """Supervises an agent during one turn, while the turn's events are read."""

    def __init__(
        self,
        agent: AgentProcess,
        *,
        spec: AgentSpec,
        limits: Limits,
        timer: TurnTimer,
        abort: asyncio.Event,
        callbacks: BridgeCallbacks,
        as_shown: Callable[[PermissionEvent], PermissionEvent],
        show: Callable[[str], None],
        discard: Callable[[], Awaitable[None]],
        files: Path,
        turn: Turn,
    ) -> None:
        """`callbacks` ask people about permissions; `as_shown` adds the text that they read.

        `show` shows a notice in live text, and `discard` ends the agent. `files` is the directory
        of the files that people send, which the agent may read.
        """
        self._agent = agent
        self._spec = spec
        self._limits = limits
        self._timer = timer
        self._abort = abort
        self._callbacks = callbacks
        self._as_shown = as_shown
        self._show = show
        self._discard = discard
        self._files = files
        self._reference = turn.reference
        self._agent_name = turn.session.agent
        self.people_decide: set[str] = set()
        """The names of the tools that people were asked about."""
        self.remedies: dict[str, None] = {}
        """The settings that would have allowed the denied tools, in the order of the denials."""
        self.overdue: Overdue | None = None
        """The time limit that the turn has exceeded; None if none."""
        self._is_ending = False
        """Whether the agent is being ended because it did not stop."""
        self._deciding: dict[str, asyncio.Task[None]] = {}
        """The tasks that decide about the agent's requests, by the agent's own ids."""
        self._is_unanswered = asyncio.Event()
        """Set when a request can't be answered."""

    @contextlib.asynccontextmanager
    async def watch(
        self, joining: AsyncGenerator[tuple[str, str, Sequence[Image]], None]
    ) -> AsyncIterator[None]:
        """Supervise the turn while its events are read.

        The messages that `joining` yields (prompt, key, pictures) are passed to the agent. Raises
        the errors of steering and deciding.
        """
        # No TaskGroup, because the caller needs a callback's LeaseLost itself, not in a group.
        stopping = asyncio.create_task(self._stop_when_asked())
        steering = asyncio.create_task(self._steer(joining))
        try:
            yield
        finally:
            if not self._is_ending:
                stopping.cancel()
            steering.cancel()
            for deciding in self._deciding.values():
                deciding.cancel()
            await asyncio.wait((stopping, steering, *self._deciding.values()))
        for done in (steering, *self._deciding.values()):
            if not done.cancelled():
                done.result()

    # -- steering ------------------------------------------------------------------------------

    async def _steer(self, joining: AsyncGenerator[tuple[str, str, Sequence[Image]], None]) -> None:
        """Pass the joining messages to the agent."""
        try:
            async with contextlib.aclosing(joining) as messages:
                async for prompt, key, images in messages:
                    await self._agent.steer(prompt, key, images)
        except (RedisRefused, RedisUnavailable) as error:
            log.warning("turn %s: nothing joins it any more: %s", self._reference, error)

    # -- permissions ---------------------------------------------------------------------------

    async def decide(
        self, event: PermissionEvent, deliver_so_far: Callable[[], Awaitable[None]]
    ) -> None:
        """Begin to decide about a permission, while the agent's events are still read.

        `deliver_so_far` delivers the agent's text so far: people read it before they are asked.
        """
        ruling = await asyncio.to_thread(decide, event, self._spec, self._files)
        if ruling.verdict == "ask" and self._callbacks.on_permission:
            await deliver_so_far()
        self._deciding[event.id] = asyncio.create_task(self._decide(event, ruling))

    async def withdraw(self, event_id: str) -> None:
        """Stop deciding about a request that the agent has withdrawn."""
        if deciding := self._deciding.get(event_id):
            if self._callbacks.on_withdrawn:
                await self._callbacks.on_withdrawn(event_id)
            deciding.cancel()

    async def _decide(self, event: PermissionEvent, ruling: PermissionRuling) -> None:
        """Answer a request for a permission; end the agent if it can't be answered."""
        try:
            decision = await self._decision(event, ruling)
            self._timer.decided(decision)
            await self._agent.answer(event.id, decision)
        except Exception:
            self._is_unanswered.set()  # else the agent would wait until the turn's time limit
            raise

    async def _decision(self, event: PermissionEvent, ruling: PermissionRuling) -> Decision:
        """Decide by the configuration, or ask people if they can be asked."""
        match ruling.verdict:
            case "allow":
                return Decision("allow")
            case "refuse" if ruling.remedy:
                self.remedies[ruling.remedy] = None
                return Decision("deny", ONLY_READS)
            case "refuse":
                return Decision("deny", NOT_ALLOWED)
        if self._callbacks.on_permission:
            self.people_decide.add(event.tool_name)
            awaits_edits = ruling.remedy == EDITS
            event = replace(event, workspace=self._spec.workspace, awaits_edits=awaits_edits)
            return await self._callbacks.on_permission(self._as_shown(event))
        if event.questions:
            return Decision("deny", NOBODY_TO_ANSWER)
        if event.plan is not None and self._spec.permissions == "auto":
            return Decision("allow")
        if event.plan is not None:
            return Decision("deny", NOBODY_TO_APPROVE, ends_planning=True)
        self.remedies[ruling.remedy] = None
        return Decision("deny", f"{NOBODY_TO_ASK} {remedies_of(self._agent_name, [ruling.remedy])}")

    # -- a stop, and time limits ---------------------------------------------------------------

    async def _stop_when_asked(self) -> None:
        """Interrupt the agent on a stop or an exceeded limit; end it if it does not stop."""
        aborted = asyncio.create_task(self._abort.wait())
        overdue = asyncio.create_task(self._wait_until_overdue())
        unanswered = asyncio.create_task(self._is_unanswered.wait())
        reasons = (aborted, overdue, unanswered)
        try:
            await asyncio.wait(reasons, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for reason in reasons:
                reason.cancel()
        if not self._is_unanswered.is_set():
            await self._interrupt()
        self._is_ending = True
        await self._discard()

    async def _interrupt(self) -> None:
        """Ask the agent to stop, again and again for `ABORT_S`; the turn's end cancels this."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ABORT_S):
                while True:
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(INTERRUPT_EVERY_S):
                            await self._agent.interrupt()
                    await asyncio.sleep(INTERRUPT_EVERY_S)
        log.warning("the agent did not stop within %d s and is ended", ABORT_S)

    async def _wait_until_overdue(self) -> None:
        """Wait until the turn exceeds a limit; show a notice about a long silence."""
        while not (overdue := self._timer.overdue(self._limits)):
            if notice := self._timer.notice(self._limits):
                self._show(notice)
            await asyncio.sleep(self._timer.next_check_s(self._limits))
        log.warning("turn %s: %s", self._reference, overdue.detail)
        self.overdue = overdue
