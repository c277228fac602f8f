"""Tokens, time and cost of turns in commands and metrics."""

import json

from tests.support.agents import AgentCli
from tests.support.cli import run
from tests.support.doors import opened
from tests.support.model_server.charge import INPUT_TOKENS, OUTPUT_TOKENS
from tests.support.stack import Stack


async def test_the_usage_of_the_real_claude_is_stored(stack: Stack, claude: AgentCli) -> None:
    stack.configure(claude.config())
    await stack.start_worker()
    for text in ("SAY:one", "SAY:two"):
        outcome = await stack.outcome(await stack.append(text))
    reference = await stack.append("SAY:three")
    await stack.outcome(reference)

    assert outcome.usage is not None
    assert outcome.usage.input_tokens == INPUT_TOKENS
    assert outcome.usage.output_tokens == OUTPUT_TOKENS
    assert outcome.usage.duration_ms > 0
    assert outcome.usage.cost_usd
    (row,) = json.loads(run(stack, "usage", "--json").stdout)["rows"]
    assert row["name"] == "main"
    assert (row["turns"], row["inputTokens"]) == (3, 3 * INPUT_TOKENS)
    assert row["costUsd"] == round(3 * outcome.usage.cost_usd, 6)
    (row,) = json.loads(run(stack, "usage", "--by", "session", "--json").stdout)["rows"]
    assert row["name"] == str(reference.session)
    (row,) = json.loads(run(stack, "usage", "--by", "day", "--json").stdout)["rows"]
    assert row["turns"] == 3
    text = f"{INPUT_TOKENS:,} tokens read (0 from the cache), {OUTPUT_TOKENS} written, "
    assert text in run(stack, "sessions", "trace", str(reference.session)).stdout
    assert "usage         3 turns, " in run(stack, "sessions", "show", reference.session.sid).stdout


async def test_turns_are_counted_for_operators_and_prometheus(stack: Stack) -> None:
    token, _ = await stack.fleet.tokens.create("prometheus", "read", None)
    await stack.start_worker()
    await stack.outcome(await stack.append("hello"))

    table = run(stack, "usage").stdout.splitlines()
    hours = run(stack, "usage", "--by", "hour", "--days", "1").stdout.splitlines()
    status = run(stack, "status").stdout
    async with opened(stack) as door:
        lines = (await door.get("/metrics", token)).body.decode().splitlines()

    assert table[0].split()[:2] == ["AGENT", "TURNS"]
    assert table[1].split()[:2] == ["main", "1"]
    assert table[1].split()[-1] == "-"  # the demo costs nothing
    assert hours[0].endswith("COST  LONGEST WAIT")
    assert hours[1].split()[1] == "1"
    assert hours[1].endswith(" s")
    assert "today     1 turn\n" in status
    assert 'remoteclaw_turns_total{agent="main",outcome="done"} 1.0' in lines
    assert 'remoteclaw_agent_tokens_total{agent="main",kind="output"} 0.0' in lines
    assert any(line.startswith("remoteclaw_agent_work_seconds_total{") for line in lines)


async def test_usage_without_turns_says_so(stack: Stack) -> None:
    assert run(stack, "usage").stdout == "No agent has taken a turn in these days.\n"
    empty: dict[str, list[object]] = {"rows": [], "periods": [], "budgets": []}
    assert run(stack, "usage", "--json").stdout == f"{json.dumps(empty, indent=2)}\n"
