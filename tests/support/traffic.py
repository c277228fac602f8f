"""Chats in which messages keep coming, and a ledger of the turns that an agent begins and ends."""

import itertools
import json
import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from remoteclaw.config.home import Home
from remoteclaw.fleet.turns.inbound import Accepted
from tests.support.bridges import script
from tests.support.stack import REPLIES, Stack, message, said
from tests.support.waiting import eventually

log = logging.getLogger(__name__)

#: An agent whose turns last as long as the message says. It writes down when each begins and ends.
_AGENT = """
def note(event, word):
    with open({ledger!r}, 'a') as ledger:
        ledger.write(json.dumps([event, word, time.time(), os.getcwd()]) + '\\n')
while True:
    word = turn()['prompt'].split()[-1]
    note('begun', word)
    say(type='text', text='heard ' + word)
    time.sleep(float(word.split('/')[2]))
    note('ended', word)
    say(type='done')
"""
#: The lengths of turns, in seconds. The longest one is longer than honcho waits.
LENGTHS_S = (1.0, 8.0, 2.0, 0.5, 3.0)
LONGEST_S = max(LENGTHS_S)
#: A turn may take this much longer than its agent, in seconds.
SPARE_S = 5.0
#: A message waits at most this long for its turn, in seconds: a host without workers counts as gone
#: after 15, and then any other takes its messages.
WAIT_S = 22.0
#: After this many messages, a chat is followed by another one, which no host has an agent for.
OF_ONE_CHAT = 5


@dataclass(frozen=True, slots=True)
class _Sent:
    accepted: Accepted
    word: str
    at: float


class Traffic:
    """Several chats; in each, the next message is written while the turn of the last one runs."""

    def __init__(self, stack: Stack, directory: Path) -> None:
        self._stack = stack
        self._ledger = directory / "ledger"
        self._ledger.touch()
        body = _AGENT.format(ledger=str(self._ledger))
        self.agent = {"runtime": "demo", "command": list(script(directory, body))}
        self._sent: dict[str, list[_Sent]] = {}
        self._goes_on = True

    async def write(self, number: int) -> None:
        """Write in one chat after the other, until `finish()`."""
        lengths = itertools.cycle(LENGTHS_S[number % len(LENGTHS_S) :] + LENGTHS_S)
        for count in itertools.count():
            if not self._goes_on:
                return
            chat = f"chat-{number}-{count // OF_ONE_CHAT}"
            word = f"{chat}/{count}/{next(lengths)}"
            accepted = await self._stack.fleet.inbound.append(
                message(word, channel_id=chat), agent="main"
            )
            self._sent.setdefault(chat, []).append(_Sent(accepted, word, time.time()))
            await eventually(lambda: self._has_begun(word), within_s=3 * WAIT_S)  # noqa: B023

    async def finish(self, *, more: int = 0) -> None:
        """Wait until `more` further turns have begun, and stop writing."""
        count = len(self._times("begun"))
        await eventually(lambda: len(self._times("begun")) >= count + more, within_s=3 * WAIT_S)
        self._goes_on = False

    async def long_turn(self, home: Home) -> None:
        """Wait until a host has just begun one of the longest turns."""

        def has_one() -> bool:
            now = time.time()
            return any(
                now - at < 1 and word.endswith(f"/{LONGEST_S}") and home.path in Path(place).parents
                for _, word, at, place in self._notes("begun")
            )

        await eventually(has_one, within_s=4 * WAIT_S)

    async def next_turn(self, home: Home) -> None:
        """Wait until a host begins another turn."""
        since = time.time()

        def has_begun() -> bool:
            notes = self._notes("begun")
            return any(at > since and home.path in Path(place).parents for _, _, at, place in notes)

        await eventually(has_begun, within_s=4 * WAIT_S)

    async def faults(self) -> list[str]:
        """Wait for all answers; return what was lost, done twice, late or out of order."""
        found = []
        outcomes = [
            (each, await self._stack.outcome(each.accepted, within_s=3 * WAIT_S))
            for sent in self._sent.values()
            for each in sent
        ]
        begun, ended, answered = self._times("begun"), self._times("ended"), await self._answers()
        for sent, outcome in outcomes:
            word, attempts = sent.word, {step.attempt for step in outcome.steps if step.attempt}
            times = [len(each.get(word, ())) for each in (begun, ended, answered)]
            # On another host, a notice comes first: the agent has the conversation from notes.
            is_said = said(outcome).endswith(f"heard {word}")
            if times != [1, 1, 1] or attempts != {1} or not is_said:
                found.append(f"{word} begun, ended, answered {times}: {outcome}")
            elif answered[word][0] - begun[word][0] > float(word.split("/")[2]) + SPARE_S:
                found.append(f"{word} took {answered[word][0] - begun[word][0]:.1f} s")
        for chat in self._sent.values():
            words = [each.word for each in chat]
            order = sorted(words, key=lambda word: answered.get(word, [0.0])[0])
            found += [f"out of order: {order}"] if order != words else []
        waits = sorted(self._waits(begun, answered))
        log.info("%d turns; the longest waits are %s", len(outcomes), waits[-4:])
        return found + [f"{word} waited for {wait:.1f} s" for wait, word in waits if wait > WAIT_S]

    def _waits(
        self, begun: dict[str, list[float]], answered: dict[str, list[float]]
    ) -> Iterator[tuple[float, str]]:
        """Yield how long each message waited after the turn before it, in seconds."""
        for sent in self._sent.values():
            last = 0.0
            for each in sent:
                if begun.get(each.word):
                    yield begun[each.word][0] - max(each.at, last), each.word
                last = max(answered.get(each.word, [0.0]))

    def _has_begun(self, word: str) -> bool:
        return f'"begun", "{word}"' in self._ledger.read_text()

    def _notes(self, event: str) -> list[Any]:
        notes = [json.loads(line) for line in self._ledger.read_text().splitlines()]
        return [note for note in notes if note[0] == event]

    def _times(self, event: str) -> dict[str, list[float]]:
        times: dict[str, list[float]] = {}
        for _, word, at, _ in self._notes(event):
            times.setdefault(word, []).append(at)
        return times

    async def _answers(self) -> dict[str, list[float]]:
        """Return when each message was answered on the reply stream, in seconds since 1970."""
        replies: Any = await self._stack.fleet.scripts.client.xrange(REPLIES)
        times: dict[str, list[float]] = {}
        for entry_id, fields in replies:
            text = str(json.loads(fields.get(b"reply", b"{}")).get("text", ""))
            if text.startswith("heard "):
                times.setdefault(text[6:], []).append(int(entry_id.split(b"-")[0]) / 1000)
        return times
