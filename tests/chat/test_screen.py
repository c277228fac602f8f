"""The screen of a chat: answers, live text, and the indicator of a running turn."""

from collections.abc import Callable
from typing import Any

import pytest

from remoteclaw.chat.indicator import UsageLine
from remoteclaw.chat.paint import MarkdownPainter, TerminalFeatures
from remoteclaw.chat.screen import ChatScreen
from tests.support.growth import processor_s


class Terminal:
    """A chat screen with a clock; `printed` has the text that is permanent."""

    def __init__(self) -> None:
        self.now = 100.0
        self.columns = 60
        self.printed: list[str] = []
        self.screen = ChatScreen(
            MarkdownPainter(TerminalFeatures(has_colours=False)),
            self.printed.append,
            size=lambda: (self.columns, 20),
            clock=lambda: self.now,
            wall=lambda: self.now,
        )
        self.screen.agent = "main"

    @property
    def lines(self) -> list[str]:
        """The permanent lines, without empty ones."""
        return [line for part in self.printed for line in part.split("\n") if line]

    @property
    def above(self) -> list[str]:
        """The lines above the input line, without the spinner."""
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
        self.screen.show_live({**place, "text": text, "activity": activity, **more})

    def complete(
        self, text: str, *, turn: str = "1-0", index: int = 0, attempt: int = 1, **more: Any
    ) -> None:
        place = {"turn": turn, "attempt": attempt, "index": index}
        self.screen.show_message(
            {**place, "text": text, "isError": False, "isFinal": False, **more}
        )


@pytest.fixture
def terminal() -> Terminal:
    return Terminal()


