"""Fallbacks: another model or another agent answers while a session's agent can't."""

import asyncio
import json
import os
import re
import signal
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import pytest_asyncio

from remoteclaw.bridge import Hooks
from remoteclaw.clock import now_ms
from remoteclaw.config.home import Home
from remoteclaw.config.load import load_config
from remoteclaw.config.model import AgentConfig
from remoteclaw.errors import ErrorCategory
from remoteclaw.fleet import Fleet, keys
from remoteclaw.fleet.connection import Scripts, open_redis
from remoteclaw.fleet.cooling import Failure
from remoteclaw.fleet.turns.inbound import Accepted
from remoteclaw.messages import McpServerConfig
from remoteclaw.protocols import AgentSpec
from remoteclaw.runtimes import create_cli_runtime
from remoteclaw.session.bridge import spec_in_place_of
from remoteclaw.session.drain import Drain
from remoteclaw.session.fallbacks import Choice, misfit, switch_notice
from remoteclaw.session.notices import CONTEXT_LOST, SECOND_TRY
from tests.conftest import shifted
from tests.support.bridges import script
from tests.support.budgets import spend
from tests.support.cli import run
from tests.support.failpoints import Side
from tests.support.leases import started_task
from tests.support.limits import HOUR_MS, ZONE, Chat, busy, in_an_hour, limit
from tests.support.stack import Stack, message, said
from tests.support.waiting import eventually

#: An agent that notes the header of each message, and fails as its file says. Asked to wait, it
#: answers messages beside its work until it is stopped.
AGENT = """
import re
name = sys.argv[1]
open(name + '.starts', 'a').write('x')
while True:
    prompt = turn()['prompt']
    header, _, text = prompt.partition(chr(10))
    open(name + '.heard', 'a').write(header[len('[remoteclaw '):-1] + chr(10))
    path = name + '.failures'
    failures = json.load(open(path)) if os.path.exists(path) else []
    if failures:
        failure = failures.pop(0)
        json.dump(failures, open(path, 'w'))
        if failure.get('dies'): sys.exit(1)
        for event in failure.pop('first', []): say(**event)
        say(type='done', error='it failed', **failure)
        continue
    while text.split()[-1] == 'wait':
        message = turn()
        if message['type'] == 'aside':
            key = re.search('answered:([0-9a-f]+)', message['prompt'])[1]
            answer = f'{name} answers beside{chr(10)}[[answered:{key}]]'
            say(type='aside', id=message['id'], text=answer)
        if message['type'] == 'interrupt': break
    if text.split()[-1] == 'wait':
        say(type='done', aborted=True)
        continue
    say(type='text', text=name + ' answers ' + text.split()[-1]); say(type='done')
"""


class Team(Chat):
    """A chat with `main`, which has the fallbacks `second` and `third`.

    `cousin` has the same account, and the fallback `third`; `lonely` has no fallback.
    """

    configure: Callable[..., None]

    def fails(self, name: str, *failures: dict[str, Any]) -> None:
        self.workspace.mkdir(parents=True, exist_ok=True)
        (self.workspace / f"{name}.failures").write_text(json.dumps(failures))

    def heard(self, name: str) -> list[dict[str, Any]]:
        """Return the headers of the messages that an agent was asked about."""
        file = self.workspace / f"{name}.heard"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def asks(self) -> dict[str, int]:
        counts = {name: len(self.heard(name)) for name in ("main", "second", "third")}
        return {name: count for name, count in counts.items() if count}

    async def say(self, text: str, **fields: Any) -> Accepted:
        accepted = await self.append(text, **fields)
        await self.drain(accepted)
        return accepted


