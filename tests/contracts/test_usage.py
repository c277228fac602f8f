"""The usage of the real CLIs: it equals what the model server charged, request by request."""

import asyncio
import json
import re
import uuid
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from remoteclaw.fleet import keys
from remoteclaw.fleet.sessions.usage import Usage
from remoteclaw.fleet.turns.inbound import Accepted
from remoteclaw.messages import SessionKey
from remoteclaw.runtimes import create_cli_runtime
from tests.support.agents import AgentCli
from tests.support.cli import run
from tests.support.doors import opened
from tests.support.kills import kill_all
from tests.support.limits import subscribed
from tests.support.model_server.charge import INPUT_TOKENS, Charge
from tests.support.stack import Stack, message, said
from tests.support.waiting import eventually

#: The prices of a million tokens in US dollars, by the CLIs that report a cost: input, read from
#: the cache, written to it, output.
PRICES = {"claude": (5.0, 0.5, 6.25, 25.0), "opencode": (1.0, 0.0, 0.0, 2.0)}


#: A model of each CLI that answers if its default can't.
FALLBACKS = {
    "claude": "claude-haiku-4-5",
    "codex": "other",
    "gemini": "gemini-2.5-pro",
    "opencode": "scripted/other",
}
#: A model of each CLI, of the same price as its default.
OTHERS = {"claude": "opus", "codex": "other", "gemini": "x", "opencode": "scripted/other"}


class Work:
    """A turn that waits in a tool."""

    def __init__(self, stack: Stack, directory: Path) -> None:
        self._stack = stack
        self._began, self._go_on = (directory / uuid.uuid4().hex for _ in range(2))

    async def begin(self) -> Accepted:
        wait = f"touch '{self._began}'; until test -e '{self._go_on}'; do sleep 0.05; done"
        accepted = await self._stack.append(f"SHELL:{wait}")
        await eventually(self._began.exists)
        return accepted

    def go_on(self) -> None:
        self._go_on.touch()


async def stopped(stack: Stack, text: str, step: str) -> None:
    """Send a message, and stop its turn when it has reached a step."""
    accepted = await stack.append(text)
    await stack.reached(accepted, step)
    await stack.fleet.sessions.stop(accepted.session.sid)
    assert (await stack.outcome(accepted)).status == "stopped"


async def total(stack: Stack) -> Usage:
    """Return the usage, which all commands, methods and metrics report alike."""
    by_agent, by_session, by_day = (
        json.loads(run(stack, "usage", "--by", by, "--json").stdout)["rows"]
        for by in ("agent", "session", "day")
    )
    (row,) = by_agent
    ((_, used),) = (await stack.fleet.usage.agents()).items()
    for name, value in used.plain().items():
        if name != "costUsd":
            assert row[name] == value, name
            assert sum(each[name] for each in by_session) == value, name
            assert sum(each[name] for each in by_day) == value, name
    shown = [
        json.loads(run(stack, "sessions", "show", each["name"], "--json").stdout)["usage"]
        for each in by_session
    ]
    assert shown == [{name: each[name] for name in used.plain()} for each in by_session]
    token, _ = await stack.fleet.tokens.create(uuid.uuid4().hex, "read", None)
    async with opened(stack) as door:
        metrics = (await door.get("/metrics", token)).body.decode()
        async with door.connected(token) as client:
            (of_page,) = (await client.call("usage"))["rows"]
    assert {name: of_page[name] for name in used.plain()} == used.plain()
    for kind in ("input", "cache_read", "cache_write", "output"):
        value = getattr(used, f"{kind}_tokens")
        assert f'agent_tokens_total{{agent="main",kind="{kind}"}} {value:.1f}\n' in metrics
    assert f'agent_asides_total{{agent="main"}} {used.asides:.1f}\n' in metrics
    stored: Any = stack.fleet.scripts.client
    months = [await stored.hgetall(key) for key in await stored.keys(keys.spent("????-??"))]
    for whose in ("all", "agent main", "person test:alice"):
        sums = (Usage.decode(month[whose.encode()]) for month in months)
        assert sum(sums, Usage()) == used, whose
    return used


