"""What is printed for a person: no text of others commands a terminal or forges a line."""

import json
import logging
import re
import sys
from pathlib import Path

import pytest

from remoteclaw.cli.output import echo_words
from remoteclaw.gateway.methods import HANDLERS
from remoteclaw.host.logs import LineFormatter
from remoteclaw.host.terminal import in_a_line, printable
from tests.support.asks import put_request
from tests.support.cli import give_up, run
from tests.support.command import REMOTECLAW
from tests.support.deeds import deed
from tests.support.growth import is_linear
from tests.support.stack import Stack
from tests.support.terminal import Terminal
from tests.support.turns import ask, gateway, operator

#: Moves the cursor and sets the title, turns the order, hides, and begins a line of its own.
EVIL = (
    "\x1b]0;title\x07\x1b[2J\x9b31m\r\x08\x7f\u202egpj.exe\u202c\u2066\u200f\u061c\u200b\ufeff\xad"
    "\u2060\u2028\u2029\x85\U000e0041\nFORGED line"
)
#: What a terminal must not get, and no line of a list may be forged with.
OBEYED = re.compile(
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
    "asks list",
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
    # Errors that quote what was asked for.
    "sessions show EVIL",
    "sessions trace EVIL",
    "sessions label SID EVIL",
    "deadletters show EVIL",
    "asks show EVIL",
    "asks answer EVIL once",
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
#: These print texts, whose lines stay lines.
TEXTS = (
    "send again",
    "deadletters show LETTER",
    "asks show ASK",
    "config get",
    "config get agents.main",
    "usage",
)


@pytest.mark.usefixtures("gateway")
async def test_no_command_passes_on_what_a_terminal_obeys(stack: Stack, directory: Path) -> None:
    agent = directory / "agent.py"
    agent.write_text(AGENT)
    known = {"instructions": EVIL, "owners": ["alice"]}
    command = [sys.executable, str(agent)]
    stack.configure({"runtime": "demo", "command": command}, channels={"test": known})
    sent = await stack.append(EVIL, user_name=EVIL)
    asks = await stack.append(EVIL, channel_id="3")
    request = await put_request(stack, asks, tool=EVIL, what=EVIL)
    await give_up(stack, sent)
    await stack.ask(EVIL, user_name=EVIL, channel_id="2")
    names = {"SID": sent.session.sid}
    view = await stack.fleet.sessions.view(sent.session.sid)
    assert view is not None
    await stack.fleet.sessions.label(view, EVIL)
    await stack.fleet.tokens.create(EVIL, "read", None)
    await stack.fleet.audit.add(deed(EVIL, session=EVIL, outcome=EVIL))
    (letter,) = await stack.fleet.dead_letters.list()
    names |= {"LETTER": letter.id, "JOB": await job_called(stack, EVIL), "ASK": request.id}

    for line in (*LISTS, *TEXTS):
        arguments = [names.get(word, word.replace("EVIL", EVIL)) for word in line.split()]
        result = run(stack, *arguments)
        printed = result.stdout + result.stderr
        assert printed, line
        assert "Traceback" not in printed, line
        assert not OBEYED.search(printed), (line, printed)
        assert line in TEXTS or not FORGED.search(printed), (line, printed)
    # JSON has escapes of its own: what it says is what there is.
    jobs = json.loads(run(stack, "cron", "list", "--json").stdout)
    assert jobs[0]["name"] == EVIL
    answer = run(stack, "send", "again", "--json").stdout
    assert EVIL in [part["text"] for part in json.loads(answer)["reply"]]
    assert not OBEYED.search(answer)


async def test_a_table_fits_into_the_terminal(stack: Stack) -> None:
    """Elsewhere it is whole."""
    key = (await stack.append("説明 of all that was said and done in the last days")).session
    with Terminal.running(REMOTECLAW, "sessions", "list", env=stack.env(), columns=80) as terminal:
        assert terminal.leave() == 0
        head, row = terminal.shown().split("\n")
    whole = run(stack, "sessions", "list").stdout

    assert head.split()[-1] == "AGE"
    assert row.startswith(f"{key.sid[:8]}  説明 of all")
    assert "…  main" in row
    assert whole.endswith(f"  {key}\n")


async def job_called(stack: Stack, name: str) -> str:
    """Return the id of a new job."""
    door = gateway(stack.fleet, stack.home, dict(HANDLERS))
    session = (await stack.fleet.sessions.list(limit=1))[0].key
    job = {"name": name, "schedule": {"every": 3600}, "message": name, "sessionKey": str(session)}
    made, _ = await ask(door, operator(), "cron.add", job=job)
    return str(made["job"]["id"])


def test_no_log_has_a_line_that_a_text_has_written() -> None:
    try:
        raise ValueError(EVIL)
    except ValueError:
        told = sys.exc_info()
    record = logging.LogRecord("remoteclaw", logging.ERROR, "", 0, "said %s", (EVIL,), told)

    text = LineFormatter().format(record)

    first, *rest = text.split("\n")
    assert first.endswith(r"\u000aFORGED line")
    assert all(line.startswith("  ") for line in rest)
    assert not OBEYED.search(text)


@pytest.mark.parametrize("text", [EVIL, "plain", "שלום \U0001f469\u200d\U0001f4bb\tx"])
def test_an_escape_is_the_one_of_json(text: str) -> None:
    assert json.loads(f'"{in_a_line(text)}"', strict=False) == text
    assert not OBEYED.search(printable(text))


@pytest.mark.parametrize("sign", ["\x1b", "\r", "\u202e", "x"])
def test_much_text_is_printable_soon(sign: str) -> None:
    assert is_linear(lambda size: printable(sign * size))


def test_words_stay_whole_on_a_narrow_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)

    echo_words("use tools that need no permission", lead="  may      ")

    assert capsys.readouterr().out == "  may      use tools that need no\n           permission\n"
