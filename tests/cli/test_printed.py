"""Printed text: text of other people never controls the terminal and never forges a line."""

import json
import logging
import re
import sys
from pathlib import Path

import pytest

from remoteclaw.cli.output import echo_wrapped
from remoteclaw.gateway.methods import HANDLERS
from remoteclaw.host.logs import LineFormatter
from remoteclaw.host.terminal import escape_line, printable
from tests.support.audit_entries import audit_entry
from tests.support.cli import give_up, run
from tests.support.command import REMOTECLAW
from tests.support.growth import is_linear
from tests.support.requests import put_request
from tests.support.stack import Stack
from tests.support.terminal import Terminal
from tests.support.turns import ask, gateway, operator

#: Text that moves the cursor, sets the title, reverses the writing direction, hides characters and
#: begins a new line.
EVIL = (
    "\x1b]0;title\x07\x1b[2J\x9b31m\r\x08\x7f\u202egpj.exe\u202c\u2066\u200f\u061c\u200b\ufeff\xad"
    "\u2060\u2028\u2029\x85\U000e0041\nFORGED line"
)
#: Characters that must not be printed.
UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    "\U000e0000-\U000e007f]"
)
FORGED = re.compile("^FORGED", re.MULTILINE)

AGENT = f"""
import json, sys
def say(**message):
    print(json.dumps(message), flush=True)
for line in sys.stdin:
    say(type="tool_use", id="1", name={EVIL!r}, input={{"a": {EVIL!r}}})
    say(type="text", text={EVIL!r})
    say(type="done", error={EVIL!r}, session_id={EVIL!r})
"""

LISTS = (
    "status",
    "sessions list",
    "sessions show SID",
    "sessions trace SID",
    "sessions archive SID",
    "sessions search FORGED",
    "sessions queue SID",
    "deadletters list",
    "requests list",
    "cron list",
    "cron show JOB",
    "cron runs JOB",
    "token list",
    "audit",
    "usage --by session",
    "agents",
    "doctor",
    "config validate",
    "policy explain --agent main --channel test --from EVIL",
    # Errors that quote the input.
    "sessions show EVIL",
    "sessions trace EVIL",
    "sessions label SID EVIL",
    "deadletters show EVIL",
    "requests show EVIL",
    "requests answer EVIL once",
    "cron show EVIL",
    "token revoke EVIL",
    "config get EVIL",
    "config set EVIL 1",
    "config set queue.mode EVIL",
    "send hello --agent EVIL",
    "send hello --channel EVIL",
    "send hello --from EVIL",
    "send hello --attach EVIL",
    "send hello --wait EVIL",
    "sessions EVIL",
    "EVIL",
    "--EVIL",
    "status --EVIL",
)
#: Commands that print text with its line breaks.
TEXTS = (
    "send again",
    "deadletters show LETTER",
    "requests show ASK",
    "config get",
    "config get agents.main",
    "usage",
)


@pytest.mark.usefixtures("gateway")
async def test_no_command_prints_control_sequences_from_foreign_text(
    stack: Stack, directory: Path
) -> None:
    agent = directory / "agent.py"
    agent.write_text(AGENT)
    known = {"instructions": EVIL, "owners": ["alice"]}
    command = [sys.executable, str(agent)]
    stack.configure({"runtime": "demo", "command": command}, channels={"test": known})
    sent = await stack.append(EVIL, user_name=EVIL)
    requests = await stack.append(EVIL, channel_id="3")
    request = await put_request(stack, requests, tool=EVIL, what=EVIL)
    await give_up(stack, sent)
    await stack.ask(EVIL, user_name=EVIL, channel_id="2")
    names = {"SID": sent.session.sid}
    view = await stack.fleet.sessions.view(sent.session.sid)
    assert view is not None
    await stack.fleet.sessions.label(view, EVIL)
    await stack.fleet.tokens.create(EVIL, "read", None)
    await stack.fleet.audit.add(audit_entry(EVIL, session=EVIL, outcome=EVIL))
    (letter,) = await stack.fleet.dead_letters.list()
    names |= {"LETTER": letter.id, "JOB": await create_job(stack, EVIL), "ASK": request.id}

    for line in (*LISTS, *TEXTS):
        arguments = [names.get(word, word.replace("EVIL", EVIL)) for word in line.split()]
        result = run(stack, *arguments)
        printed = result.stdout + result.stderr
        assert printed, line
        assert "Traceback" not in printed, line
        assert not UNSAFE.search(printed), (line, printed)
        assert line in TEXTS or not FORGED.search(printed), (line, printed)
    # JSON has its own escapes, so its values are the original texts.
    jobs = json.loads(run(stack, "cron", "list", "--json").stdout)["jobs"]
    assert jobs[0]["name"] == EVIL
    answer = run(stack, "send", "again", "--json").stdout
    assert EVIL in [part["text"] for part in json.loads(answer)["reply"]]
    assert not UNSAFE.search(answer)


async def test_a_table_is_cut_to_the_width_of_the_terminal(stack: Stack) -> None:
    """Without a terminal, its cells are not cut."""
    key = (await stack.append("説明 of all that was said and done in the last days")).session
    with Terminal.running(REMOTECLAW, "sessions", "list", env=stack.env(), columns=80) as terminal:
        assert terminal.leave() == 0
        header, row = terminal.shown().split("\n")
    whole = run(stack, "sessions", "list").stdout

    assert header.split()[-1] == "AGE"
    assert row.startswith(f"{key.sid[:8]}  説明 of all")
    assert "…  main" in row
    assert whole.endswith(f"  {key}\n")


async def create_job(stack: Stack, name: str) -> str:
    """Create a cron job; return its id."""
    door = gateway(stack.fleet, stack.home, dict(HANDLERS))
    session = (await stack.fleet.sessions.list(limit=1))[0].key
    job = {"name": name, "schedule": {"every": 3600}, "message": name, "sessionKey": str(session)}
    result, _ = await ask(door, operator(), "cron.add", job=job)
    return str(result["job"]["id"])


def test_foreign_text_cannot_forge_a_line_of_a_log() -> None:
    try:
        raise ValueError(EVIL)
    except ValueError:
        error = sys.exc_info()
    record = logging.LogRecord("remoteclaw", logging.ERROR, "", 0, "said %s", (EVIL,), error)

    text = LineFormatter().format(record)

    first, *rest = text.split("\n")
    assert first.endswith(r"\u000aFORGED line")
    assert all(line.startswith("  ") for line in rest)
    assert not UNSAFE.search(text)


@pytest.mark.parametrize("text", [EVIL, "plain", "שלום \U0001f469\u200d\U0001f4bb\tx"])
def test_escapes_are_those_of_json(text: str) -> None:
    assert json.loads(f'"{escape_line(text)}"', strict=False) == text
    assert not UNSAFE.search(printable(text))


@pytest.mark.parametrize("sign", ["\x1b", "\r", "\u202e", "x"])
def test_escaping_takes_linear_time(sign: str) -> None:
    assert is_linear(lambda size: printable(sign * size))


def test_text_is_wrapped_between_words_on_a_narrow_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)

    echo_wrapped("use tools that need no permission", lead="  may      ")

    assert capsys.readouterr().out == "  may      use tools that need no\n           permission\n"
