"""What is left of budgets, as commands, methods and the page show it."""

import json
from pathlib import Path

from remoteclaw.commands.call import CommandCall
from remoteclaw.commands.status import usage
from remoteclaw.config.load import load_config
from remoteclaw.messages import SessionKey
from tests.support.bridges import claude_script
from tests.support.cli import run
from tests.support.conversations import drain
from tests.support.doors import opened
from tests.support.stack import Stack

BUDGETS = [
    {"of": "agent:main", "usd": 20, "tokens": 5000, "per": "day"},
    {"of": "person:*", "tokens": 1000, "per": "month"},
    {"of": "person:test:carol", "minutes": 90, "per": "month"},
    {"of": "tree", "tokens": 300},
]
#: A program with claude's protocol, whose turns cost 1.5 dollars and 100 tokens.
TALKS = """
totals = dict(inputTokens=0)
while True:
    echo(heard())
    totals['inputTokens'] += 100
    delta('hello')
    result('hello', modelUsage=dict(m=totals), total_cost_usd=totals['inputTokens'] * 0.015)
"""
LEFT = [
    "main: $17.00 of $20.00, 4,800 of 5,000 tokens left today",
    "test:alice: 900 of 1,000 tokens left this month",
    "bob: 900 of 1,000 tokens left this month",
    "test:carol: 90 of 90 minutes left this month",
]


async def talked(stack: Stack, directory: Path) -> SessionKey:
    """Have alice and bob each take a turn; return the session of alice."""
    agent = {"runtime": "claude", "command": list(claude_script(directory, TALKS))}
    people = {"bob": {"ids": ["test:bob"]}}
    stack.configure(agent, budgets=BUDGETS, people=people)
    for sender in ("bob", "alice"):
        accepted = await stack.append("hello", from_=sender)
        await drain(stack, accepted)
    return accepted.session


async def test_what_is_left_is_shown_by_the_command_line_and_the_method(
    stack: Stack, directory: Path
) -> None:
    session = await talked(stack, directory)

    printed = run(stack, "usage").stdout
    result = json.loads(run(stack, "usage", "--json").stdout)
    tree = run(stack, "sessions", "tree", str(session)).stdout
    async with opened(stack) as door:
        token, _ = await stack.fleet.tokens.create("reader", "read", None)
        async with door.connected(token) as client:
            called = await client.call("usage")
            of_tree = await client.call("tasks.tree", {"sessionKey": str(session)})

    main, *people = result["budgets"]
    assert sorted(printed.splitlines()[-4:]) == sorted(LEFT)
    assert [budget["left"] for budget in called["budgets"]] == printed.splitlines()[-4:]
    assert (main["scope"], main["limits"][0]) == (
        "agent:main",
        {"unit": "usd", "spent": 3.0, "limit": 20.0},
    )
    assert {budget["scope"] for budget in people} == {
        *("person:bob", "person:test:alice", "person:test:carol"),
    }
    left = "this conversation with its tasks: 200 of 300 tokens left"
    assert tree.splitlines()[-1] == left
    (budget,) = of_tree["budgets"]
    assert (budget["left"], budget["period"]) == (left, "")


async def test_a_person_reads_the_budgets_that_limit_them(stack: Stack, directory: Path) -> None:
    session = await talked(stack, directory)
    call = CommandCall(
        id="1",
        arguments="",
        session=session,
        sender="alice",
        is_owner=False,
        fleet=stack.fleet,
        config=load_config(stack.home.config_file, {}),
        home=stack.home,
    )

    lines = (await usage(call)).text.splitlines()

    assert lines[-3:] == [
        "- main: $17.00 of $20.00, 4,800 of 5,000 tokens left today",
        "- test:alice: 900 of 1,000 tokens left this month",
        "- this conversation with its tasks: 200 of 300 tokens left",
    ]


async def test_without_budgets_nothing_is_said_of_them(stack: Stack) -> None:
    assert json.loads(run(stack, "usage", "--json").stdout) == {
        "rows": [],
        "periods": [],
        "budgets": [],
    }