@pytest_asyncio.fixture
async def team(stack: Stack, directory: Path) -> AsyncIterator[Team]:
    program = script(directory, AGENT)
    here = {"workspace": str(stack.home.workspaces / "main")}
    (stack.home.workspaces / "main").mkdir(parents=True, exist_ok=True)

    def agent(name: str, **more: Any) -> dict[str, Any]:
        return {"runtime": "demo", "command": [*program, name], **more}

    def configure(
        main: dict[str, Any] | None = None,
        wild: dict[str, Any] | None = None,
        **stack_settings: Any,
    ) -> None:
        stack.configure(
            agent("main", **{"fallbacks": ["agent:second", "agent:third"], **(main or {})}),
            agents={
                "second": agent("second"),
                "third": agent("third"),
                "cousin": agent("main", fallbacks=["agent:third"], **here),
                "lonely": agent("main", **here),
                **({"wild": wild} if wild else {}),
            },
            **stack_settings,
        )

    configure()
    await stack.fleet.aclose()
    scripts = Scripts(open_redis(stack.redis.url), edit=shifted)
    stack.fleet = Fleet.open(stack.redis.url, scripts=scripts)
    team = Team(stack)
    team.configure = configure
    yield team


async def test_another_agent_answers_during_a_limit_and_both_know_what_the_other_said(
    team: Team,
) -> None:
    await team.say("one")
    team.fails("main", limit(in_an_hour()))
    await team.say("two")
    await team.say("three")

    assert team.asks() == {"main": 2, "second": 2}
    answer, *others = await team.texts()
    assert answer == "main answers one"
    notice, *answers = others
    assert notice.startswith("(main's plan is used up until ")
    assert notice.endswith("; second answers meanwhile, with notes of this conversation.)")
    assert answers == ["second answers two", "second answers three"]
    first, later = team.heard("second")
    assert first["conversation_before"] == [
        {"from": {"id": "alice"}, "said": "one"},
        {"agent": "main", "wrote": "main answers one"},
    ]
    assert "conversation_before" not in later

    await team.let_pass(HOUR_MS + 60_000)
    await team.say("four")
    await team.say("five")

    assert (await team.texts())[4:] == [
        "(main answers again, and knows what was said meanwhile.)",
        "main answers four",
        "main answers five",
    ]
    back, after = team.heard("main")[2:]
    assert back["conversation_before"] == [
        {"from": {"id": "alice"}, "said": "two"},
        {"agent": "second", "wrote": "second answers two"},
        {"from": {"id": "alice"}, "said": "three"},
        {"agent": "second", "wrote": "second answers three"},
    ]
    assert "conversation_before" not in after

    team.fails("main", limit(in_an_hour() + 2 * HOUR_MS))
    await team.say("six")

    (again,) = team.heard("second")[2:]
    assert again["conversation_before"] == [
        {"from": {"id": "alice"}, "said": "four"},
        {"agent": "main", "wrote": "main answers four"},
        {"from": {"id": "alice"}, "said": "five"},
        {"agent": "main", "wrote": "main answers five"},
    ]


async def test_a_fallback_whose_budget_is_used_up_is_not_asked(team: Team) -> None:
    team.configure(budgets=[{"of": "agent:second", "tokens": 1000, "per": "day"}])
    await spend(team.stack.fleet, 1000, scope="agent second")
    team.fails("main", limit(in_an_hour()))
    accepted = await team.say("one")

    assert said(await team.stack.outcome(accepted)).endswith("third answers one")
    assert team.asks() == {"main": 1, "third": 1}


async def test_a_short_pause_is_no_reason_to_ask_another(team: Team) -> None:
    team.fails("main", busy(0.1))
    await team.say("one")

    assert team.asks() == {"main": 2}
    assert await team.texts() == ["main answers one"]


@pytest.mark.parametrize(
    ("failure", "asks"),
    [
        (limit(), {"main": 1, "second": 1}),
        (busy(3600), {"main": 1, "second": 1}),
        ({"category": "billing"}, {"main": 1, "second": 1}),
        ({"category": "unknown_model"}, {"main": 2, "second": 2}),
    ],
)
async def test_no_other_session_asks_a_model_that_is_left_alone(
    team: Team, failure: dict[str, Any], asks: dict[str, int]
) -> None:
    """An unknown model is the business of its agent alone."""
    team.fails("main", failure, failure)
    await team.say("one")
    await team.say("two", from_="bob")

    twice = {name: 2 if name == "second" else count for name, count in asks.items()}
    assert team.asks() == twice
    assert len(await team.texts()) == len(await team.texts("bob")) == 2, "each chat is told"


