"""One terminal of this host: attached, shown, renewed while it lives, and ended when it should."""

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
from remoteclaw.fleet.reply import reply_payload
from remoteclaw.fleet.terminal_state import Held, Renewed
from remoteclaw.gateway.viewers import Room
from remoteclaw.holder.terminal_client import Ended, TerminalClient
from remoteclaw.host.process import end_strays, is_alive
from remoteclaw.messages import stream_order
from remoteclaw.session.terminal_asks import TerminalAsks
from remoteclaw.tty import handover
from remoteclaw.tty.handover import Standing
from remoteclaw.tty.program import watch_of
from remoteclaw.tty.renewal import RENEWALS, end, is_stopped, renew
from remoteclaw.tty.transcript_events import TranscriptTale
from remoteclaw.tty.watch import Watching

#: Interval of the look at who waits, who has left and what has changed, in seconds.
TEND_S = 1.0
#: After how long without a sign of the program it is said that a dialog may be open, in seconds.
READY_S = 10.0
#: How often it is looked whether the holder's process is gone behind its last word, which takes
#: milliseconds, and the pause from one look to the next, in seconds.
GONE_LOOKS, GONE_S = 40, 0.05
#: The pause from a person's new window to the program's new size, in seconds: windows are drawn
#: larger in many steps.
RESIZE_S = 0.1
#: The longest pause from one look at the screen to the next while somebody watches, in seconds: a
#: program may hold its screen back for half a second.
DRAW_S = 0.5

NEEDS = "The program has not said that it is ready: it may be asking something at its start."

log = logging.getLogger(__name__)


