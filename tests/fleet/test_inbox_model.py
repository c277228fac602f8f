"""The scripts of the inbox against a plain model: any order of polls, takeovers and ends.

A platform has two sources with numbered reports. Readers take over from each other, and a former
one may still call. After each step, each report up to its source's cursor is in the inbox, or was
handled, exactly once; and no other is.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from hypothesis.stateful import run_state_machine_as_test as run_machine
from redis.asyncio import Redis

from remoteclaw.errors import LeaseLost
from remoteclaw.fleet import Fleet, keys
from remoteclaw.fleet.connection import Scripts
from remoteclaw.fleet.replies.reader import ReplyReader
from remoteclaw.protocols import Incoming, Place
from tests.conftest import THOROUGH, shifted

SOURCES = st.sampled_from(["one", "two"])
RESULTS = st.sampled_from(["accepted", "skipped", "late"])
#: Which reader acts, from the newest one: mostly the one with the claim.
READERS = st.sampled_from([0, 0, 0, 1, 2])


class InboxMachine(RuleBasedStateMachine):
    """One account."""

    open_client: Callable[[], Redis]

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.readers: list[tuple[ReplyReader, dict[str, str]]] = []
        """The readers, the newest last, each with the cursors that it knows."""
        self.written = {"one": 0, "two": 0}
        self.read = {"one": 0, "two": 0}
        self.waiting: dict[str, str] = {}
        """The names of the reports in the inbox, by id."""
        self.ended: dict[str, str] = {}
        """What became of the reports that were handled, by name."""
        self.do(self.open())

    async def open(self) -> None:
        client = self.open_client()
        await client.flushall()
        self.fleet = Fleet.open("unix:///nobody", scripts=Scripts(client, edit=shifted))
        await self.claim()

    async def claim(self) -> None:
        await self.fleet.scripts.client.delete(keys.reader("test", "default"))
        reader = self.fleet.replies.reader("test", "default")
        assert await reader.claim()
        self.readers.append((reader, await self.fleet.inbox.cursors(reader)))
        taken = {each.id: each.incoming.id for each in await self.fleet.inbox.take(reader)}
        assert list(taken.items()) == list(self.waiting.items())

    def teardown(self) -> None:
        self.do(self.fleet.aclose())
        self.loop.close()

    def do(self, work: Awaitable[Any]) -> Any:
        return self.loop.run_until_complete(work)

    @rule(source=SOURCES, count=st.integers(1, 3))
    def write(self, source: str, count: int) -> None:
        self.written[source] += count

    @rule()
    def take_over(self) -> None:
        self.do(self.claim())

    @rule(source=SOURCES, most=st.integers(0, 3), back=READERS)
    def poll(self, source: str, most: int, back: int) -> None:
        """A poll reads from the cursor that its reader knows; only the newest one may store."""
        reader, cursors = self.readers[max(0, len(self.readers) - 1 - back)]
        begin = int(cursors.get(source, 0))
        end = min(begin + most, self.written[source])
        names = [f"{source} {number}" for number in range(begin + 1, end + 1)]
        reports = [Incoming(id=name, chat=source, sender="a", at_ms=1) for name in names]
        store = self.fleet.inbox.store(reader, reports, {source: str(end)})
        if reader is not self.readers[-1][0]:
            with pytest.raises(LeaseLost):
                self.do(store)
            return
        for stored in self.do(store):
            self.waiting[stored.id] = stored.incoming.id
        cursors[source] = str(end)
        self.read[source] = end

    @rule(which=st.integers(0, 9), result=RESULTS, back=READERS)
    def end(self, which: int, result: Any, back: int) -> None:
        if not self.waiting:
            return
        reader, _ = self.readers[max(0, len(self.readers) - 1 - back)]
        id_ = list(self.waiting)[which % len(self.waiting)]
        ids: dict[str, Any] = {result: [(id_, 5, Place("a")) if result == "late" else id_]}
        if reader is not self.readers[-1][0]:
            with pytest.raises(LeaseLost):
                self.do(self.fleet.inbox.done(reader, **ids))
            return
        self.do(self.fleet.inbox.done(reader, **ids))
        self.do(self.fleet.inbox.done(reader, **ids))  # a repetition has no effect
        self.ended[self.waiting.pop(id_)] = result

    @invariant()
    def the_server_agrees(self) -> None:
        self.do(self.compare())

    async def compare(self) -> None:
        reader, _ = self.readers[-1]
        taken = await self.fleet.inbox.take(reader)
        assert {each.id: each.incoming.id for each in taken} == self.waiting
        cursors = await self.fleet.inbox.cursors(reader)
        assert {source: int(cursors.get(source, 0)) for source in self.read} == self.read
        reported = [f"{name} {n}" for name, end in self.read.items() for n in range(1, end + 1)]
        assert sorted([*self.waiting.values(), *self.ended]) == sorted(reported)
        view = await self.fleet.accounts.view("test", "default")
        results = list(self.ended.values())
        assert view.accepted == results.count("accepted")
        assert view.skipped == len(results) - view.accepted
        late = await self.fleet.inbox.late_messages(reader)
        assert sum(each.count for each in late) == results.count("late")


def test_the_inbox_agrees_with_the_model(any_client: Callable[[], Redis]) -> None:
    machine = type("Machine", (InboxMachine,), {"open_client": staticmethod(any_client)})
    run_machine(
        machine,
        settings=settings(
            max_examples=40 if THOROUGH else 10,
            stateful_step_count=30,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