async def test_an_agent_with_another_account_is_asked(team: Team) -> None:
    """Its key makes another account of the same program."""
    own = {"env": {"SOME_API_KEY": "one"}}
    team.configure(own)
    team.fails("main", limit(in_an_hour()))
    await team.say("one")
    team.configure({"env": {"SOME_API_KEY": "two"}})
    await team.say("two", from_="bob")
    team.configure(own)
    await team.say("three", from_="carol")

    assert team.asks() == {"main": 2, "second": 2}
    client = team.stack.fleet.scripts.client
    names = [name async for name in client.scan_iter(keys.cool("*", "*", "*"))]
    assert len(names) == 1
    assert b"one" not in names[0]


async def test_an_account_without_an_id_is_one_of_its_host(team: Team, directory: Path) -> None:
    team.configure({"workspace": str(team.workspace)})
    team.fails("main", limit(in_an_hour()))
    await team.say("one")
    config = load_config(team.stack.home.config_file, {})
    elsewhere = Home(directory / "elsewhere").create()
    accepted = await team.append("two", from_="bob")
    await Drain(team.stack.fleet, config, elsewhere, Hooks()).run(accepted.session.sid)

    assert team.asks() == {"main": 2, "second": 1}


async def test_agents_of_one_account_leave_it_alone_together(team: Team) -> None:
    """Also an agent without fallbacks tells the others."""
    team.fails("main", limit(in_an_hour()))
    inbound = team.stack.fleet.inbound
    accepted = await inbound.append(message("one"), agent="lonely")
    await team.drain(accepted)
    await team.drain(await inbound.append(message("two"), agent="cousin"))

    assert await team.status(accepted) == "accepted"
    assert team.asks() == {"main": 1, "third": 1}


async def test_if_no_fallback_answers_the_message_is_kept_as_the_agents_own_failure_says(
    team: Team,
) -> None:
    until = in_an_hour()
    team.fails("main", limit(until))
    team.fails("second", {"category": "auth"})
    team.fails("third", limit(until + HOUR_MS))
    accepted = await team.say("one")

    (notice,) = await team.texts()
    assert notice.startswith("The plan's limit is used up. Your message is kept, ")
    view = await team.stack.fleet.sessions.view(accepted.session.sid)
    assert view is not None
    assert until < (view.postponed_until_ms or 0) < until + 2 * 60_000
    assert (view.postponed, view.fallback_by) == ("usage_limit", None)
    assert team.asks() == {"main": 1, "second": 1, "third": 1}

    await team.let_pass(HOUR_MS + 60_000)
    await team.drain(accepted)

    assert await team.texts() == [notice, "main answers one"]
    view = await team.stack.fleet.sessions.view(accepted.session.sid)
    assert view is not None
    assert (view.fallback_by, view.told_fallback) == (None, None)


async def test_if_all_are_left_alone_the_agent_itself_is_asked(team: Team) -> None:
    for name in ("main", "second", "third"):
        team.fails(name, limit(in_an_hour()))
    await team.say("one")
    team.fails("main", limit(in_an_hour()))
    accepted = await team.say("two", from_="bob")

    assert await team.status(accepted) == "accepted"
    assert team.asks() == {"main": 2, "second": 1, "third": 1}


async def test_a_failure_that_no_fallback_can_help_with_is_reported_as_the_agents(
    team: Team,
) -> None:
    for name in ("main", "second", "third"):
        team.fails(name, {"category": "billing"})
    accepted = await team.say("one")

    (sentence,) = await team.texts()
    assert sentence.startswith("main's account has no credit or quota left.")
    assert await team.status(accepted) == "failed"
    assert team.asks() == {"main": 1, "second": 1, "third": 1}