async def settled(stack: Stack, cli: AgentCli, accepted: Accepted) -> Charge:
    """Wait until nothing runs; return what the model server has charged."""
    await stack.until_idle(accepted)
    return cli.model.charged()


def of_fleet(used: Usage) -> Charge:
    """Return the tokens of a usage; it doesn't say how many requests they were."""
    kinds = (used.input_tokens, used.cache_read_tokens, used.cache_write_tokens)
    return Charge(0, *kinds, used.output_tokens)


def cost(cli: AgentCli, charge: Charge) -> float:
    """Return the price of some tokens in US dollars, as far as the CLI reports one."""
    kinds = (charge.input, charge.cached, charge.written, charge.output)
    prices = PRICES.get(cli.name, (0, 0, 0, 0))
    return sum(count * price for count, price in zip(kinds, prices, strict=True)) / 1e6


@dataclass
class Bill:
    """A session of a CLI, whose usage is compared with what the model server has charged.

    Each act is something of which usage may be lost, or counted twice.
    """

    cli: AgentCli
    stack: Stack
    directory: Path

    @property
    def records_steps(self) -> bool:
        """Whether the CLI reports a request whose tools have not ended; opencode doesn't."""
        return self.cli.name != "opencode"

    async def configure(self, **agent: Any) -> None:
        config = self.cli.config(**{"permissions": "auto", **agent})
        self.stack.configure(config, queue={"mode": "aside", "debounce_ms": 0})

    async def asides(self) -> int:
        """Ask questions of every kind during a turn, and branch; return how many were asked."""
        stack, work = self.stack, Work(self.stack, self.directory)
        busy = await work.begin()
        answered = [await stack.append(f"VERDICT:answered {number}") for number in range(3)]
        for accepted in answered:
            assert (await stack.outcome(accepted)).status == "done"
        asked = 3
        untagged = await stack.append("SAY:no tag")
        await stack.reached(untagged, "verdict")
        asked += 1
        failing = ["HTTP:401 VERDICT:answered never"]
        if self.records_steps:
            failing.append("SHELL:echo a tool")
            asked += self.cli.name == "gemini"  # which has no tools in an aside, and says so
        failed = [await stack.append(text) for text in failing]
        for accepted in failed:
            await stack.reached(accepted, "verdict")
        if create_cli_runtime(self.cli.name).capabilities.has_points:
            moved = await stack.append("SAY:from the branch\nVERDICT:branch On it.")
            assert "from the branch" in said(await stack.outcome(moved))
            asked += 1
        work.go_on()
        assert (await stack.outcome(busy)).status == "done"
        for accepted in (untagged, *failed):
            await stack.outcome(accepted)
        reference = f"{busy.session.sid[:8]}-{answered[0].entry_id}"
        shown = "counted with the turn" if self.cli.name == "claude" else "tokens read"
        trace = run(stack, "sessions", "trace", reference).stdout
        assert re.search(rf"^  1 aside, .*{shown}", trace, re.MULTILINE)
        return asked

    async def fork(self, session: SessionKey) -> None:
        """Work in a copy of the conversation, whose totals may begin with the original's."""
        if not create_cli_runtime(self.cli.name).capabilities.forks:
            return
        before = self.cli.model.charged()
        fork = ("sessions", "fork", str(session), "--thread", "copy")
        await asyncio.to_thread(run, self.stack, *fork)
        for text in ("SAY:in the copy", "SHELL:echo in the copy"):
            last = await self.stack.append(text, thread_id="copy")
            await self.stack.outcome(last)
        charged = await settled(self.stack, self.cli, last) - before
        copy = await self.stack.fleet.usage.session("main", last.session.sid)
        assert of_fleet(copy) == replace(charged, requests=0)

    async def stops(self) -> None:
        """Stop the model while it writes, and while a tool runs."""
        await stopped(self.stack, "DRIP:500:50", "output")
        if self.records_steps:
            await stopped(self.stack, "SHELL:sleep 600", "tool")

    async def other_processes(self) -> None:
        """Continue the conversation in another process, whose totals may begin at zero."""
        await self.configure(permissions="deny")
        for text in ("SAY:in another process", "SAY:once more"):
            await self.stack.outcome(await self.stack.append(text))
        await self.configure()

    async def another_model(self, session: SessionKey) -> None:
        """Change the model in the running process, and change it back."""
        for model in (OTHERS[self.cli.name], None):
            await self.stack.fleet.sessions.choose_model(session, model)
            await self.stack.outcome(await self.stack.append("SAY:changed"))

    async def compaction(self) -> None:
        """Exceed the model's limit: the CLI summarizes the conversation, or begins with notes."""
        number, size = len(self.cli.model.requests()), self.cli.model.requests()[-1]["size"]
        await self.stack.outcome(await self.stack.append("LONG:60000"))
        with self.cli.model.limited(size=size + 40_000):
            outcome = await self.stack.outcome(await self.stack.append("SAY:short"))
        assert "short" in said(outcome)
        is_summarized = any(each["is_summary"] for each in self.cli.model.requests()[number:])
        assert is_summarized == create_cli_runtime(self.cli.name).capabilities.compacts

    async def summary_on_request(self) -> None:
        """Have a person ask for a summary, which belongs to no turn of the agent."""
        command = message("/compact")
        inbound = self.stack.fleet.inbound
        asked = await inbound.append(command, agent="main", is_command=True)
        assert (await self.stack.outcome(asked)).status == "done"

    async def fallback(self) -> None:
        """Have another model answer while the plan of the usual one is used up."""
        config = subscribed(self.cli) if self.cli.name == "claude" else self.cli.config()
        asked = [each for each in self.cli.model.requests() if not each["is_aside"]]
        away, other = asked[-1]["model"], FALLBACKS[self.cli.name]
        self.stack.configure({**config, "fallbacks": [other]})
        with self.cli.model.limited(away=away):
            outcome = await self.stack.outcome(await self.stack.append("SAY:meanwhile"))
            last = self.cli.model.requests()[-1]["model"]
        assert "meanwhile" in said(outcome)
        assert other.endswith(last)


