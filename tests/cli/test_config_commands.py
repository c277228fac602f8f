"""`remoteclaw config`: reading and changing the configuration, also while nothing runs."""

import json
import os
import subprocess

import pytest

from remoteclaw.config.home import Home
from remoteclaw.config.load import load_config
from remoteclaw.gateway.methods.config import HANDLERS
from remoteclaw.host.terminal import login_name
from tests.support.command import run_command
from tests.support.stack import Stack
from tests.support.turns import begin_turn

TEXT = '# ours\n[queue]\nmode = "steer" # loud\n\n[agents.main]\nenv = { KEY = "canary" }\n'


@pytest.fixture(autouse=True)
def written(home: Home) -> None:
    home.config_file.write_text(TEXT)


def config(*arguments: str, **env: str) -> "subprocess.CompletedProcess[str]":
    return run_command("config", *arguments, env={**os.environ, **env})


def test_config_get_shows_values_without_secrets() -> None:
    everything = config("get")

    assert json.loads(everything.stdout)["queue"]["mode"] == "steer"
    assert "canary" not in everything.stdout
    assert config("get", "queue.mode").stdout == "steer\n"
    assert config("get", "agents.main.env").stdout == '{\n  "KEY": "***"\n}\n'
    assert "did you mean 'mode'?" in config("get", "queue.mod").stderr


@pytest.mark.parametrize(
    ("key", "value", "line"),
    [
        ("queue.mode", "collect", 'mode = "collect" # loud'),
        ("queue.cap", "3", "cap = 3"),
        ("agents.main.model", "4711", 'model = "4711"'),
        ("agents.main.trust_workspace", "true", "trust_workspace = true"),
        ("channels.irc.groups.'#a.b'.tools.deny", '["cron_*"]', 'deny = ["cron_*"]'),
        ("agents.main.env.'A.B'", "x=y", '"A.B" = "x=y"'),
    ],
)
def test_config_set_keeps_comments(home: Home, key: str, value: str, line: str) -> None:
    result = config("set", key, value)

    assert result.returncode == 0, result.stderr
    assert result.stdout == f"{key} is set.\n"
    text = home.config_file.read_text()
    assert line in text
    assert text.startswith("# ours\n[queue]\n")
    assert config("set", key, value).stdout == f"{key} already has this value.\n"


def test_config_set_says_that_it_adds_an_agent() -> None:
    added = config("set", "agents.man.permissions", "edits")
    changed = config("set", "agents.man.permissions", "ask")

    assert added.stdout == (
        "agents.man.permissions is set.\nThere was no agent `man`: this adds one (others: main).\n"
    )
    assert changed.stdout == "agents.man.permissions is set.\n"


def test_config_unset_removes_a_value(home: Home) -> None:
    assert config("unset", "queue.mode").stdout == "queue.mode is gone.\n"
    assert config("unset", "queue.mode").stdout == "queue.mode is not in the file.\n"
    assert config("unset", "agents").returncode == 0
    assert home.config_file.read_text() == "# ours\n[queue]\n\n"


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("set", "queue.mode", "loud"), "mode is not valid"),
        (("set", "queue.mod", "steer"), "did you mean 'mode'?"),
        (("set", "tools.deny", '["mesage_send"]'), "did you mean 'message_send'?"),
        (("set", "a b", "x"), "write it as in the file"),
        (("set", "a = 1\nb", "x"), "write it as in the file"),
        (("set", "", "x"), "write it as in the file"),
    ],
)
def test_config_set_refuses_an_invalid_change(
    home: Home, arguments: tuple[str, ...], why: str
) -> None:
    result = config(*arguments)

    assert result.returncode in (1, 2)
    assert why in result.stderr
    assert "Traceback" not in result.stderr
    assert home.config_file.read_text() == TEXT


def test_config_set_names_the_process_to_restart() -> None:
    printed = config("set", "fleet.workers", "2").stdout

    assert "It takes effect after a restart: fleet.workers: restart `remoteclaw up`.\n" in printed


def test_config_set_warns_of_a_variable_that_overrides_the_value() -> None:
    errors = config("set", "queue.mode", "collect", REMOTECLAW__QUEUE__MODE="steer").stderr

    warning = "The environment variable REMOTECLAW__QUEUE__MODE overrides it here."
    assert errors == f"remoteclaw: {warning}\n"


def test_config_validate_names_the_last_valid_version(home: Home) -> None:
    config("set", "queue.mode", "collect")
    home.config_file.write_text("[queue\n")
    errors = config("validate").stderr

    assert errors.endswith(f"An earlier valid version is {home.config_file}.bak.\n")
    assert home.config_file.with_name("remoteclaw.toml.bak").read_text() == TEXT


def test_config_set_can_correct_an_invalid_file(home: Home) -> None:
    home.config_file.write_text('[queue]\nmode = "loud"\n')

    assert config("set", "queue.mode", "steer").returncode == 0


def requests(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return run_command("requests", *arguments, env=os.environ)


async def test_an_operator_decides_about_configuration_changes_of_agents(stack: Stack) -> None:
    text = stack.home.config_file.read_text()
    stack.home.config_file.write_text(text + "\n[tools]\napprove = ['gateway_config_patch']\n")
    answers = []
    for person in ("admin.ada", "admin.bob"):
        turn = await begin_turn(stack, HANDLERS, provider="web", channel_id=person, from_=person)
        answers.append(await turn.call("gateway_config_patch", patches={"queue": {"cap": 5}}))
    one, other = (answer["requestId"] for answer in answers)
    shown = requests("list").stdout
    rejected, approved = requests("answer", one, "deny"), requests("answer", other, "once")
    explained = run_command("policy", "explain", env=os.environ).stdout

    assert "+queue.cap = 5" in shown
    assert rejected.stdout.startswith(f"Denied by {login_name()} at ")
    assert approved.stdout.startswith(f"Allowed once by {login_name()} at ")
    assert approved.stdout.endswith(". queue.cap is changed.\n")
    assert load_config(stack.home.config_file).queue.cap == 5
    late = requests("answer", one, "once")
    assert f"It was answered before: Denied by {login_name()} at" in late.stderr
    assert 'a person approves each call: tools.approve has "gateway_config_patch"' in explained
