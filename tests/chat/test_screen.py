"""What a chat shows: answers while they are written, and what goes on meanwhile."""

from collections.abc import Callable
from typing import Any

import pytest

from remoteclaw.chat.indicator import Usage, duration
from remoteclaw.chat.paint import Look, Painter
from remoteclaw.chat.screen import Screen
from tests.support.growth import processor_s


class Terminal:
    """A screen, its clock, and all that has gone up."""

    def __init__(self) -> None:
        self.now = 100.0
        self.columns = 60
        self.lines: list[str] = []
        self.screen = Screen(
            Painter(Look(has_colours=False)),
            self.lines.append,
            size=lambda: (self.columns, 20),
            clock=lambda: self.now,
            wall=lambda: self.now,
        )
        self.screen.agent = "main"

    @property
    def up(self) -> list[str]:
        """What has gone up, without empty lines."""
        return [line for part in self.lines for line in part.split("\n") if line]

    @property
    def above(self) -> list[str]:
        """What stands above the input line, without the picture that turns."""
        return [line.lstrip("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏") for line in self.screen.above().split("\n") if line]

    def live(
        self,
        text: str,
        *,
        turn: str = "1-0",
        index: int = 0,
        attempt: int = 1,
        activity: tuple[dict[str, Any], ...] = (),
        **more: Any,
    ) -> None:
        place = {"turn": turn, "attempt": attempt, "index": index}
        self.screen.live({**place, "text": text, "activity": activity, **more})

    def complete(
        self, text: str, *, turn: str = "1-0", index: int = 0, attempt: int = 1, **more: Any
    ) -> None:
        place = {"turn": turn, "attempt": attempt, "index": index}
        self.screen.message({**place, "text": text, "isError": False, "isFinal": False, **more})


@pytest.fixture
def terminal() -> Terminal:
    return Terminal()


TAKEN = {
    "inputTokens": 3000,
    "cacheReadTokens": 9000,
    "cacheWriteTokens": 200,
    "outputTokens": 14,
    "durationMs": 12_300,
    "costUsd": 0.031,
}


def tool(name: str, seconds: float | None = None) -> dict[str, Any]:
    return {"tool": name, "argument": "x", "since_ms": 100_000, "seconds": seconds}


# -- answers --------------------------------------------------------------------------------------


def test_a_message_without_live_text(terminal: Terminal) -> None:
    terminal.complete("one\n\n**two**")

    assert terminal.up == ["main", "one", "two"]


def test_the_first_block_has_the_agent_s_name_above_it_from_its_first_word(
    terminal: Terminal,
) -> None:
    terminal.live("one")

    assert terminal.above[:2] == ["main", "one"]
    assert terminal.up == []


def test_a_block_goes_up_once_the_next_one_has_begun(terminal: Terminal) -> None:
    terminal.live("one\n\nthe second block")

    assert terminal.up == ["main", "one"]
    assert terminal.above[0] == "the second block"


def test_live_text_and_the_final_text_are_one_message(terminal: Terminal) -> None:
    text = "one\n\n- two\n- three\n\n```\ncode\n```\n"
    for end in range(1, len(text), 3):
        terminal.live(text[:end])
    terminal.complete(text)

    assert terminal.up == ["main", "one", "• two", "• three", "──", "code", "──"]


def test_white_space_at_the_end_of_live_text_is_no_difference(terminal: Terminal) -> None:
    terminal.live("one \n\n")
    terminal.complete("one")

    assert terminal.up == ["main", "one"]


def test_live_text_that_comes_late_is_not_shown_again(terminal: Terminal) -> None:
    terminal.complete("one", isFinal=True)
    terminal.live("one")
    terminal.live("on")

    assert terminal.up == ["main", "one"]
    assert terminal.above == []


def test_turns_are_ordered_by_number(terminal: Terminal) -> None:
    """Two messages in one millisecond: as text, 5-10 would come before 5-9."""
    terminal.complete("one", turn="5-9")
    terminal.live("two\n\nthe third part", turn="5-10")

    assert terminal.up == ["main", "one", "main", "two"]


def test_an_answer_that_was_taken_back_is_shown_again(terminal: Terminal) -> None:
    terminal.live("a wrong beginning\n\nand more of it")
    terminal.complete("the answer")

    assert terminal.up == ["main", "a wrong beginning", "and more of it", "main", "the answer"]


