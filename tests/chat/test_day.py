"""A working day at the terminal, as a user sees it."""

import os
import re
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import tomlkit

from remoteclaw.cli.chat import HINT
from remoteclaw.config.home import Home
from tests.support.agents import AgentCli
from tests.support.command import REMOTECLAW
from tests.support.day import EXPLAINED, SIGN, at_rest, day_agent, whole_words
from tests.support.pictures import png
from tests.support.terminal import Terminal, env
from tests.support.up import parts_of

#: Text attributes.
ATTRIBUTES = re.compile(rb"\x1b\[([0-9;]*)m")
#: The attributes without a colour: bold for the words of a search, reverse for a choice.
PLAIN = {b"", b"0", b"0;1", b"0;7"}


#: Commands, and a part of each answer.
COMMANDS = {
    "/status": "one more waits.",
    "/queue": "2 messages without an",
    "/usage": "this session",
    "/sessions": "channel",
    "/whoami": "an owner",
    "/help": "Ctrl-D or exit to leave.",
}


@dataclass(frozen=True, kw_only=True)
class Script:
    """The messages of a user during the day, and the texts that are shown for them."""

    question: str
    tool: str
    long_task: str
    long_task_shown: str
    long_task_done: str = "the mail calls total()."
    second_task: str
    second_task_done: str = "All 31 tests pass."
    picture: str
    picture_shown: str
    report: str
    paste: str = ""
    paste_shown: str


DEMO_SCRIPT = Script(
    question="why is there no discount?",
    tool="⎿ Grep total (",
    long_task="then do it.",
    long_task_shown="I delete the copy",
    second_task="and the tests?",
    picture="what is this",
    picture_shown="I see the picture.",
    report="the report",
    paste_shown="You said 60 words.",
)
#: Messages for the scripted model: claude's shell waits for a file and prints another one.
CLAUDE_SCRIPT = Script(
    question="why so? SHELL:../until look",
    tool="⎿ Bash ../until look (",
    long_task="do it. SHELL:../until wait",
    long_task_shown="⎿ Bash ../until wait (",
    second_task="the tests? SHELL:../until meanwhile",
    picture="IMAGES of",
    picture_shown='IMAGES ["image/png',
    report="SHELL:../until report",
    paste="LEN ",
    paste_shown="main LEN ",
)


def write_files_for_claude(directory: Path) -> None:
    """Write the program that claude runs, and its outputs; the model adds DONE before them."""
    program = directory / "until"
    program.write_text(
        f"#!/bin/sh\nuntil test -e {directory}/$1; do sleep 0.02; done\ncat {directory}/$1.md\n"
    )
    program.chmod(0o755)
    for name, text in {
        "look": f"with it.\n\n{EXPLAINED}",
        "wait": "with it: the copy is gone, and the mail calls `total()`.",
        "meanwhile": "with it. All **31** tests pass.",
        "report": "with it. The report is here. [[attach:report.txt]]",
    }.items():
        (directory / f"{name}.md").write_text(text)
    (directory / "report").touch()
    (directory / "shop" / "report.txt").write_text("All is well.")