USAGE = {
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


def test_a_message_without_live_text_is_shown(terminal: Terminal) -> None:
    terminal.complete("one\n\n**two**")

    assert terminal.lines == ["main", "one", "two"]


def test_live_text_has_the_agent_s_name_above_it_from_its_first_word(
    terminal: Terminal,
) -> None:
    terminal.live("one")

    assert terminal.above[:2] == ["main", "one"]
    assert terminal.lines == []


def test_a_live_block_becomes_permanent_when_the_next_block_begins(terminal: Terminal) -> None:
    terminal.live("one\n\nthe second block")

    assert terminal.lines == ["main", "one"]
    assert terminal.above[0] == "the second block"


def test_live_text_and_its_final_text_are_shown_as_one_message(terminal: Terminal) -> None:
    text = "one\n\n- two\n- three\n\n```\ncode\n```\n"
    for end in range(1, len(text), 3):
        terminal.live(text[:end])
    terminal.complete(text)

    assert terminal.lines == ["main", "one", "• two", "• three", "──", "code", "──"]


def test_a_live_answer_whose_final_text_comes_after_the_next_one_has_begun_is_shown_once(
    terminal: Terminal,
) -> None:
    terminal.live("one", turn="1-0")
    terminal.live("two", turn="2-0")
    terminal.complete("one", turn="1-0", isFinal=True)
    terminal.live("two and", turn="2-0")
    terminal.live("two and\n\nthree", turn="2-0")
    terminal.live("four", turn="3-0")
    terminal.complete("two and\n\nthree or more", turn="2-0")

    assert terminal.lines == ["main", "one", "main", "two and", "three or more"]


def test_an_older_turn_of_another_conversation_is_shown_after_a_change(
    terminal: Terminal,
) -> None:
    terminal.complete("one", turn="5-0", isFinal=True)
    terminal.live("left behind", turn="6-0")
    terminal.screen.begin()
    terminal.live("two", turn="3-0")
    terminal.complete("two", turn="3-0")

    assert terminal.lines == ["main", "one", "main", "left behind", "main", "two"]


def test_trailing_white_space_of_live_text_is_ignored(terminal: Terminal) -> None:
    terminal.live("one \n\n")
    terminal.complete("one")

    assert terminal.lines == ["main", "one"]


def test_live_text_that_arrives_after_its_final_text_is_ignored(terminal: Terminal) -> None:
    terminal.complete("one", isFinal=True)
    terminal.live("one")
    terminal.live("on")

    assert terminal.lines == ["main", "one"]
    assert terminal.above == []


def test_turn_ids_are_compared_as_numbers(terminal: Terminal) -> None:
    """With two messages in one millisecond, 5-10 would sort before 5-9 as text."""
    terminal.complete("one", turn="5-9")
    terminal.live("two\n\nthe third part", turn="5-10")

    assert terminal.lines == ["main", "one", "main", "two"]


def test_a_final_text_that_differs_from_its_live_text_is_shown_in_full(terminal: Terminal) -> None:
    terminal.live("a wrong beginning\n\nand more of it")
    terminal.complete("the answer")

    assert terminal.lines == ["main", "a wrong beginning", "and more of it", "main", "the answer"]


def test_the_text_of_a_second_attempt_is_shown_again(terminal: Terminal) -> None:
    terminal.live("one", attempt=1)
    terminal.complete("(second try)", index=0, attempt=2)
    terminal.live("one", index=1, attempt=2)
    terminal.complete("one", index=1, attempt=2)

    assert terminal.lines == ["main", "one", "main", "(second try)", "main", "one"]


def test_an_empty_last_message_shows_nothing(terminal: Terminal) -> None:
    terminal.complete("one")
    terminal.complete("", index=1, isFinal=True)

    assert terminal.lines == ["main", "one"]


def test_a_user_message_during_an_answer_does_not_repeat_the_answer(terminal: Terminal) -> None:
    terminal.live("one\n\nthe second ")
    terminal.screen.show_user_message("hello")
    terminal.live("one\n\nthe second part")
    terminal.complete("one\n\nthe second part")

    assert terminal.lines == ["main", "one", "› hello", "main", "the second part"]


def test_a_message_of_a_tool_is_shown_above_the_live_text(terminal: Terminal) -> None:
    terminal.live("one")
    terminal.screen.show_message({"turn": None, "text": "a picture\nof \x1b[2Jit"})
    terminal.complete("one and two")

    assert terminal.lines == ["main", "a picture", r"of \u001b[2Jit", "main", "one and two"]


def test_an_aside_is_labelled_and_does_not_end_the_turn(terminal: Terminal) -> None:
    terminal.live("one")
    terminal.screen.show_message(
        {"turn": None, "text": "4", "origin": "beside", "isFinal": True, "entries": ["9-0"]}
    )
    terminal.complete("one and two")

    assert terminal.lines == ["main · beside", "4", "main", "one and two"]


def test_the_end_of_a_long_live_code_block_is_shown_as_code(terminal: Terminal) -> None:
    code = "\n".join(f"line {number}" for number in range(100))
    terminal.live(f"```python\n{code}")

    shown = terminal.above[:-1]

    assert shown[-2] == "line 99"
    assert len(shown) <= 12


def test_the_end_of_a_long_live_table_is_shown_as_a_table(terminal: Terminal) -> None:
    rows = "".join(f"| {number} | **row** |\n" for number in range(100))
    terminal.live(f"| number | what |\n|---|---|\n{rows}")

    _, head, _, *shown = terminal.above[:-1]

    assert head.split() == ["number", "what"]
    assert shown[-1].split() == ["99", "row"]
    assert len(shown) <= 10


#: Long answers of one block: the beginning of the text, and the part that is repeated.
LONG_BLOCKS = {
    "a line": ("", "word and **bold** "),
    "code": ("```python\n", "def f(a, b): return a + b  # why\n"),
    "a table": ("| a | b |\n|---|---|\n", "| 1 | `code` and words |\n"),
    "a list": ("- first\n", "- an item of `code` and words\n"),
}


@pytest.mark.parametrize("kind", LONG_BLOCKS)
def test_the_cost_of_drawing_a_live_block_does_not_depend_on_its_length(
    terminal: Terminal, kind: str
) -> None:
    """A live block is drawn up to thirty times a second."""
    begin, more = LONG_BLOCKS[kind]

    def cost(size: int) -> float:
        terminal.live(begin + more * (size // len(more)))
        return processor_s(draw)

    def draw() -> None:
        for _ in range(10):
            terminal.columns ^= 1  # so that no drawing is cached
            terminal.screen.above()

    assert cost(64_000) < 5 * max(cost(4_000), 0.004)


def test_a_live_block_is_replaced_at_once_by_the_next_one(terminal: Terminal) -> None:
    terminal.live("the first block")
    assert terminal.above[:2] == ["main", "the first block"]
    terminal.live("the first block\n\nthe second block")

    assert terminal.above[0] == "the second block"


@pytest.mark.parametrize("show", [Terminal.live, Terminal.complete])
def test_an_agent_s_text_cannot_send_control_sequences_to_the_terminal(
    terminal: Terminal, show: Callable[[Terminal, str], None]
) -> None:
    show(terminal, "\x1b]0;title\x07\x1b[2Jred\x1b[31m\rover\x9b0m\n\nthe second block")

    text = "".join([*terminal.printed, terminal.screen.above()])
    assert not set(text) & set("\x07\x1b\r\x9b")
    assert r"\u001b]0;title\u0007\u001b[2Jred\u001b[31m" in text


# -- the indicator --------------------------------------------------------------------------------


def test_a_sent_message_has_an_indicator_until_its_answer(
    terminal: Terminal,
) -> None:
    assert terminal.above == []
    terminal.screen.indicator.add_message("a")
    assert terminal.above == [" 0 s · Esc or Ctrl-C stops"]
    terminal.screen.indicator.accept_message("a", "1-0", 0)
    terminal.now += 75
    assert terminal.above == [" 1 min 15 s · Esc or Ctrl-C stops"]
    terminal.complete("answer", isFinal=True)
    terminal.screen.indicator.remove_messages(["1-0"])

    assert terminal.above == []
    assert not terminal.screen.indicator.is_busy


def test_an_outcome_may_arrive_before_the_message_is_accepted(terminal: Terminal) -> None:
    terminal.screen.indicator.add_message("a")
    terminal.complete("answer", isFinal=True)
    assert terminal.screen.indicator.is_busy
    terminal.screen.indicator.accept_message("a", "1-0", 0)
    terminal.screen.indicator.remove_messages(["1-0"])

    assert not terminal.screen.indicator.is_busy


def test_the_indicator_shows_how_many_messages_are_before_this_one(terminal: Terminal) -> None:
    terminal.screen.indicator.add_message("a")
    terminal.screen.indicator.accept_message("a", "2-0", 1)
    assert terminal.above == [" 0 s · one before it · Esc or Ctrl-C stops"]

    terminal.screen.indicator.accept_message("a", "2-0", 3)
    assert terminal.above == [" 0 s · 3 before it · Esc or Ctrl-C stops"]


def test_running_tools_are_shown_with_their_elapsed_time(terminal: Terminal) -> None:
    terminal.live("", activity=(tool("a"), tool("b", 2.7)))
    assert terminal.above == ["  ⎿ a x (0 s)", " 0 s · Esc or Ctrl-C stops"]

    terminal.now += 63
    assert terminal.above[0] == "  ⎿ a x (1 min 3 s)"

    terminal.live("", activity=(tool("a", 70.0),))
    assert terminal.above[0] == "  ⎿ a x (1 min 10 s)"


def test_the_indicator_shows_the_plan_and_the_tokens_so_far(terminal: Terminal) -> None:
    plan = [{"text": "look", "state": "completed"}, {"text": "mend", "state": "in_progress"}]
    terminal.live("", plan=[*plan, {"text": "test", "state": "pending"}], tokens=1234)

    assert terminal.above == [
        "  ☑ look",
        "  ▸ mend",
        "  ☐ test",
        " 0 s · 1,234 tokens · Esc or Ctrl-C stops",
    ]


def test_a_narrow_terminal_still_shows_the_key_that_stops_a_turn(terminal: Terminal) -> None:
    terminal.screen.indicator.add_message("a")
    terminal.live("", tokens=1234, messages=2)
    terminal.screen.indicator.accept_message("a", "2-0", 1)
    seen = []
    for terminal.columns in (80, 74, 60, 30):
        seen += terminal.above

    assert seen == [
        " 0 s · answers 2 messages · 1,234 tokens · one before it · Esc or Ctrl-C stops",
        " 0 s · answers 2 messages · 1,234 tokens · one before it · Ctrl-C stops",
        " 0 s · answers 2 messages · one before it · Ctrl-C stops",
        " 0 s · Ctrl-C stops",
    ]


def test_the_indicator_waits_for_the_user_until_the_last_request_is_closed(
    terminal: Terminal,
) -> None:
    terminal.live("")
    indicator, waiting = terminal.screen.indicator, ["waits for your answer · Esc or Ctrl-C stops"]
    indicator.add_request("a")
    indicator.add_request("b")
    indicator.remove_request("a")
    assert terminal.above == waiting

    indicator.remove_request("b")
    assert terminal.above != waiting
    indicator.add_request("c")
    indicator.end_turn()
    terminal.live("")
    assert terminal.above != waiting


def test_elapsed_time_counts_from_the_start_of_a_turn_begun_elsewhere(terminal: Terminal) -> None:
    """The start is given in the gateway's time; this machine's clock is half an hour ahead."""
    gateway_ms = (terminal.now - 1800) * 1000
    running = {**tool("a"), "since_ms": gateway_ms - 5_000}
    terminal.live("", since_ms=gateway_ms - 75_000, at=gateway_ms, activity=(running,))

    assert terminal.above == ["  ⎿ a x (5 s)", " 1 min 15 s · Esc or Ctrl-C stops"]


def test_elapsed_time_of_a_message_counts_from_enter(terminal: Terminal) -> None:
    terminal.screen.indicator.add_message("a")
    terminal.now += 7
    terminal.live("", since_ms=terminal.now * 1000 - 2000)

    assert terminal.above == [" 7 s · Esc or Ctrl-C stops"]


def test_a_turn_that_ended_while_disconnected_has_no_indicator(terminal: Terminal) -> None:
    terminal.live("one\n\ntwo")
    terminal.screen.indicator.resync(is_running=True)
    assert terminal.screen.indicator.is_busy
    terminal.screen.indicator.resync(is_running=False)
    assert not terminal.screen.indicator.is_busy

    terminal.complete("one\n\ntwo and three", isFinal=True)

    assert terminal.lines == ["main", "one", "two and three"]


def test_late_live_text_of_an_ended_turn_is_ignored(terminal: Terminal) -> None:
    terminal.screen.end_turn("5-9")
    terminal.live("late", turn="5-9", activity=(tool("a"),))
    assert terminal.above == []

    terminal.live("", turn="5-10", activity=(tool("b"),))
    assert terminal.above[0] == "  ⎿ b x (0 s)"


def test_a_tool_name_cannot_send_control_sequences_to_the_terminal(terminal: Terminal) -> None:
    terminal.live("", activity=({**tool("a\n\x1b[2J"), "argument": "\u202e" + "x" * 5000},))

    line = terminal.above[0]
    assert line.startswith(r"  ⎿ a \u001b[2J \u202exx")
    assert len(line) < 60


def test_the_usage_of_a_turn_is_shown_below_its_answer(terminal: Terminal) -> None:
    terminal.complete("answer", isFinal=True, entries=["1-0"], status="done", usage=USAGE)

    assert terminal.lines == ["main", "answer", "12 s · 3,214 tokens · $0.03"]


def test_an_answer_to_several_messages_shows_their_number(terminal: Terminal) -> None:
    terminal.live("", messages=3)
    assert terminal.above == [" 0 s · answers 3 messages · Esc or Ctrl-C stops"]

    terminal.complete("answer", isFinal=True, entries=["1-0", "2-0", "3-0"])
    assert terminal.lines[-1] == "answers 3 messages"


def test_an_interrupted_answer_is_marked(terminal: Terminal) -> None:
    terminal.complete("(I left this.)", isFinal=True, status="interrupted", usage=USAGE)

    assert terminal.lines[-1].startswith("interrupted by a newer message · 12 s · ")


@pytest.mark.parametrize("show", [Terminal.live, Terminal.complete])
def test_a_reply_to_a_message_from_elsewhere_names_its_origin(
    terminal: Terminal, show: Callable[..., None]
) -> None:
    show(terminal, "answer\n\nthe second block", origin="cron job \x1b[2J" + "x" * 100)

    assert terminal.lines[:2] == [r"main · cron job \u001b[2J" + "x" * 33 + "…", "answer"]


def test_the_answer_of_a_session_of_another_chat_is_shown_once(terminal: Terminal) -> None:
    terminal.screen.gets_final_texts = False
    terminal.live("one\n\nthe second part")
    terminal.live("three", index=1)
    terminal.screen.show_reply("1-0", "one\n\nthe second part\n\nthree and four")
    assert terminal.lines == ["main", "one", "the second part", "main", "three and four"]

    terminal.screen.show_reply("2-0", "nothing was live")
    assert terminal.lines[-2:] == ["main", "nothing was live"]


@pytest.mark.parametrize(
    ("usage", "text"),
    [
        (UsageLine(0.4, 0, None), "0 s"),
        (UsageLine(61, 5, 0.004), "1 min 1 s · 5 tokens · < $0.01"),
        (UsageLine(3700, 1_000_000, 12.5), "1 h 1 min · 1,000,000 tokens · $12.50"),
    ],
)
def test_usage_is_formatted_with_units(usage: UsageLine, text: str) -> None:
    assert str(usage) == text


def test_a_problem_replaces_the_indicator(terminal: Terminal) -> None:
    terminal.screen.indicator.add_message("a")
    terminal.screen.problem = "(The gateway is away.)"

    assert terminal.above == ["(The gateway is away.)"]


def test_the_last_exchange_is_shown_on_return(terminal: Terminal) -> None:
    terminal.now = 4000.0
    items = [
        {"role": "user", "text": "hello", "at": 100_000},
        {"role": "tool", "text": "output", "at": 100_000},
        {"role": "agent", "text": "**hi**", "at": 100_000},
    ]
    terminal.screen.show_earlier(items)

    assert terminal.lines == ["(earlier: 1 h 5 min ago)", "› hello", "main", "hi"]
