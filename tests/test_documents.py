"""What documents show is valid: commands, configurations, settings and examples; commands run."""

import ast
import json
import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from remoteclaw.cli import main
from remoteclaw.commands.table import COMMANDS
from remoteclaw.config.home import Home
from remoteclaw.config.load import parse_config
from remoteclaw.errors import ConfigError
from tests.support.agents import ROOT
from tests.support.command import run_shell
from tests.support.documents import (
    Snippet,
    blocks,
    commands_in,
    mentioned,
    shell_lines,
    snippets,
    valid,
)
from tests.support.terminal import env
from tests.support.up import address, remoteclaw, running

#: The languages of blocks. Each is checked below, except text, which is what people see, and yaml,
#: which configures programs of others.
LANGUAGES = {"sh", "text", "toml", "json", "python", "yaml"}

TUTORIAL = ROOT / "docs" / "tutorial.md"

#: Lines of a shell that no test runs as they are, by a part of them, and why.
NOT_RUN = {
    "bench": "it takes minutes",
    "k7m2q9xa": "it is the request of an example: tests/cli/test_requests.py does",
    "terminals share": "it needs a terminal: tests/gateway/test_guests.py does",
    "terminals record": "it needs a terminal: tests/attach/test_recording.py does",
    "git clone": "the tutorial's test does",
    "remoteclaw up": "the tutorial's test does",
    "scripts/start": "the tutorial's test does",
    "remoteclaw chat": "it needs a terminal: tests/chat does",
    "remoteclaw attach": "it needs a terminal: tests/attach does",
    "channel add telegram": "it needs a terminal: the tutorial's test does",
    "claude mcp add": "it is another program's: tests/contracts/test_tools.py uses the connector",
    "ask.py": "tests/test_examples.py does",
    "cockpit.py": "tests/test_examples.py does",
    ".[terminals]": "tests/test_distribution.py does",
    "kill -9": "tests/up/test_up.py kills a worker during an answer",
    "asciinema": "it is a program of the reader's",
    "ffmpeg": "it is a program of the reader's",
    "whisper-cli": "it is a program of the reader's",
    "$BRIDGE_URL": "it opens a terminal of an agent: tests/gateway/terminals does",
}


def check(faults: Mapping[Snippet, str | None]) -> None:
    """Fail with the page, the line and the text of each fault."""
    found = [f"{place}: {place.text.strip()}: {why}" for place, why in faults.items() if why]
    if found:
        pytest.fail("\n".join(["documents are wrong:", *found]), pytrace=False)


def test_every_block_in_a_document_has_a_language_and_none_is_indented() -> None:
    faults = {each: "has no language" for each in snippets() if each.kind == "none"}
    faults |= dict.fromkeys(blocks("indented"), "is indented: use ```")
    known = {*LANGUAGES, "span", "none", "indented"}
    faults |= {each: each.kind for each in snippets() if each.kind not in known}

    check(faults)


def test_every_command_in_a_document_is_valid() -> None:
    faults: dict[Snippet, str | None] = {}
    count = 0
    for block in blocks("sh", "text"):
        for place, line in shell_lines(block):
            command = re.sub(r"^\$ ", "", line)
            if block.kind == "text" and command == line:
                continue
            for words in commands_in(command):
                count += 1
                faults[place] = valid(words)
    for span in blocks("span"):
        if re.search(r"(^|[ (/])remoteclaw [a-z-]", span.text):
            for words in mentioned(span.text):
                count += 1
                faults[span] = valid(words, is_whole=False)

    check(faults)
    assert count > 200


def test_every_command_that_a_document_names_without_the_program_is_valid() -> None:
    """`sessions trace SESSION` and `send --json`; `cron job` is what an agent reads."""
    faults = {}
    for span in blocks("span"):
        first, second, *_ = [*span.text.split(), "", ""]
        is_group = hasattr(main.commands.get(first), "commands") and second.isalpha()
        if (is_group or (first in main.commands and second.startswith("--"))) and second != "job":
            for words in mentioned(f"remoteclaw {span.text}"):
                faults[span] = valid(words, is_whole=False)

    check(faults)
    assert len(faults) > 20


def test_the_page_about_chats_has_every_command_of_a_chat() -> None:
    page = (ROOT / "docs" / "chat.md").read_text()
    rows = "".join(re.findall(r"^\| (`/.*?) \| ", page, re.MULTILINE))
    named = set(re.findall(r"`/(\w+)", rows))

    assert named == {*COMMANDS, "save"}  # only the chat in a terminal has `/save`


