"""A whole day at the terminal, as a person sees it."""

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

#: The looks of text, and those without a colour: bold are the words of a search, reversed a choice.
LOOKS = re.compile(rb"\x1b\[([0-9;]*)m")
PLAIN = {b"", b"0", b"0;1", b"0;7"}


#: Commands, and words of their answers.
COMMANDS = {
    "/status": "one more waits.",
    "/queue": "2 messages without an",
    "/usage": "this session",
    "/sessions": "channel",
    "/whoami": "an owner",
    "/help": "Ctrl-D or exit to leave.",
}


@dataclass(frozen=True, kw_only=True)
class Said:
    """What a person says to an agent during the day, and what is seen of the answers."""

    question: str
    tool: str
    wait: str
    waits: str
    done: str = "the mail calls total()."
    meanwhile: str
    done_meanwhile: str = "All 31 tests pass."
    picture: str
    seen: str
    report: str
    paste: str = ""
    pasted: str


SCRIPTED = Said(
    question="why is there no discount?",
    tool="⎿ Grep total (",
    wait="then do it.",
    waits="I delete the copy",
    meanwhile="and the tests?",
    picture="what is this",
    seen="I see the picture.",
    report="the report",
    pasted="You said 60 words.",
)
#: What has the scripted model use claude's shell: a program waits for a file, and prints another.
LED = Said(
    question="why so? SHELL:../until look",
    tool="⎿ Bash ../until look (",
    wait="do it. SHELL:../until wait",
    waits="⎿ Bash ../until wait (",
    meanwhile="the tests? SHELL:../until meanwhile",
    picture="IMAGES of",
    seen='IMAGES ["image/png',
    report="SHELL:../until report",
    paste="LEN ",
    pasted="main LEN ",
)


def led(directory: Path) -> None:
    """Write the program that claude runs, and what it prints; a model's first word is DONE."""
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
    """A person at work: each part ends with a screen at rest."""

    def __init__(self, screen: Terminal, said: Said, directory: Path) -> None:
        self.screen = screen
        self.said = said
        self.directory = directory

    def let(self, name: str) -> None:
        """Let the agent go on that waits for this."""
        (self.directory / name).touch()

    def ask(self, text: str, *seen: str) -> str:
        """Say something; return what is shown once all of the answer has been seen."""
        self.screen.type(f"{text}\r")
        for words in seen:
            self.screen.see_words(words)
        return at_rest(self.screen)

    def a_long_answer(self) -> None:
        screen, said = self.screen, self.said
        screen.type(f"{said.question}\r")
        screen.see(said.tool)
        screen.see(SIGN)
        self.let("look")
        screen.see_words(EXPLAINED.split()[-1])
        shown = at_rest(screen)
        whole_words(EXPLAINED, shown)
        assert shown.count("\nmain\n") == 1
        assert said.tool not in shown

    def something_typed_meanwhile(self) -> None:
        screen, said = self.screen, self.said
        screen.type(f"{said.wait}\r")
        screen.see_words(said.waits)
        screen.type(f"{said.meanwhile}\r")
        screen.see_match(r"· one before it · .*Ctrl-C stops$")
        for command, answer in COMMANDS.items():
            screen.type(f"{command}\r")
            screen.see(f"› {command}")
            screen.see_words(answer)
            screen.see(SIGN)
        self.let("wait")
        screen.see_words(said.done)
        self.let("meanwhile")
        screen.see_words(said.done_meanwhile)
        at_rest(screen)
        for words in (said.done, said.done_meanwhile, *COMMANDS.values()):
            screen.see_words(words)

    def stops_and_begins_anew(self) -> None:
        screen = self.screen
        for file in ("wait", "meanwhile"):
            (self.directory / file).unlink()
        screen.type(f"{self.said.wait}\r")
        screen.see(SIGN)
        self.ask("stop", "Stopped.")
        self.ask("/new", "A new conversation.")

    def lines_words_and_files(self) -> None:
        screen, said = self.screen, self.said
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
        self.ask(f"{said.picture} {self.directory}/shop/chart.png", said.seen)
        self.ask(said.report, "The report is here.", '(A file: "report.txt", 12 bytes, saved as ')
        screen.type(
            f"{said.paste}\x1b[200~" + "\r".join(f"pasted {n}" for n in range(30)) + "\x1b[201~"
        )
        screen.see("pasted 29")
        shown = self.ask("", said.pasted)
        assert all(shown.count(f"pasted {n}\n") == 1 for n in range(30))
        screen.type("\x12whoa")
        screen.see("I-search backward: whoa")
        screen.type("\r")
        screen.see_gone("I-search")
        screen.type("\r")
        screen.see_words("an owner", 3)
        at_rest(screen)

    def a_worker_dies(self) -> None:
        screen, said = self.screen, self.said
        before = {words: screen.words().count(words) for words in (said.waits, said.done)}
        screen.type(f"{said.wait}\r")
        screen.see_words(said.waits, before[said.waits] + 1)
        (worker,) = parts_of(screen.pid, "worker")
        os.kill(worker, signal.SIGKILL)
        self.let("wait")
        self.let("meanwhile")
        screen.see_words(said.done, before[said.done] + 1)
        at_rest(screen)
        screen.see_words(said.done, before[said.done] + 1)

    def leaves(self) -> None:
        self.screen.type("exit\r")
        assert self.screen.leave() == 0
        assert "Leaving. What isn't finished goes on" in self.screen.words()

    def comes_back(self) -> None:
        screen = self.screen
        screen.see("(earlier: ")
        screen.see_words(self.said.done)
        at_rest(screen)
        screen.see_words(self.said.done)
        screen.type("\x1b[A")
        screen.see_words(f"› {self.said.wait}", 2)
        screen.type("\x03")
        at_rest(screen)


