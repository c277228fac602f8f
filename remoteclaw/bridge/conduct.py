"""The conduct of a running turn: steering, permissions, a stop, and time limits."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from remoteclaw.bridge.time_limits import Limits, Pace
from remoteclaw.config.permissions import EDITS, Ruling, decide
from remoteclaw.errors import Overdue, RedisRefused, RedisUnavailable
from remoteclaw.events import PermissionEvent
from remoteclaw.messages import Image, Turn
from remoteclaw.protocols import AgentProcess, AgentSpec, BridgeCallbacks, Decision

#: How long an agent may take to stop a turn, in seconds; then its process is ended.
ABORT_S = 5.0
#: The pause between two requests to stop, in seconds: the first one may come before the turn has
#: begun, and an agent that reads nothing can't be told at all.
INTERRUPT_EVERY_S = 0.5

#: What an agent is told that may not use a tool.
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
    """Return the sentence that names the settings which would allow what was denied."""
    settings = " and ".join(f"`{remedy}`" for remedy in remedies)
    return f"{settings} in `[agents.{agent}]` would allow it." if settings else ""


class Conduct:
    """Leads an agent through one turn, beside the reading of its events."""

    def __init__(
        self,
        agent: AgentProcess,
        *,
        spec: AgentSpec,
        limits: Limits,
        pace: Pace,
        abort: asyncio.Event,
        callbacks: BridgeCallbacks,
        as_shown: Callable[[PermissionEvent], PermissionEvent],
        show: Callable[[str], None],
        discard: Callable[[], Awaitable[None]],
        files: Path,
        turn: Turn,
    ) -> None:
        """`callbacks` ask a person, if one can be asked, who is shown it `as_shown`.

        `show` shows words beside the answer, and `discard` ends the agent. In `files` is what
        people send, where it may read.
        """
        self._agent = agent
        self._spec = spec
        self._limits = limits
        self._pace = pace
        self._abort = abort
        self._callbacks = callbacks
        self._as_shown = as_shown
        self._show = show
        self._discard = discard
        self._files = files
        self._reference = turn.reference
        self._agent_name = turn.session.agent
        self.people_decide: set[str] = set()
        """The tools about which people were asked."""
        self.remedies: dict[str, None] = {}
        """The settings that would have allowed what was denied, in the order of the denials."""
        self.overdue: Overdue | None = None
        """Which limit the turn has passed; None if none."""
        self._is_ending = False
        """Whether the agent is being ended because it did not stop."""
        self._deciding: dict[str, asyncio.Task[None]] = {}
        """Permissions that the agent waits for, by its own ids."""
        self._is_unanswered = asyncio.Event()
        """Set when a request will get no answer."""

    @contextlib.asynccontextmanager
    async def over(
        self, joining: AsyncGenerator[tuple[str, str, Sequence[Image]], None]
    ) -> AsyncIterator[None]:
        """Watch over the turn while its events are read.

        What `joining` yields (a prompt, its key and pictures) is given to the agent meanwhile.
        Raises what steering or deciding failed with.
        """
        # Not in a TaskGroup: what a callback raises (a lost lease) has to arrive as it is.
        watch = asyncio.create_task(self._stop_when_asked())
        steering = asyncio.create_task(self._steer(joining))
        try:
            yield
        finally:
            if not self._is_ending:
                watch.cancel()
            steering.cancel()
            for deciding in self._deciding.values():
                deciding.cancel()
            await asyncio.wait((watch, steering, *self._deciding.values()))
        for done in (steering, *self._deciding.values()):
            if not done.cancelled():
                done.result()

    # -- steering ------------------------------------------------------------------------------

    async def _steer(self, joining: AsyncGenerator[tuple[str, str, Sequence[Image]], None]) -> None:
        """Give the agent what arrives while it works."""
        try:
            async with contextlib.aclosing(joining) as messages:
                async for prompt, key, images in messages:
                    await self._agent.steer(prompt, key, images)
        except (RedisRefused, RedisUnavailable) as error:
            log.warning("turn %s: nothing joins it any more: %s", self._reference, error)

    # -- permissions ---------------------------------------------------------------------------

    async def decide(self, event: PermissionEvent, say_all: Callable[[], Awaitable[None]]) -> None:
        """Begin to decide about a permission; the agent may say more meanwhile.

        People who are asked have read before what the agent has said: `say_all` delivers it.
        """
        ruling = await asyncio.to_thread(decide, event, self._spec, self._files)
        if ruling.verdict == "ask" and self._callbacks.on_permission:
            await say_all()
        self._deciding[event.id] = asyncio.create_task(self._decide(event, ruling))

    async def withdraw(self, event_id: str) -> None:
        """Decide no more about a permission that the agent has taken back."""
        if deciding := self._deciding.get(event_id):
            if self._callbacks.on_withdrawn:
                await self._callbacks.on_withdrawn(event_id)
            deciding.cancel()

    async def _decide(self, event: PermissionEvent, ruling: Ruling) -> None:
        """Answer a request for a permission; an agent that can't be answered is ended."""
        try:
            decision = await self._decision(event, ruling)
            self._pace.decided(decision)
            await self._agent.answer(event.id, decision)
        except Exception:
            self._is_unanswered.set()  # it would wait for the answer as long as a turn may take
            raise

    async def _decision(self, event: PermissionEvent, ruling: Ruling) -> Decision:
        """Decide by the configuration, or ask a person who can be asked."""
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
            event = replace(event, where=self._spec.workspace, awaits_edits=awaits_edits)
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
        """Interrupt the agent once the turn is to stop, and end it if it does not."""
        asked = asyncio.create_task(self._abort.wait())
        late = asyncio.create_task(self._wait_until_overdue())
        unanswered = asyncio.create_task(self._is_unanswered.wait())
        reasons = (asked, late, unanswered)
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
        """Tell the agent to stop, for as long as it may take; the end of its turn cancels this."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ABORT_S):
                while True:
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(INTERRUPT_EVERY_S):
                            await self._agent.interrupt()
                    await asyncio.sleep(INTERRUPT_EVERY_S)
        log.warning("the agent did not stop within %d s and is ended", ABORT_S)

    async def _wait_until_overdue(self) -> None:
        """Wait until the turn has passed a limit; tell the person meanwhile what is waited for."""
        while not (overdue := self._pace.overdue(self._limits)):
            if notice := self._pace.notice(self._limits):
                self._show(notice)
            await asyncio.sleep(self._pace.next_look_s(self._limits))
        log.warning("turn %s: %s", self._reference, overdue.detail)
        self.overdue = overdue