def test_every_configuration_in_a_document_can_be_loaded() -> None:
    faults: dict[Snippet, str | None] = {}
    for block in blocks("toml"):
        if block.text.startswith("[project"):
            continue  # of a pyproject.toml
        try:
            parse_config(block.text.encode(), block.page, {})
        except ConfigError as error:
            faults[block] = str(error)

    check(faults)


def test_every_setting_that_a_document_names_exists() -> None:
    """As the reference has it, which is written from the code: `[fleet] lease_s = 60`."""
    reference = (ROOT / "docs" / "reference" / "configuration.md").read_text()
    # The reference has tables of tables only by their names; `[secret]` replaces a secret.
    names = ("channels", "people", "prices", "channels.NAME.accounts.NAME", "agents.NAME.env")
    sections: dict[str, set[str]] = {_pattern(name): set() for name in (*names, "secret", "text")}
    for part in re.split(r"^## ", reference, flags=re.MULTILINE)[1:]:
        heading, _, table = part.partition("\n")
        for name in re.findall(r"\[(.+?)\]+`", heading):
            sections[_pattern(name)] = set(re.findall(r"^\| `(\w+)`", table, re.MULTILINE))
    faults: dict[Snippet, str | None] = {}
    for span in blocks("span"):
        if found := re.match(r"\[([a-z][\w.\"-]+)\](?: (\w+)|$)", span.text):
            matching = [keys for form, keys in sections.items() if re.fullmatch(form, found[1])]
            keys = set().union(*matching)
            if not matching or (found[2] and found[2] not in keys):
                faults[span] = "no such setting"

    check(faults)


def _pattern(section: str) -> str:
    """Return a pattern of the names of a section: NAME stands for any."""
    return "".join(
        r"[\w\"-]+" if part.isupper() else r"[\w.\"-]+" if part == "…" else re.escape(part)
        for part in re.split(r"([A-Z]+|…)", section)
    )


def test_examples_in_json_python_and_shell_can_be_parsed() -> None:
    faults: dict[Snippet, str | None] = {}
    for block in blocks("json", "python", "sh"):
        try:
            match block.kind:
                case "json":
                    for line in re.split(r"\n(?=\{)", block.text):
                        json.loads(line)
                case "python":
                    ast.parse(block.text)
                case _:
                    subprocess.run(["bash", "-n", "-c", block.text], check=True)
        except (ValueError, SyntaxError, subprocess.CalledProcessError) as error:
            faults[block] = str(error)

    check(faults)


def test_every_exception_from_running_is_needed() -> None:
    text = "".join(block.text for block in blocks("sh", "text"))

    assert {part for part in NOT_RUN if part not in text} == set()


def test_the_shell_commands_in_documents_run(home: Home, directory: Path) -> None:
    """Each block runs as it is written; only names that a reader puts in are put in here."""
    user, project = Path(os.environ["HOME"]), directory / "project"
    for made in (".config/systemd/user", ".config/fish/completions"):
        (user / made).mkdir(parents=True)
    home.create()
    (user / ".remoteclaw").symlink_to(home.path)
    (user / ".curlrc").write_text("fail\n")  # a status of 400 or more is a failure
    home.config_file.write_text(
        '[channels.webhook]\ntoken = "secret"\nurl = "http://127.0.0.1:9/"\n'
    )
    subprocess.run(["git", "init", "-q", project], check=True)
    for name in ("screenshot.png", "app.log"):
        (project / name).write_text("something")
    faults: dict[Snippet, str | None] = {}
    with running(home, [], "--no-chat"):
        sent = remoteclaw(home, "send", "hello", "--from", "ada", "--json")
        sid = json.loads(sent.stdout)["reference"].partition("-")[0]
        remoteclaw(home, "send", "the plan is to mend it", "--from", "bob")
        names = {
            "SESSION": sid,
            "8f3a2b1c": sid,
            "127.0.0.1:18789": address(home).partition("//")[2],
        }
        for block in blocks("sh", "text"):
            if block.page == TUTORIAL:
                continue  # tests/test_tutorial.py
            lines = [line for _, line in shell_lines(block)]
            if block.kind == "text":
                lines = [line[2:] for line in lines if line.startswith("$ ")]
            script = "\n".join(line for line in lines if not any(map(line.count, NOT_RUN)))
            for name, value in names.items():
                script = script.replace(name, value)
            ended = run_shell(script, env=env(home, WEBHOOK_TOKEN="secret"), directory=project)
            if ended.returncode:
                faults[block] = f"{ended.returncode}: {ended.stdout}"

    check(faults)