#: Each width once, and each look.
WINDOWS = pytest.mark.parametrize(
    ("columns", "colour"), [(80, {}), (40, {"NO_COLOR": "1"})], ids=["colour", "plain"]
)


@pytest.mark.thorough("plain")
@WINDOWS
def test_a_day(home: Home, directory: Path, columns: int, colour: dict[str, str]) -> None:
    agent = {"runtime": "demo", "command": list(day_agent(directory))}
    a_day(home, directory, agent, SCRIPTED, columns, env(home, **colour))


@pytest.mark.thorough
def test_a_day_with_claude(home: Home, directory: Path, claude: AgentCli) -> None:
    (directory / "shop").mkdir()
    led(directory)
    environment = env(home)
    del environment["REMOTECLAW__AGENTS__MAIN__RUNTIME"]
    agent = claude.config(permissions="auto")
    a_day(home, directory, agent, LED, 80, environment)


def a_day(
    home: Home,
    directory: Path,
    agent: dict[str, Any],
    said: Said,
    columns: int,
    environment: dict[str, str],
) -> None:
    """Spend a day with an agent, in a terminal of a width, and come back on the next one."""
    home.config_file.write_text(tomlkit.dumps({"agents": {"main": agent}}))
    work = directory / "shop"
    work.mkdir(exist_ok=True)
    (work / "basket.py").touch()
    (work / "chart.png").write_bytes(png())
    command: dict[str, Any] = {"env": environment, "columns": columns, "directory": work}
    with Terminal.running(REMOTECLAW, "up", rows=24, **command) as screen:
        screen.see_words("Does it work here")
        screen.type("\r")
        day = Day(screen, said, directory)
        whole_words(HINT, at_rest(screen))
        day.a_long_answer()
        day.something_typed_meanwhile()
        day.stops_and_begins_anew()
        day.lines_words_and_files()
        day.a_worker_dies()
        day.leaves()
        looks = set(LOOKS.findall(screen.raw))
        assert (looks <= PLAIN) == ("NO_COLOR" in environment), looks
    with Terminal.running(REMOTECLAW, "up", rows=24, **command) as screen:
        day = Day(screen, said, directory)
        day.comes_back()
        day.leaves()