async def test_nobody_else_is_asked_once_the_agent_has_said_something(team: Team) -> None:
    said = {"first": [{"type": "text", "text": "I begin"}]}
    team.fails("main", {**said, **limit(in_an_hour())})
    await team.say("one")

    assert team.asks() == {"main": 1}


async def test_nobody_else_is_asked_after_a_fallback_that_may_have_worked(team: Team) -> None:
    """A process that dies may not have reported what it has done."""
    team.fails("main", limit(in_an_hour()))
    team.fails("second", {"dies": True}, {"dies": True})
    accepted = await team.say("one")

    assert team.asks() == {"main": 1, "second": 2}
    assert await team.status(accepted) == "failed"


async def test_other_failures_of_the_agent_are_reported_at_once(team: Team) -> None:
    team.fails("main", {"category": "auth"})
    await team.say("one")

    assert team.asks() == {"main": 1}


async def test_the_next_fallback_is_asked_if_one_is_away(team: Team) -> None:
    team.fails("main", limit(in_an_hour()))
    await team.say("one")
    team.fails("second", limit(in_an_hour()))
    await team.say("two")
    await team.say("three")

    told = [text for text in await team.texts() if text.startswith("(")]
    assert [text.partition("; ")[2] for text in told] == [
        "second answers meanwhile, with notes of this conversation.)",
        "third answers meanwhile, with notes of this conversation.)",
    ]
    assert team.asks() == {"main": 1, "second": 2, "third": 2}


async def test_a_conversation_that_began_with_a_refused_message_is_told_all_of_it(
    team: Team,
) -> None:
    team.fails("main", limit(in_an_hour()))
    await team.say("one")
    await team.let_pass(HOUR_MS + 60_000)
    await team.say("two")

    assert [*team.heard("main")[-1]["conversation_before"]] == [
        {"from": {"id": "alice"}, "said": "one"},
        {"agent": "second", "wrote": "second answers one"},
    ]
    assert CONTEXT_LOST not in await team.texts()


async def test_a_fallback_answers_beside_its_work_and_is_stopped(team: Team) -> None:
    team.configure(queue={"mode": "aside", "debounce_ms": 0})
    await team.say("one")
    team.fails("main", limit(in_an_hour()))
    waiting = await team.append("wait")
    turn = asyncio.create_task(team.drain(waiting))
    await eventually(lambda: len(team.heard("second")) == 1)

    beside = await team.append("what?")
    outcome = await team.stack.outcome(beside)
    await team.append("/stop")
    await turn

    assert (outcome.status, said(outcome)) == ("done", "second answers beside")
    assert (await team.stack.outcome(waiting)).status == "stopped"
    assert team.asks() == {"main": 2, "second": 1}
    used = await team.stack.fleet.usage.agents()
    assert (used["second"].turns, used["main"].turns) == (1, 1)


@pytest.mark.usefixtures("gateway")
async def test_operators_see_who_answers_and_usage_counts_for_them(team: Team) -> None:
    await team.say("one", channel_id="alice")
    team.fails("main", limit(in_an_hour()))
    accepted = await team.say("two", channel_id="alice")

    async def output_of(*words: str) -> str:
        return " ".join((await asyncio.to_thread(run, team.stack, *words)).stdout.split())

    sid = accepted.session.sid[:8]
    command = ("send", "/status", "--channel", "test", "--from", "alice")
    answers = "second (the plan's limit, "
    assert f"answers meanwhile {answers}until " in await output_of("sessions", "show", sid)
    step = "fallback attempt 1 agent:second: usage_limit of main"
    assert step in await output_of("sessions", "trace", sid)
    assert f"- answers meanwhile: {answers}for " in await output_of(*command)
    agents = await team.stack.fleet.usage.agents()
    assert {name: used.turns for name, used in agents.items()} == {"main": 1, "second": 1}
    of_session = await team.stack.fleet.usage.session("main", accepted.session.sid, also=agents)
    assert of_session.turns == 2

    await team.let_pass(HOUR_MS + 60_000)
    await team.say("three", channel_id="alice")

    assert "answers meanwhile" not in await output_of(*command)


