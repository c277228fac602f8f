"""`remoteclaw attach` with a real `up` and the real claude: first a terminal, then the chat."""

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest
import tomlkit

from remoteclaw.config.home import Home
from tests.conftest import required
from tests.support.agents import ModelServerProcess
from tests.support.command import REMOTECLAW
from tests.support.remote import Witness
from tests.support.terminal import Terminal, env
from tests.support.terminals import used_before
from tests.support.up import gateway_of, remoteclaw, running

CLAUDE = {"REMOTECLAW__AGENTS__MAIN__RUNTIME": "claude"}


@pytest.mark.thorough
def test_a_conversation_in_a_terminal_continues_in_the_chat(
    home: Home, directory: Path, model_server: ModelServerProcess
) -> None:
    cli = required("claude", model_server)
    below = directory / "workspace" / "src"
    below.mkdir(parents=True)
    made = below.parent / "x"
    environ = used_before(cli, directory / "home", below.parent)
    agent = cli.config(workspace=str(below.parent), env=environ)
    config = {"agents": {"main": agent}, "terminals": {"handover_s": 1}}
    home.config_file.write_text(tomlkit.dumps(config))

    @contextlib.contextmanager
    def desk() -> Iterator[Witness]:
        command, environment = (REMOTECLAW, "attach"), env(home, **CLAUDE)
        with Witness.running(*command, env=environment, directory=below) as screen:
            assert isinstance(screen, Witness)
            yield screen

    def say(screen: Witness, text: str) -> None:
        screen.see(" idle ")
        screen.type(text)
        screen.see(text)
        screen.type("\r")

    with running(home, **CLAUDE) as up:
        with desk() as screen:
            say(screen, "remember alpha-1")
            screen.see("ECHO remember alpha-1")
            say(screen, "SHELL:touch x")
            screen.see("needs you")
            os.kill(gateway_of(up.pid), signal.SIGKILL)
            screen.see("away")
            screen.see_gone("away")
            screen.see("needs you")
            screen.type("\x1dd")
            assert screen.leave() == 0
            screen.see("Detached; the program runs on")
        assert not made.exists()
        with desk() as screen:
            screen.see("needs you")
            screen.see("Esc to cancel")
            screen.type("\r")
            screen.see("DONE")
            screen.see(" idle ")
            assert made.exists()
            screen.type("\x1dd")
            assert screen.leave() == 0
            assert screen.is_sane

        with Terminal.running(REMOTECLAW, "chat", env=env(home, **CLAUDE)) as chat:
            chat.see("The session is open in a terminal")
            chat.type("RECALL\r")
            chat.see_match(r"RECALL \[.*alpha-1")
        listed = remoteclaw(home, "terminals", "list", "--json", **CLAUDE)
        (terminal,) = orjson.loads(listed.stdout)["terminals"]
        assert (terminal["state"], terminal["resumable"]) == ("parked", True)