@pytest.mark.thorough("gemini", "opencode", "codex")
async def test_usage_is_what_the_model_was_asked(
    cli: AgentCli, stack: Stack, directory: Path
) -> None:
    """To the token, of each kind; each request costs something else."""
    before, answered_before = cli.model.charged(), cli.model.answered()
    bill = Bill(cli, stack, directory)
    await bill.configure()
    await stack.start_worker()
    await stack.start_worker()
    with cli.model.with_varied_charges():
        first = await stack.append("SAY:noted")
        assert said(await stack.outcome(first)) == "noted"
        asked = await bill.asides()
        assert (await total(stack)).asides == asked
        await bill.fork(first.session)
        await bill.stops()
        await stack.outcome(await stack.append("HTTP:400"))
        await bill.other_processes()
        await bill.another_model(first.session)
        await bill.compaction()
        await bill.summary_on_request()
        paid = cli.model.answered() - answered_before
        cost_usd = (await total(stack)).cost_usd or 0
        await bill.fallback()
        last = await stack.append("SAY:the last one")
        await stack.outcome(last)

        charged = await settled(stack, cli, last) - before
    used = await total(stack)
    assert of_fleet(used) == replace(charged, requests=0)
    assert used.estimated_tokens == 0
    # claude reports no cost of a request that was stopped
    assert cost_usd == pytest.approx(cost(cli, paid), rel=0.0001)


