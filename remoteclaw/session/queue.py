"""The queue: the next batch, the messages that join or interrupt a turn, and the pauses before one.

Pure functions of frozen values; their callers do the I/O.
Other decisions are made elsewhere: `append.lua` stops a turn as it accepts `/stop`, and `begin.lua`
repeats a recorded batch unchanged. In the mode `aside`, the agent decides about each message
(`bridge/asides.py`), within the limits of `_allowed_verdict` (`session/asides.py`). While a
terminal is open, `tty/handover.py` decides.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from remoteclaw.config.model import QueueConfig
from remoteclaw.fleet.turns.commands import Command, command_of
from remoteclaw.fleet.turns.lease import MAX_READ_ENTRIES
from remoteclaw.fleet.turns.turn import Batch, Finished
from remoteclaw.messages import Entry, Turn, people_of, person, stream_order

#: A batch becomes a dead letter after this many failed attempts.
MAX_ATTEMPTS = 3
#: A session's share: after this many turns or seconds, it yields to other sessions that wait.
MAX_TURNS, MAX_SECONDS = 8, 60.0
#: Results of tasks that end together share a turn: it begins once no result has arrived for
#: `SETTLE_MS`, and at the latest `MAX_SETTLE_MS` after the first result, in milliseconds.
SETTLE_MS, MAX_SETTLE_MS = 500, 2000


# -- the next turn --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NextBatch:
    """The batch of the next turn, as entry ids, oldest first."""

    batch: tuple[str, ...]
    """All entries of the next turn, including `left_out`."""
    left_out: tuple[str, ...] = ()
    """Entries beyond the cap; the agent only sees the beginning of each."""
    is_dropped: bool = False
    """Whether the batch is dropped with a notice to the sender, without asking the agent."""


def next_batch(
    waiting: Sequence[Entry],
    queue: QueueConfig,
    *,
    busy_since_ms: int | None,
) -> NextBatch:
    """Return the next batch of the `waiting` entries, which must not be empty.

    A command, of the chat or of the agent's CLI, gets a turn of its own, so that earlier messages
    are answered first. So does a message that somebody waits for, or whose reply doesn't go to the
    channel, except that a task and its parent's later messages share a turn. In the modes
    `aside`, `collect` and `interrupt`, all other entries up to the next such entry share a turn.
    The cap applies to people's messages since `busy_since_ms`, when the session became busy; None
    means that it was idle. Commands, and entries that no person has sent, don't count towards the
    cap and are never left out.
    """
    head = waiting[0]
    if head.is_from_parent:
        return NextBatch(_ids([*itertools.takewhile(lambda e: e.is_from_parent, waiting)]))
    if _has_own_turn(head):
        return NextBatch((head.id,))
    from_chat = list(itertools.takewhile(_may_share, waiting))
    candidates = list(itertools.takewhile(lambda entry: not _is_command(entry), from_chat))
    beyond_cap = _beyond_cap(from_chat, queue, busy_since_ms)
    if beyond_cap and queue.drop == "new":
        return NextBatch(_ids(beyond_cap), is_dropped=True)
    left_out = [entry for entry in candidates if entry in beyond_cap]
    if left_out and (queue.drop == "old" or left_out == candidates):
        return NextBatch(_ids(left_out), is_dropped=True)
    together = _answered_together([e for e in candidates if e not in left_out], queue)
    batch = [entry for entry in candidates if entry in left_out or entry in together]
    return NextBatch(_ids(batch), left_out=_ids(left_out))


def _beyond_cap(
    from_chat: Sequence[Entry], queue: QueueConfig, busy_since_ms: int | None
) -> list[Entry]:
    """Return the messages that exceed the cap: with `drop = "new"` the newest, else the oldest.

    Only what people have sent since the session became busy counts, without their commands. The
    excess is taken from the people who have written most.
    """
    if not queue.cap or busy_since_ms is None:
        return []
    counted = [
        entry
        for entry in from_chat
        if entry.at_ms >= busy_since_ms and entry.origin == "chat" and not _is_command(entry)
    ]
    # Nobody's flood drops a message of another person: the excess is of those who wrote most.
    by_person: dict[str, list[Entry]] = {}
    for entry in counted:
        by_person.setdefault(entry.message.from_, []).append(entry)
    beyond: list[Entry] = []
    for _ in range(len(counted) - queue.cap):
        most = max(by_person.values(), key=len)
        beyond.append(most.pop(-1 if queue.drop == "new" else 0))
    return sorted(beyond, key=lambda entry: stream_order(entry.id))


def _answered_together(entries: Sequence[Entry], queue: QueueConfig) -> list[Entry]:
    """Return those of the oldest entries that one turn answers in the queue's mode."""
    match queue.mode:
        case "aside" | "collect":
            return list(entries)
        case "interrupt":  # only a turn of only people's messages may be interrupted
            is_chat = entries[0].origin == "chat"
            return list(itertools.takewhile(lambda e: (e.origin == "chat") == is_chat, entries))
        case _:
            return list(itertools.takewhile(_is_result, entries)) or list(entries[:1])


