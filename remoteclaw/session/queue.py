"""The queue: every decision about what waits, joins, interrupts, pauses and ends.

Pure functions of frozen values: the drain, the turn and the steering read, ask and write.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from remoteclaw.config.model import QueueConfig
from remoteclaw.fleet.commands import Command, CommandOf
from remoteclaw.fleet.lease import FEW_ENTRIES
from remoteclaw.fleet.turn import Batch, Finished
from remoteclaw.messages import Entry, Turn, stream_order

__all__ = [
    "Due",
    "Newcomer",
    "Next",
    "Plan",
    "Reaction",
    "after_turn",
    "due",
    "entries_needed",
    "may_be_postponed",
    "newcomer",
    "next_batch",
    "reaction",
    "takes_newcomers",
    "typing_pause_s",
]

#: Failed attempts at a batch after which its sender is told instead.
MOST_ATTEMPTS = 3
#: After so many turns, or so many seconds, a session lets others go first if any wait.
MOST_TURNS, MOST_SECONDS = 8, 60.0
#: How many waiting entries are looked at where all of them matter.
MANY_ENTRIES = 1000


# -- what makes the next turn ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Plan:
    """The next batch of the entries that wait; all are ids, oldest first."""

    batch: tuple[str, ...]
    """The entries that the next turn is about, those that it only mentions included."""
    left_out: tuple[str, ...] = ()
    """Those of the batch of which the agent is only told how they began."""
    is_dropped: bool = False
    """Whether the batch gets no turn, and its sender is told so."""


def entries_needed(queue: QueueConfig) -> int:
    """Return how many waiting entries `next_batch()` has to see."""
    return MANY_ENTRIES if queue.mode in ("collect", "interrupt") or queue.cap else FEW_ENTRIES


def next_batch(
    waiting: Sequence[Entry],
    queue: QueueConfig,
    *,
    busy_since_ms: int | None,
    command_of: CommandOf,
) -> Plan:
    """Return the next batch of the entries that wait, of which there is one at least.

    A message whose reply doesn't go to the channel has a turn of its own, and so has a command, so
    that what was sent before it is answered before it. In `collect` and `interrupt` all others
    share one, up to the next such message.
    The cap applies to what people have sent since the session is busy (`busy_since_ms`, None when
    it was idle). Commands and what no person has sent don't count and are never left out.
    """
    head = waiting[0]
    if head.deliver != "channel" or command_of(head):
        return Plan((head.id,))
    from_chat = list(itertools.takewhile(lambda entry: entry.deliver == "channel", waiting))
    before = list(itertools.takewhile(lambda entry: not command_of(entry), from_chat))
    late = [] if busy_since_ms is None else [e for e in from_chat if e.at_ms >= busy_since_ms]
    late = [entry for entry in late if entry.origin == "chat" and not command_of(entry)]
    left_out: tuple[str, ...] = ()
    if queue.cap and len(late) > queue.cap:
        if queue.drop == "new":
            return Plan(_ids(late[queue.cap :]), is_dropped=True)
        left_out = _ids([entry for entry in late[: len(late) - queue.cap] if entry in before])
        if left_out and (queue.drop == "old" or len(left_out) == len(before)):
            return Plan(left_out, is_dropped=True)
    kept = [entry for entry in before if entry.id not in left_out]
    if queue.mode == "interrupt":  # what may be interrupted is kept apart from what may not
        is_chat = kept[0].origin == "chat"
        kept = list(itertools.takewhile(lambda e: (e.origin == "chat") == is_chat, kept))
    together = kept if queue.mode in ("collect", "interrupt") else kept[:1]
    batch = [entry for entry in before if entry.id in left_out or entry in together]
    return Plan(_ids(batch), left_out=left_out)


def typing_pause_s(
    waiting: Sequence[Entry], queue: QueueConfig, *, now_ms: int, command_of: CommandOf
) -> float:
    """Return for how many seconds the person may still be typing; 0 if the next turn begins now.

    `now_ms` is on Redis' clock. There is no pause if as much waits as may, if a command waits, and
    in the modes that pass each message on at once.
    """
    newest = waiting[-1]
    if queue.mode in ("interrupt", "steer") or len(waiting) >= (queue.cap or MANY_ENTRIES):
        return 0.0
    if newest.deliver != "channel" or any(map(command_of, waiting)):
        return 0.0
    left_ms = queue.debounce_ms - max(0, now_ms - newest.at_ms)
    return max(0, left_ms) / 1000


# -- what becomes of a batch that has begun -------------------------------------------------------


class Due(StrEnum):
    """The ending of a batch that has begun, or its next step."""

    STOP_NOTICE = "stop_notice"
    """The answer to a command to stop, which took effect when it was accepted."""
    DROPPED = "dropped"
    """A notice that more came than may wait."""
    STOPPED = "stopped"
    """The end by a stop that came before the batch began."""
    UNREADABLE = "unreadable"
    """A dead letter: an entry is damaged."""
    GIVEN_UP = "given_up"
    """A dead letter: too many attempts have failed."""
    RESET = "reset"
    """A new conversation, without a message for it yet."""
    AGENT = "agent"
    """A question to the agent."""


def due(batch: Batch, turn: Turn, *, command: Command | None) -> Due:
    """Return the ending or the next step of a batch; `command` is its first entry's, if any."""
    if command and command.name == "stop":
        return Due.STOP_NOTICE
    if batch.is_dropped:
        return Due.DROPPED
    if batch.is_stopped and turn.entries[0].origin != "operator":  # people don't stop operators
        return Due.STOPPED
    if any(entry.unreadable for entry in turn.entries):
        return Due.UNREADABLE
    if batch.failures >= MOST_ATTEMPTS:
        return Due.GIVEN_UP
    if command and command.is_alone:
        return Due.RESET
    return Due.AGENT


