"""The people in the chats of a bot: what they write, and what they have received."""

import asyncio
import collections
import itertools
import random
import re
from dataclasses import dataclass
from typing import Any, Literal

from remoteclaw.channels.telegram.adapter import AGAIN
from remoteclaw.config.model import QueueOverride
from remoteclaw.config.model.queue import QueueMode
from remoteclaw.fleet import Fleet, keys
from remoteclaw.fleet.turns.outcomes import Outcome
from remoteclaw.messages import SessionKey
from tests.support.telegram import TelegramBot

#: The queue modes for messages to a busy session; the chats use them in turn.
MODES: tuple[QueueMode, ...] = ("followup", "steer", "collect", "interrupt")
#: After so many messages, somebody writes a `/stop`.
STOP_EVERY = 20
#: An agent that answers with the numbers in its messages: it repeats those of its prompt, and those
#: of each message that it takes up during a pause. Some answers have two parts.
AGENT = r"""
import random, re, select
pipe = open(0, 'rb', buffering=0, closefd=False)
def turn():
    line = pipe.readline()
    if not line: sys.exit()
    return json.loads(line)
def numbers(prompt):
    return re.findall(r'\bm\d+\b', prompt.partition('\n\n')[2])
while True:
    message = turn()
    if message['type'] == 'steer':
        say(type='refused', id=message['id'])
        continue
    words, aborted = numbers(message['prompt']), False
    say(type='text', text='thinking' + ' x' * (2000 if random.random() < 0.2 else 1))
    pause = 1.5 if random.random() < 0.1 else random.random() * 0.1
    while not aborted and select.select([0], [], [], pause)[0]:
        message = turn()
        aborted = message['type'] == 'interrupt'
        if not aborted:
            say(type='steered', id=message['id'])
            words += numbers(message['prompt'])
    say(type='text', text='\n\nanswer ' + ' '.join(words))
    say(type='done', aborted=aborted)
"""
#: The line of an answer that has the numbers of messages.
_ANSWER = re.compile(r"^answer((?: m\d+)*)$", re.MULTILINE)
#: The number in the notice about messages that a `/stop` has overtaken.
_WITHDRAWN = re.compile(r"(\d+) messages? (?:was|were) withdrawn")


@dataclass(frozen=True)
class Said:
    """A message of a person."""

    number: int
    id: int
    """Its id on the platform."""


class People:
    """People who write to a bot, each in a chat of their own."""

    def __init__(self, bot: TelegramBot, chance: random.Random, *, count: int) -> None:
        self.chats = [1001 + number for number in range(count)]
        self.said: dict[int, list[Said]] = {chat: [] for chat in self.chats}
        self.problems: list[str] = []
        """The broken promises that the verdict has found."""
        self._bot = bot
        self._random = chance
        self._count = 0

    @property
    def count(self) -> int:
        """The number of messages so far."""
        return self._count

    async def prepare(self, fleet: Fleet) -> None:
        """Give each chat a queue mode."""
        for number, chat in enumerate(self.chats):
            mode = MODES[number % len(MODES)]
            await fleet.sessions.configure(session_of(chat), QueueOverride(mode=mode))

    async def write(self) -> bool:
        """Have a person write a message, which a third of the times is delivered again.

        Return whether the person has written a `/stop` after it.
        """
        chat = self._random.choice(self.chats)
        self._count += 1
        times = 2 if self._random.random() < 0.33 else 1
        said = await self._say(f"m{self._count}", chat, times=times)
        self.said[chat].append(Said(self._count, said))
        if is_stop := self._count % STOP_EVERY == 0:
            await self._say("/stop", chat)
        return is_stop

    async def _say(self, text: str, chat: int, **more: Any) -> int:
        return await asyncio.to_thread(self._bot.say, text, chat=chat, **more)

    async def verdict(self, fleet: Fleet) -> collections.Counter[str]:
        """Return the numbers of messages, and of those lost, doubled and out of order."""
        total: collections.Counter[str] = collections.Counter(messages=self._count)
        for chat, said in self.said.items():
            texts = await asyncio.to_thread(self._bot.texts, chat)
            total += await _chat_verdict(fleet, session_of(chat), said, texts, self.problems)
        return total