def typing_pause_s(waiting: Sequence[Entry], queue: QueueConfig, *, now_ms: int) -> float:
    """Return how many seconds to wait for a person who may still be typing; 0 for no wait.

    `now_ms` is on Redis' clock. There is no wait in the modes `interrupt` and `steer`, once the
    number of waiting entries has reached the cap, or if an entry waits that gets its own turn.
    """
    newest = waiting[-1]
    if queue.mode in ("interrupt", "steer") or len(waiting) >= (queue.cap or MAX_READ_ENTRIES):
        return 0.0
    if any(map(_has_own_turn, waiting)):
        return 0.0
    left_ms = queue.debounce_ms - max(0, now_ms - newest.at_ms)
    return max(0, left_ms) / 1000


def settling_pause_s(waiting: Sequence[Entry], *, now_ms: int) -> float:
    """Return how many seconds to wait for further results of tasks; 0 for no wait.

    `now_ms` is on Redis' clock. There is no wait if any entry is not a result, because a person
    may be waiting for its answer.
    """
    if not all(map(_is_result, waiting)):
        return 0.0
    until_ms = min(waiting[-1].at_ms + SETTLE_MS, waiting[0].at_ms + MAX_SETTLE_MS)
    return max(0, until_ms - now_ms) / 1000


def gathering_pause_s(waiting: Sequence[Entry], queue: QueueConfig, *, now_ms: int) -> float:
    """Return how many seconds to wait for more messages of a burst; 0 for no wait.

    `now_ms` is on Redis' clock. Only messages that people in a group or thread write to each other
    are gathered, in the modes that answer several messages in one turn. Any other entry, or a full
    cap, ends the wait.
    """
    is_full = len(waiting) >= (queue.cap or MAX_READ_ENTRIES)
    if is_full or queue.mode in ("followup", "steer") or not all(map(_is_overheard, waiting)):
        return 0.0
    newest_ms = waiting[-1].at_ms
    until_ms = min(newest_ms + queue.gather_ms, waiting[0].at_ms + queue.gather_most_ms)
    return max(0, until_ms - max(now_ms, newest_ms)) / 1000  # the clock may have been set back


# -- a batch that has begun -----------------------------------------------------------------------


class BatchStep(StrEnum):
    """The next step of a batch that has begun: ask the agent, or end without it."""

    STOP_NOTICE = "stop_notice"
    """Ends with the reply to `/stop`, which took effect when it was accepted."""
    DROPPED = "dropped"
    """Ends with a notice that more messages waited than the cap allows."""
    REFUSED = "refused"
    """Ends with a notice that the limit of a budget is reached."""
    STOPPED = "stopped"
    """Ends because a stop was accepted before the batch began."""
    UNREADABLE = "unreadable"
    """Ends as a dead letter because an entry can't be read."""
    GIVEN_UP = "given_up"
    """Ends as a dead letter because too many attempts have failed."""
    RESET = "reset"
    """Begins a new conversation, without a message for the agent."""
    AGENT = "agent"
    """Asks the agent."""


