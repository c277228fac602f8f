"""The budget of an account: the platform's rates are kept, and replies come before all else.

Time is virtual, so that a minute's rate can be seen at work.
"""

import asyncio
import math
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from remoteclaw.channels import budget, windows
from remoteclaw.channels.budget import MAX_AT_ONCE, Budget
from remoteclaw.errors import PlatformBusy
from remoteclaw.protocols import Allowance, ChannelProfile, Method, Rate
from tests.support.virtual_time import run_virtually

#: Chats whose ids are decimal are direct.
DIRECT = r"\d+"


def methods(*names: Method) -> frozenset[Method]:
    return frozenset(names)


def made(*rates: Rate) -> Budget:
    return Budget("test/default", ChannelProfile(rates=rates, direct_chat_form=DIRECT))


@dataclass
class Judge:
    """A platform that counts what arrives, and knows its rates."""

    rates: tuple[Rate, ...]
    arrived: dict[object, list[float]] = field(default_factory=lambda: defaultdict(list))
    calls: list[tuple[float, str, Method]] = field(default_factory=list)
    excess: list[str] = field(default_factory=list)

    def take(self, chat: str, method: Method) -> None:
        """Count a call that arrives now."""
        now = asyncio.get_running_loop().time()
        self.calls.append((now, chat, method))
        for rate in self.rates:
            if method not in rate.methods or (rate.scope == "group" and chat.isdecimal()):
                continue
            times = self.arrived[rate, chat if rate.scope != "account" else None]
            times.append(now)
            if sum(time > now - rate.per_s + 1e-6 for time in times) > rate.most:
                self.excess.append(f"{method} in {chat} at {now}: {rate}")

    def at(self, chat: str, *names: Method) -> list[float]:
        """Return the times of a chat's calls."""
        return [time for time, where, method in self.calls if where == chat and method in names]


async def reply(judge: Judge, of: Budget, chat: str, method: Method = "send", s: float = 0) -> None:
    """Make a reply's call, which takes `s` seconds and arrives in the middle of them."""
    with of.replies(chat):
        async with of.attempt(chat, method):
            await asyncio.sleep(s / 2)
            judge.take(chat, method)
            await asyncio.sleep(s / 2)
            of.worked(chat)


async def stream(judge: Judge, of: Budget, chat: str, until: float, s: float = 0) -> None:
    """Edit a preview as often as the budget allows, as `LiveChats` does."""
    key, edited_at, loop = object(), -math.inf, asyncio.get_running_loop()
    while loop.time() < until:
        of.want_edits(key, chat)
        if of.is_free(chat, "edit") and loop.time() >= edited_at + of.pace_s(chat):
            edited_at = loop.time()
            with of.call(chat, "edit"):
                await asyncio.sleep(s / 2)
                judge.take(chat, "edit")
                await asyncio.sleep(s / 2)
        await asyncio.sleep(0.25)
    of.want_edits(key, None)


rates_strategy = st.builds(
    Rate,
    st.sets(st.sampled_from(["send", "edit"]), min_size=1).map(frozenset),
    st.integers(1, 6),
    per_s=st.floats(0.1, 60),
    scope=st.sampled_from(["chat", "group", "account"]),
)
calls_strategy = st.lists(
    st.tuples(
        st.sampled_from(["1", "2", "-3", "-4"]),
        st.sampled_from(["send", "edit"]),
        st.floats(0, 60),
        st.floats(0, 5),
    ),
    max_size=25,
)


@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    rates=st.lists(rates_strategy, max_size=3, unique=True).map(tuple),
    calls=calls_strategy,
    streams=st.lists(st.sampled_from(["1", "-3", "-4", "-5"]), max_size=4),
    s=st.floats(0, 3),
)
def test_no_rate_is_exceeded_and_every_reply_is_sent(
    monkeypatch: pytest.MonkeyPatch,
    rates: tuple[Rate, ...],
    calls: list[tuple[str, Method, float, float]],
    streams: list[str],
    s: float,
) -> None:
    judge, of = Judge(rates), made(*rates)

    async def later(at: float, chat: str, method: Method, seconds: float) -> None:
        await asyncio.sleep(at)
        await reply(judge, of, chat, method, seconds)

    async def main() -> None:
        async with asyncio.TaskGroup() as tasks:
            for chat in streams:
                tasks.create_task(stream(judge, of, chat, until=60, s=s))
            for chat, method, at, seconds in calls:
                tasks.create_task(later(at, chat, method, seconds))

    run_virtually(main, monkeypatch, budget, windows)

    assert not judge.excess
    sent = Counter(chat for _, chat, method in judge.calls if method == "send")
    assert sent == Counter(chat for chat, method, *_ in calls if method == "send")


