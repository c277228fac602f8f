"""The queue: what is answered next and together, what joins or interrupts a turn, and the pauses.

Pure functions of frozen values: their callers do the I/O.
Three decisions are made elsewhere: `append.lua` stops a turn as it accepts `/stop`, `begin.lua`
repeats a recorded batch as it was recorded, and in the mode `aside` the agent says what becomes of
a message (`bridge/asides.py`).
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from remoteclaw.config.model import QueueConfig
from remoteclaw.fleet.commands import Command, command_of
from remoteclaw.fleet.lease import READ_ALL
from remoteclaw.fleet.turn import Batch, Finished
from remoteclaw.messages import Entry, Turn, stream_order

#: After so many failed attempts a batch becomes a dead letter.
MAX_ATTEMPTS = 3
#: A session's share: after so many turns, or so many seconds, other sessions that wait go first.
MAX_TURNS, MAX_SECONDS = 8, 60.0
#: How long no result must have come, so that those of tasks that end together share a turn, and how
#: long the first of them waits at most, in milliseconds.
SETTLE_MS, MAX_SETTLE_MS = 500, 2000


# -- what makes the next turn ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NextBatch:
    """The batch of the next turn; all are ids of entries, oldest first."""

    batch: tuple[str, ...]
    """The entries of the next turn, with those that are left out."""
    left_out: tuple[str, ...] = ()
    """Entries of the batch of which the agent only sees the beginning, because of the cap."""
    is_dropped: bool = False
    """Whether the sender is told that the batch was dropped, without asking the agent."""


def next_batch(
    waiting: Sequence[Entry],
    queue: QueueConfig,
    *,
    busy_since_ms: int | None,
) -> NextBatch:
    """Return the next batch of the waiting entries; `waiting` is not empty.

    A command, of the chat or of the agent's CLI, has a turn of its own, so that the messages before
    it are answered first, and so has a message whose reply doesn't go to the channel; but a task
    and what it was told before it began share one. In `aside`, `collect` and `interrupt` all other
    entries up to the next such one share a turn.
    The cap applies to people's messages since the session is busy (`busy_since_ms`; None when it
    was idle). Commands and entries that no person has sent don't count and are never left out.
    """
    head = waiting[0]
    if head.is_from_parent:
        return NextBatch(_ids([*itertools.takewhile(lambda e: e.is_from_parent, waiting)]))
    if head.deliver != "channel" or _is_command(head):
        return NextBatch((head.id,))
    from_chat = list(itertools.takewhile(lambda entry: entry.deliver == "channel", waiting))
    up_to_command = list(itertools.takewhile(lambda entry: not _is_command(entry), from_chat))
    since_busy = [] if busy_since_ms is None else [e for e in from_chat if e.at_ms >= busy_since_ms]
    since_busy = [
        entry for entry in since_busy if entry.origin == "chat" and not _is_command(entry)
    ]
    left_out: tuple[str, ...] = ()
    if queue.cap and len(since_busy) > queue.cap:
        if queue.drop == "new":
            return NextBatch(_ids(since_busy[queue.cap :]), is_dropped=True)
        oldest = since_busy[: len(since_busy) - queue.cap]
        left_out = _ids([entry for entry in oldest if entry in up_to_command])
        if left_out and (queue.drop == "old" or len(left_out) == len(up_to_command)):
            return NextBatch(left_out, is_dropped=True)
    kept = [entry for entry in up_to_command if entry.id not in left_out]
    if queue.mode == "interrupt":  # only a turn about people's messages may be interrupted
        is_chat = kept[0].origin == "chat"
        kept = list(itertools.takewhile(lambda e: (e.origin == "chat") == is_chat, kept))
    together = kept
    if queue.mode not in ("aside", "collect", "interrupt"):
        together = list(itertools.takewhile(_is_result, kept)) or kept[:1]
    batch = [entry for entry in up_to_command if entry.id in left_out or entry in together]
    return NextBatch(_ids(batch), left_out=left_out)


def typing_pause_s(waiting: Sequence[Entry], queue: QueueConfig, *, now_ms: int) -> float:
    """Return for how many seconds the person may still be typing; 0 if the next turn begins now.

    `now_ms` is on Redis' clock. There is no pause in the modes interrupt and steer, once as
    many entries wait as the cap allows, if a command waits, or if the newest entry's reply doesn't
    go to the channel.
    """
    newest = waiting[-1]
    if queue.mode in ("interrupt", "steer") or len(waiting) >= (queue.cap or READ_ALL):
        return 0.0
    if newest.deliver != "channel" or any(map(_is_command, waiting)):
        return 0.0
    left_ms = queue.debounce_ms - max(0, now_ms - newest.at_ms)
    return max(0, left_ms) / 1000


def settling_pause_s(waiting: Sequence[Entry], *, now_ms: int) -> float:
    """Return for how many seconds more results may come; 0 if the next turn begins now.

    `now_ms` is on Redis' clock. Only results wait for each other: a person waits for an answer.
    """
    if not all(map(_is_result, waiting)):
        return 0.0
    until_ms = min(waiting[-1].at_ms + SETTLE_MS, waiting[0].at_ms + MAX_SETTLE_MS)
    return max(0, until_ms - now_ms) / 1000


def gathering_pause_s(waiting: Sequence[Entry], queue: QueueConfig, *, now_ms: int) -> float:
    """Return for how many seconds more of a burst may come; 0 if the next turn begins now.

    `now_ms` is on Redis' clock. Only what people say to each other in a group or thread waits, in a
    mode that answers it together. Anything else that waits, or a full cap, ends the waiting.
    """
    is_full = len(waiting) >= (queue.cap or READ_ALL)
    if is_full or queue.mode in ("followup", "steer") or not all(map(_is_overheard, waiting)):
        return 0.0
    newest_ms = waiting[-1].at_ms
    until_ms = min(newest_ms + queue.gather_ms, waiting[0].at_ms + queue.gather_most_ms)
    return max(0, until_ms - max(now_ms, newest_ms)) / 1000  # the clock may have been set back


# -- what becomes of a batch that has begun -------------------------------------------------------


class BatchStep(StrEnum):
    """The next step of a batch that has begun, or its ending without the agent."""

    STOP_NOTICE = "stop_notice"
    """Ends with the answer to a command to stop, which took effect when it was accepted."""
    DROPPED = "dropped"
    """Ends with a notice that more messages came than the cap allows."""
    STOPPED = "stopped"
    """Ends, because of a stop that came before the batch began."""
    UNREADABLE = "unreadable"
    """Ends as a dead letter, because an entry can't be read."""
    GIVEN_UP = "given_up"
    """Ends as a dead letter, because too many attempts have failed."""
    RESET = "reset"
    """Begins a new conversation, without a message for the agent."""
    AGENT = "agent"
    """Asks the agent."""