def test_a_second_attempt_is_shown_again(terminal: Terminal) -> None:
    terminal.live("one", attempt=1)
    terminal.complete("(second try)", index=0, attempt=2)
    terminal.live("one", index=1, attempt=2)
    terminal.complete("one", index=1, attempt=2)

    assert terminal.up == ["main", "one", "main", "(second try)", "main", "one"]


def test_a_reply_that_only_ends_the_turn_shows_nothing(terminal: Terminal) -> None:
    terminal.complete("one")
    terminal.complete("", index=1, isFinal=True)

    assert terminal.up == ["main", "one"]


def test_what_is_typed_meanwhile_does_not_repeat_the_answer(terminal: Terminal) -> None:
    terminal.live("one\n\nthe second ")
    terminal.screen.typed("hello")
    terminal.live("one\n\nthe second part")
    terminal.complete("one\n\nthe second part")

    assert terminal.up == ["main", "one", "› hello", "main", "the second part"]


def test_a_tool_s_message_stands_above_what_is_being_written(terminal: Terminal) -> None:
    terminal.live("one")
    terminal.screen.message({"turn": None, "text": "a picture\nof \x1b[2Jit"})
    terminal.complete("one and two")

    assert terminal.up == ["main", "a picture", r"of \u001b[2Jit", "main", "one and two"]


def test_an_answer_beside_the_turn_says_so_and_ends_nothing(terminal: Terminal) -> None:
    terminal.live("one")
    terminal.screen.message(
        {"turn": None, "text": "4", "origin": "beside", "isFinal": True, "entries": ["9-0"]}
    )
    terminal.complete("one and two")

    assert terminal.up == ["main · beside", "4", "main", "one and two"]


def test_the_end_of_a_long_open_block_is_shown_as_what_it_is(terminal: Terminal) -> None:
    code = "\n".join(f"line {number}" for number in range(100))
    terminal.live(f"```python\n{code}")

    shown = terminal.above[:-1]

    assert shown[-2] == "line 99"
    assert len(shown) <= 12


def test_the_end_of_a_long_table_is_shown_as_a_table(terminal: Terminal) -> None:
    rows = "".join(f"| {number} | **row** |\n" for number in range(100))
    terminal.live(f"| number | what |\n|---|---|\n{rows}")

    _, head, _, *shown = terminal.above[:-1]

    assert head.split() == ["number", "what"]
    assert shown[-1].split() == ["99", "row"]
    assert len(shown) <= 10


#: Answers of which no block ends for long, each with more at its end.
LONG_BLOCKS = {
    "a line": ("", "word and **bold** "),
    "code": ("```python\n", "def f(a, b): return a + b  # why\n"),
    "a table": ("| a | b |\n|---|---|\n", "| 1 | `code` and words |\n"),
    "a list": ("- first\n", "- an item of `code` and words\n"),
}


