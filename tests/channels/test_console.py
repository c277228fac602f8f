"""What the console's terminal shows: live text and the final text are one message."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from remoteclaw.channels.console.editor import Interrupts
from remoteclaw.channels.console.transcript import RunningTools, Transcript
from remoteclaw.config.home import Home
from tests.support.bridges import script
from tests.support.terminal import REMOTECLAW, env
from tests.support.terminal import Terminal as Screen


class Terminal:
    """A transcript and all it has written."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.transcript = Transcript("main> ", self.lines.append)

    def live(self, text: str, *, turn: str = "1-0", index: int = 0, attempt: int = 1) -> None:
        self.transcript.live(turn, attempt, index, text)

    def complete(self, text: str, *, turn: str = "1-0", index: int = 0, attempt: int = 1) -> None:
        self.transcript.complete(turn, attempt, index, text)


@pytest.fixture
def terminal() -> Terminal:
    return Terminal()


@pytest.mark.parametrize(
    ("live", "final", "lines"),
    [
        ([], "one\ntwo", ["one", "two"]),
        (["one\ntw", "one\ntwo\nthr"], "one\ntwo\nthree", ["one", "two", "three"]),
        (["one \n"], "one", ["one "]),
        (["a wrong beginning"], "the answer", ["a wrong beginning", "main> the answer"]),
    ],
)
def test_live_text_and_the_final_text_are_one_message(
    terminal: Terminal, live: list[str], final: str, lines: list[str]
) -> None:
    for text in live:
        terminal.live(text)
        assert "\n".join([*terminal.lines, terminal.transcript.line]) == f"main> {text}"
    terminal.complete(final)
    terminal.live(final[:3])  # it comes late
    terminal.complete("", index=1)  # it only ends the turn

    assert terminal.lines == [f"main> {lines[0]}", *lines[1:]]
    assert terminal.transcript.line == ""


def test_turns_and_attempts_are_ordered_by_number(terminal: Terminal) -> None:
    """Two messages in one millisecond: as text, 5-10 would come before 5-9."""
    terminal.complete("one", turn="5-9")
    terminal.live("two", turn="5-10")
    terminal.complete("(second try)", turn="5-10", attempt=2)
    terminal.complete("two", turn="5-10", index=1, attempt=2)

    assert terminal.lines == ["main> one", "main> two", "main> (second try)", "main> two"]


@pytest.mark.parametrize("show", [Terminal.live, Terminal.complete])
def test_an_agent_cannot_command_the_terminal(
    terminal: Terminal, show: Callable[[Terminal, str], None]
) -> None:
    show(terminal, "\x1b]0;title\x07\x1b[2Jred\x1b[31m\rover\x9b0m\n")

    assert terminal.lines == [r"main> \u001b]0;title\u0007\u001b[2Jred\u001b[31m\u000dover\u009b0m"]


@pytest.mark.parametrize("show", [Terminal.live, Terminal.complete])
def test_an_agent_cannot_turn_the_order_of_what_is_read(
    terminal: Terminal, show: Callable[[Terminal, str], None]
) -> None:
    show(terminal, "rm \u202egpj.exe\u202c\u200b\tשלום 👩\u200d💻\r\n")

    assert terminal.lines == ["main> rm \\u202egpj.exe\\u202c\\u200b    שלום 👩\u200d💻"]


# -- Ctrl-C ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pauses_s", "leaves"), [([1.9], [True]), ([2.1, 1.0], [False, True]), ([0.0], [True])]
)
def test_a_second_ctrl_c_soon_after_the_first_leaves(
    pauses_s: list[float], leaves: list[bool]
) -> None:
    now = [100.0]
    interrupts = Interrupts(lambda: sum(now))

    assert not interrupts.press()
    for pause_s, expected in zip(pauses_s, leaves, strict=True):
        now.append(pause_s)
        assert interrupts.press() is expected
    interrupts.forget()  # something was typed
    assert not interrupts.press()


def test_a_tool_s_message_stands_above_what_is_being_written(terminal: Terminal) -> None:
    terminal.live("one\ntw")
    terminal.transcript.message("a picture\nof \x1b[2Jit")
    terminal.live("one\ntwo\nthr")
    terminal.complete("one\ntwo\nthree")

    assert terminal.lines == ["main> one", "main> a picture", r"of \u001b[2Jit", "two", "three"]


# -- tools that run -------------------------------------------------------------------------------


def tool(name: str, seconds: float | None = None) -> dict[str, Any]:
    return {"tool": name, "argument": "x", "since_ms": 100_000, "seconds": seconds}