def batch_step(batch: Batch, turn: Turn, *, command: Command | None) -> BatchStep:
    """Return the next step of a batch; `command` is the chat command in its first entry, if any."""
    if command and command.name == "stop":
        return BatchStep.STOP_NOTICE
    if batch.is_dropped:
        return BatchStep.DROPPED if batch.refusal is None else BatchStep.REFUSED
    if batch.is_stopped and turn.entries[0].origin != "operator":  # `/stop` can't stop these
        return BatchStep.STOPPED
    if any(entry.unreadable for entry in turn.entries):
        return BatchStep.UNREADABLE
    if batch.failures >= MAX_ATTEMPTS:
        return BatchStep.GIVEN_UP
    if command and command.is_alone:
        return BatchStep.RESET
    return BatchStep.AGENT


# -- entries that arrive while a turn runs --------------------------------------------------------


class TurnReaction(StrEnum):
    """The reaction of a running turn to a stop or a newer message."""

    NOTHING = "nothing"
    STOP = "stop"
    INTERRUPT = "interrupt"
    """Stop, because the newer message replaces the turn."""
    READ = "read"
    """Read the newer message: it may join the turn, or be answered as an aside."""


def reaction(
    turn: Turn, queue: QueueConfig, *, newest_known: str, stop: str, newest: str
) -> TurnReaction:
    """Return how a running turn reacts to a stop or a new entry that its lease reports.

    All entries up to the id `stop` are stopped. `newest` is the id of the newest
    message of a person or to a task. Both may be empty. `newest_known` is the id of the newest
    entry when the turn began.
    A turn is not interrupted while a caller waits for its reply, nor if no person has sent one of
    its entries, such as a task's result: it would not be sent again.
    """
    if stop and _is_up_to(turn.entries[-1].id, stop):
        return TurnReaction.STOP
    if not newest or _is_up_to(newest, newest_known):
        return TurnReaction.NOTHING
    if turn.entries[-1].deliver == "parent":
        return TurnReaction.READ
    if queue.mode == "interrupt":
        is_from_people = all(entry.origin == "chat" for entry in turn.entries)
        may_end = is_from_people and _may_share(turn.entries[-1])
        return TurnReaction.INTERRUPT if may_end else TurnReaction.NOTHING
    return TurnReaction.READ if queue.mode in ("aside", "steer") else TurnReaction.NOTHING


def interrupts(turn: Turn, entry: Entry, *, is_owner: bool) -> bool:
    """Return whether a newer message may end a turn: an owner's, or that of its only person."""
    sender = person(entry.message.provider, entry.message.from_)
    return entry.origin == "chat" and (is_owner or people_of(turn.entries) == (sender,))


class Fate(StrEnum):
    """What happens to an entry that arrives while a turn runs."""

    JOINS = "joins"
    """It becomes a part of the turn."""
    ASIDE = "aside"
    """The turn's agent is asked about it, and decides."""
    WAITS = "waits"
    """It waits for a later turn."""
    CLOSES = "closes"
    """It waits for its own turn, and all entries after it wait as well."""