class HeldTerminal:
    """A terminal whose session belongs to its holder."""

    def __init__(
        self,
        fleet: Fleet,
        held: Held,
        room: Room,
        config: Callable[[], Config],
    ) -> None:
        """`config` returns the current configuration."""
        self.held = held
        self.room = room
        self.watching: Watching | None = None
        """None while it is not attached."""
        self._fleet = fleet
        self._config = config
        self._asks = TerminalAsks(fleet, held, config)
        self._is_asked = False
        """Whether people are asked in a chat what the program asks."""
        self._written: dict[str, Any] = {}
        self._renewed: Renewed | None = None
        self._renew_at = 0.0
        self._idle_since: float | None = None
        self._said_for = ""
        self._drawn, self._news = asyncio.Event(), asyncio.Event()
        self._size: tuple[int, int] | None = None
        self._owners: dict[str, str | None] = {}
        """Whose else the conversations are to which it has gone."""
        self._tale = TranscriptTale(fleet.terminals, held.sid, held.epoch, held.place)

    async def run(self, *, has_screens: bool) -> Literal["ended", "replaced"]:
        """Watch over it until it has ended, or another gateway has it.

        Where there are no screens, it is renewed and nothing else.
        """
        if not has_screens:
            await self._tend()
        client = await TerminalClient.attach(self._path, key=self.held.place.key)
        if client is None:
            await self._release()
            return "ended"
        self.watching = watching = Watching(
            client, watch_of(self.held.place), self, scrollback=self._config().terminals.scrollback
        )
        await watching.restore()
        self.room.show(watching.screen)
        duties = [asyncio.create_task(duty) for duty in (self._tend(), self._draw())]
        try:
            end = await watching.run()
        finally:
            for duty in duties:
                duty.cancel()
            await asyncio.wait(duties)
            self.room.hide()
            self.watching = None
            await watching.leave()
        if isinstance(end, Ended):
            await self._release()
            return "ended"
        return "replaced"

    @property
    def _path(self) -> Path:
        return Path(self.held.place.path)

    async def _release(self) -> None:
        """Settle the turn of a terminal that has ended, at once."""
        for _ in range(GONE_LOOKS):
            if not is_alive(self.held.holder):
                break
            await asyncio.sleep(GONE_S)
        with contextlib.suppress(RedisUnavailable, RedisRefused):
            await self._fleet.sweeper.release_dead(
                self.held.place.host, is_alive, end_left=end_strays
            )

    # -- what Watching hears -------------------------------------------------------------------

    def drawn(self) -> None:
        """The screen may have changed."""
        self._drawn.set()

    def changed(self) -> None:
        """The program has said something of itself."""
        self._news.set()
        self._look()

    def rang(self) -> None:
        """Tell the viewers that the bell has rung."""
        self.room.tell("terminal.bell", {"sid": self.held.sid})

    def offered(self, text: str) -> None:
        """Offer the viewers a text for the clipboard."""
        if self._config().terminals.clipboard != "off":
            self.room.tell("terminal.clipboard", {"sid": self.held.sid, "text": text})

    def heard(self) -> None:
        """Something was announced of the session: a message, a stop."""
        self._renew_at = 0.0
        self._news.set()

    def _look(self) -> None:
        """Show the viewers what is known."""
        if (watching := self.watching) is None:
            return
        watch, now, before = watching.watch, boottime(), self.room.record
        if watch.activity != "idle":
            self._idle_since = None
        elif self._idle_since is None:
            since_s = (now_ms() - before.since_ms) / 1000 if before.activity == "idle" else 0.0
            self._idle_since = now - max(since_s, 0.0)
        is_live = watch.is_ready or before.state == "live"
        is_late = now_ms() - self.held.place.started_ms > READY_S * 1000
        self.room.change(
            state="live" if is_live else "starting",
            needs=NEEDS if is_late and not is_live else "",
            activity=watch.activity if is_live else "unknown",
            waiting_for=watch.waiting_for if watch.activity == "waiting" else "",
            title=watching.screen.title,
            conversation=watch.conversation or before.conversation,
        )

    # -- for those who type --------------------------------------------------------------------

    def resize(self, cols: int, rows: int) -> None:
        """Change its size in a moment."""
        self._size = (cols, rows)
        self._drawn.set()

    async def park(self) -> None:
        """End it so that it can be opened again."""
        await end(self.held, interrupt=self._idle_since is None)

    # -- duties --------------------------------------------------------------------------------

    async def _draw(self) -> None:
        """Send who watches what they have to see, and the program its size."""
        resize_at: float | None = None
        while True:
            self._drawn.clear()
            if self._size and resize_at is None:
                resize_at = boottime() + RESIZE_S
            if self._size and resize_at is not None and boottime() >= resize_at:
                size, self._size, resize_at = self._size, None, None
                await self._resize(*size)
            left = self.room.draw()
            waits = [DRAW_S if self.room.count else None, left]
            waits.append(max(resize_at - boottime(), 0.0) if resize_at is not None else None)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min((w for w in waits if w is not None), default=None)):
                    await self._drawn.wait()

    async def _resize(self, cols: int, rows: int) -> None:
        assert self.watching is not None, "it is shown"
        with contextlib.suppress(OSError):
            await self.watching.resize(cols, rows)
            self.room.change(cols=cols, rows=rows)

    async def _tend(self) -> None:
        """Renew it, write what people see of it, and end it when it should."""
        while True:
            self._news.clear()
            self.room.seen()
            self.room.tell_state()
            self._look()
            try:
                await self._tend_once()
            except LeaseLost:
                if await self._is_over():
                    return
            except (RedisUnavailable, RedisRefused, OSError):
                pass  # it works on, and is told later
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(TEND_S):
                    await self._news.wait()

    async def _is_over(self) -> bool:
        """Whether the turn is over whose lease was lost; else it may be the holder's again."""
        self._renew_at = 0.0
        with contextlib.suppress(RedisUnavailable, RedisRefused):
            return not await self._fleet.terminals.is_placed(self.held.sid, self.held.place.path)
        return False

    async def _tend_once(self) -> None:
        if boottime() >= self._renew_at:
            await self._renew()
        await self._write()
        if self.watching is not None:
            watch = self.watching.watch
            if other := await self._other_with(watch.conversation):
                await self._say(f"{self.held.place.turn}-{other}", handover.has_strayed(other))
                if watch.activity not in ("busy", "waiting"):
                    await self._stop()
                return
            self._tale.follow(watch.conversation, watch.transcript)
            await self._tale.tell()
            self._is_asked = await self._asks.look(watch)
            await self._end_if_due()

    async def _other_with(self, conversation: str | None) -> str | None:
        """Return the other session that has the conversation which is open, if one has.

        That one may be at work in it, and two programs must not have it open.
        """
        if conversation is None or conversation == self.held.place.conversation:
            return None
        if conversation not in self._owners:
            self._owners[conversation] = await self._fleet.terminals.other_with(
                conversation, but=self.held.sid
            )
        return self._owners[conversation]

    async def _renew(self) -> None:
        hold_s = self._config().terminals.hold_s
        self._renewed = await renew(self._fleet.terminals, self.held, hold_s=hold_s)
        self._renew_at = boottime() + hold_s / RENEWALS
        if is_stopped(replace(self.held, stop_entry=self._renewed.stop)):
            await self.park()

    async def _write(self) -> None:
        """Write what people see of it, and tell cockpits what they should know."""
        record = self.room.record
        told = {
            name: getattr(record, name)
            for name in ("state needs activity waiting_for title writer viewers cols rows").split()
        }
        changes = {name: value for name, value in told.items() if self._written.get(name) != value}
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
        self._written |= changes

    # -- when it should end --------------------------------------------------------------------

    async def _end_if_due(self) -> None:
        """Park it when it was not needed for long, or for a message that waits behind it."""
        settings, standing = self._config().terminals, self._standing()
        if handover.is_forgotten(standing, idle_s=settings.idle_s, waiting_s=settings.waiting_s):
            await self._stop()
        await self._hand_over(standing)

    async def _hand_over(self, standing: Standing) -> None:
        waiting = standing.activity == "waiting"
        if waiting and not self._is_asked:
            assert self.watching is not None, "it is attached"
            about = f"{self.held.place.turn}-{self.watching.waits}"
            await self._say(about, handover.needs_person(standing.waiting_for))
        if self._renewed is None or not self._is_behind(self._renewed.newest):
            return
        verdict = handover.decide(standing, handover_s=self._config().terminals.handover_s)
        if verdict == "park" and await self._has_waiting():
            log.info("the terminal of %s is parked for a message", self.held.sid[:8])
            await self._stop()
        elif verdict == "tell" and self._is_behind(self._renewed.said):
            await self._say(self._renewed.said, handover.waits(standing))

    async def _stop(self) -> None:
        """End it, and let those know who open it meanwhile: they wait for that."""
        await self._fleet.terminals.stop(self.held.sid)
        await self.park()

    def _standing(self) -> Standing:
        record, watching, now = self.room.record, self.watching, boottime()
        assert watching is not None, "it is attached"
        return Standing(
            activity=watching.watch.activity if record.state == "live" else "unknown",
            waiting_for=record.waiting_for,
            who=record.writer or record.by,
            viewers=self.room.count,
            idle_s=now - self._idle_since if self._idle_since is not None else 0.0,
            alone_s=0.0 if self.room.count else now - self.room.alone_since,
            has_draft=watching.has_draft,
            same_s=(now_ms() - record.since_ms) / 1000,
        )

    def _is_behind(self, entry: str) -> bool:
        return bool(entry) and stream_order(entry) > stream_order(self.held.place.turn)

    async def _has_waiting(self) -> bool:
        view = await self._fleet.sessions.view(self.held.sid)
        return view is not None and view.waiting > 1

    async def _say(self, about: str, words: str) -> None:
        """Say something in the session's chat, once for what it is about on all hosts."""
        if self._said_for == about:
            return
        session = self.held.session
        name = f"terminal-{self.held.sid}-{about}"
        payload = reply_payload(session.place, words, sid=self.held.sid, call=name)
        digest = hashlib.sha256(name.encode()).hexdigest()[:32]
        with contextlib.suppress(CallRefused):
            await self._fleet.calls.messages(
                None, digest, [(session.provider, session.account, payload)], note=None
            )
            self._said_for = about