def batch_step(batch: Batch, turn: Turn, *, command: Command | None) -> BatchStep:
    """Return the next step of a batch; `command` is that of its first entry, if any."""
    if command and command.name == "stop":
        return BatchStep.STOP_NOTICE
    if batch.is_dropped:
        return BatchStep.DROPPED
    if batch.is_stopped and turn.entries[0].origin != "operator":  # people don't stop operators
        return BatchStep.STOPPED
    if any(entry.unreadable for entry in turn.entries):
        return BatchStep.UNREADABLE
    if batch.failures >= MAX_ATTEMPTS:
        return BatchStep.GIVEN_UP
    if command and command.is_alone:
        return BatchStep.RESET
    return BatchStep.AGENT


# -- what comes while a turn runs -----------------------------------------------------------------


class Reaction(StrEnum):
    """The response of a running turn to a stop or a newer message."""

    NOTHING = "nothing"
    STOP = "stop"
    INTERRUPT = "interrupt"
    """Stop, because the newer message takes the turn's place."""
    LOOK = "look"
    """Look at the newer message: it may join the turn, or be answered beside it."""


def reaction(turn: Turn, queue: QueueConfig, *, known: str, stop: str, newest: str) -> Reaction:
    """Return what a running turn does about what its lease has learned.

    `stop` is the id up to which all entries are stopped, and `newest` the newest entry of a person,
    or of the session that has started this one; both may be empty. `known` is the newest entry when
    the turn began.
    A turn is not interrupted while a caller waits for its reply, nor if an entry of it comes from
    no person, such as a task's result: nobody would send that again.
    """
    if stop and _at_most(turn.entries[-1].id, stop):
        return Reaction.STOP
    if not newest or _at_most(newest, known):
        return Reaction.NOTHING
    if turn.entries[-1].deliver == "parent":
        return Reaction.LOOK
    if queue.mode == "interrupt":
        is_said = all(entry.origin == "chat" for entry in turn.entries)
        may_end = is_said and turn.entries[-1].deliver == "channel"
        return Reaction.INTERRUPT if may_end else Reaction.NOTHING
    return Reaction.LOOK if queue.mode in ("aside", "steer") else Reaction.NOTHING


