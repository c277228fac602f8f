"""Budgets inside turns: the limit ends a turn of many tools, with real agent CLIs."""

import json

import pytest

from remoteclaw.messages import Entry
from tests.conftest import required
from tests.support.agents import AgentCli, ModelServerProcess
from tests.support.model_server.charge import INPUT_TOKENS, OUTPUT_TOKENS
from tests.support.stack import Stack, said
from tests.support.tasks import HANDLERS, call, entries, refused
from tests.support.turns import begin_turn
from tests.support.waiting import eventually

#: What each request to the model costs, in tokens.
EACH = INPUT_TOKENS + OUTPUT_TOKENS


def turn_requests(model: ModelServerProcess) -> int:
    """Return how many requests the agent has made for its turns."""
    return len([one for one in model.requests() if not one["is_aside"]])


@pytest.mark.thorough("opencode", "gemini")
@pytest.mark.parametrize("cli", ["claude", "codex", "opencode", "gemini"])
async def test_a_turn_of_many_tools_ends_at_the_limit(
    stack: Stack, model_server: ModelServerProcess, cli: str
) -> None:
    """What it has said is delivered, and what was asked is never asked again."""
    agent = required(cli, model_server)
    stack.configure(
        agent.config(permissions="auto"),
        budgets=[{"of": "all", "tokens": EACH * 7 // 2, "per": "day"}],
    )
    await stack.start_worker()
    before = turn_requests(model_server)
    tools = "\n".join(f"SHELL: echo {number}" for number in range(12))
    outcome = await stack.outcome(await stack.append(f"{tools}\nSAY: all done"))

    made = turn_requests(model_server) - before
    assert outcome.status == "done"
    assert "I have stopped here, because today's budget is used up." in said(outcome)
    assert 4 <= made <= 5


async def test_three_children_at_once_reach_the_budget_of_their_tree(
    stack: Stack, model_server: ModelServerProcess
) -> None:
    """Together they make at most one request more for each of them."""
    agent = required("claude", model_server)
    stack.configure(
        agent.config(permissions="auto", tools={"also_allow": ["group:sessions"]}),
        budgets=[{"of": "tree", "tokens": EACH * 10}],
        requests={"chat": "telegram:7"},
        channels={"test": {"owners": ["alice"]}, "telegram": {"token": "1:a", "owners": ["7"]}},
    )
    parent = await begin_turn(stack, HANDLERS)
    tools = "\n".join(f"SHELL: echo {number}" for number in range(12))
    tasks = [
        await call(stack, parent, "sessions_spawn", prompt=f"{tools}\nSAY: {name} done")
        for name in ("red", "green", "blue")
    ]
    before = turn_requests(model_server)
    for _ in tasks:
        await stack.start_worker()

    async def results() -> list[Entry]:
        found = await entries(stack, parent.lease.session)
        return [entry for entry in found if entry.origin == "result"]

    async def are_done() -> bool:
        return len(await results()) == 3

    await eventually(are_done)
    made = turn_requests(model_server) - before
    texts = [entry.message.text for entry in await results()]
    assert 10 <= made <= 13
    assert all("the budget of this conversation and its tasks is used up" in text for text in texts)
    (request,) = await stack.fleet.requests.waiting()
    assert request.session == parent.lease.session
    assert request.what.startswith("The conversation `test:chat-1` and its tasks have spent 1,")
    refusal = await refused(stack, parent, "sessions_spawn", prompt="more")
    assert refusal == (
        "The budget of this conversation and its tasks is used up: an owner can allow more with "
        "`remoteclaw requests`."
    )


async def test_dollars_end_a_turn_whose_cli_tells_its_cost_at_the_end(
    stack: Stack, claude: AgentCli, model_server: ModelServerProcess
) -> None:
    """What the agent's tokens have cost before is the price of those of the running turn."""
    stack.configure(claude.config(permissions="auto"))
    await stack.start_worker()
    first = await stack.outcome(await stack.append("USED:20000\nSAY: hello"))
    assert first.usage
    assert first.usage.cost_usd

    usd = first.usage.cost_usd * 4.5
    stack.configure(
        claude.config(permissions="auto"), budgets=[{"of": "agent:main", "usd": usd, "per": "day"}]
    )
    await stack.start_worker()
    before = turn_requests(model_server)
    tools = "\n".join(f"SHELL: echo {number}" for number in range(12))
    outcome = await stack.outcome(
        await stack.append(f"USED:20000\n{tools}\nSAY: all done", channel_id="two")
    )

    made = turn_requests(model_server) - before
    assert "I have stopped here" in said(outcome)
    assert 3 <= made <= 5


async def test_the_requests_of_a_subagent_count_as_well(
    stack: Stack, claude: AgentCli, model_server: ModelServerProcess
) -> None:
    stack.configure(
        claude.config(permissions="auto"),
        budgets=[{"of": "all", "tokens": EACH * 7 // 2, "per": "day"}],
    )
    await stack.start_worker()
    before = turn_requests(model_server)
    tools = "\n".join(f"SHELL: echo {number}" for number in range(12))
    given = {
        "description": "d",
        "prompt": f"{tools}\nSAY: it is done",
        "subagent_type": "general-purpose",
    }
    outcome = await stack.outcome(await stack.append(f"TOOL:Task:{json.dumps(given)}"))

    made = turn_requests(model_server) - before
    assert "I have stopped here" in said(outcome)
    assert 4 <= made <= 5