@pytest.mark.parametrize("cli", ["claude", "codex"], indirect=True)
async def test_an_aside_that_outlasts_its_turn_is_counted_at_once(
    cli: AgentCli, stack: Stack, directory: Path
) -> None:
    """claude doesn't report its tokens until its next turn, so they are estimated until then."""
    before = cli.model.charged()
    stack.configure(cli.config(permissions="auto"), queue={"mode": "aside", "debounce_ms": 0})
    await stack.start_worker()
    work = Work(stack, directory)
    busy = await work.begin()
    late = await stack.append("SLEEP:2 VERDICT:answered late")
    await eventually(lambda: "VERDICT:answered late" in cli.model.bodies())
    work.go_on()
    assert (await stack.outcome(busy)).status == "done"
    assert said(await stack.outcome(late)) == "late"

    charged = await settled(stack, cli, late) - before
    used = await total(stack)
    assert charged == Charge.fixed(3)
    assert used.read_tokens == charged.read
    trace = run(stack, "sessions", "trace", str(late.session)).stdout
    if cli.name == "claude":
        assert (used.estimated_tokens, used.cache_read_tokens) == (INPUT_TOKENS, INPUT_TOKENS)
        assert "1 aside, 100 tokens read (100 from the cache), 0 written, 100 of them" in trace
        assert "ESTIMATED" in run(stack, "usage").stdout
    else:
        assert (used.estimated_tokens, used.output_tokens) == (0, charged.output)
        assert "1 aside, 100 tokens read (0 from the cache), 7 written\n" in trace

    await stack.outcome(await stack.append("SAY:again"))
    charged = await settled(stack, cli, late) - before
    used = await total(stack)
    assert used.read_tokens == charged.read
    assert used.output_tokens == charged.output


@pytest.mark.parametrize("cli", ["claude"], indirect=True)
async def test_all_calls_of_the_agent_for_a_turn_are_counted(cli: AgentCli, stack: Stack) -> None:
    """The model is overloaded before it has said anything; then it is asked again by RemoteClaw."""
    before = cli.model.charged()
    stack.configure(cli.config())
    await stack.start_worker()

    outcome = await stack.outcome(await stack.append(f"{uuid.uuid4().hex} OVERLOADED*2 SAY:ok"))

    assert cli.model.charged() - before == Charge.fixed(3)
    assert outcome.usage is not None
    assert outcome.usage.turns == 1
    assert outcome.usage.input_tokens == 3 * INPUT_TOKENS
    assert (await total(stack)) == outcome.usage


@pytest.mark.parametrize("cli", ["claude", "codex"], indirect=True)
async def test_the_attempt_of_a_killed_worker_counts_what_it_had_reported(
    cli: AgentCli, stack: Stack, directory: Path
) -> None:
    """Once: with the attempt that finishes the turn. codex reports a request when it has ended."""
    before = cli.model.charged()
    stack.configure(cli.config(permissions="auto"))
    for _ in range(2):
        await stack.start_worker()
    work = Work(stack, directory)
    accepted = await work.begin()

    async def is_reported() -> bool:
        name = keys.state(accepted.session.sid)
        return bool(
            Usage.decode(await stack.fleet.scripts.client.hget(name, "spent_now")).input_tokens
        )

    if cli.name == "claude":  # codex reports a request after its tools
        await eventually(is_reported)
    await kill_all(stack)

    async def is_asked_again() -> bool:  # then the first agent has ended, and asks nothing more
        steps = (await stack.outcome_so_far(accepted)).steps
        return any((step.name, step.attempt) == ("spawned", 2) for step in steps)

    await eventually(is_asked_again)
    work.go_on()
    outcome = await stack.outcome(accepted)

    charged = await settled(stack, cli, accepted) - before
    assert outcome.status == "done"
    used = await total(stack)
    assert used.turns == 1
    missing = Charge.fixed(0 if cli.name == "claude" else 1)
    assert used.input_tokens == (charged - missing).input
