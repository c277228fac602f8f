"""`--json`: every command that prints facts has it, and its keys never change."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from remoteclaw.cli import main
from remoteclaw.fleet.pairings import PairingRequest
from remoteclaw.fleet.requests.card import request_args
from tests.support.cli import give_up, run
from tests.support.deeds import deed
from tests.support.remote import OF_TERMINALS
from tests.support.requests import change_request, put_request
from tests.support.stack import Stack

USAGE = (
    "turns inputTokens cacheReadTokens cacheWriteTokens outputTokens durationMs costUsd asides "
    "estimatedTokens"
)
SESSION = (
    "id key agent model label title state waiting last_message_ms postponed_until_ms postponed"
)
JOB = (
    "id name schedule message sessionKey enabled createdMs nextRunMs nextRun lastRunMs lastRun "
    "lastStatus lastError lastDurationMs failures isRunning misfire alertAfter"
)
RUN = "jobId dueMs due status runId detail isManual durationMs"
LETTER = "id session account reference category detail attempts given_up_ms"
ASK = (
    "id session agent kind tool what is_cut is_again is_question choices is_multiple offered "
    "change where chat unshown people state asked_ms until_ms answer"
)

#: By command line before `--json`: the keys of the printed object, or of the first one of a list.
FACTS = {
    "send hello": "reference status reply files error usage duplicate",
    "status": "workers hints gateway has_sweeper busy_sessions sessions memory_problem "
    "dead_letters",
    "agents": "name version program steers asides reports_cost explains_denial resumes warning",
    "doctor": "subject ok text",
    "usage": f"agent {USAGE}",
    "token list": "id name scope agents created_ms expires_ms is_expired",
    "audit": "at_ms who did session outcome is_forced address",
    "sessions list": f"{SESSION} usage",
    "sessions show SID": f"{SESSION} project started_by has_started worker host lane turn phase "
    "usage conversations",
    "sessions trace SID": "session reference status turn steps error usage aside_usage",
    "sessions queue SID": "mode debounce_ms cap drop gather_ms gather_most_ms own",
    "sessions tree SID": "sessionKey atMs work leftOut",
    "sessions search hello": "id key at who text",
    "sessions archive SID": "number ended_ms messages why",
    "requests list": ASK,
    "requests show ASK": ASK,
    "replies list": "account is_read replies bytes oldest_ms id session",
    "deadletters list": LETTER,
    "deadletters show LETTER": f"{LETTER} text files",
    "cron list": JOB,
    "cron show JOB": f"{JOB} runs",
    "cron runs JOB": RUN,
    "policy explain": "subject is_owner approvals tools",
    "channel list": "account state name problem waiting accepted aside by standbys",
    "pairing list": "code id name by at_ms account state",
}

#: The commands without `--json`, by the reason.
WITHOUT = {
    "they run until they are ended": "up, chat, attach, worker, gateway, sweep, dashboard, mcp, "
    "channel run",
    "what they print is JSON, or made for programs": "sessions export, config schema, config get, "
    "service",
    "they do something and print at most its name or one sentence": "stop, open, token create, "
    "token revoke, token rotate, sessions reset, sessions forget, sessions fork, sessions label, "
    "sessions retry, "
    "sessions files, replies drop, deadletters retry, deadletters drop, cron add, cron edit, "
    "cron pause, cron resume, cron run, cron remove, config set, config unset, "
    "channel add, pairing approve, pairing remove, requests answer, terminals park, "
    "terminals end, terminals key, terminals input",
    "its exit status is the answer": "config validate",
}


def commands(group: click.Group, path: str = "") -> Iterator[tuple[str, click.Command]]:
    """Yield every command that is no group, with the names that lead to it."""
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from commands(command, f"{path}{name} ")
        else:
            yield f"{path}{name}", command


def test_every_command_that_prints_facts_has_json() -> None:
    every = dict(commands(main))
    with_json = {
        name
        for name, command in every.items()
        if any("--json" in parameter.opts for parameter in command.params)
    }
    facts = {**FACTS, **OF_TERMINALS}
    without_json = {name for line in WITHOUT.values() for name in line.split(", ")}
    listed = {name for name in every if any(f"{fact} ".startswith(f"{name} ") for fact in facts)}

    assert every.keys() - with_json == without_json
    assert with_json == listed


@pytest.mark.usefixtures("gateway")
async def test_the_keys_of_json_output_never_change(stack: Stack, directory: Path) -> None:
    claude = directory / "claude"
    claude.write_text("#!/bin/sh\necho 2.0.0\n")
    claude.chmod(0o755)
    sent = await stack.append("hello")
    requests = await stack.append("hello", channel_id="requests")
    request = await put_request(stack, requests, tool="Bash", what="touch x")
    await give_up(stack, sent)
    await stack.ask("hello")
    await stack.fleet.tokens.create("grafana", "read", None)
    await stack.fleet.audit.add(deed("ada"))
    (letter,) = await stack.fleet.dead_letters.list()
    stack.configure(channels={"test": {"owners": ["alice"]}, "webhook": {"token": "secret"}})
    stranger = PairingRequest(
        provider="webhook", account="default", id="bo", name="Bo", chat="bo", message="1"
    )
    assert await stack.fleet.pairings.ask(stranger)
    arguments = request_args(change_request(sent.session), None, keep_ms=0)
    await stack.fleet.calls.record_change(None, "requests", "", note=None, request_args=arguments)
    sid = sent.session.sid
    options = ("--name", "daily", "--message", "look", "--session", sid, "--every", "3600")
    job = run(stack, "cron", "add", *options).stdout.strip()
    run(stack, "cron", "run", job)
    assert run(stack, "sessions", "reset", sid).returncode == 0
    names = {"SID": sid, "LETTER": letter.id, "JOB": job, "ASK": request.id}

    for line, expected in FACTS.items():
        command = [names.get(word, word) for word in line.split()]
        result = run(stack, *command, "--json", PATH=f"{directory}:/usr/bin:/bin")
        printed = json.loads(result.stdout)
        assert keys_of(printed) == expected.split(), (line, result.stderr)


def keys_of(printed: Any) -> list[str]:
    """Return the keys of an object, or of the first one of a list."""
    return list(printed[0] if isinstance(printed, list) else printed)