@pytest.mark.parametrize("kind", LONG_BLOCKS)
def test_drawing_a_long_block_costs_no_more_than_its_end(terminal: Terminal, kind: str) -> None:
    """It is drawn up to thirty times for each second that it is written."""
    begin, more = LONG_BLOCKS[kind]

    def cost(size: int) -> float:
        terminal.live(begin + more * (size // len(more)))
        return processor_s(draw)

    def draw() -> None:
        for _ in range(10):
            terminal.columns ^= 1  # so that nothing is left of the drawing before
            terminal.screen.above()

    assert cost(64_000) < 5 * max(cost(4_000), 0.004)


def test_a_painted_block_gives_way_at_once_to_the_next_one(terminal: Terminal) -> None:
    terminal.live("the first block")
    assert terminal.above[:2] == ["main", "the first block"]
    terminal.live("the first block\n\nthe second block")

    assert terminal.above[0] == "the second block"


@pytest.mark.parametrize("show", [Terminal.live, Terminal.complete])
def test_an_agent_cannot_command_the_terminal(
    terminal: Terminal, show: Callable[[Terminal, str], None]
) -> None:
    show(terminal, "\x1b]0;title\x07\x1b[2Jred\x1b[31m\rover\x9b0m\n\nthe second block")

    ours = "".join([*terminal.lines, terminal.screen.above()])
    assert not set(ours) & set("\x07\x1b\r\x9b")
    assert r"\u001b]0;title\u0007\u001b[2Jred\u001b[31m" in ours


# -- signs of life --------------------------------------------------------------------------------


def test_a_message_has_a_sign_from_the_moment_it_is_sent_until_it_is_answered(
    terminal: Terminal,
) -> None:
    assert terminal.above == []
    terminal.screen.indicator.waits("a")
    assert terminal.above == [" 0 s · Esc or Ctrl-C stops"]
    terminal.screen.indicator.accepted("a", "1-0", 0)
    terminal.now += 75
    assert terminal.above == [" 1 min 15 s · Esc or Ctrl-C stops"]
    terminal.complete("answer", isFinal=True)
    terminal.screen.indicator.answered(["1-0"])

    assert terminal.above == []
    assert not terminal.screen.indicator.is_busy


def test_an_outcome_before_the_message_is_known_to_be_accepted(terminal: Terminal) -> None:
    terminal.screen.indicator.waits("a")
    terminal.complete("answer", isFinal=True)
    assert terminal.screen.indicator.is_busy
    terminal.screen.indicator.accepted("a", "1-0", 0)
    terminal.screen.indicator.answered(["1-0"])

    assert not terminal.screen.indicator.is_busy


def test_a_message_that_waits_says_how_many_are_before_it(terminal: Terminal) -> None:
    terminal.screen.indicator.waits("a")
    terminal.screen.indicator.accepted("a", "2-0", 1)
    assert terminal.above == [" 0 s · one before it · Esc or Ctrl-C stops"]

    terminal.screen.indicator.accepted("a", "2-0", 3)
    assert terminal.above == [" 0 s · 3 before it · Esc or Ctrl-C stops"]


def test_tools_are_shown_with_their_seconds_until_they_end(terminal: Terminal) -> None:
    terminal.live("", activity=(tool("a"), tool("b", 2.7)))
    assert terminal.above == ["  ⎿ a x (0 s)", " 0 s · Esc or Ctrl-C stops"]

    terminal.now += 63
    assert terminal.above[0] == "  ⎿ a x (1 min 3 s)"

    terminal.live("", activity=(tool("a", 70.0),))
    assert terminal.above[0] == "  ⎿ a x (1 min 10 s)"


def test_a_plan_is_shown_and_the_tokens_so_far(terminal: Terminal) -> None:
    plan = [{"text": "look", "state": "completed"}, {"text": "mend", "state": "in_progress"}]
    terminal.live("", plan=[*plan, {"text": "test", "state": "pending"}], tokens=1234)

    assert terminal.above == [
        "  ☑ look",
        "  ▸ mend",
        "  ☐ test",
        " 0 s · 1,234 tokens · Esc or Ctrl-C stops",
    ]


def test_a_narrow_terminal_has_room_for_what_stops_a_turn(terminal: Terminal) -> None:
    terminal.screen.indicator.waits("a")
    terminal.live("", tokens=1234, messages=2)
    terminal.screen.indicator.accepted("a", "2-0", 1)
    seen = []
    for terminal.columns in (80, 74, 60, 30):
        seen += terminal.above

    assert seen == [
        " 0 s · answers 2 messages · 1,234 tokens · one before it · Esc or Ctrl-C stops",
        " 0 s · answers 2 messages · 1,234 tokens · one before it · Ctrl-C stops",
        " 0 s · answers 2 messages · one before it · Ctrl-C stops",
        " 0 s · Ctrl-C stops",
    ]


def test_a_turn_waits_for_the_person_until_the_last_request_is_closed(terminal: Terminal) -> None:
    terminal.live("")
    indicator, waits = terminal.screen.indicator, ["waits for your answer · Esc or Ctrl-C stops"]
    indicator.asks("a")
    indicator.asks("b")
    indicator.closed("a")
    assert terminal.above == waits

    indicator.closed("b")
    assert terminal.above != waits
    indicator.asks("c")
    indicator.ended()
    terminal.live("")
    assert terminal.above != waits


def test_a_turn_that_began_elsewhere_counts_from_its_start(terminal: Terminal) -> None:
    """By the gateway's clock: this machine's is half an hour ahead."""
    gateway_ms = (terminal.now - 1800) * 1000
    running = {**tool("a"), "since_ms": gateway_ms - 5_000}
    terminal.live("", since_ms=gateway_ms - 75_000, at=gateway_ms, activity=(running,))

    assert terminal.above == ["  ⎿ a x (5 s)", " 1 min 15 s · Esc or Ctrl-C stops"]


def test_a_message_counts_from_enter_and_not_from_when_a_worker_took_it(terminal: Terminal) -> None:
    terminal.screen.indicator.waits("a")
    terminal.now += 7
    terminal.live("", since_ms=terminal.now * 1000 - 2000)

    assert terminal.above == [" 7 s · Esc or Ctrl-C stops"]


def test_a_turn_that_ended_while_nothing_was_heard_has_no_sign(terminal: Terminal) -> None:
    terminal.live("one\n\ntwo")
    terminal.screen.indicator.opened(is_running=True)
    assert terminal.screen.indicator.is_busy
    terminal.screen.indicator.opened(is_running=False)
    assert not terminal.screen.indicator.is_busy

    terminal.complete("one\n\ntwo and three", isFinal=True)

    assert terminal.up == ["main", "one", "two and three"]


def test_what_comes_late_of_a_turn_that_is_over_is_not_shown(terminal: Terminal) -> None:
    terminal.screen.ended("5-9")
    terminal.live("late", turn="5-9", activity=(tool("a"),))
    assert terminal.above == []

    terminal.live("", turn="5-10", activity=(tool("b"),))
    assert terminal.above[0] == "  ⎿ b x (0 s)"


def test_a_tool_cannot_command_the_terminal(terminal: Terminal) -> None:
    terminal.live("", activity=({**tool("a\n\x1b[2J"), "argument": "\u202e" + "x" * 5000},))

    line = terminal.above[0]
    assert line.startswith(r"  ⎿ a \u001b[2J \u202exx")
    assert len(line) < 60


def test_the_usage_of_a_turn_stands_below_its_answer(terminal: Terminal) -> None:
    terminal.complete("answer", isFinal=True, entries=["1-0"], status="done", usage=TAKEN)

    assert terminal.up == ["main", "answer", "12 s · 3,214 tokens · $0.03"]


def test_an_answer_to_several_messages_says_so(terminal: Terminal) -> None:
    terminal.live("", messages=3)
    assert terminal.above == [" 0 s · answers 3 messages · Esc or Ctrl-C stops"]

    terminal.complete("answer", isFinal=True, entries=["1-0", "2-0", "3-0"])
    assert terminal.up[-1] == "answers 3 messages"


def test_an_answer_that_was_interrupted_says_so(terminal: Terminal) -> None:
    terminal.complete("(I left this.)", isFinal=True, status="interrupted", usage=TAKEN)

    assert terminal.up[-1].startswith("interrupted by a newer message · 12 s · ")


@pytest.mark.parametrize("show", [Terminal.live, Terminal.complete])
def test_a_reply_that_nobody_here_asked_for_says_where_it_comes_from(
    terminal: Terminal, show: Callable[..., None]
) -> None:
    show(terminal, "answer\n\nthe second block", origin="cron job \x1b[2J" + "x" * 100)

    assert terminal.up[:2] == [r"main · cron job \u001b[2J" + "x" * 33 + "…", "answer"]


def test_the_answer_of_another_chat_s_session_is_shown_once(terminal: Terminal) -> None:
    terminal.live("one\n\nthe second part")
    terminal.live("three", index=1)
    terminal.screen.reply("1-0", "one\n\nthe second part\n\nthree and four")
    assert terminal.up == ["main", "one", "the second part", "main", "three and four"]

    terminal.screen.reply("2-0", "nothing was live")
    assert terminal.up[-2:] == ["main", "nothing was live"]


@pytest.mark.parametrize(
    ("usage", "words"),
    [
        (Usage(0.4, 0, None), "0 s"),
        (Usage(61, 5, 0.004), "1 min 1 s · 5 tokens · < $0.01"),
        (Usage(3700, 1_000_000, 12.5), "1 h 1 min · 1,000,000 tokens · $12.50"),
    ],
)
def test_a_usage_is_said_in_words(usage: Usage, words: str) -> None:
    assert str(usage) == words


def test_a_problem_stands_in_place_of_the_sign(terminal: Terminal) -> None:
    terminal.screen.indicator.waits("a")
    terminal.screen.problem = "(The gateway is away.)"

    assert terminal.above == ["(The gateway is away.)"]


def test_the_last_exchange_is_shown_on_return(terminal: Terminal) -> None:
    terminal.now = 4000.0
    items = [
        {"role": "user", "text": "hello", "at": 100_000},
        {"role": "tool", "text": "output", "at": 100_000},
        {"role": "agent", "text": "**hi**", "at": 100_000},
    ]
    terminal.screen.earlier(items)

    assert terminal.up == ["(earlier: 1 h 5 min ago)", "› hello", "main", "hi"]


def test_durations_are_said_as_people_do() -> None:
    assert [duration(seconds) for seconds in (0, 59.9, 60, 3599, 3600)] == [
        *("0 s", "59 s", "1 min 0 s", "59 min 59 s", "1 h 0 min"),
    ]