async def test_a_task_has_the_fallbacks_of_its_agent(team: Team) -> None:
    parent = await team.say("one")
    team.fails("main", limit(in_an_hour()))
    child, entry = await started_task(
        team.stack.fleet, parent.session, message("two", from_="main"), call="1"
    )
    await team.drain(Accepted(child, entry, is_duplicate=False))

    assert team.asks() == {"main": 2, "second": 1}


@pytest.mark.parametrize(
    ("told", "by", "category", "in_s", "notice"),
    [
        ("", "", "usage_limit", 60, ""),
        ("agent:b", "agent:b", "usage_limit", 60, ""),
        ("", "agent:b", "usage_limit", 0, "(a's plan is used up; b answers meanwhile, with "),
        ("", "agent:b", "usage_limit", 1, r"(a's plan is used up until \d\d:\d\d; b answers "),
        (
            *("", "agent:b", "usage_limit", 3 * 86_400),
            r"(a's plan is used up until \w{3} \d\d \w{3}, \d\d:\d\d CES?T; b answers ",
        ),
        ("agent:c", "agent:b", "retryable", 0, "(The model behind a is busy; b answers meanwhile"),
        ("", "x", "unknown_model", 0, "(a's account can't use the model `m`; it answers with `x` "),
        ("", "agent:b", "unreachable", 0, "(a can't reach its model; b answers meanwhile"),
        ("", "agent:b", "billing", 0, "(a's account has no credit left; b answers meanwhile"),
        ("agent:b", "", "", 0, "(a answers again, and knows what was said meanwhile.)"),
        ("x", "", "", 0, "(a answers with its usual model again.)"),
    ],
)
def test_a_chat_is_told_who_answers_if_it_does_not_know(
    told: str, by: str, category: str, in_s: int, notice: str
) -> None:
    spec = AgentSpec("demo", ("x",), "/w", {}, model="m")
    of: Any = SimpleNamespace(spec=spec, channel=None)
    own, other = Choice("", "a", None, of), Choice(by, by.removeprefix("agent:") or "a", None, of)
    other = replace(other, agent="a") if by == "x" else other
    until = now_ms() + in_s * 1000 if in_s else None
    failure = Failure(ErrorCategory(category), until) if category else None

    said = switch_notice(own, other, failure, told=told, zone=ZONE)

    assert re.match(notice.replace("(", r"\(").replace(")", r"\)"), said)
    assert bool(said) is bool(notice)


@pytest.mark.parametrize("side", ["before", "after"])
async def test_a_worker_that_is_killed_while_it_asks_a_fallback_changes_nothing(
    team: Team, side: Side
) -> None:
    """Another worker comes to the same choice, and nothing is said twice."""
    stack = team.stack
    proxy = await stack.proxied()
    team.configure(redis_url=proxy.url, lease_s=2)
    stack.reopen()
    await stack.start_worker()
    team.fails("main", *[limit(in_an_hour())] * (2 if side == "before" else 1))
    failpoint = proxy.arm("fall_back", side)
    async with stack.swept():
        accepted = await team.append("one")
        os.kill(await failpoint.wait(), signal.SIGKILL)
        failpoint.cut()
        await stack.start_worker()
        await stack.outcome(accepted)

    assert team.asks() == {"main": 2 if side == "before" else 1, "second": 1}
    *second_try, notice, answer = await team.texts()
    assert second_try == ([SECOND_TRY] if side == "before" else [])
    assert notice.startswith("(main's plan is used up")
    assert answer == "second answers one"


# -- whose rights hold ----------------------------------------------------------------------------