#: Slack's `chat.update`, and a chat's messages.
EDITS = Rate(methods("edit"), 50, per_s=60, scope="account")
POSTS = Rate(methods("send"), 1, per_s=1)


def test_previews_share_what_is_left_and_leave_room_for_replies(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ten chats stream; a quarter of the edits is left for the answers that replace a preview."""
    judge, of = Judge((EDITS, POSTS)), made(EDITS, POSTS)
    waits = list[float]()

    async def main() -> None:
        loop = asyncio.get_running_loop()
        async with asyncio.TaskGroup() as tasks:
            for number in range(10):
                tasks.create_task(stream(judge, of, f"C{number}", until=300))
            for number in range(10):
                await asyncio.sleep(25)
                since = loop.time()
                await reply(judge, of, f"C{number}", "edit")
                waits.append(loop.time() - since)

    run_virtually(main, monkeypatch, budget, windows)

    assert not judge.excess
    assert max(waits) == 0
    counts = [len(judge.at(f"C{number}", "edit")) for number in range(10)]
    assert min(counts) >= 15
    assert max(counts) - min(counts) <= 4


def test_a_single_preview_has_all_that_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Turns that have nothing new to show take nothing."""
    judge, of = Judge((EDITS,)), made(EDITS)

    async def main() -> None:
        for number in range(9):
            of.want_edits(number, f"C{number}")
            of.want_edits(number, None)
        await stream(judge, of, "C9", until=300)

    run_virtually(main, monkeypatch, budget, windows)

    assert not judge.excess
    assert len(judge.calls) >= 150


def test_a_chat_at_its_limit_delays_itself_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    group = Rate(methods("send", "edit"), 20, per_s=60, scope="group")
    account = Rate(methods("send"), 30, per_s=1, scope="account")
    judge, of = Judge((group, account)), made(group, account)

    async def main() -> None:
        async with asyncio.TaskGroup() as tasks:
            for _ in range(30):
                tasks.create_task(reply(judge, of, "-1"))
            await asyncio.sleep(1)
            for chat in ("-2", "3"):
                tasks.create_task(reply(judge, of, chat))

    run_virtually(main, monkeypatch, budget, windows)

    assert not judge.excess
    assert judge.at("-2", "send") == judge.at("3", "send") == [1]
    assert [round(time) for time in judge.at("-1", "send")] == [0] * 20 + [60] * 10


def test_chats_that_wait_for_the_account_are_served_in_the_order_in_which_they_came(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    account = Rate(methods("send"), 30, per_s=1, scope="account")
    judge, of = Judge((account,)), made(account)

    async def main() -> None:
        async with asyncio.TaskGroup() as tasks:
            for number in range(300):
                tasks.create_task(reply(judge, of, str(number)))

    run_virtually(main, monkeypatch, budget, windows)

    assert not judge.excess
    assert [chat for _, chat, _ in judge.calls] == [str(number) for number in range(300)]
    assert judge.calls[-1][0] == pytest.approx(9)


def test_typing_waits_for_previews_and_previews_leave_room_for_states(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    every = Rate(methods("send", "edit", "typing", "react"), 20, per_s=60)
    of = made(every)
    free: Callable[[], list[bool]] = lambda: [  # noqa: E731
        of.has_room("1", "send"),
        *(of.is_free("1", method) for method in ("edit", "typing", "react")),
    ]
    seen = dict[int, list[bool]]()

    async def main() -> None:
        for count in range(21):
            seen[count] = free()
            with of.call("1", "edit"):
                pass

    run_virtually(main, monkeypatch, budget, windows)

    limits = [sum(seen[count][index] for count in seen) for index in range(4)]
    assert limits == [20, 15, 10, 16]


@pytest.mark.parametrize("turns", [10, 30])
def test_states_are_shown_while_many_turns_stream(
    monkeypatch: pytest.MonkeyPatch, turns: int
) -> None:
    every = Rate(methods("send", "edit", "react"), 30, per_s=1, scope="account")
    judge, of = Judge((every,)), made(every)

    async def sign(chat: str) -> None:
        await asyncio.sleep(5)
        for _ in range(10):
            if of.is_free(chat, "react"):
                with of.call(chat, "react"):
                    judge.take(chat, "react")
                return
            await asyncio.sleep(0.5)

    async def main() -> None:
        async with asyncio.TaskGroup() as tasks:
            for number in range(turns):
                tasks.create_task(stream(judge, of, str(number), until=15))
            for number in range(10):
                tasks.create_task(sign(str(number)))

    run_virtually(main, monkeypatch, budget, windows)

    assert not judge.excess
    shown = [chat for _, chat, method in judge.calls if method == "react"]
    assert len(shown) == 10, f"of ten states, {len(shown)} are shown in five seconds"


def test_what_a_response_allows_is_kept_and_a_limit_of_edits_delays_no_message(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    judge, of = Judge(()), made(EDITS)

    async def main() -> None:
        of.allow(Allowance(methods("send"), left=2, after_s=5, chat="1"))
        async with asyncio.TaskGroup() as tasks:
            for _ in range(3):
                tasks.create_task(reply(judge, of, "1"))
            tasks.create_task(reply(judge, of, "2"))
        of.failed("2", PlatformBusy("Too many.", after_s=30, is_account=True), "edit")
        await asyncio.gather(reply(judge, of, "2"), reply(judge, of, "1", "edit"))

        # A limit of unknown extent: that of an indicator is its own, that of a message all others'.
        of.failed("3", PlatformBusy("Too many.", after_s=30), "typing")
        assert (of.is_free("3", "typing"), of.is_free("3", "send")) == (False, True)
        of.failed("3", PlatformBusy("Too many.", after_s=30), "send")
        assert not of.is_free("3", "edit")

        # Times that no platform means literally end after a moment, or a day.
        of.failed("1", PlatformBusy("Too many.", after_s=math.nan), "edit")
        await reply(judge, of, "1", "edit")
        of.failed("1", PlatformBusy("Too many.", after_s=0), "edit")
        await reply(judge, of, "1", "edit")
        of.failed("1", PlatformBusy("Too many.", after_s=math.inf), "edit")
        await reply(judge, of, "1", "edit")

    run_virtually(main, monkeypatch, budget, windows)

    assert judge.at("1", "send") == [0, 0, 5]
    assert judge.at("2", "send") == [0, 5]
    assert judge.at("1", "edit") == [35, 35.25, 35.5, 35.5 + 24 * 3600]


def test_a_call_without_an_end_takes_one_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may arrive at any time; all others share the rest."""
    pair = Rate(methods("send"), 2, per_s=10)
    judge, of = Judge((pair,)), made(pair)

    async def main() -> None:
        async with asyncio.TaskGroup() as tasks:
            hanging = tasks.create_task(reply(judge, of, "1", s=10_000))
            await asyncio.sleep(0)
            for _ in range(3):
                tasks.create_task(reply(judge, of, "1"))
            await asyncio.sleep(100)
            hanging.cancel()

    run_virtually(main, monkeypatch, budget, windows)

    assert judge.at("1", "send") == [0, 10, 20]


def test_the_windows_of_many_chats_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    of, judge = made(POSTS), Judge((POSTS,))

    async def main() -> None:
        for number in range(5 * budget.MAX_KEPT):
            await reply(judge, of, str(number))
            await asyncio.sleep(0.01)

    run_virtually(main, monkeypatch, budget, windows)

    assert len(of._windows) <= 2 * budget.MAX_KEPT
    assert MAX_AT_ONCE < budget.MAX_KEPT
