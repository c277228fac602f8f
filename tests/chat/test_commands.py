"""Chat commands in a terminal, from the typed keys to the shown answer."""

from typing import Any

import pytest
import tomlkit

from remoteclaw.config.home import Home
from tests.support.agents import AgentCli
from tests.support.command import REMOTECLAW
from tests.support.terminal import Terminal, env


def with_claude(home: Home, claude: AgentCli, **settings: object) -> dict[str, str]:
    """Return the environment of a chat with a real claude."""
    agent = claude.config(**settings)
    home.config_file.write_text(tomlkit.dumps({"agents": {"main": agent}}))
    environment = env(home)
    del environment["REMOTECLAW__AGENTS__MAIN__RUNTIME"]
    return environment


def asked_by(cli: AgentCli, *texts: str) -> list[dict[str, Any]]:
    """Return the model's first request that ends with each of `texts`."""
    requests = [request for request in cli.model.requests() if not request["is_aside"]]
    return [next(each for each in requests if each["last"].endswith(text)) for text in texts]


@pytest.mark.thorough
def test_commands_of_a_chat_with_claude(home: Home, claude: AgentCli) -> None:
    with Terminal.running(REMOTECLAW, "up", env=with_claude(home, claude)) as screen:
        screen.see("›")
        resume_an_earlier_conversation(screen)
        screen.type("/new SAY:commanded-1\r")
        screen.see("main\ncommanded-1")
        run_commands_of_claude(screen)
        change_and_reset_the_model(screen)
    first, second = asked_by(claude, "SAY:commanded-1", "SAY:commanded-2")
    assert (first["users"], second["users"]) == (1, 3)
    first, second, third = asked_by(claude, "SAY:modelled-1", "SAY:modelled-2", "SAY:modelled-3")
    assert "haiku" not in first["model"] == third["model"]
    assert second["model"] == "claude-haiku-4-5"
    assert [each["users"] for each in (first, second, third)] == [4, 5, 6]  # one conversation


def resume_an_earlier_conversation(screen: Terminal) -> None:
    screen.type("SAY:apple\r")
    screen.see("main\napple")
    screen.type("/resume\r")
    screen.see("claude has no other conversation of this workspace.")
    screen.type("/new SAY:pear\r")
    screen.see("main\npear")
    screen.type("/resume\r")
    screen.see("1. SAY:apple, ")
    screen.type("/resume 2\r")
    screen.see("Choose a number from 1 to 1")
    screen.type("/resume 1\r")
    screen.see("Your next message continues with a copy of SAY:apple")
    screen.type("RECALL\r")
    _, _, recalled = screen.see_match(r"RECALL \[[^›]*\n\d+ s · ").rpartition("RECALL [")
    assert "apple" in recalled
    assert "pear" not in recalled
    screen.type("/resume\r")
    screen.see_match(r"^[12]\. SAY:pear")  # the previous conversation is listed now


def run_commands_of_claude(screen: Terminal) -> None:
    screen.type("/context\r")
    screen.see("Estimated usage by category")
    screen.type("/nonsense\r")
    screen.see("Unknown command: /nonsense")
    screen.type("/review 7\r")  # claude sends its own prompt for this command
    screen.see("GitHub pull request")
    screen.type("SAY:commanded-2\r")
    screen.see("main\ncommanded-2")


def change_and_reset_the_model(screen: Terminal) -> None:
    screen.type("SAY:modelled-1\r")
    screen.see("main\nmodelled-1")
    screen.type("/model claude-haiku-4-5\r")
    screen.see("From the next turn on, the model is claude-haiku-4-5")
    screen.type("SAY:modelled-2\r")
    screen.see("main\nmodelled-2")
    screen.type("/status\r")
    screen.see("• model: claude-haiku-4-5")
    screen.type("/model default\r")
    screen.see("From the next turn on, the model is the one that claude chooses.")
    screen.type("SAY:modelled-3\r")
    screen.see("main\nmodelled-3")


def test_commands_of_a_chat_with_agents_without_own_commands(home: Home) -> None:
    home.config_file.write_text('[agents.other]\nruntime = "demo"\n')
    with Terminal.running(REMOTECLAW, "up", env=env(home)) as screen:
        screen.see("›")
        screen.type("/model haiku\r")
        screen.see("The agent main is run by demo, which has no models to choose from.")
        resume_from_the_record(screen)
        change_the_agent_and_back(screen)


def resume_from_the_record(screen: Terminal) -> None:
    """For a CLI that lists no conversations."""
    screen.type("/resume\r")
    screen.see("This session has no earlier conversation.")
    screen.type("my colour is green\r")
    screen.see("message 1 of our conversation")
    screen.see("what happens when an agent dies.")  # otherwise /new stops the answer
    screen.type("/new\r")
    screen.see("A new conversation.")
    screen.type("/resume\r")
    screen.see("1. my colour is green, ")
    screen.type("/resume 1\r")
    screen.see_words("continues from notes of my colour is green")
    screen.type("memory\r")
    screen.see("• my colour is green")


def change_the_agent_and_back(screen: Terminal) -> None:
    screen.type("/agent\r")
    screen.see("• other: demo in")
    screen.type("/agent other\r")
    screen.see("This is the chat with other now.")
    screen.type("hello other\r")
    screen.see("other\nThis is RemoteClaw's demo agent.")
    screen.type("/agent nobody\r")
    screen.see("There is no agent 'nobody'")
    screen.type("/agent main\r")
    screen.see("This is the chat with main now.")
    screen.see_match(r"\(earlier: .*\)\n(.*\n)*› memory")
    screen.type("memory\r")
    screen.see_words("You said before:", 3)