@dataclass(frozen=True, slots=True)
class OpenTurn:
    """A running turn, and what decides about the entries that arrive during it."""

    turn: Turn
    queue: QueueConfig
    waiting_after: Sequence[Entry]
    """The entries that already waited after the turn's own when it began."""
    can_steer: bool
    """Whether the agent accepts messages during its turn."""
    can_aside: bool
    """Whether the agent can answer asides."""

    def fate(self, entry: Entry) -> Fate:
        """Return whether an entry joins the turn, becomes an aside of it, or waits.

        Overheard messages are no asides: each needs no answer of its own.
        """
        if entry.is_from_parent:
            return Fate.JOINS if self.takes_messages else Fate.WAITS
        if entry.origin != "chat":
            return Fate.WAITS
        if _has_own_turn(entry) or entry.unreadable:
            return Fate.CLOSES
        if self.takes_messages:
            return Fate.JOINS
        return Fate.ASIDE if self.takes_asides and not _is_overheard(entry) else Fate.WAITS

    @property
    def takes_messages(self) -> bool:
        """Whether messages join the turn: to a task in every mode, of people in the mode `steer`.

        None joins while an earlier message waits.
        """
        last = self.turn.entries[-1]
        is_open = last.deliver == "parent" or (_may_share(last) and self.queue.mode == "steer")
        earlier = (each.origin == "chat" or each.is_from_parent for each in self.waiting_after)
        return is_open and not any(earlier) and self.can_steer and not self.turn.is_command

    @property
    def takes_asides(self) -> bool:
        """Whether the agent is asked about messages; a command of the agent's CLI has no asides."""
        return self.queue.mode == "aside" and self.can_aside and not self.turn.is_command

    @property
    def can_take_aside(self) -> bool:
        """Whether an aside can join the turn, once the agent has decided that it should."""
        may_share = _may_share(self.turn.entries[-1])
        return may_share and self.can_steer and not self.turn.is_command


# -- the end of a turn, or of a lease -------------------------------------------------------------


def may_be_postponed(waiting_after: Sequence[Entry]) -> bool:
    """Return whether a turn may be postponed, given the entries that wait after it.

    It may not if one of these ends the conversation: then the turn's answer is no longer wanted.
    """
    commands = map(command_of, waiting_after)
    return not any(command and command.name == "reset" for command in commands)


class DrainStep(StrEnum):
    """The next step of a drain after a turn."""

    READ_WAITING = "read_waiting"
    """Read the waiting entries; close the session if there are none."""
    RELEASE = "release"
    """Release the lease, so that another drain takes the session's entries."""
    LINGER = "linger"
    """Wait `linger_s` for the next message."""


def after_turn(ended: Finished, *, turns: int, seconds: float, is_leaving: bool) -> DrainStep:
    """Return the drain's next step after `turns` turns, `seconds` after the first one began.

    `is_leaving` means that the worker was asked to end.
    """
    has_had_share = turns >= MAX_TURNS or seconds > MAX_SECONDS
    if ended.left and (is_leaving or (ended.competing_hints and has_had_share)):
        return DrainStep.RELEASE
    if ended.left or ended.competing_hints or is_leaving:
        return DrainStep.READ_WAITING
    return DrainStep.LINGER


def _has_own_turn(entry: Entry) -> bool:
    """Whether an entry shares no turn: a command, or one that is not only for the chat."""
    return not _may_share(entry) or _is_command(entry)


def _may_share(entry: Entry) -> bool:
    """Whether the reply to an entry goes to the chat, and nobody waits for it."""
    return entry.deliver == "channel" and not entry.waits


def _is_command(entry: Entry) -> bool:
    """Whether an entry is a command, of the chat or for the agent's CLI."""
    return bool(entry.is_command) or command_of(entry) is not None


def _is_overheard(entry: Entry) -> bool:
    """Whether an entry is a message in a group or thread that is not addressed to the agent."""
    message = entry.message
    is_from_chat = entry.origin == "chat" and not _has_own_turn(entry)
    is_in_group = message.chat_kind in ("group", "thread")
    return is_from_chat and is_in_group and message.is_addressed is False


def _is_result(entry: Entry) -> bool:
    """Whether an entry is a task's result whose reply goes to the chat."""
    return entry.origin == "result" and entry.deliver == "channel"


def _ids(entries: Sequence[Entry]) -> tuple[str, ...]:
    return tuple(entry.id for entry in entries)


def _is_up_to(entry_id: str, mark: str) -> bool:
    return stream_order(entry_id) <= stream_order(mark)