def takes_newcomers(
    turn: Turn, behind: Sequence[Entry], queue: QueueConfig, *, can_steer: bool
) -> bool:
    """Return whether new messages may join a turn; `behind` are the entries that wait already.

    None joins while another one waits, nor a command of the agent's CLI. People's messages join in
    the mode steer; what a task is told, in each.
    """
    is_next = not any(entry.origin == "chat" or entry.is_from_parent for entry in behind)
    match turn.entries[-1].deliver:
        case "channel":
            is_wanted = queue.mode == "steer"
        case deliver:
            is_wanted = deliver == "parent"
    return is_wanted and can_steer and is_next and not turn.is_command


def may_be_joined(turn: Turn, *, can_steer: bool) -> bool:
    """Return whether a message can join a turn, if it is meant to."""
    return can_steer and turn.entries[-1].deliver == "channel" and not turn.is_command


def takes_asides(turn: Turn, queue: QueueConfig, *, can_aside: bool) -> bool:
    """Return whether new messages are answered beside a turn; a command of the CLI has it alone."""
    return queue.mode == "aside" and can_aside and not turn.is_command


def asks_beside(entry: Entry) -> bool:
    """Return whether an entry that could join a turn is put to its agent beside it.

    What people say to each other in a group waits: nobody expects an answer to each of it.
    """
    return entry.origin == "chat" and not _is_overheard(entry)


class Newcomer(StrEnum):
    """The place of an entry that arrives while a turn takes newcomers."""

    JOINS = "joins"
    WAITS = "waits"
    """It waits for its own turn; entries behind it may join."""
    STOPS_JOINING = "stops_joining"
    """It waits for its own turn, and no entry behind it joins."""


def newcomer(entry: Entry) -> Newcomer:
    """Return whether an entry joins the running turn.

    A person's message for the chat does, and so does what a task is told. A command, and a message
    with another destination than the chat, are not overtaken.
    """
    if entry.is_from_parent:
        return Newcomer.JOINS
    if entry.origin != "chat":
        return Newcomer.WAITS
    if entry.deliver != "channel" or entry.unreadable or _is_command(entry):
        return Newcomer.STOPS_JOINING
    return Newcomer.JOINS


# -- what ends a turn, or a lease -----------------------------------------------------------------


def may_be_postponed(behind: Sequence[Entry]) -> bool:
    """Return whether a turn with these entries behind it may be postponed.

    It may not if one of them ends the conversation: then the turn's answer is no longer wanted.
    """
    commands = map(command_of, behind)
    return not any(command and command.name == "reset" for command in commands)


class Next(StrEnum):
    """The step of a drain after a turn."""

    LOOK_AGAIN = "look_again"
    """Read the inbox; close the session if it is empty."""
    RELEASE = "release"
    """Leave the session's entries to another drain."""
    LINGER = "linger"
    """Wait a moment for the next message."""


def after_turn(ended: Finished, *, turns: int, seconds: float, is_leaving: bool) -> Next:
    """Return the drain's next step after `turns` turns, `seconds` after the first one began.

    `is_leaving` says that the worker was asked to end.
    """
    has_had_share = turns >= MAX_TURNS or seconds > MAX_SECONDS
    if ended.left and (is_leaving or (ended.competing_hints and has_had_share)):
        return Next.RELEASE
    if ended.left or ended.competing_hints or is_leaving:
        return Next.LOOK_AGAIN
    return Next.LINGER


def _is_command(entry: Entry) -> bool:
    """Whether an entry is a command, of the chat or for the agent's CLI."""
    return bool(entry.is_command) or command_of(entry) is not None


def _is_overheard(entry: Entry) -> bool:
    """Whether an entry is what a person said in a group or thread, and not to the agent."""
    said = entry.message
    is_said = entry.origin == "chat" and entry.deliver == "channel" and not _is_command(entry)
    return is_said and said.chat_kind in ("group", "thread") and said.is_addressed is False


def _is_result(entry: Entry) -> bool:
    """Whether an entry is the result of a task, of which the chat is to hear."""
    return entry.origin == "result" and entry.deliver == "channel"


def _ids(entries: Sequence[Entry]) -> tuple[str, ...]:
    return tuple(entry.id for entry in entries)


def _at_most(entry_id: str, mark: str) -> bool:
    return stream_order(entry_id) <= stream_order(mark)
