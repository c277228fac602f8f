"""The scripts against a plain model of them: any order of calls, any number of owners, any delay.

Hypothesis generates histories of messages, repetitions, late owners, stops, sweeps and passing
time. After each step, the server must agree with the model about the waiting entries, the owner of
each session, the outcome of each message, and the published texts.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from hypothesis.stateful import run_state_machine_as_test as run_machine
from redis.asyncio import Redis

from remoteclaw.clock import boottime
from remoteclaw.config.model import Config, TerminalsConfig
from remoteclaw.errors import CallRefused, LeaseLost
from remoteclaw.fleet import Fleet, keys
from remoteclaw.fleet.connection import Scripts
from remoteclaw.fleet.terminals.state import HeldLease, TerminalTurn
from remoteclaw.fleet.terminals.terminals import TerminalEnding
from remoteclaw.fleet.turns.asides import AsideEnd, Asides
from remoteclaw.fleet.turns.edits import content_digest
from remoteclaw.fleet.turns.inbound import GRACE_MS, Known, decode_entry
from remoteclaw.fleet.turns.lease import Lease
from remoteclaw.fleet.turns.turn import Postponement
from remoteclaw.messages import AsideVerdict, Entry, SessionKey, TerminalWish
from remoteclaw.tasks.branches import move_to_branch
from tests.conftest import THOROUGH, shifted
from tests.support.stack import REPLIES, message
from tests.support.terminals import place_of

LEASE_MS = 30_000
#: How long the holder of a terminal keeps a session.
HOLD_MS = 70_000
LIMITS = TerminalsConfig(max=64, max_per_person=64, opens_per_minute=600)
SENDERS = st.sampled_from(["alice", "bob"])
#: Few ids, so that repetitions are frequent.
IDS = st.integers(0, 12).map(str)


@dataclass
class Owner:
    """A worker that got a lease, and may have lost it."""

    lease: Lease
    epoch: int
    next_index: int = 0


@dataclass(frozen=True)
class Kept:
    """A postponed batch behind a terminal."""

    batch: list[str]
    steered: list[str]
    attempt: int
    forgiven: int
    not_before: int


@dataclass
class Session:
    """The model's state of one session."""

    sid: str = ""
    key: str = ""
    waiting: list[str] = field(default_factory=list)
    state: str = "idle"
    expires: int = 0
    epoch: int = 0
    owners: list[Owner] = field(default_factory=list)
    batch: list[str] | None = None
    attempt: int = 0
    singly: str | None = None
    stopped: str | None = None
    steered: list[str] = field(default_factory=list)
    moved: list[str] = field(default_factory=list)
    """The entries that were moved to branches; no worker serves these here."""
    moved_before_stop: int = 0
    """The number of entries in `moved` when the session was last stopped."""
    ended: list[str] = field(default_factory=list)
    """The turns that have ended a conversation."""
    begun_by: int = 0
    """The epoch under which the recorded batch was begun last."""
    not_before: int = 0
    """Until when it is postponed; 0 if it isn't."""
    forgiven: int = 0
    """How many attempts at the recorded batch were postponed."""
    opening: str | None = None
    """The entry of the terminal that is open, or waits for its turn."""
    held: HeldLease | None = None
    """The terminal that got the lease last."""
    stopped_terminal: str | None = None
    """The terminal that was stopped alone."""
    has_worked: bool = False
    """Whether an attempt at the recorded batch has reached an agent, or may have."""
    kept: "Kept | None" = None
    """The batch that waits behind a terminal."""

    def is_postponed(self, now: int) -> bool:
        return self.state == "scheduled" and self.not_before > now

    def is_ending(self, now: int) -> bool:
        """Whether the terminal was stopped, or its holder has the lease no more."""
        if self.opening is None:
            return False
        if self.is_stopped(self.opening):
            return True
        running = self.batch[0] if self.batch else None
        if not self.held or not self.held.place.turn == running == self.opening:
            return False
        return int(self.held.epoch) != self.epoch or self.expires <= now

    def is_stopped(self, entry: str) -> bool:
        covered = self.stopped is not None and _order(entry) <= _order(self.stopped)
        return covered or entry == self.stopped_terminal

    def wake(self) -> None:
        self.not_before = 0
        if self.kept:
            self.kept = replace(self.kept, not_before=0)

    @property
    def taken_up(self) -> list[str]:
        """The entries that are part of the recorded turn or of the kept batch."""
        kept = [*self.kept.batch, *self.kept.steered] if self.kept else []
        return [*(self.batch or ()), *self.steered, *kept]

    def keep(self) -> None:
        """Keep the postponed batch behind a terminal, if no attempt at it has reached an agent."""
        if self.batch is None or self.has_worked:
            return
        self.kept = Kept(self.batch, self.steered, self.attempt, self.forgiven, self.not_before)
        self.batch, self.steered, self.attempt, self.forgiven = None, [], 0, 0
        self.not_before = 0

    def restore(self) -> None:
        """Record the kept batch as the session's batch again."""
        assert self.kept is not None
        self.batch, self.steered = self.kept.batch, self.kept.steered
        self.attempt, self.forgiven = self.kept.attempt, self.kept.forgiven
        self.not_before, self.kept, self.has_worked = self.kept.not_before, None, False


