"""Whose usage a turn is, and what it costs: the sums of its people after real turns."""

from pathlib import Path
from typing import Any

from remoteclaw.commands.call import CommandCall
from remoteclaw.commands.settings import model
from remoteclaw.config.load import load_config
from remoteclaw.cron.schedule import Schedule
from remoteclaw.fleet import keys
from remoteclaw.fleet.sessions.usage import Usage
from tests.support.bridges import claude_script
from tests.support.conversations import drain
from tests.support.cron import scheduler_of
from tests.support.jobs import SESSION, add
from tests.support.stack import Stack
from tests.support.tasks import work

#: A program with claude's protocol, whose model reads 101 tokens and writes 10 for each message.
TALKS = """
totals = dict(inputTokens=0, outputTokens=0)
while True:
    echo(heard())
    totals = dict(inputTokens=totals['inputTokens'] + 101, outputTokens=totals['outputTokens'] + 10)
    delta('hello')
    result('hello', modelUsage=dict(m=totals))
"""


async def spent(stack: Stack) -> dict[str, Usage]:
    """Return today's sums by scope, after a check that they are the month's."""
    client: Any = stack.fleet.scripts.client
    month, day = sorted([key.decode() for key in await client.keys(keys.spent("*"))], key=len)
    sums = await client.hgetall(day)
    assert sums == await client.hgetall(month)
    return {field.decode(): Usage.decode(numbers) for field, numbers in sums.items()}


def configure(stack: Stack, directory: Path, **sections: Any) -> None:
    agent = {"runtime": "claude", "command": list(claude_script(directory, TALKS)), "model": "m"}
    stack.configure(agent, queue={"mode": "collect", "debounce_ms": 0, "gather_ms": 0}, **sections)


async def test_two_people_of_a_group_share_the_turn_that_answers_both(
    stack: Stack, directory: Path
) -> None:
    configure(
        stack,
        directory,
        channels={"test": {}},
        people={"bob": {"ids": ["test:bob", "web:admin.bob"]}},
    )
    await stack.append("one", is_shared=True)
    accepted = await stack.append("two", is_shared=True, from_="bob")
    await drain(stack, accepted)
    await stack.append("three", is_shared=True, from_="bob")
    await drain(stack, accepted)

    sums = await spent(stack)
    bob, alice = sums["person bob"], sums["person test:alice"]
    assert sorted(sums) == ["agent main", "all", "person bob", "person test:alice"]
    assert sums["all"] == sums["agent main"] == bob + alice
    assert sums["all"] == (await stack.fleet.usage.agents())["main"]
    assert alice.input_tokens in (50, 51)
    assert bob.input_tokens == 202 - alice.input_tokens
    assert (alice.output_tokens, bob.output_tokens) == (5, 15)


async def test_a_cron_job_counts_for_the_person_who_asked_for_it(
    stack: Stack, directory: Path
) -> None:
    configure(stack, directory)
    await add(stack.fleet, Schedule(every_s=3600), next_ms=1, people=("test:olga",))
    await scheduler_of(stack.fleet).tick()
    await work(stack, str(SESSION))

    sums = await spent(stack)
    assert sorted(sums) == ["agent main", "all", "person test:olga"]
    assert sums["person test:olga"].input_tokens == 101


async def test_the_price_of_the_model_counts_where_the_cli_reports_no_cost(
    stack: Stack, directory: Path
) -> None:
    prices = {
        "m": {"input": 10, "output": 100},
        "n": {"input": 1, "output": 1},
    }
    configure(stack, directory, prices=prices)
    accepted = await stack.append("one")
    await drain(stack, accepted)
    assert (await spent(stack))["person test:alice"].cost_micro_usd == 101 * 10 + 10 * 100

    await stack.fleet.sessions.choose_model(accepted.session, "n")
    await stack.append("two")
    await drain(stack, accepted)
    assert (await spent(stack))["all"].cost_micro_usd == 101 * 10 + 10 * 100 + 111

    # It was chosen before its turns had to have a price: it costs as much as the agent's own.
    await stack.fleet.sessions.choose_model(accepted.session, "o")
    await stack.append("three")
    await drain(stack, accepted)
    assert (await spent(stack))["all"].cost_micro_usd == 2 * (101 * 10 + 10 * 100) + 111


async def test_a_model_without_a_price_is_not_chosen_where_dollars_are_limited(
    stack: Stack,
) -> None:
    """Its turns would cost nothing, and never reach the limit."""
    codex = {"runtime": "codex", "model": "m"}
    prices = {"m": {"input": 1, "output": 1}, "n": {"input": 1, "output": 1}}
    session = (await stack.append("hello")).session

    async def choose(name: str, **sections: Any) -> str:
        stack.configure(codex, prices=prices, **sections)
        call = CommandCall(
            id="1",
            arguments=name,
            session=session,
            sender="alice",
            is_owner=True,
            fleet=stack.fleet,
            config=load_config(stack.home.config_file, {}),
            home=stack.home,
        )
        return (await model(call)).text

    dollars = [{"of": "all", "usd": 5, "per": "day"}]
    refusal = "A budget in dollars limits main, and `x` has no price: add it to [prices] in"
    assert (await choose("x", budgets=dollars)).startswith(refusal)
    assert "the model is `n`" in await choose("n", budgets=dollars)
    assert "the model is `x`" in await choose(
        "x", budgets=[{**dollars[0], "of": "agent:o"}], agents={"o": {"runtime": "claude"}}
    )
