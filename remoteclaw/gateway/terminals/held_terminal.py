"""One terminal of this host: attaches to it, shows it, renews its lease and ends it when due."""

import asyncio
import contextlib
import hashlib
import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from remoteclaw.clock import boottime, now_ms
from remoteclaw.config.model import Config
from remoteclaw.errors import CallRefused, LeaseLost, RedisRefused, RedisUnavailable
from remoteclaw.fleet import Fleet
from remoteclaw.fleet.replies.reply import reply_payload
from remoteclaw.fleet.terminals.state import HeldLease, LeaseRenewal
from remoteclaw.gateway.terminals.viewers import TerminalViewers
from remoteclaw.holder.terminal_client import TerminalClient, TerminalEnded
from remoteclaw.host.process import end_strays, is_alive
from remoteclaw.messages import SessionKey
from remoteclaw.session.terminal_requests import TerminalRequests
from remoteclaw.tty import handover
from remoteclaw.tty.handover import TerminalStatus
from remoteclaw.tty.program import watch_of
from remoteclaw.tty.renewal import RENEWALS, end_program, is_stopped, renew_lease
from remoteclaw.tty.terminal_usage import TerminalUsage
from remoteclaw.tty.transcript_events import TranscriptPublisher
from remoteclaw.tty.watch import WatchedTerminal

#: Interval of the check for waiting messages, viewers that have left and changes, in seconds.
MAINTAIN_S = 1.0
#: If the program has not reported that it is ready within this time, in seconds, the terminal shows
#: that a dialog may be open.
READY_S = 10.0
#: How many times to check whether the holder's process has exited after its last message, and the
#: pause between two checks, in seconds. The exit takes milliseconds.
GONE_CHECKS, GONE_S = 40, 0.05
#: The pause between a new size of a viewer's window and the resize of the program, in seconds: a
#: window that is dragged changes its size in many steps.
RESIZE_S = 0.1
#: The maximum pause between two reads of the screen while it has viewers, in seconds: a program may
#: hold its screen back for half a second.
DRAW_S = 0.5

NEEDS = "The program has not said that it is ready: it may be asking something at its start."

log = logging.getLogger(__name__)


