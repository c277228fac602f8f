"""Requests of agents at the command line: the operator sees each request in full and answers it."""

import json
import re
from pathlib import Path

import pytest

from remoteclaw.gateway.request_view import request_view
from remoteclaw.host.terminal import login_name
from tests.support.bridges import acp_script
from tests.support.cli import refused, run
from tests.support.requests import BODY, answered, open_request, put_request
from tests.support.stack import Stack, said


@pytest.fixture
async def agent(stack: Stack, directory: Path) -> Stack:
    """A stack with a worker, whose agent asks for permission to run each message."""
    stack.configure({"runtime": "acp", "command": list(acp_script(directory, BODY))})
    await stack.start_worker()
    return stack


async def test_an_operator_lists_shows_and_allows_a_request(agent: Stack) -> None:
    accepted = await agent.append("touch x")
    request = await open_request(agent)

    header, row = run(agent, "requests", "list").stdout.splitlines()
    assert header.split() == "REQUEST STATE AGE UNTIL SESSION AGENT TOOL WHAT".split()
    assert row.startswith(f"{request.id}  open ")
    assert row.endswith("  main   a tool  touch x")
    shown = run(agent, "requests", "show", request.id).stdout
    assert "for      test:alice\n" in shown
    assert shown.endswith("\n\ntouch x\n")
    assert run(agent, "requests", "answer", request.id, "once").stdout.startswith(
        f"Allowed once by {login_name()} at "
    )

    assert "touch x yes" in said(await agent.outcome(accepted))


async def test_a_closed_request_is_listed_with_its_answer(agent: Stack) -> None:
    accepted = await agent.append("touch x")
    request = await open_request(agent)
    run(agent, "requests", "answer", request.id, "deny", "--reason", "not now")
    assert "touch x no" in said(await agent.outcome(accepted))

    assert run(agent, "requests", "list").stdout == "No request waits for an answer.\n"
    listed = run(agent, "requests", "list", "--all").stdout
    assert re.search(f"{request.id} +given .* a tool +deny, by operator +touch x\n", listed)
    traced = run(agent, "sessions", "trace", str(accepted.session)).stdout
    assert re.search(f" ms +asked +{request.id} a tool: touch x\n", traced)
    assert re.search(f" ms +answered +{request.id} deny, by operator: not now\n", traced)
    names = re.findall(r"^ .* ms  (\w+)", traced, re.MULTILINE)
    assert names.index("begun") < names.index("asked") < names.index("finished")
    shown = run(agent, "requests", "show", request.id).stdout
    assert "answer   deny, by operator at " in shown
    assert "because  not now\n" in shown
    (item,) = json.loads(run(agent, "requests", "list", "--all", "--json").stdout)["requests"]
    assert item["answer"]["words"] == "not now"


async def test_an_answer_fails_if_its_answer_does_not_count(stack: Stack) -> None:
    accepted = await stack.append("hello")
    request = await put_request(stack, accepted, tool="Bash", what="touch x")

    refused(run(stack, "requests", "answer", "abc", "once"), f"those that wait are {request.id}")
    for wrong in (["maybe"], ["once", "--reason", "so"]):
        assert run(stack, "requests", "answer", request.id, *wrong).returncode == 2
    assert run(stack, "requests", "answer", request.id, "once").returncode == 0
    assert (
        run(stack, "requests", "answer", request.id, "once").returncode == 0
    )  # a repeat is the same
    refused(run(stack, "requests", "answer", request.id, "deny"), "answered before: Allowed once")
    other = await stack.append("hello", channel_id="other")
    stopped = await put_request(stack, other, tool="Bash", what="touch x")
    for each in (accepted, other):
        await stack.fleet.sessions.stop(each.session.sid)
    refused(run(stack, "requests", "answer", stopped.id, "once"), "Nothing waits for that answer")
    refused(
        run(stack, "requests", "answer", "abc", "once"), "There is no request 'abc': none waits"
    )


async def test_an_operator_answers_a_question_with_free_text(stack: Stack) -> None:
    accepted = await stack.append("hello")
    request = await put_request(stack, accepted, tool="Ask", what="Which?", choices=("red", "blue"))

    refused(run(stack, "requests", "answer", request.id, "once"), "That is a question")
    printed = run(
        stack, "requests", "answer", request.id, "words", "--words", "like the sea"
    ).stdout
    assert f"Answered by {login_name()} at " in printed
    assert "because  like the sea\n" in run(stack, "requests", "show", request.id).stdout


async def test_a_secret_in_an_answer_is_hidden_in_every_list(stack: Stack) -> None:
    accepted = await stack.append("hello")
    request = await put_request(stack, accepted, tool="Ask", what="Which key?", choices=("none",))
    key = f"sk-{'a1B2' * 6}"
    await answered(stack, request, "words", words=f"it is {key}")

    found = await stack.fleet.requests.find(request.id)
    assert found is not None
    assert found.answer is not None
    assert key in found.answer.words  # the agent needs it
    for arguments in (
        ("requests", "show", request.id),
        ("requests", "list", "--all", "--json"),
        ("sessions", "trace", str(accepted.session)),
    ):
        printed = run(stack, *arguments).stdout
        assert (key in printed, "it is [secret]" in printed) == (False, True), arguments
    assert "[secret]" in str(request_view(found).answer)
