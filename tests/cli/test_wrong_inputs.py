"""Wrong inputs at the command line: the error and the exit status."""

import os
from pathlib import Path

import pytest

from tests.support.command import run_command

NOT_RUNNING = "RemoteClaw isn't running in {home}: start it with `remoteclaw up`, or"
NO_CHAT = "A chat needs a terminal; `remoteclaw send -` sends what is piped, and prints the answer."

#: The typed line, the exit status, and a part of the sentence that is printed.
TABLE = [
    ("nonsense", 2, "No such command 'nonsense'."),
    ("worker --nope", 2, "No such option '--nope'."),
    ("chat", 2, NO_CHAT),
    ("chat --url https://host:18789", 2, NO_CHAT),
    ("chat bob --agent main", 2, "Name a session, or an agent or --new, not both."),
    ("up --agent nobody", 1, "There is no agent 'nobody': the configuration has 'main'."),
    ("up --workspace /nowhere", 2, "Directory '/nowhere' does not exist."),
    ("up --runtime nosuch", 1, "[agents.main] runtime is not valid: 'nosuch' is none of claude, "),
    ("send", 2, "Missing argument 'TEXT'."),
    ("send hello", 1, NOT_RUNNING),
    ("send hello --wait soon", 2, "Invalid value for '--wait': 'soon' is not a valid float"),
    ("send hello --attach=", 2, "--attach needs the name of a file, or a URL."),
    ("stop bob", 1, NOT_RUNNING),
    ("backup -", 2, "FILE is the name of a file: the standard output has the summary."),
    ("sessions show bob", 1, NOT_RUNNING),
    ("sessions queue", 2, "Missing argument 'SESSION'."),
    ("config get x", 1, "The configuration has no key 'x'; it has 'redis', 'gateway', "),
    ("config set agents.main.permissions all", 1, "permissions is not valid: Input should be"),
    ("token create bob --scope king", 2, "is not one of 'read', 'write', 'terminal', 'admin'."),
    ("usage --by year", 2, "'year' is not one of 'agent', 'session', 'day', 'hour'."),
    ("cron add", 2, "Missing argument 'WHEN'."),
]


@pytest.mark.parametrize("typed", [[], ["policy"]], ids=str)
def test_a_group_without_a_command_shows_its_help(directory: Path, typed: list[str]) -> None:
    env = {"PATH": os.environ["PATH"], "HOME": str(directory), "REMOTECLAW_HOME": str(directory)}

    bare = run_command(*typed, env=env)

    assert (bare.returncode, bare.stderr) == (2, run_command(*typed, "--help", env=env).stdout)


def test_config_set_works_before_the_first_start(directory: Path) -> None:
    home = directory / "home"
    env = {"PATH": os.environ["PATH"], "HOME": str(directory), "REMOTECLAW_HOME": str(home)}

    assert run_command("config", "set", "queue.mode", "steer", env=env).returncode == 0
    assert run_command("config", "get", "queue.mode", env=env).stdout == "steer\n"


@pytest.mark.parametrize(("typed", "status", "error"), TABLE, ids=[row[0] for row in TABLE])
def test_wrong_input_is_answered_with_one_sentence(
    directory: Path, typed: str, status: int, error: str
) -> None:
    home = directory / "home"
    home.mkdir()
    env = {"PATH": os.environ["PATH"], "HOME": str(directory), "REMOTECLAW_HOME": str(home)}

    result = run_command(*typed.split(), env=env, stdin=b"hello")

    *usage, sentence = result.stderr.strip().split("\n")
    assert error.format(home=home) in sentence
    assert (result.returncode, result.stdout) == (status, "")
    assert bool(usage) == (status == 2), "wrong usage prints the usage; no other error does"