def test_the_seconds_of_a_tool_go_on_until_it_ends() -> None:
    view = RunningTools()
    view.show((1, 0), [tool("a"), tool("b", 2.7)])

    assert list(view.lines(100.9)) == ["· a x (0 s)", "· b x (2 s)"]
    assert list(view.lines(163.0)) == ["· a x (63 s)", "· b x (2 s)"]
    assert next(view.lines(99.0)) == "· a x (0 s)"  # of a host whose clock is ahead
    assert view.is_running
    view.show((1, 0), [tool("a", 70.0)])
    assert not view.is_running


def test_what_comes_late_of_a_turn_that_is_over_is_not_shown() -> None:
    view = RunningTools()
    view.show((5, 9), [tool("a")])
    view.end((5, 9))
    view.show((5, 9), [tool("a")])
    assert list(view.lines(100.0)) == []

    view.show((5, 10), [tool("b")])
    assert list(view.lines(100.0)) == ["· b x (0 s)"]


def test_a_tool_cannot_command_the_terminal() -> None:
    view = RunningTools()
    view.show((1, 0), [{**tool("a\n\x1b[2J"), "argument": "\u202e" + "x" * 5000}])

    (line,) = view.lines(100.0)
    assert line.startswith(r"· a \u001b[2J \u202exxx")
    assert len(line) < 220


# -- on a real screen -----------------------------------------------------------------------------

#: An agent that says what a test has written into a file, once it is there.
TOLD = """
number = 0
while True:
    turn()
    number += 1
    while not os.path.exists(f'DIRECTORY/{number}'): time.sleep(0.01)
    say(type='text', text=f'Answer {number}.')
    say(type='done')
"""
SIGN = "… (Ctrl-C stops)"


def with_agent(home: Home, command: tuple[str, ...]) -> dict[str, str]:
    """Return the environment of a console with an agent of the test's own."""
    home.config_file.write_text(f"[agents.main]\ncommand = {json.dumps(command)}\n")
    return env(home)


def test_each_message_has_a_sign_until_it_is_answered(home: Home, directory: Path) -> None:
    command = script(directory, TOLD.replace("DIRECTORY", str(directory)))
    with Screen.running(REMOTECLAW, "up", env=with_agent(home, command)) as screen:
        screen.see("you>")
        for number in range(1, 9):
            screen.type("hello\r")
            assert SIGN in screen.see(SIGN), number
            (directory / str(number)).touch()
            screen.see(f"main> Answer {number}.")
            screen.see_gone(SIGN)


#: An agent that uses a tool, and another one beside its answer, each until a test lets it end.
USES = """
def until(name):
    while not os.path.exists(f'DIRECTORY/{name}'): time.sleep(0.01)
while True:
    turn()
    say(type='tool_use', id='1', name='Bash', input={'command': 'deploy --key swordfish-1234'})
    until('one')
    say(type='tool_result', id='1', output='')
    until('two')
    say(type='text', text='It is deployed. Now I ')
    until('three')
    say(type='tool_use', id='2', name='Read', input={'file_path': '/etc/hosts'})
    until('four')
    say(type='tool_result', id='2', output='')
    say(type='text', text='look.')
    say(type='done')
"""


def seconds_of(shown: str) -> int:
    (seconds,) = re.findall(r"^· .* \((\d+) s\)$", shown, re.MULTILINE)
    return int(seconds)


def test_a_running_tool_is_shown_with_its_seconds(home: Home, directory: Path) -> None:
    command = script(directory, USES.replace("DIRECTORY", str(directory)))
    agent = {"REMOTECLAW__AGENTS__MAIN__ENV__DEPLOY_KEY": "swordfish-1234"}
    with Screen.running(REMOTECLAW, "up", env=with_agent(home, command) | agent) as screen:
        screen.see("you>")
        screen.type("hello\r")
        first = screen.see(tool := "· Bash deploy --key [secret] (")
        assert SIGN not in first
        # A busy machine may leave out a second.
        screen.see_gone(f"{tool}{seconds_of(first)} s)")
        assert seconds_of(screen.see(tool)) > seconds_of(first)
        (directory / "one").touch()
        screen.see_still("· Bash deploy --key [secret] (", for_s=1.5)
        (directory / "two").touch()
        shown = screen.see("main> It is deployed. Now I")
        assert "Bash" not in screen.see_gone("Bash")
        (directory / "three").touch()
        shown = screen.see("· Read /etc/hosts (")
        assert "main> It is deployed. Now I\n· Read" in shown
        (directory / "four").touch()

        shown = screen.see("main> It is deployed. Now I look.")

        assert "· Read" not in screen.see_gone("· Read")
        assert b"swordfish" not in screen.raw