# -- what comes while a turn runs -----------------------------------------------------------------


class Reaction(StrEnum):
    """The response of a running turn to a stop or a newer message."""

    NOTHING = "nothing"
    STOP = "stop"
    INTERRUPT = "interrupt"
    """Stop, because the newer message takes the turn's place."""
    STEER = "steer"
    """Pass the newer message to the agent."""


def reaction(turn: Turn, queue: QueueConfig, *, known: str, stop: str, newest: str) -> Reaction:
    """Return what a running turn does about what its lease has learned.

    `stop` is the id up to which all is stopped, and `newest` the newest message of a person; both
    may be empty. `known` is the newest entry that was known when the turn began.
    A turn is not interrupted while a caller waits for its reply, nor if it is about what no person
    has sent, such as a task's result: that would not be sent again.
    """
    if stop and _at_most(turn.entries[-1].id, stop):
        return Reaction.STOP
    if not newest or _at_most(newest, known):
        return Reaction.NOTHING
    if queue.mode == "interrupt":
        is_said = all(entry.origin == "chat" for entry in turn.entries)
        may_end = is_said and turn.entries[-1].deliver == "channel"
        return Reaction.INTERRUPT if may_end else Reaction.NOTHING
    return Reaction.STEER if queue.mode == "steer" else Reaction.NOTHING


def takes_newcomers(
    turn: Turn, behind: Sequence[Entry], queue: QueueConfig, *, can_steer: bool
) -> bool:
    """Return whether messages that arrive join a turn that begins with these entries `behind` it.

    A message of a person that waits is not overtaken.
    """
    is_next = all(entry.origin != "chat" for entry in behind)
    is_for_chat = turn.entries[-1].deliver == "channel"
    return queue.mode == "steer" and can_steer and is_for_chat and is_next


class Newcomer(StrEnum):
    """The place of an entry that arrives while a turn takes newcomers."""

    JOINS = "joins"
    WAITS = "waits"
    """It waits for its own turn; what comes behind it may join."""
    CLOSES = "closes"
    """It waits, and so does all behind it."""


def newcomer(entry: Entry, *, command_of: CommandOf) -> Newcomer:
    """Return whether an entry joins the running turn: only a person's message for the chat does.

    A caller's reply is not for the chat, and a command not for the agent: neither is overtaken.
    """
    if entry.origin != "chat":
        return Newcomer.WAITS
    if entry.deliver != "channel" or entry.unreadable or command_of(entry):
        return Newcomer.CLOSES
    return Newcomer.JOINS


# -- what ends a turn, or a lease -----------------------------------------------------------------


def may_be_postponed(behind: Sequence[Entry], *, command_of: CommandOf) -> bool:
    """Return whether a turn may wait for hours with these entries behind it.

    Not if one of them ends the conversation: its answer is no longer wanted.
    """
    commands = map(command_of, behind)
    return not any(command and command.name == "reset" for command in commands)


class Next(StrEnum):
    """The step of a drain after a turn."""

    GO_ON = "go_on"
    RELEASE = "release"
    """Leave what waits to another drain."""
    LINGER = "linger"
    """Wait a moment for the next message."""


def after_turn(ended: Finished, *, turns: int, seconds: float, is_leaving: bool) -> Next:
    """Return what follows the last of `turns` turns, `seconds` after the first one began.

    `is_leaving` says that the worker was asked to end.
    """
    has_had_share = turns >= MOST_TURNS or seconds > MOST_SECONDS
    if ended.left and (is_leaving or (ended.hints and has_had_share)):
        return Next.RELEASE
    if ended.left or ended.hints or is_leaving:
        return Next.GO_ON
    return Next.LINGER


def _ids(entries: Sequence[Entry]) -> tuple[str, ...]:
    return tuple(entry.id for entry in entries)


def _at_most(entry_id: str, mark: str) -> bool:
    """Return whether a stream id is not after another."""
    return stream_order(entry_id) <= stream_order(mark)
