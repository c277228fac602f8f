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
from tests.support.audit_entries import audit_entry
from tests.support.cli import give_up, run
from tests.support.doors import gateway_process, own_token
from tests.support.requests import change_request, put_request
from tests.support.stack import Stack

#: By command line before `--json`: the method whose result is printed, and its parameters.
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "status": ("fleet.status", {}),
    "usage": ("usage", {}),
    "memory show main": ("memory.show", {"agent": "main"}),
    "usage --by session": ("usage", {"by": "session"}),
    "token list": ("tokens.list", {}),
    "audit": ("audit.list", {}),
    "sessions list": ("sessions.search", {"usage": True}),
    "sessions show SID": ("sessions.show", {"sessionKey": "SID"}),
    "sessions trace SID": ("sessions.trace", {"what": "SID"}),
    "sessions queue SID": ("sessions.queue", {"sessionKey": "SID"}),
    "sessions tree SID": ("tasks.tree", {"sessionKey": "SID"}),
    "sessions search hello": ("sessions.search", {"filter": "hello"}),
    "sessions archive SID": ("sessions.archive", {"sessionKey": "SID"}),
    "requests list": ("requests.list", {}),
    "requests show ASK": ("requests.show", {"id": "ASK"}),
    "deadletters list": ("deadletters.list", {"limit": 1000}),
    "deadletters show LETTER": ("deadletters.show", {"id": "LETTER"}),
    "cron list": ("cron.list", {}),
    "cron show JOB": ("cron.show", {"name": "JOB"}),
    "cron runs JOB": ("cron.runs", {"jobId": "JOB"}),
    "pairing list": ("pairings.list", {}),
    "terminals list": ("terminals.list", {}),
}
#: Commands whose output with `--json` needs a program in a terminal, or that look at this computer
#: or its configuration themselves, with the keys of the printed object or of the first of a list.
OWN = {
    "send hello": "reference status reply files error usage duplicate",
    "agents": "name version program steers asides reportsCost explainsDenial resumes warning",
    "doctor": "host atMs findings",
    "policy explain": "subject isOwner requests tools",
    "channel list": "account state name agent groups problem waiting accepted aside by standbys",
    "drain": "host id sinceMs workers turns terminals",
    "replies list": "account isRead replies bytes oldestMs id sessionKey",
}
#: What differs between two results of the same method.
CLOCKS = {"atMs", "seconds", "gateway", "memory", "hosts"}

#: The commands without `--json`, by the reason.
WITHOUT = {
    "they run until they are ended": "up, chat, attach, worker, gateway, sweep, dashboard, mcp, "
    "channel run, terminals record, service logs",
    "what they print is JSON, or made for programs": "sessions export, config schema, config get, "
    "service show",
    "they do something and print at most its name or one sentence": "stop, open, token create, "
    "token revoke, token rotate, sessions reset, sessions forget, sessions fork, sessions label, "
    "sessions retry, "
    "sessions files, replies drop, deadletters retry, deadletters drop, cron add, cron edit, "
    "cron pause, cron resume, cron run, cron remove, config set, config unset, "
    "backup, restore, join, service install, service uninstall, "
    "agents end, channel add, pairing approve, pairing remove, requests answer, terminals park, "
    "memory edit, memory undo, "
    "terminals end, terminals key, terminals input",
    "its exit status is the answer": "config validate, service status",
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
    facts = {*METHODS, *OWN, "terminals screen", "terminals search", "terminals share", "logs"}
    without_json = {name for line in WITHOUT.values() for name in line.split(", ")}
    listed = {name for name in every if any(f"{fact} ".startswith(f"{name} ") for fact in facts)}

    assert every.keys() - with_json == without_json
    assert with_json == listed


@pytest.fixture
async def names(stack: Stack) -> dict[str, str]:
    """Something of each kind that commands print, by the word for it in `METHODS`."""
    sent = await stack.append("hello")
    requests = await stack.append("hello", channel_id="requests")
    request = await put_request(stack, requests, tool="Bash", what="touch x")
    await give_up(stack, sent)
    await stack.ask("hello")
    await stack.fleet.tokens.create("grafana", "read", None)
    await stack.fleet.audit.add(audit_entry("ada"))
    (letter,) = await stack.fleet.dead_letters.list()
    stack.configure(channels={"test": {"owners": ["alice"]}, "webhook": {"token": "secret"}})
    stranger = PairingRequest(
        provider="webhook", account="default", id="bo", name="Bo", chat="bo", message="1"
    )
    assert await stack.fleet.pairings.ask(stranger)
    arguments = request_args(change_request(sent.session), None, keep_ms=0)
    await stack.fleet.calls.record_change(None, "requests", "", effect=None, request_args=arguments)
    sid = sent.session.sid
    job = run(stack, "cron", "add", "every hour", "look", "--session", sid).stdout.strip()
    run(stack, "cron", "run", job)
    assert run(stack, "sessions", "reset", sid).returncode == 0
    await stack.until_idle(sent)
    return {"SID": sid, "LETTER": letter.id, "JOB": job, "ASK": request.id}


async def test_json_is_the_result_of_the_method_with_a_gateway_and_without_one(
    stack: Stack, names: dict[str, str]
) -> None:
    def printed(line: str) -> Any:
        command = [names.get(word, word) for word in line.split()]
        result = run(stack, *command, "--json")
        assert result.returncode == 0, (line, result.stderr)
        return without_clocks(json.loads(result.stdout))

    results = {}
    async with gateway_process(stack) as (door, _), door.connected(own_token(stack)) as client:
        for line, (method, params) in METHODS.items():
            named = {name: names.get(str(value), value) for name, value in params.items()}
            results[line] = without_clocks(await client.call(method, named))
            assert printed(line) == results[line], line
    del results["terminals list"]  # only a gateway has terminals
    for line, result in results.items():
        assert printed(line) == result, line


def without_clocks(result: Any) -> Any:
    """Return a result without what differs from one moment to the next."""
    if isinstance(result, dict):
        return {name: without_clocks(each) for name, each in result.items() if name not in CLOCKS}
    return [without_clocks(each) for each in result] if isinstance(result, list) else result


@pytest.mark.usefixtures("gateway", "names")
async def test_the_keys_of_other_json_never_change(stack: Stack, directory: Path) -> None:
    claude = directory / "claude"
    claude.write_text("#!/bin/sh\necho 2.0.0\n")
    claude.chmod(0o755)

    for line, expected in OWN.items():
        result = run(stack, *line.split(), "--json", PATH=f"{directory}:/usr/bin:/bin")
        printed = json.loads(result.stdout)
        first = printed[0] if isinstance(printed, list) else printed
        assert list(first) == expected.split(), (line, result.stderr)