def test_another_agent_has_the_rights_of_the_one_in_whose_place_it_works() -> None:
    """Only its CLI, the environment of that and its model are its own."""
    servers = {"probe": McpServerConfig(command="probe")}
    first = AgentSpec(
        runtime="claude",
        command=("claude",),
        workspace="/w",
        env={"A": "1"},
        model="opus",
        permissions="ask",
        allow=("Bash(make)",),
        branch="read",
        inherit_mcp=False,
        trust_workspace=True,
        mcp_servers=servers,
        tools=("x",),
    )
    settings = AgentConfig(
        permissions="auto",
        branches="auto",
        trust_workspace=False,
        env={"B": "2"},
        model="gpt",
        mcp_servers={"own": {"command": "own"}},
        command=("codex", "-c", "x"),
    )
    codex = create_cli_runtime("codex")

    spec = spec_in_place_of(first, settings, codex)

    assert (spec.runtime, spec.command, spec.model) == ("codex", ("codex", "-c", "x"), "gpt")
    assert "A" not in spec.env
    assert spec.env["B"] == "2"
    kept = ("workspace", "permissions", "allow", "branch", "mcp_servers", "tools")
    assert all(getattr(spec, name) == getattr(first, name) for name in kept)
    assert (spec.inherit_mcp, spec.trust_workspace) == (False, False)


@pytest.mark.parametrize(
    ("permissions", "allow", "runtime", "problem"),
    [
        ("ask", ("Bash(make)",), "codex", ""),
        ("ask", ("Read(~/notes/**)",), "codex", "codex can't keep to Read(~/notes/**) in allow"),
        ("edits", ("WebFetch(domain:a.org)",), "gemini", "gemini can't keep to "),
        ("auto", ("Read(~/notes/**)",), "codex", ""),
        ("deny", (), "codex", ""),
        ("ask", (), "acp", "an ACP agent decides by itself what it asks for"),
        ("auto", (), "acp", ""),
        ("ask", ("Read(~/notes/**)",), "claude", ""),
    ],
)
def test_an_agent_that_cannot_keep_to_the_rules_is_not_asked(
    permissions: str, allow: tuple[str, ...], runtime: str, problem: str, home: Home
) -> None:
    env = {"HOME": str(home.path)}
    first = AgentSpec("claude", ("claude",), str(home.path), env, permissions=permissions)
    first = replace(first, allow=allow)
    other = create_cli_runtime(runtime)

    found = misfit(first, create_cli_runtime("claude"), replace(first, runtime=runtime), other)

    assert found.startswith(problem)
    assert bool(found) is bool(problem)


def test_another_acp_agent_is_no_copy_of_the_first(home: Home) -> None:
    acp = create_cli_runtime("acp")
    first = AgentSpec("acp", ("first",), str(home.path), {"HOME": str(home.path)})

    found = misfit(first, acp, replace(first, command=("second",)), acp)

    assert found == "an ACP agent decides by itself what it asks for"
    assert misfit(first, acp, first, acp) == ""


def test_an_agent_whose_own_files_allow_more_is_not_asked(home: Home) -> None:
    rules = home.path / ".codex" / "rules"
    rules.mkdir(parents=True)
    (rules / "mine.rules").write_text('prefix_rule(pattern=["make"], decision="allow")\n')
    first = AgentSpec("claude", ("claude",), str(home.path), {"HOME": str(home.path)})
    codex = create_cli_runtime("codex")
    theirs = replace(first, runtime="codex")

    assert "rules" in misfit(first, create_cli_runtime("claude"), theirs, codex)
    assert misfit(theirs, codex, theirs, codex) == ""


async def test_a_fallback_that_cannot_keep_to_the_rules_is_passed_over(
    team: Team, directory: Path
) -> None:
    program = [*script(directory, AGENT), "wild"]
    wild = {"runtime": "acp", "command": program, "permissions": "auto"}
    team.configure({"fallbacks": ["agent:wild", "agent:third"]}, wild=wild)
    team.fails("main", limit(in_an_hour()))
    await team.say("one")

    assert team.asks() == {"main": 1, "third": 1}
    assert not (team.workspace / "wild.starts").exists()