class Day:
    """The day of a user: each part ends with an idle screen."""

    def __init__(self, screen: Terminal, script: Script, directory: Path) -> None:
        self.screen = screen
        self.script = script
        self.directory = directory

    def let(self, name: str) -> None:
        """Let the agent continue that waits for the file `name`."""
        (self.directory / name).touch()

    def ask(self, text: str, *seen: str) -> str:
        """Send a message; return the screen once the whole answer is shown."""
        self.screen.type(f"{text}\r")
        for text in seen:
            self.screen.see_words(text)
        return at_rest(self.screen)

    def get_a_long_answer(self) -> None:
        screen, script = self.screen, self.script
        screen.type(f"{script.question}\r")
        screen.see(script.tool)
        screen.see(SIGN)
        self.let("look")
        screen.see_words(EXPLAINED.split()[-1])
        shown = at_rest(screen)
        whole_words(EXPLAINED, shown)
        assert shown.count("\nmain\n") == 1
        assert script.tool not in shown

    def type_during_a_turn(self) -> None:
        screen, script = self.screen, self.script
        screen.type(f"{script.long_task}\r")
        screen.see_words(script.long_task_shown)
        screen.type(f"{script.second_task}\r")
        screen.see_match(r"· one before it · .*Ctrl-C stops$")
        for command, answer in COMMANDS.items():
            screen.type(f"{command}\r")
            screen.see(f"› {command}")
            screen.see_words(answer)
            screen.see(SIGN)
        self.let("wait")
        screen.see_words(script.long_task_done)
        self.let("meanwhile")
        screen.see_words(script.second_task_done)
        at_rest(screen)
        for text in (script.long_task_done, script.second_task_done, *COMMANDS.values()):
            screen.see_words(text)

    def stop_and_reset(self) -> None:
        screen = self.screen
        for file in ("wait", "meanwhile"):
            (self.directory / file).unlink()
        screen.type(f"{self.script.long_task}\r")
        screen.see(SIGN)
        self.ask("stop", "Stopped.")
        self.ask("/new", "A new conversation.")

    def edit_complete_and_send_files(self) -> None:
        screen, script = self.screen, self.script
        screen.type("one\x1b\rtwo\x0athree")
        screen.see("› one\n  two\n  three")
        screen.type("\x03")
        at_rest(screen)
        before = screen.words().count("Show who you")  # in the answer to /help
        screen.type("/who")
        screen.see_words("Show who you", before + 1)
        screen.type("\t\r")
        screen.see_gone("Show who you are here, and what you may do. ")
        screen.type("\r")
        screen.see_words("an owner", 2)
        at_rest(screen)
        screen.type("see @bas")
        screen.see("  basket.py")
        screen.type("\t")
        screen.see("› see @basket.py")
        screen.type("\x03")
        at_rest(screen)
        self.ask(f"{script.picture} {self.directory}/shop/chart.png", script.picture_shown)
        self.ask(script.report, "The report is here.", '(A file: "report.txt", 12 bytes, saved as ')
        screen.type(
            f"{script.paste}\x1b[200~" + "\r".join(f"pasted {n}" for n in range(30)) + "\x1b[201~"
        )
        screen.see("pasted 29")
        shown = self.ask("", script.paste_shown)
        assert all(shown.count(f"pasted {n}\n") == 1 for n in range(30))
        screen.type("\x12whoa")
        screen.see("I-search backward: whoa")
        screen.type("\r")
        screen.see_gone("I-search")
        screen.type("\r")
        screen.see_words("an owner", 3)
        at_rest(screen)

    def survive_a_killed_worker(self) -> None:
        screen, begun, done = self.screen, self.script.long_task_shown, self.script.long_task_done
        before = {text: screen.words().count(text) for text in (begun, done)}
        screen.type(f"{self.script.long_task}\r")
        screen.see_words(begun, before[begun] + 1)
        (worker,) = parts_of(screen.pid, "worker")
        os.kill(worker, signal.SIGKILL)
        self.let("wait")
        self.let("meanwhile")
        screen.see_words(done, before[done] + 1)
        at_rest(screen)
        screen.see_words(done, before[done] + 1)

    def leave(self) -> None:
        self.screen.type("exit\r")
        assert self.screen.leave() == 0
        assert "Unfinished work continues at the next start" in self.screen.words()

    def come_back(self) -> None:
        screen = self.screen
        screen.see("(earlier: ")
        screen.see_words(self.script.long_task_done)
        at_rest(screen)
        screen.see_words(self.script.long_task_done)
        screen.type("\x1b[A")
        screen.see_words(f"› {self.script.long_task}", 2)
        screen.type("\x03")
        at_rest(screen)


#: A wide terminal with colours, and a narrow one without.
WINDOWS = pytest.mark.parametrize(
    ("columns", "colour"), [(80, {}), (40, {"NO_COLOR": "1"})], ids=["colour", "plain"]
)


@pytest.mark.thorough("plain")
@WINDOWS
def test_a_working_day_in_the_chat(
    home: Home, directory: Path, columns: int, colour: dict[str, str]
) -> None:
    agent = {"runtime": "demo", "command": list(day_agent(directory))}
    spend_a_day(home, directory, agent, DEMO_SCRIPT, columns, env(home, **colour))


@pytest.mark.thorough
def test_a_working_day_in_the_chat_with_claude(
    home: Home, directory: Path, claude: AgentCli
) -> None:
    (directory / "shop").mkdir()
    write_files_for_claude(directory)
    environment = env(home)
    del environment["REMOTECLAW__AGENTS__MAIN__RUNTIME"]
    agent = claude.config(permissions="auto")
    spend_a_day(home, directory, agent, CLAUDE_SCRIPT, 80, environment)


def spend_a_day(
    home: Home,
    directory: Path,
    agent: dict[str, Any],
    script: Script,
    columns: int,
    environment: dict[str, str],
) -> None:
    """Spend a day with an agent in a terminal `columns` wide, and come back on the next day."""
    home.config_file.write_text(tomlkit.dumps({"agents": {"main": agent}}))
    work = directory / "shop"
    work.mkdir(exist_ok=True)
    (work / "basket.py").touch()
    (work / "chart.png").write_bytes(png())
    command: dict[str, Any] = {"env": environment, "columns": columns, "directory": work}
    with Terminal.running(REMOTECLAW, "up", rows=24, **command) as screen:
        screen.see_words("Should it work here")
        screen.type("\r")
        day = Day(screen, script, directory)
        whole_words(HINT, at_rest(screen))
        day.get_a_long_answer()
        day.type_during_a_turn()
        day.stop_and_reset()
        day.edit_complete_and_send_files()
        day.survive_a_killed_worker()
        day.leave()
        attributes = set(ATTRIBUTES.findall(screen.raw))
        assert (attributes <= PLAIN) == ("NO_COLOR" in environment), attributes
    with Terminal.running(REMOTECLAW, "up", rows=24, **command) as screen:
        day = Day(screen, script, directory)
        day.come_back()
        day.leave()