class FleetMachine(RuleBasedStateMachine):
    """Two sessions, one fleet."""

    open_client: Callable[[], Redis]

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.now = 1  # later than the end of a lease that has ended at once, which is 0
        self.sessions: dict[str, Session] = {"alice": Session(), "bob": Session()}
        self.seen: dict[tuple[str, str], str] = {}
        self.texts: dict[str, str] = {}
        """The newest text of each message, by its entry."""
        self.edits = 0
        self.stale: set[str] = set()
        """The entries that were edited since an agent was asked about them."""
        self.outcomes: dict[str, str] = {}
        self.published: list[str] = []
        self.verdicts: dict[str, str] = {}
        """The verdicts of entries that were put to the agent as asides."""
        self.asked: dict[str, set[int]] = {}
        """The attempts in which each entry was put to the agent."""
        self.do(self.open())

    async def open(self) -> None:
        client = self.open_client()
        await client.flushall()
        scripts = Scripts(client, edit=shifted)
        self.fleet = Fleet.open("unix:///nobody", lease_s=LEASE_MS / 1000, scripts=scripts)

    def teardown(self) -> None:
        self.do(self.fleet.aclose())
        self.loop.close()

    def do(self, work: Awaitable[Any]) -> Any:
        return self.loop.run_until_complete(work)

    # -- what adapters and operators do ------------------------------------------------------------

    @rule(sender=SENDERS, message_id=IDS, text=st.sampled_from(["hi", "hi", "/new", "/stop"]))
    def append(self, sender: str, message_id: str, text: str) -> None:
        session = self.sessions[sender]
        incoming = message(text, id=message_id, from_=sender)
        once = (Known(message_id, content_digest(text, ())),)
        accepted = self.do(self.fleet.inbound.append(incoming, agent="main", once=once))
        session.sid, session.key = accepted.session.sid, str(accepted.session)
        earlier = self.seen.get((sender, message_id))
        assert accepted.is_duplicate == (earlier is not None)
        if earlier is not None:
            assert accepted.entry_id == earlier
            return
        self.seen[sender, message_id] = accepted.entry_id
        self.texts[accepted.entry_id] = text
        self.outcomes[accepted.entry_id] = "accepted"
        if text == "/stop":
            session.moved_before_stop = len(session.moved)
        if text == "/stop" and session.waiting:
            session.stopped = session.waiting[-1]
        if text == "/new" or (session.waiting and text == "/stop"):
            session.wake()
        session.waiting.append(accepted.entry_id)
        if session.state == "idle":
            session.state = "scheduled"

    @rule(
        which=st.integers(0, 5),
        text=st.sampled_from(["hi", "ho"]),
        is_command=st.booleans(),
        repeated=st.booleans(),
    )
    def edit(self, which: int, text: str, is_command: bool, repeated: bool) -> None:
        """An edit changes only a message that waits, and runs nothing a second time."""
        written = [name for name, entry_id in self.seen.items() if entry_id in self.texts]
        sender, message_id = [*reversed(written), ("bob", "unknown")][min(which, len(written))]
        self.edit_message(sender, message_id, text, is_command=is_command, repeated=repeated)

    def edit_message(
        self, sender: str, message_id: str, text: str, *, is_command: bool, repeated: bool
    ) -> None:
        session, entry_id = self.sessions[sender], self.seen.get((sender, message_id), "")
        self.edits += 1
        incoming, name = message(text, id=message_id, from_=sender), f"edit-{self.edits}"

        def editing() -> Coroutine[Any, Any, Any]:
            digest = content_digest(text, ())
            return self.fleet.edits.edit(
                incoming,
                Known(message_id, digest),
                name=name,
                agent="main",
                is_shared=False,
                is_command=is_command,
            )

        marks = (session.stopped, session.singly)
        waits = entry_id in session.waiting and not any(
            mark and _order(entry_id) <= _order(mark) for mark in marks
        )
        waits = waits and entry_id not in session.taken_up
        if not entry_id:
            expected = "unknown"
        elif self.texts[entry_id] == text:
            expected = "same"
        else:
            expected = "command" if is_command else "replaced" if waits else "late"
        assert self.do(editing()) == expected
        if repeated:
            assert self.do(editing()) == expected
        if expected == "replaced":
            self.texts[entry_id] = text
            self.stale.add(entry_id)
        elif entry_id:
            # Only the digest of the new content is kept.
            self.do(self.forget_edit(session, message_id, entry_id))

    async def forget_edit(self, session: Session, message_id: str, entry_id: str) -> None:
        """Let the message have its entry's content again, so that the model needs only one."""
        digest = content_digest(self.texts[entry_id], ())
        name = keys.known(SessionKey.parse(session.key), message_id)
        await self.fleet.scripts.client.set(name, f"{entry_id} {digest}", keepttl=True)

    def check_texts(self, entries: Iterable[Entry]) -> None:
        """Every reader gets the newest version of an entry."""
        for entry in entries:
            if entry.id in self.texts:
                assert entry.message.text == self.texts[entry.id]

    @rule(sender=SENDERS, call=IDS)
    def open_terminal(self, sender: str, call: str) -> None:
        """A session has one open terminal, and a repeated call opens no second one."""
        session = self.sessions[sender]
        key = SessionKey.of(message("hi", from_=sender), agent="main")
        wish = TerminalWish(by=sender, cols=80, rows=24)
        opening = self.fleet.terminals.open(
            key,
            wish,
            people=(),
            call=call,
            host="here",
            name="main",
            limits=LIMITS,
        )
        earlier = self.seen.get((sender, f"terminal-{call}"))
        client: Any = self.fleet.scripts.client
        is_postponed = self.do(client.hexists(keys.state(key.sid), "postponed_until_ms"))
        is_ending = earlier is None and session.is_ending(self.now)
        try:
            accepted = self.do(opening)
        except TerminalEnding:
            assert is_ending
            return
        except CallRefused:  # too many of them within a moment
            assert not is_ending
            return
        assert not is_ending
        session.sid, session.key = key.sid, str(key)
        assert accepted.is_duplicate == bool(earlier or session.opening)
        if accepted.is_duplicate:
            assert accepted.entry_id == (earlier or session.opening)
            return
        if is_postponed:
            session.keep()
        self.seen[sender, f"terminal-{call}"] = session.opening = accepted.entry_id
        self.outcomes[accepted.entry_id] = "accepted"
        session.waiting.append(accepted.entry_id)
        if session.state == "idle":
            session.state = "scheduled"

    @rule(
        sender=SENDERS,
        message_id=IDS,
        seconds=st.sampled_from([5, 60]),
        is_over=st.booleans(),
        repeated=st.booleans(),
    )
    def open_terminal_while_postponed(
        self, sender: str, message_id: str, seconds: int, is_over: bool, repeated: bool
    ) -> None:
        """The terminal can be begun at once, and the postponed turn comes after it."""
        self.append(sender, message_id, "hi")
        self.acquire(sender)
        self.begin(sender, -1, 1, repeated=False)
        self.postpone(sender, -1, seconds, knows_all=True, repeated=False)
        self.open_terminal(sender, message_id)
        self.acquire(sender)
        self.begin(sender, -1, 1, repeated=False)
        if is_over:
            self.finish(sender, -1, repeated=repeated, joined=0)
            self.begin(sender, -1, 1, repeated=repeated)

    @rule(sender=SENDERS)
    def stop_terminal(self, sender: str) -> None:
        """Only the terminal is stopped, and neither an older nor a newer message."""
        session = self.sessions[sender]
        turn = session.batch[0] if session.batch else None
        is_held = bool(session.held and session.held.place.turn == turn)
        if session.sid:
            assert self.do(self.fleet.terminals.stop(session.sid)) == is_held
        if is_held:
            session.stopped_terminal = turn

    @rule(sender=SENDERS)
    def stop(self, sender: str) -> None:
        session = self.sessions[sender]
        if session.sid:
            count = self.do(self.fleet.sessions.stop(session.sid))
            assert count == len(session.waiting) + len(session.moved)
            session.moved_before_stop = len(session.moved)
            if session.waiting:
                session.stopped = session.waiting[-1]
                session.wake()

    @rule(sender=SENDERS, call=IDS)
    def end_conversation(self, sender: str, call: str) -> None:
        session = self.sessions[sender]
        if not session.sid:
            return
        key = SessionKey.parse(session.key)
        entry_id = self.do(self.fleet.inbound.end_conversation(key, "new", call=call))
        earlier = self.seen.setdefault((sender, f"reset-{call}"), entry_id)
        assert entry_id == earlier
        if entry_id in self.outcomes:
            return
        self.outcomes[entry_id] = "accepted"
        session.moved_before_stop = len(session.moved)
        if session.waiting:
            session.stopped = session.waiting[-1]
            session.wake()
        session.waiting.append(entry_id)
        if session.state == "idle":
            session.state = "scheduled"

    @rule(seconds=st.sampled_from([1, 10, 31, 100]))
    def let_pass(self, seconds: int) -> None:
        self.now += seconds * 1000
        self.do(self.fleet.scripts.client.incrby("test:shift", seconds * 1000))

    # -- what workers do ---------------------------------------------------------------------------

    @rule(sender=SENDERS)
    def acquire(self, sender: str) -> None:
        session = self.sessions[sender]
        if not session.sid:
            return
        lease = self.do(self.fleet.leases.acquire(session.sid, worker="test", host="here"))
        is_free = (session.state == "scheduled" and not session.is_postponed(self.now)) or (
            session.state == "running" and session.expires < self.now
        )
        # Real time passes as well, so moments near the deadline are not checked.
        border = session.expires if session.state == "running" else session.not_before
        if abs(border - self.now) > 500 or not border:
            assert (lease is not None) == is_free
        if lease is None:
            return
        session.not_before = 0
        assert int(lease.epoch) > session.epoch
        session.state, session.epoch = "running", int(lease.epoch)
        session.expires = self.now + LEASE_MS
        session.owners.append(Owner(lease, session.epoch))

    def owner(self, sender: str, number: int) -> tuple[Session, Owner | None]:
        session = self.sessions[sender]
        owners = session.owners[-3:]
        return session, owners[number % len(owners)] if owners else None

    def is_fenced(self, session: Session, owner: Owner, work: Coroutine[Any, Any, Any]) -> Any:
        """Do an owner's write; a stale owner must be refused. Return (refused, result)."""
        if owner.epoch == session.epoch:
            return False, self.do(work)
        with pytest.raises(LeaseLost):
            self.do(work)
        return True, None

    @rule(sender=SENDERS, number=st.integers(0, 2), count=st.integers(1, 3), repeated=st.booleans())
    def begin(self, sender: str, number: int, count: int, repeated: bool) -> None:
        session, owner = self.owner(sender, number)
        wanted = session.waiting[:count]
        if owner is None or not wanted or session.begun_by == session.epoch == owner.epoch:
            return  # a drain begins the next turn when it has finished one
        if owner.epoch == session.epoch and session.state != "running":
            return  # it has released the lease
        stale, batch = self.is_fenced(session, owner, owner.lease.turns.begin(wanted))
        if stale:
            return
        opens_kept = session.kept is not None and session.batch is None
        if opens_kept and session.opening in session.waiting:
            assert session.opening is not None
            session.batch, session.attempt = [session.opening], 0
        elif opens_kept:
            session.restore()
            if abs(session.not_before - self.now) > 500 or not session.not_before:
                assert (batch is None) == (session.not_before > self.now)
            if batch is None:  # it is still postponed
                session.state = "scheduled"
                if repeated:
                    assert self.do(owner.lease.turns.begin(wanted)) is None
                return
            session.not_before = 0
            self.begin_again(session)
        elif session.batch is None:
            session.has_worked = False
            if session.stopped and _order(wanted[0]) <= _order(session.stopped):
                wanted = [each for each in wanted if _order(each) <= _order(session.stopped)]
            session.batch, session.attempt = wanted, 0
            if session.singly and _order(wanted[0]) <= _order(session.singly):
                session.batch, session.attempt, session.has_worked = wanted[:1], 2, True
            else:
                session.singly = None
        else:
            self.begin_again(session)
        session.steered = []
        session.attempt += 1
        session.begun_by = owner.epoch
        owner.next_index = 0
        assert batch is not None
        self.check_texts(batch.entries)
        assert [entry.id for entry in batch.entries] == session.batch
        assert batch.attempt == session.attempt
        assert batch.is_stopped == session.is_stopped(session.batch[-1])

    def begin_again(self, session: Session) -> None:
        """After two failures, each entry of a batch gets a turn of its own."""
        assert session.batch is not None
        session.batch = session.batch + session.steered
        if session.attempt - session.forgiven >= 2 and len(session.batch) > 1:
            session.singly, session.batch = session.batch[-1], session.batch[:1]

    @rule(sender=SENDERS, number=st.integers(0, 2), repeated=st.booleans())
    def publish(self, sender: str, number: int, repeated: bool) -> None:
        session, owner = self.owner(sender, number)
        if owner is None or owner.lease.turns._batch is None:
            return
        if owner.epoch == session.epoch and session.begun_by != owner.epoch:
            return
        text = f"{session.sid} {owner.epoch} {owner.lease.turns._batch.turn} {owner.next_index}"
        payload = {"text": text}
        stale, _ = self.is_fenced(
            session, owner, owner.lease.turns.publish(owner.next_index, payload)
        )
        if stale:
            return
        self.published.append(text)
        if repeated:
            self.do(owner.lease.turns.publish(owner.next_index, payload))
        owner.next_index += 1

    @rule(sender=SENDERS, number=st.integers(0, 2), repeated=st.booleans())
    def steer(self, sender: str, number: int, repeated: bool) -> None:
        session, owner = self.owner(sender, number)
        if owner is None or owner.lease.turns._batch is None:
            return
        if owner.epoch == session.epoch and session.begun_by != owner.epoch:
            return
        # A drain joins only entries that are newer than the turn.
        last = _order(session.batch[-1]) if session.batch else ()
        new = [each for each in session.waiting if each not in session.taken_up]
        new = [each for each in new if _order(each) > last][:1]
        if not new:
            return
        stale, joined = self.is_fenced(session, owner, owner.lease.turns.join(new))
        if stale:
            return
        assert session.batch is not None
        is_stopped = session.stopped and _order(session.batch[0]) <= _order(session.stopped)
        assert bool(joined) == (not is_stopped)
        if joined:
            self.check_texts(decode_entry(*raw) for raw in joined)
            session.steered += new
            if repeated:
                assert self.do(owner.lease.turns.join(new))

    @rule(
        sender=SENDERS,
        number=st.integers(0, 2),
        which=st.integers(0, 3),
        verdict=st.sampled_from(["answered", "work", "stop", "later"]),
        repeated=st.booleans(),
        text=st.sampled_from(["hi", "ho", None]),
    )
    def aside(
        self,
        sender: str,
        number: int,
        which: int,
        verdict: AsideVerdict,
        repeated: bool,
        text: str | None,
    ) -> None:
        """A verdict counts once, and only for a waiting entry that is part of no turn.

        If its sender edits the message to `text` meanwhile, the message waits.
        """
        session, owner = self.owner(sender, number)
        if owner is None or owner.lease.turns._batch is None or not session.waiting:
            return
        if owner.epoch == session.epoch and session.begun_by != owner.epoch:
            return
        turn, entry_id = (
            owner.lease.turns._batch.turn,
            session.waiting[which % len(session.waiting)],
        )
        asides = Asides(owner.lease)
        stale, asked = self.is_fenced(session, owner, asides.ask(turn, entry_id))
        if stale:
            return
        assert session.batch is not None
        marks = (session.stopped, session.singly)
        is_alone = entry_id not in session.taken_up and not any(
            mark and _order(entry_id) <= _order(mark) for mark in marks
        )
        before, known = self.verdicts.get(entry_id), self.asked.setdefault(entry_id, set())
        is_new = session.attempt not in known
        is_asked = is_alone and before is None and (not is_new or len(known) < 2)
        assert (asked is not None) == is_asked
        if asked is None:
            return
        self.check_texts([decode_entry(*asked)])
        self.stale.discard(entry_id)
        edited = next((id_ for id_, entry in self.seen.items() if entry == entry_id), None)
        is_edited = text is not None and self.texts.get(entry_id, text) != text
        if text is not None and edited is not None and is_edited:
            self.edit_message(*edited, text, is_command=False, repeated=False)
        else:
            is_edited = False
        known.add(session.attempt)
        text = f"{entry_id} beside"
        end = AsideEnd(owner.lease.session.place, [{"text": text}])

        def ending() -> Coroutine[Any, Any, Any]:
            return asides.end(turn, entry_id, verdict, end)

        runs = not (session.stopped and _order(session.batch[0]) <= _order(session.stopped))
        obeyed = verdict if (runs or verdict == "answered") and not is_edited else "later"
        assert self.do(ending()) == obeyed
        if repeated:
            assert self.do(ending()) == obeyed
        self.verdicts[entry_id] = obeyed
        if obeyed == verdict and (runs or verdict != "later"):
            self.published.append(text)
        if obeyed == "answered":
            self.outcomes[entry_id] = "done"
            session.waiting.remove(entry_id)
        if obeyed == "work":
            session.steered.append(entry_id)
        if obeyed == "stop":
            session.stopped = session.batch[-1]

    @rule(
        sender=SENDERS,
        number=st.integers(0, 2),
        which=st.integers(0, 3),
        repeated=st.booleans(),
    )
    def move(self, sender: str, number: int, which: int, repeated: bool) -> None:
        """A message is on exactly one stream: on its own, or on its branch's."""
        session, owner = self.owner(sender, number)
        entries = [*session.waiting, *session.moved]
        if owner is None or not entries:
            return
        entry = Entry(entries[which % len(entries)], message("hi", from_=sender))

        def moving() -> Coroutine[Any, Any, Any]:
            return move_to_branch(owner.lease, Config(), entry, running=())

        stale, result = self.is_fenced(session, owner, moving())
        if stale:
            return
        is_stopped = session.stopped and _order(entry.id) <= _order(session.stopped)
        is_single = session.singly and _order(entry.id) <= _order(session.singly)
        is_taken = entry.id in session.taken_up
        if entry.id in session.moved:
            assert result == "moved"
        elif is_stopped or is_single or is_taken or entry.id in self.stale:
            assert result == "gone"
        elif len(session.moved) - session.moved_before_stop >= Config().sessions.max_children:
            assert result == "full"
        else:
            assert result == "moved"
            session.waiting.remove(entry.id)
            session.moved.append(entry.id)
            if repeated:
                assert self.do(moving()) == "moved"

    @rule(
        sender=SENDERS,
        number=st.integers(0, 2),
        repeated=st.booleans(),
        joined=st.integers(0, 3),
    )
    def finish(self, sender: str, number: int, repeated: bool, joined: int) -> None:
        session, owner = self.owner(sender, number)
        if owner is None or owner.lease.turns._batch is None:
            return
        if owner.epoch == session.epoch and session.begun_by != owner.epoch:
            return
        turn = owner.lease.turns._batch
        text = f"{session.sid} {owner.epoch} {turn.turn} final"
        taken_up = session.steered[:joined]

        def finishing() -> Coroutine[Any, Any, Any]:
            return owner.lease.turns.finish(
                "done",
                reply=[{"text": text}],
                first_index=owner.next_index,
                payloads=[{"text": text}],
                taken_up=taken_up,
            )

        stale, finished = self.is_fenced(session, owner, finishing())
        if stale:
            return
        assert session.batch is not None
        for entry_id in (*session.batch, *taken_up):
            assert self.outcomes[entry_id] == "accepted"
            self.outcomes[entry_id] = "steered" if entry_id in taken_up else "done"
            session.waiting.remove(entry_id)
        self.published.append(text)
        if session.opening == turn.turn:
            session.opening = None
        session.batch, session.attempt, session.begun_by = None, 0, 0
        session.forgiven = 0
        session.steered = []
        assert finished.left == len(session.waiting)
        if repeated:  # its reply was lost
            owner.lease.turns._batch = turn
            assert self.do(finishing()).left == len(session.waiting)

    @rule(
        sender=SENDERS,
        number=st.integers(0, 2),
        seconds=st.sampled_from([5, 60]),
        knows_all=st.booleans(),
        repeated=st.booleans(),
    )
    def postpone(
        self, sender: str, number: int, seconds: int, knows_all: bool, repeated: bool
    ) -> None:
        """No entry is lost, the attempt does not count, and the notice is sent once."""
        session, owner = self.owner(sender, number)
        if owner is None or owner.lease.turns._batch is None:
            return
        if owner.epoch == session.epoch and session.begun_by != owner.epoch:
            return
        text = f"{session.sid} {owner.epoch} {owner.lease.turns._batch.turn} waits"
        real_ms = self.do(self.fleet.scripts.client.time())[0] * 1000
        shift = int(self.do(self.fleet.scripts.client.get("test:shift")) or 0)
        postponement = Postponement(
            until_ms=real_ms + shift + seconds * 1000,
            why="retryable",
            tries=1,
            last_notice="retryable",
            detail="",
            notice={"text": text},
        )
        newest = session.waiting[-1 if knows_all else 0]

        def postponing() -> Coroutine[Any, Any, Any]:
            return owner.lease.turns.postpone(postponement, newest=newest)

        stale, verdict = self.is_fenced(session, owner, postponing())
        if stale:
            return
        assert session.batch is not None
        if session.stopped and _order(session.batch[-1]) <= _order(session.stopped):
            assert verdict == "stopped"
            return
        assert verdict == ("postponed" if newest == session.waiting[-1] else "news")
        if verdict == "news":
            return
        self.published.append(text)
        session.state, session.not_before = "scheduled", self.now + seconds * 1000
        session.begun_by, session.forgiven = 0, session.forgiven + 1
        if session.opening not in (None, session.batch[0]):
            session.keep()
        if repeated:
            assert self.do(postponing()) == "postponed"

    @rule(sender=SENDERS, number=st.integers(0, 2), repeated=st.booleans())
    def reset(self, sender: str, number: int, repeated: bool) -> None:
        """A reset changes no waiting entry, and nothing at all under a lost lease."""
        session, owner = self.owner(sender, number)
        if owner is None or owner.lease.turns._batch is None:
            return
        if owner.epoch == session.epoch and session.begun_by != owner.epoch:
            return
        turn, client = owner.lease.turns._batch.turn, self.fleet.scripts.client
        names = [keys.session_map(session.sid), keys.record(session.sid)]
        self.do(client.hset(names[0], "demo|here", "id"))
        ending = owner.lease.reset(turn, "/new", keep_ms=60_000, keep=2)
        stale, _ = self.is_fenced(session, owner, ending)
        is_first = not stale and turn not in session.ended
        assert self.do(client.exists(*names)) == (0 if is_first else 1)
        if is_first:
            session.ended.append(turn)
        if repeated and not stale:
            self.do(client.hset(names[0], "demo|here", "of the new conversation"))
            self.do(owner.lease.reset(turn, "/new", keep_ms=60_000, keep=2))
            assert self.do(client.exists(*names)) == 1

    @rule(sender=SENDERS, number=st.integers(0, 2))
    def renew(self, sender: str, number: int) -> None:
        session, owner = self.owner(sender, number)
        if owner is None or (owner.epoch == session.epoch and session.state != "running"):
            return
        work = owner.lease.run_fenced("renew", lease_ms=LEASE_MS, grace_ms=GRACE_MS)
        stale, answer = self.is_fenced(session, owner, work)
        if not stale:
            session.expires = self.now + LEASE_MS
            assert (answer.stop_entry or "") == (session.stopped or "")

    @rule(sender=SENDERS, number=st.integers(0, 2))
    def hold(self, sender: str, number: int) -> None:
        """From then on the lease is the terminal's, and writes of its last owner are refused."""
        session, owner = self.owner(sender, number)
        if owner is None or owner.lease.turns._batch is None:
            return
        if owner.epoch == session.epoch and session.begun_by != owner.epoch:
            return
        turn, own = owner.lease.turns._batch.turn, TerminalTurn(owner.lease)
        place = place_of(turn)
        stale, _ = self.is_fenced(session, owner, own.place(place))
        assert stale == (owner.epoch != session.epoch)
        stale, epoch = self.is_fenced(
            session, owner, own.hold(place, "1 2 3", hold_s=HOLD_MS / 1000)
        )
        if stale:
            return
        assert int(epoch) > session.epoch
        session.epoch, session.begun_by, session.has_worked = int(epoch), 0, True
        session.expires = self.now + HOLD_MS
        (session.held,) = [
            held for held in self.do(self.fleet.terminals.held("here")) if held.sid == session.sid
        ] or [HeldLease(session.sid, SessionKey.parse(session.key), epoch, place, "1 2 3", "")]

    @rule(sender=SENDERS)
    def renew_terminal(self, sender: str) -> None:
        """The holder can renew its lease as long as no other owner has the session."""
        session = self.sessions[sender]
        if session.held is None:
            return
        renewing = self.fleet.terminals.renew(session.held, hold_s=HOLD_MS / 1000)
        if int(session.held.epoch) != session.epoch or session.expires == 0:
            with pytest.raises(LeaseLost):
                self.do(renewing)
            return
        is_alone = session.stopped_terminal == session.held.place.turn
        renewed = self.do(renewing)
        assert renewed.stop == (session.stopped_terminal if is_alone else session.stopped or "")
        assert (renewed.kept_until_ms is None) == (session.kept is None)
        session.expires = self.now + HOLD_MS

    @rule(sender=SENDERS)
    def lose_holder(self, sender: str) -> None:
        """The session of a dead holder is free at once."""
        session = self.sessions[sender]
        if session.held is None:
            return
        released = self.do(
            self.fleet.scripts.run(
                "expire",
                sid=session.sid,
                epoch=session.held.epoch,
                is_deliberate=False,
                deadline=boottime() + 5,
            )
        )
        was_its_own = int(session.held.epoch) == session.epoch and session.expires != 0
        assert released == was_its_own
        if was_its_own:
            session.expires = 0

    @rule(sender=SENDERS, number=st.integers(0, 2))
    def close(self, sender: str, number: int) -> None:
        session, owner = self.owner(sender, number)
        if owner is None or session.begun_by == owner.epoch:
            return
        stale, closed = self.is_fenced(session, owner, owner.lease.close())
        if stale:
            return
        if session.state == "running":
            assert closed == (not session.waiting)
            if closed:
                session.state, session.stopped = "idle", None

    @rule(sender=SENDERS, number=st.integers(0, 2))
    def release(self, sender: str, number: int) -> None:
        session, owner = self.owner(sender, number)
        if owner is None or session.begun_by == owner.epoch or not session.waiting:
            return
        stale, _ = self.is_fenced(session, owner, owner.lease.release())
        if not stale and session.state == "running":
            session.state = "scheduled"

    @rule()
    def sweep(self) -> None:
        self.do(self.fleet.sweeper.sweep())

    @rule()
    def postponed_sessions_get_no_hint(self) -> None:
        self.do(self.fleet.scripts.client.delete("rq:queue:agents"))
        self.do(self.fleet.sweeper.sweep())
        hinted = self.do(self.hinted())
        for session in self.sessions.values():
            if session.is_postponed(self.now + 500):
                assert session.sid not in hinted

    @precondition(lambda self: any(s.waiting for s in self.sessions.values()))
    @rule()
    def waiting_sessions_are_hinted_in_the_end(self) -> None:
        """A sweep repairs any lost hints after two minutes without a living worker."""
        self.do(self.fleet.scripts.client.delete("rq:queue:agents"))
        self.let_pass(100)
        self.let_pass(100)
        self.do(self.fleet.sweeper.sweep())
        hinted = self.do(self.hinted())
        for session in self.sessions.values():
            session.wake()
            if session.state != "idle":
                assert session.sid in hinted

    async def hinted(self) -> set[str]:
        client: Any = self.fleet.scripts.client
        found = set()
        for job in await client.lrange("rq:queue:agents", 0, -1):
            data = await client.hget(f"rq:job:{job.decode()}", "description")
            found.add(data.decode())
        shown = {description.rpartition("/")[2] for description in found}
        return {s.sid for s in self.sessions.values() if s.sid[:8] in shown}

    # -- what must hold ----------------------------------------------------------------------------

    @invariant()
    def the_server_agrees(self) -> None:
        self.do(self.compare())

    async def compare(self) -> None:
        client: Any = self.fleet.scripts.client
        for session in self.sessions.values():
            if session.sid:
                entries = await client.xrange(keys.inbound(session.sid))
                assert [entry_id.decode() for entry_id, _ in entries] == session.waiting
                state = await client.hget(keys.state(session.sid), "status")
                assert (state or b"idle").decode() == session.state
            branches = await client.zrange(keys.children(session.sid), 0, -1)
            assert len(branches) == len(session.moved)
            for branch in branches:
                assert await client.xlen(keys.inbound(branch.decode())) == 1
        replies = await client.xrange(REPLIES)
        texts = [fields[b"reply"].decode() for _, fields in replies]
        assert texts == [f'{{"text":"{text}"}}' for text in self.published]
        for (sender, _), entry_id in self.seen.items():
            outcome = await self.fleet.outcomes.read(self.sessions[sender].sid, entry_id)
            assert outcome is not None
            expected = self.outcomes[entry_id]
            assert expected == (outcome.status if outcome.is_final else "accepted")


def _order(entry_id: str) -> tuple[int, ...]:
    return tuple(int(part) for part in entry_id.split("-"))


def test_the_scripts_agree_with_the_model(any_client: Callable[[], Redis]) -> None:
    machine = type("Machine", (FleetMachine,), {"open_client": staticmethod(any_client)})
    run_machine(
        machine,
        settings=settings(
            max_examples=40 if THOROUGH else 15,
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