class HeldTerminal:
    """An open terminal of this host, which this gateway attaches to and maintains."""

    def __init__(
        self,
        fleet: Fleet,
        held: HeldLease,
        viewers: TerminalViewers,
        config: Callable[[], Config],
    ) -> None:
        """`config` returns the current configuration."""
        self.held = held
        self.viewers = viewers
        self.watching: WatchedTerminal | None = None
        """The attached terminal; None while this gateway is not attached."""
        self._fleet = fleet
        self._config = config
        self._requests = TerminalRequests(
            fleet.terminals, fleet.requests, fleet.blobs, held, config
        )
        self._is_asked = False
        """Whether the program's question was sent to people in a chat."""
        self._saved: dict[str, Any] = {}
        """The fields of the record in Redis, as this gateway wrote them last."""
        self._renewed: LeaseRenewal | None = None
        self._renew_at = 0.0
        self._idle_since: float | None = None
        self._noted_about = ""
        """What the newest notice in the chat was about."""
        self._drawn, self._wake = asyncio.Event(), asyncio.Event()
        self._size: tuple[int, int] | None = None
        self._other_owners: dict[str, str | None] = {}
        """The other session of each conversation that the program has switched to; None if none."""
        self._publisher = TranscriptPublisher(fleet.terminals, held.sid, held.epoch, held.place)
        self._usage = TerminalUsage(fleet.terminals, held.session, held.epoch, held.place)
        self._root: SessionKey | None = None
        """The session above all others; None until it is read."""

    async def run(self, *, has_screens: bool) -> Literal["ended", "replaced"]:
        """Maintain the terminal until it has ended or another gateway has attached to it.

        Without `has_screens`, only renew its lease and save its record.
        """
        if not has_screens:
            await self._maintain()
        client = await TerminalClient.attach(self._path, key=self.held.place.key)
        if client is None:
            await self._release()
            return "ended"
        self.watching = watching = WatchedTerminal(
            client, watch_of(self.held.place), self, scrollback=self._config().terminals.scrollback
        )
        await watching.restore()
        self.viewers.show(watching.screen)
        tasks = [asyncio.create_task(task) for task in (self._maintain(), self._draw())]
        try:
            end = await watching.run()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            self.viewers.hide()
            self.watching = None
            await watching.leave()
        if isinstance(end, TerminalEnded):
            await self._release()
            return "ended"
        return "replaced"

    @property
    def _path(self) -> Path:
        return Path(self.held.place.path)

    async def _release(self) -> None:
        """Release the lease of a terminal that has ended, so that its turn is settled at once."""
        for _ in range(GONE_CHECKS):
            if not is_alive(self.held.holder):
                break
            await asyncio.sleep(GONE_S)
        with contextlib.suppress(RedisUnavailable, RedisRefused):
            await self._fleet.sweeper.release_dead(
                self.held.place.host, is_alive, end_left=end_strays
            )

    # -- called by WatchedTerminal -------------------------------------------------------------

    def screen_changed(self) -> None:
        """Send the screen, which may have changed."""
        self._drawn.set()

    def status_changed(self) -> None:
        """Send and save the activity, title or conversation, which may have changed."""
        self._wake.set()
        self._show_state()

    def bell_rang(self) -> None:
        """Send the viewers that the bell has rung."""
        self.viewers.send_event("terminal.bell", {"sid": self.held.sid})

    def clipboard_offered(self, text: str) -> None:
        """Send the viewers a text that the program offers for the clipboard."""
        if self._config().terminals.clipboard != "off":
            self.viewers.send_event("terminal.clipboard", {"sid": self.held.sid, "text": text})

    def _show_state(self) -> None:
        """Update the state that viewers see from what the program has reported."""
        if (watching := self.watching) is None:
            return
        watch, now, before = watching.program, boottime(), self.viewers.record
        if watch.activity != "idle":
            self._idle_since = None
        elif self._idle_since is None:
            since_s = (now_ms() - before.since_ms) / 1000 if before.activity == "idle" else 0.0
            self._idle_since = now - max(since_s, 0.0)
        is_live = watch.is_ready or before.state == "live"
        is_late = now_ms() - self.held.place.started_ms > READY_S * 1000
        self.viewers.change(
            state="live" if is_live else "starting",
            needs=NEEDS if is_late and not is_live else "",
            activity=watch.activity if is_live else "unknown",
            waiting_for=watch.waiting_for if watch.activity == "waiting" else "",
            title=watching.screen.title,
            draft=watching.draft,
            conversation=watch.conversation or before.conversation,
        )

    # -- called by HostTerminals ---------------------------------------------------------------

    def check_session(self) -> None:
        """Check at once for a message or a stop, because one was announced for the session."""
        self._renew_at = 0.0
        self._wake.set()

    # -- called by handlers --------------------------------------------------------------------

    def resize(self, cols: int, rows: int) -> None:
        """Resize the program after `RESIZE_S`."""
        self._size = (cols, rows)
        self._drawn.set()

    async def park(self) -> None:
        """End the program; its conversation can be opened again."""
        await end_program(self.held, interrupt=self._idle_since is None)

    # -- periodic tasks ------------------------------------------------------------------------

    async def _draw(self) -> None:
        """Send frames to the viewers and new sizes to the program, until cancelled."""
        resize_at: float | None = None
        while True:
            self._drawn.clear()
            if self._size and resize_at is None:
                resize_at = boottime() + RESIZE_S
            if self._size and resize_at is not None and boottime() >= resize_at:
                size, self._size, resize_at = self._size, None, None
                await self._resize(*size)
            next_frame_s = self.viewers.draw()
            waits_s = [DRAW_S if self.viewers.count else None, next_frame_s]
            waits_s.append(max(resize_at - boottime(), 0.0) if resize_at is not None else None)
            wait_s = min((each for each in waits_s if each is not None), default=None)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._drawn.wait()

    async def _resize(self, cols: int, rows: int) -> None:
        assert self.watching is not None, "it is shown"
        with contextlib.suppress(OSError):
            await self.watching.resize(cols, rows)
            self.viewers.change(cols=cols, rows=rows)

    async def _maintain(self) -> None:
        """Renew the lease, save the record and end the terminal when due, until it is over."""
        while True:
            self._wake.clear()
            self.viewers.refresh()
            self.viewers.send_state()
            self._show_state()
            try:
                await self._maintain_once()
            except LeaseLost:
                if await self._is_over():
                    return
            except (RedisUnavailable, RedisRefused, OSError):
                pass  # the program works on; the next round saves the record
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(MAINTAIN_S):
                    await self._wake.wait()

    async def _is_over(self) -> bool:
        """Whether the turn is over after its lease was lost; if not, renewing may work again."""
        self._renew_at = 0.0
        with contextlib.suppress(RedisUnavailable, RedisRefused):
            return not await self._fleet.terminals.is_placed(self.held.sid, self.held.place.path)
        return False

    async def _maintain_once(self) -> None:
        if boottime() >= self._renew_at:
            await self._renew()
        await self._save()
        if self.watching is not None:
            watch = self.watching.program
            if other := await self._other_with(watch.conversation):
                await self._notify_chat(
                    f"{self.held.place.turn}-{other}", handover.stray_notice(other)
                )
                if watch.activity not in ("busy", "waiting"):
                    await self._stop()
                return
            self._publisher.follow(watch.conversation, watch.transcript)
            await self._publisher.publish()
            self._root = self._root or await self._fleet.sessions.root(self.held.session)
            is_active = watch.activity != "idle"
            await self._usage.update(self._config(), self._root.sid, is_active=is_active)
            self._is_asked = await self._requests.sync(watch)
            self.watching.check_composer()
            await self._end_if_due()

    async def _other_with(self, conversation: str | None) -> str | None:
        """Return the id of another session that owns the open conversation; None if none does.

        That session may be using the conversation, and two programs must not have it open.
        """
        if conversation is None or conversation == self.held.place.conversation:
            return None
        if conversation not in self._other_owners:
            self._other_owners[conversation] = await self._fleet.terminals.other_session_with(
                conversation, but=self.held.sid
            )
        return self._other_owners[conversation]

    async def _renew(self) -> None:
        hold_s = self._config().terminals.hold_s
        self._renewed = await renew_lease(self._fleet.terminals, self.held, hold_s=hold_s)
        self._renew_at = boottime() + hold_s / RENEWALS
        if is_stopped(replace(self.held, stop_entry=self._renewed.stop)):
            await self.park()

    async def _save(self) -> None:
        """Save the changed fields of the record in Redis, with an event of what cockpits show."""
        record = self.viewers.record
        fields = {
            name: getattr(record, name)
            for name in (
                "state needs activity waiting_for title draft writer viewers cols rows"
            ).split()
        }
        changes = {name: value for name, value in fields.items() if self._saved.get(name) != value}
        if not changes:
            return
        event = None
        if changes.keys() & {"state", "activity", "waiting_for", "needs"}:
            event = {
                "type": "state",
                "state": record.state,
                "needs": record.needs,
                "activity": record.activity,
                "waitingFor": record.waiting_for,
            }
        elif "writer" in changes:
            event = {"type": "writer", "writer": record.writer}
        await self._fleet.terminals.change(self.held.sid, self.held.epoch, event=event, **changes)
        self._saved |= changes

    # -- ending --------------------------------------------------------------------------------

    async def _end_if_due(self) -> None:
        """Park the terminal if it was unused for long, or if a message waits for its turn."""
        settings, status = self._config().terminals, self._status()
        if handover.is_abandoned(status, idle_s=settings.idle_s, waiting_s=settings.waiting_s):
            if status.draft:
                about = f"{self.held.place.turn}-draft"
                await self._notify_chat(about, handover.draft_notice(status.draft))
            await self._stop()
        await self._hand_over(status)

    async def _hand_over(self, status: TerminalStatus) -> None:
        waiting = status.activity == "waiting"
        if waiting and not self._is_asked:
            assert self.watching is not None, "it is attached"
            about = f"{self.held.place.turn}-{self.watching.wait_count}"
            await self._notify_chat(about, handover.needs_person_notice(status.waiting_for))
        turn, renewed = self.held.place.turn, self._renewed
        if renewed is None or not renewed.has_due_entry(turn, now_ms()):
            return
        verdict = handover.decide(status, handover_s=self._config().terminals.handover_s)
        if verdict == "park" and await self._has_waiting():
            log.info("the terminal of %s is parked for a message", self.held.sid[:8])
            await self._stop()
        elif verdict == "notify" and (message := renewed.waiting_message(turn)):
            await self._notify_chat(message, handover.waiting_notice(status))

    async def _stop(self) -> None:
        """End the terminal, and mark it as ending so that calls that open it wait for the end."""
        await self._fleet.terminals.stop(self.held.sid)
        await self.park()

    def _status(self) -> TerminalStatus:
        record, watching, now = self.viewers.record, self.watching, boottime()
        assert watching is not None, "it is attached"
        idle_s = self._config().terminals.idle_s
        return TerminalStatus(
            activity=watching.program.activity if record.state == "live" else "unknown",
            waiting_for=record.waiting_for,
            user=record.writer or record.by,
            viewers=self.viewers.user_count,
            idle_s=now - self._idle_since if self._idle_since is not None else 0.0,
            unwatched_s=0.0 if self.viewers.user_count else now - self.viewers.alone_since,
            has_draft=watching.has_draft,
            unchanged_s=(now_ms() - record.since_ms) / 1000,
            quiet_s=watching.quiet_s,
            has_new_process=watching.quiet_s < idle_s or watching.has_new_process(),
            draft=watching.draft,
        )

    async def _has_waiting(self) -> bool:
        view = await self._fleet.sessions.view(self.held.sid)
        return view is not None and view.waiting > 1

    async def _notify_chat(self, about: str, text: str) -> None:
        """Send a notice to the session's chat, once per `about` across all gateways."""
        if self._noted_about == about:
            return
        session = self.held.session
        name = f"terminal-{self.held.sid}-{about}"
        payload = reply_payload(session.place, text, sid=self.held.sid, call=name, is_notice=True)
        digest = hashlib.sha256(name.encode()).hexdigest()[:32]
        with contextlib.suppress(CallRefused):
            await self._fleet.calls.send_messages(
                None, digest, [(session.provider, session.account, payload)], effect=None
            )
            self._noted_about = about