def session_of(chat: int) -> SessionKey:
    """Return the session of the person in a chat."""
    return SessionKey("main", "telegram", "default", str(chat), str(chat))


async def _chat_verdict(
    fleet: Fleet, session: SessionKey, said: list[Said], texts: list[str], problems: list[str]
) -> collections.Counter[str]:
    """Compare the outcomes of a chat's messages with the texts that the chat has received.

    `problems` gets a line for each broken promise.
    """
    total: collections.Counter[str] = collections.Counter()
    answered: list[int] = []
    plain: dict[int, list[str]] = collections.defaultdict(list)
    for text in texts:
        numbers = [int(word[1:]) for line in _ANSWER.findall(text) for word in line.split()]
        answered += numbers
        # Telegram can't be asked whether it had received the first one. A process that is frozen
        # in the middle of a call sends the first one after the second.
        total["perhaps a second time"] += AGAIN in text
        for number in numbers if AGAIN not in text else ():
            plain[number].append(text)
    in_order = list(dict.fromkeys(answered))
    broken = [("doubled", f"m{number}: {both}") for number, both in plain.items() if len(both) > 1]
    broken += [
        ("out of order", f"{one} before {two}")
        for one, two in itertools.pairwise(in_order)
        if one > two
    ]
    shown = "\n".join(texts)
    found = {each.number: await _outcome(fleet, session, each) for each in said}
    by_entry = {one.entry_id: one for one in found.values() if isinstance(one, Outcome)}
    for number, outcome in found.items():
        if isinstance(outcome, str):
            total[outcome] += 1
            if outcome != "withdrawn":
                broken.append(("lost", f"m{number}: {outcome}"))
            continue
        total[outcome.status] += 1
        total["begun more than once"] += sum(s.name == "begun" for s in outcome.steps) > 1
        turn = by_entry.get(outcome.turn or "", outcome)
        if any(step.name == "undelivered" and "/stop" in step.detail for step in turn.steps):
            total["answers cut by a /stop"] += 1
            continue
        is_said = {
            "done": number in answered,
            "failed": (reference := f"({session.sid[:8]}-{turn.entry_id})") in shown,
            "dead": reference in shown,
        }
        if not (outcome.is_final and is_said.get(turn.status, True)):
            broken.append(("lost", f"m{number}: {_about(outcome)}; its turn: {_about(turn)}"))
    # The chat is told how many messages a `/stop` has withdrawn, those that waited included. If the
    # adapter or Redis ends after that, the repeated `/stop` finds none, and the notice is missing.
    told = sum(map(int, _WITHDRAWN.findall(shown)))
    total["withdrawn without a notice"] = max(0, total["withdrawn"] - told)
    total.update(name for name, _ in broken)
    problems += [f"{name} in {session}: {what}" for name, what in broken]
    return total


async def _outcome(
    fleet: Fleet, session: SessionKey, said: Said
) -> Outcome | Literal["withdrawn", "unknown"]:
    """Return the outcome of a message, unless a `/stop` has withdrawn it before it was queued."""
    client: Any = fleet.scripts.client
    known: bytes = await client.get(keys.known(session, str(said.id))) or b""
    entry_id = known.partition(b" ")[0].decode()
    if entry_id == "-":
        return "withdrawn"
    return await fleet.outcomes.read(session.sid, entry_id) or "unknown"


def _about(outcome: Outcome) -> str:
    """Return an outcome in short."""
    steps = ", ".join(f"{step.at_ms} {step.name} {step.detail}".strip() for step in outcome.steps)
    return (
        f"{outcome.entry_id} {outcome.status} ({steps}) {[p['text'][-99:] for p in outcome.reply]}"
    )
