"""`remoteclaw attach` with a real gateway, and with a program in a real holder."""

import asyncio
import contextlib
from collections.abc import Iterator

import pytest

from remoteclaw.runtimes import RUNTIMES
from tests.support.command import REMOTECLAW
from tests.support.doors import opened, own_token
from tests.support.remote import Witness
from tests.support.stack import Stack
from tests.support.terminal_program import ProgramRuntime, held_terminal


@pytest.fixture(autouse=True)
def shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(RUNTIMES, "demo", ProgramRuntime)


async def test_a_program_outlives_the_attach_of_a_person(stack: Stack) -> None:
    token = own_token(stack)
    async with held_terminal(stack) as held, opened(stack) as door:
        url = {"REMOTECLAW_GATEWAY_URL": door.url, "REMOTECLAW_GATEWAY_TOKEN": token}

        @contextlib.contextmanager
        def person(columns: int, rows: int, *more: str) -> Iterator[Witness]:
            command = (REMOTECLAW, "attach", held.sid, *more)
            environment = stack.env(**url)
            with Witness.running(*command, env=environment, columns=columns, rows=rows) as screen:
                assert isinstance(screen, Witness)
                yield screen

        def work() -> None:
            with person(70, 20) as screen:
                screen.see_match(r"^>\n")
                screen.see_match(
                    r"^ {20,}main · idle · Ctrl-\] \?$"
                )  # this person has the keyboard
                screen.type("hello\r")
                screen.see("You said hello.")
                screen.type("\x1b[200~two\nlines\x1b[201~")
                screen.see("lines")
                screen.type("\r")
                screen.see("You said two")
                assert screen.rings > 0
                screen.type("ask\r")
                screen.see("needs you: permission to run the tool")
                screen.type("\r")
                screen.see("The tool ran.")
                screen.narrow(60)
                screen.type("\x1dd")
                assert screen.leave() == 0

        def watch() -> None:
            with person(40, 12, "--read-only") as screen:
                screen.see("The tool ran.")
                screen.see("read-only")
                screen.type("x\r")
                screen.see("cut: screen is")
                screen.type("\x1d")
                screen.type("d")
                assert screen.leave() == 0

        await asyncio.to_thread(work)
        await asyncio.to_thread(watch)
