"""Budgets: what happens to messages at the limit, and after an owner's answer."""

import asyncio
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import orjson
import pytest

from remoteclaw.commands.answers import FOR_OWNERS, IS_BUDGET, NOT_YOURS, answer_request
from remoteclaw.config.budgets import AppliedBudget
from remoteclaw.config.load import load_config
from remoteclaw.config.model import Budget
from remoteclaw.cron.schedule import Schedule
from remoteclaw.cron.scheduler import Scheduler
from remoteclaw.fleet import Fleet, keys
from remoteclaw.fleet.budgets.standing import Standing
from remoteclaw.fleet.budgets.words import left_text, spent_text
from remoteclaw.fleet.connection import Scripts, open_redis
from remoteclaw.fleet.requests.request import Request
from remoteclaw.fleet.sessions.usage import Usage
from remoteclaw.fleet.turns.inbound import Accepted
from remoteclaw.messages import SessionKey
from remoteclaw.session.notices import RESET
from tests.conftest import shifted
from tests.support.bridges import claude_script
from tests.support.budgets import DAY, spend
from tests.support.conversations import busy, drain, dying, go, renewed, talk
from tests.support.cron import cron_of
from tests.support.jobs import add, entries, job_of, set_clock
from tests.support.requests import answered, write
from tests.support.stack import Stack, kill, said
from tests.support.tasks import HANDLERS as TASKS
from tests.support.tasks import call, work
from tests.support.turns import begin_turn
from tests.support.waiting import HANG_S, eventually


def configure(stack: Stack, *budgets: dict[str, Any], **sections: Any) -> None:
    """Set budgets; owners are asked in the chat `ops`."""
    channels = {"test": {"owners": ["alice"]}, "telegram": {"token": "1:a", "owners": ["7"]}}
    asking: dict[str, Any] = {"channels": channels, "requests": {"chat": "telegram:7"}} | sections
    stack.configure(stack.agent, budgets=budgets, **asking)


async def notices(stack: Stack, channel: str = "test") -> list[str]:
    """Return the texts of all messages to a channel."""
    client: Any = stack.fleet.scripts.client
    entries = await client.xrange(keys.replies(channel, "default"))
    return [orjson.loads(fields[b"reply"])["text"] for _, fields in entries]


async def waiting(stack: Stack) -> list[Request]:
    return await stack.fleet.requests.waiting()


async def serve(stack: Stack, *accepted: Accepted) -> None:
    """Serve sessions until they are idle or wait."""
    for each in accepted:
        await drain(stack, each)


async def test_a_message_waits_at_the_limit_until_an_owner_allows_more(agent: Stack) -> None:
    configure(agent, DAY)
    await spend(agent.fleet, 1200)
    first = await agent.append("one")
    await serve(agent, first)

    view = await agent.fleet.sessions.view(first.session.sid)
    (request,) = await waiting(agent)
    assert view
    assert view.postponed == "budget"
    assert view.postponed_for == "today's budget of main is used up"
    assert request.what == "main has spent 1,200 of 1,000 tokens today."
    assert [label for _, label in request.offered] == [
        "Half as much again",
        "No limit today",
        "Stop",
    ]
    (told,) = await notices(agent)
    assert told.startswith("Today's budget of main is used up. I have asked an owner for more.")

    second = await agent.append("two")
    assert "allowed by alice" in await answered(agent, request, "once")
    await serve(agent, first)

    assert said(await agent.outcome(first)) == "heard one, knew -"
    assert said(await agent.outcome(second)) == "heard two, knew one"
    assert await waiting(agent) == []


async def at_limit(stack: Stack, *texts: str, tokens: int = 1200) -> tuple[list[Accepted], Request]:
    """Reach the limit of the budget, and let messages wait for it; return them and the request."""
    configure(stack, DAY)
    await spend(stack.fleet, tokens)
    accepted = [await stack.append(text) for text in texts]
    await serve(stack, accepted[0])
    (request,) = await waiting(stack)
    return accepted, request


async def test_owners_are_asked_once_however_many_sessions_reach_the_limit(agent: Stack) -> None:
    configure(agent, DAY)
    await spend(agent.fleet, 1000)
    chats = [await agent.append("hi", channel_id=f"chat-{number}") for number in range(5)]

    await asyncio.gather(*(drain(agent, each) for each in chats))
    await serve(agent, *chats)

    (request,) = await waiting(agent)
    assert len(await notices(agent, "telegram")) == 1
    assert len(await notices(agent)) == 5
    await answered(agent, request, "conversation")
    await serve(agent, *chats)
    assert [said(await agent.outcome(each)) for each in chats] == ["heard hi, knew -"] * 5


async def test_the_request_comes_again_after_the_allowance(agent: Stack) -> None:
    (first,), request = await at_limit(agent, "one")
    await answered(agent, request, "once")
    await serve(agent, first)
    assert said(await agent.outcome(first)) == "heard one, knew -"

    await spend(agent.fleet, 300)
    second = await agent.append("two")
    await serve(agent, second)
    (again,) = await waiting(agent)

    assert again.what == "main has spent 1,500 of 1,500 tokens today."
    assert len(await notices(agent)) == 3  # two notices and an answer
    await answered(agent, again, "once")
    await serve(agent, second)
    assert said(await agent.outcome(second)) == "heard two, knew one"


async def test_without_a_limit_for_the_day_nothing_waits_any_more(agent: Stack) -> None:
    (first,), request = await at_limit(agent, "one")
    await answered(agent, request, "conversation")
    await spend(agent.fleet, 100_000)
    second = await agent.append("two")
    await serve(agent, first)

    assert said(await agent.outcome(first)) == "heard one, knew -"
    assert said(await agent.outcome(second)) == "heard two, knew one"


async def test_stop_refuses_what_waits_and_what_comes_with_one_sentence(agent: Stack) -> None:
    accepted, request = await at_limit(agent, "one", "two")
    assert "messages are refused now" in await answered(agent, request, "deny")
    await serve(agent, accepted[0])
    third = await agent.append("three")
    await serve(agent, third)

    outcomes = [await agent.outcome(each) for each in (*accepted, third)]
    assert [each.status for each in outcomes] == ["dropped"] * 3
    refusals = [text for text in await notices(agent) if "so I don't answer until" in text]
    assert len(refusals) == 1
    assert refusals[0].endswith("Your message is not kept: send it again then.")
    assert await waiting(agent) == []


async def test_a_budget_that_stops_refuses_at_once_and_asks_nobody(agent: Stack) -> None:
    configure(agent, DAY | {"at_limit": "stop"})
    await spend(agent.fleet, 1000)
    texts = {}
    for person in ("bob", "bob", "cleo"):
        each = await agent.append("hi", from_=person, is_shared=True)
        await serve(agent, each)
        texts[each.entry_id] = said(await agent.outcome(each))

    assert [bool(text) for text in texts.values()] == [True, False, True]
    assert await waiting(agent) == []
    assert await notices(agent, "telegram") == []


async def test_only_owners_decide_about_budgets(agent: Stack) -> None:
    configure(agent, DAY, requests={"chat": "telegram:7", "who": "sender"})
    await spend(agent.fleet, 1000)
    accepted = await agent.append("one", from_="bob")
    await serve(agent, accepted)
    (request,) = await waiting(agent)

    assert await answered(agent, request, "once", by="bob") == NOT_YOURS
    assert await waiting(agent) == [request]

    configure(agent, DAY, requests={"chat": "telegram:7", "who": ["test:bob"]})
    assert await answered(agent, request, "once", by="bob") == FOR_OWNERS
    assert await waiting(agent) == [request]


async def test_the_first_answer_about_a_budget_counts(agent: Stack) -> None:
    _, request = await at_limit(agent, "one")

    assert (await answered(agent, request, "once")).startswith(
        "Half as much again allowed by alice"
    )
    late = await answered(agent, request, "deny")

    assert late.startswith("It was answered before: Half as much again allowed by alice")
    assert await answered(agent, request, "once") != ""
    client: Any = agent.fleet.scripts.client
    assert await client.hgetall(keys.budget(request.budget)) == {b"halves": b"1"}


@pytest.mark.parametrize("verdict", ["edits", "words"])
async def test_other_answers_are_explained(agent: Stack, verdict: Any) -> None:
    _, request = await at_limit(agent, "one")

    told = await answered(agent, request, verdict, words="5")

    assert told == IS_BUDGET.format(id=request.id)


async def test_a_turn_that_has_begun_is_never_refused(agent: Stack) -> None:
    """Nor is a message of a batch that has failed twice, which gets a turn of its own."""
    configure(agent, DAY)
    accepted = [await agent.append(text) for text in ("one", "two")]
    for _ in range(2):
        async with dying(agent, *accepted):
            pass
    await spend(agent.fleet, 5000)
    await serve(agent, accepted[0])

    assert ["heard" in said(await agent.outcome(each)) for each in accepted] == [True] * 2
    assert await waiting(agent) == []


async def test_stop_and_new_end_the_wait(agent: Stack) -> None:
    (first,), _ = await at_limit(agent, "one")
    stop = await agent.append("/stop")
    await serve(agent, first)
    assert (await agent.outcome(first)).status == "stopped"
    assert (await agent.outcome(stop)).status == "done"

    second = await agent.append("two")
    await serve(agent, second)
    new = await agent.append("/new")
    await serve(agent, second)

    assert (await agent.outcome(second)).status == "dropped"
    assert said(await agent.outcome(new)) == RESET
    third = await agent.append("three")
    await serve(agent, third)
    assert len([text for text in await notices(agent) if "is used up" in text]) == 3


async def test_a_tasks_result_passes_the_limit_before_what_waits(agent: Stack) -> None:
    (first,), request = await at_limit(agent, "one")
    await agent.write(first.session, "the result", "result", deliver="channel")
    await agent.fleet.budgets.wake_all()
    await serve(agent, first)

    assert any("heard the result" in text for text in await notices(agent))
    assert (await agent.outcome_so_far(first)).status == "accepted"
    await answered(agent, request, "once")
    await serve(agent, first)
    assert said(await agent.outcome(first)) == "heard one, knew the result"


async def test_a_message_does_not_pass_the_limit_with_a_tasks_result(agent: Stack) -> None:
    (first,), _ = await at_limit(agent, "one")
    stop = await agent.append("/stop")
    await serve(agent, stop)
    await agent.write(first.session, "the result", "result", deliver="channel")
    collect = {"mode": "collect", "debounce_ms": 0}
    configure(agent, DAY, queue=collect)
    second = await agent.append("two")
    await serve(agent, second)

    assert any("heard the result, knew" in text for text in await notices(agent))
    assert (await agent.outcome_so_far(second)).status == "accepted"


async def test_what_waits_runs_when_the_period_ends(agent: Stack) -> None:
    """By Redis' clock, whatever this host's is."""
    await agent.fleet.aclose()
    scripts = Scripts(open_redis(agent.redis.url), edit=shifted)
    agent.fleet = Fleet.open(agent.redis.url, scripts=scripts)
    (first, second), _ = await at_limit(agent, "one", "two")
    client: Any = agent.fleet.scripts.client
    midnight_ms = int(await client.hget(keys.state(first.session.sid), "postponed_until_ms"))
    tomorrow = datetime.fromtimestamp(midnight_ms / 1000).astimezone()
    assert (tomorrow.hour, tomorrow.minute) == (0, 0)

    await set_clock(agent.fleet, midnight_ms - 1000)
    await agent.fleet.sweeper.sweep()
    await serve(agent, first)
    assert (await agent.outcome_so_far(first)).status == "accepted"
    await set_clock(agent.fleet, midnight_ms + 1000)
    await agent.fleet.sweeper.sweep()
    await serve(agent, first)

    await agent.fleet.requests.expire_due()
    assert await waiting(agent) == []
    assert said(await agent.outcome(first)) == "heard one, knew -"
    assert said(await agent.outcome(second)) == "heard two, knew one"


async def test_a_higher_limit_in_the_configuration_wakes_what_waits(agent: Stack) -> None:
    (first,), _ = await at_limit(agent, "one")
    await agent.fleet.budgets.wake_all()
    await serve(agent, first)
    assert (await agent.outcome_so_far(first)).status == "accepted"
    assert len(await notices(agent)) == 1

    configure(agent, DAY | {"tokens": 5000})
    await agent.fleet.budgets.wake_all()
    await serve(agent, first)

    assert said(await agent.outcome(first)) == "heard one, knew -"


@pytest.mark.parametrize(
    ("limit", "halves", "seconds", "left", "spent"),
    [
        (1, 0, 0.7, "1 of 1 minute", "0 of 1 minute"),
        (1, 0, 48, "0.2 of 1 minute", "0.8 of 1 minute"),
        (1, 0, 59.9, "0.1 of 1 minute", "0.9 of 1 minute"),
        (1, 0, 61, "0 of 1 minute", "1 of 1 minute"),
        (1, 1, 60, "0.5 of 1.5 minutes", "1 of 1.5 minutes"),
        (2000, 0, 60_030, "999.5 of 2,000 minutes", "1,000.5 of 2,000 minutes"),
    ],
)
def test_minutes_that_are_left_are_rounded_up_and_spent_ones_down(
    limit: int, halves: int, seconds: float, left: str, spent: str
) -> None:
    applied = AppliedBudget(Budget(of="all", minutes=limit, per="day"), "all", "2026-11-26")
    standing = Standing(applied, Usage(duration_ms=round(seconds * 1000)), halves)

    assert left_text(standing) == f"all agents: {left} left today"
    assert (
        spent_text(standing, SessionKey("main", "test", "default", "c", "alice"))
        == f"All agents have spent {spent} today."
    )


@pytest.mark.parametrize(
    "sections",
    [
        {"requests": {}, "channels": {"test": {}, "telegram": {"token": "1:a"}}},
        {"requests": {"chat": "telegram:7", "who": ["telegram:5"]}},
    ],
    ids=["no owner", "who names no owner"],
)
async def test_without_an_owner_the_chat_says_until_when_it_waits(
    agent: Stack, sections: dict[str, Any]
) -> None:
    configure(agent, DAY, **sections)
    await spend(agent.fleet, 1000)
    accepted = await agent.append("one")
    await serve(agent, accepted)

    (told,) = await notices(agent)
    (request,) = await waiting(agent)
    assert "there is no owner whom I can ask" in told
    assert f"from {datetime.now().astimezone() + timedelta(days=1):%a %d %b, 00:00}" in told
    assert f"remoteclaw requests answer {request.id}" in told
    assert await notices(agent, "telegram") == []


async def test_a_day_on_which_more_was_corrected_than_spent_has_spent_nothing(agent: Stack) -> None:
    """A turn over midnight corrects on the new day what its CLI has estimated on the old one."""
    configure(agent, DAY)
    await spend(agent.fleet, -1500)
    config = load_config(agent.home.config_file, {})

    (standing,) = await agent.fleet.budgets.current(config)
    assert left_text(standing) == "main: 1,000 of 1,000 tokens left today"
    assert await talk(agent, "one") == ["heard one, knew -"]
    await spend(agent.fleet, 1500 + 999)
    assert await talk(agent, "two") == ["heard two, knew one"]
    await spend(agent.fleet, 1)
    await serve(agent, await agent.append("three"))
    (request,) = await waiting(agent)
    assert request.what == "main has spent 1,000 of 1,000 tokens today."


async def test_owners_are_warned_once_at_80_percent(agent: Stack) -> None:
    configure(agent, DAY)
    await spend(agent.fleet, 799)
    await talk(agent, "one")
    assert await notices(agent, "telegram") == []

    await spend(agent.fleet, 1)
    await talk(agent, "two", "three", "four")

    assert await notices(agent, "telegram") == [
        "**Budget:** main has spent 800 of 1,000 tokens today."
    ]


@pytest.mark.parametrize("step", ["begin", "ask_budget", "wait_for_budget"])
@pytest.mark.parametrize("side", ["before", "after"])
async def test_a_worker_that_is_killed_at_the_limit_loses_and_repeats_nothing(
    agent: Stack, step: str, side: Any
) -> None:
    configure(agent, DAY)
    await spend(agent.fleet, 1000)
    proxy = await agent.proxied()
    configure(agent, DAY, redis_url=proxy.url)
    worker = await agent.start_worker()
    failpoint = proxy.arm(step, side)
    first = await agent.append("one")
    await failpoint.wait()
    kill(worker.pid)
    failpoint.cut()

    async with agent.swept():
        await agent.start_worker()
        await eventually(lambda: _is_waiting(agent, first))
        (request,) = await waiting(agent)
        assert len(await notices(agent)) == 1
        await answered(agent, request, "once")
        assert said(await agent.outcome(first)) == "heard one, knew -"
    assert len(await notices(agent)) == 2
    assert len(await notices(agent, "telegram")) == 2  # the request, and the same when it is closed


async def _is_waiting(stack: Stack, accepted: Accepted) -> bool:
    view = await stack.fleet.sessions.view(accepted.session.sid)
    return view is not None and view.postponed == "budget"


async def test_what_waits_runs_although_the_answering_process_dies_at_once(agent: Stack) -> None:
    """The answer wakes the sessions in the same step; the sweeper sends the hints that are lost."""
    configure(agent, DAY)
    await spend(agent.fleet, 1000)
    chats = [await agent.append("hi", channel_id=f"chat-{number}") for number in range(3)]
    await serve(agent, *chats)
    (request,) = await waiting(agent)
    await agent.start_worker()
    proxy = await agent.proxied()
    elsewhere = agent.open_at(proxy.url)
    failpoint = proxy.arm("answer_budget", "after")
    answering = asyncio.create_task(_answer_at(agent, elsewhere, request))
    await failpoint.wait()
    answering.cancel()
    failpoint.cut()

    async with agent.swept():
        outcomes = [await agent.outcome(each) for each in chats]

    assert [said(each) for each in outcomes] == ["heard hi, knew -"] * 3


async def _answer_at(stack: Stack, fleet: Fleet, request: Request) -> None:
    config = load_config(stack.home.config_file, {})
    about: dict[str, Any] = {"by": "test:alice", "name": "alice", "is_owner": True}
    await answer_request(fleet.requests, stack.home, config, request, "once", **about)


#: A claude that makes four requests of 107 tokens, and then works until it is interrupted.
WORKING = """
message = heard()
echo(message)
for number in range(4):
    say(type='stream_event', event=dict(type='message_start', message=dict(
        usage=dict(input_tokens=100))))
    delta(f'part {number}. ')
    say(type='stream_event', event=dict(type='message_delta', usage=dict(output_tokens=7)))
interrupt = heard('control_request')
say(type='control_response', response=dict(subtype='success', request_id=interrupt['request_id']))
result('', subtype='error_during_execution', is_error=True)
while True: heard()
"""


async def test_the_limit_ends_a_running_turn_once_and_delivers_what_it_has_said(
    stack: Stack, directory: Path
) -> None:
    command = list(claude_script(directory, WORKING))
    stack.agent = {"runtime": "claude", "command": command}
    configure(stack, DAY | {"tokens": 1000})
    await spend(stack.fleet, 600)
    accepted = await stack.append("work")
    await serve(stack, accepted)

    outcome = await stack.outcome(accepted)
    assert outcome.status == "done"
    text = (
        "part 0. part 1. part 2. part 3.\n\n(I have stopped here, because today's budget of main "
    )
    assert said(outcome) == f"{text}is used up. An owner is asked for more.)"
    (request,) = await waiting(stack)
    assert request.what == "main has spent 1,028 of 1,000 tokens today."

    await answered(stack, request, "once")
    await serve(stack, accepted)
    assert (await stack.outcome(accepted)).reply == outcome.reply


async def test_a_command_that_arrives_as_a_session_begins_to_wait_is_handled(agent: Stack) -> None:
    configure(agent, DAY)
    await spend(agent.fleet, 1000)
    proxy = await agent.proxied()
    configure(agent, DAY, redis_url=proxy.url)
    await agent.start_worker()
    failpoint = proxy.arm("wait_for_budget", "before")
    first = await agent.append("one")
    await failpoint.wait()
    new = await agent.append("/new")
    failpoint.release()

    assert said(await agent.outcome(new)) == RESET
    assert (await agent.outcome(first)).status == "dropped"


async def test_no_aside_is_asked_at_the_limit_and_its_message_waits(agent: Stack) -> None:
    queue = {"mode": "aside", "debounce_ms": 0}
    configure(agent, DAY, queue=queue)
    first, task = await busy(agent)
    await spend(agent.fleet, 1000)
    second = await agent.append("answered what is 2+2?")
    third = await agent.append("answered what is 3+3?")
    go(agent)
    await task

    assert "beside" not in "".join(await notices(agent))
    assert [await _status(agent, each) for each in (first, second, third)] == [
        "done",
        "accepted",
        "accepted",
    ]
    (request,) = await waiting(agent)
    await answered(agent, request, "conversation")
    await serve(agent, first)
    assert "heard answered what is 2+2? + answered what is 3+3?" in said(await agent.outcome(third))


async def _status(stack: Stack, accepted: Accepted) -> str:
    return (await stack.outcome_so_far(accepted)).status


#: A budget of a thousand tokens for each person, and what a message in a group has.
PERSON = {"of": "person:*", "tokens": 1000, "per": "day"}
GROUP: dict[str, Any] = {"is_shared": True, "channel_id": "group"}


async def test_no_aside_is_asked_for_a_person_at_the_limit_in_another_persons_turn(
    agent: Stack,
) -> None:
    configure(agent, PERSON, queue={"mode": "aside", "debounce_ms": 0})
    await spend(agent.fleet, 1000, scope="person test:bob")
    first, task = await busy(agent, from_="cleo", **GROUP)
    bobs = await agent.append("answered what is 2+2?", from_="bob", **GROUP)
    cleos = await agent.append("answered what is 3+3?", from_="cleo", **GROUP)
    assert said(await agent.outcome(cleos)) == "beside: what is 3+3?"
    go(agent)
    await task

    assert said(await agent.outcome(first)) == "heard wait, knew -"
    assert await _status(agent, bobs) == "accepted"
    assert "2+2" not in "".join(await notices(agent))


async def test_a_person_at_the_limit_does_not_join_and_end_another_persons_turn(
    agent: Stack,
) -> None:
    configure(agent, PERSON, queue={"mode": "steer", "debounce_ms": 0})
    await spend(agent.fleet, 1000, scope="person test:bob")
    first, task = await busy(agent, from_="cleo", **GROUP)
    joins = await agent.append("and this", from_="cleo", **GROUP)
    await agent.reached(joins, "steered")
    bobs = await agent.append("from bob", from_="bob", **GROUP)
    later = await agent.append("more from cleo", from_="cleo", **GROUP)
    await renewed(agent, first, times=5)  # each renewal reports the newest message
    go(agent)
    await task
    await serve(agent, later)

    assert said(await agent.outcome(first)) == "heard wait, knew - & and this"
    assert said(await agent.outcome(later)) == "heard more from cleo, knew wait"
    assert await _status(agent, bobs) == "accepted"


async def test_a_cron_job_skips_its_time_at_the_limit_but_one_that_runs_once_is_kept(
    agent: Stack,
) -> None:
    configure(agent, DAY)
    await spend(agent.fleet, 1000)
    config = load_config(agent.home.config_file, {})
    scheduler = Scheduler(
        agent.fleet.scripts, agent.fleet.waker, agent.fleet.budgets, lambda: config
    )
    now_ms = await agent.fleet.scripts.now_ms()
    often = await add(agent.fleet, Schedule(every_s=60), next_ms=now_ms - 1)
    once = await add(agent.fleet, Schedule(at="2026-01-01T00:00:00Z"), next_ms=now_ms - 1)

    assert await scheduler.tick() == 1

    runs = await cron_of(agent.fleet).runs(often.id)
    assert [(run.status, (run.detail or "").partition(" until ")[0]) for run in runs] == [
        ("skipped", "Today's budget of main is used up")
    ]
    assert ((await job_of(agent.fleet, often.id)).next_ms or 0) > now_ms
    (entry,) = await entries(agent.fleet)
    assert entry.message.id.startswith(f"cron-{once.id}")
    assert len(await waiting(agent)) == 1


async def test_the_budget_of_one_person_of_a_group_does_not_keep_the_others_waiting(
    agent: Stack,
) -> None:
    configure(
        agent,
        {"of": "person:*", "tokens": 1000, "per": "day"},
        queue={"mode": "collect", "debounce_ms": 0},
    )
    await spend(agent.fleet, 1000, scope="person test:bob")
    group: dict[str, Any] = {"is_shared": True, "channel_id": "group"}
    bobs = await agent.append("from bob", from_="bob", **group)
    cleos = await agent.append("from cleo", from_="cleo", **group)
    await serve(agent, bobs)
    later = await agent.append("more from cleo", from_="cleo", **group)
    await serve(agent, later)

    assert said(await agent.outcome(cleos)) == "heard from cleo, knew -"
    assert said(await agent.outcome(later)) == "heard more from cleo, knew from cleo"
    assert await _status(agent, bobs) == "accepted"
    (told,) = [text for text in await notices(agent) if "is used up" in text]
    assert told.startswith("Today's budget of test:bob is used up.")

    await spend(agent.fleet, 1000, scope="person test:cleo")
    last = await agent.append("last of cleo", from_="cleo", **group)
    await serve(agent, last)
    requests = {request.what: request for request in await waiting(agent)}
    assert len(requests) == 2
    await answered(agent, requests["test:bob has spent 1,000 of 1,000 tokens today."], "once")
    await serve(agent, last)
    assert said(await agent.outcome(bobs)).startswith("heard from bob, knew ")
    assert await _status(agent, last) == "accepted"
    told_of_bob = [text for text in await notices(agent) if "of test:bob is used up" in text]
    assert len(told_of_bob) == 1


async def test_in_an_owners_own_chat_the_request_says_all(agent: Stack) -> None:
    configure(agent, DAY, requests={}, channels={"telegram": {"token": "1:a", "owners": ["7"]}})
    await spend(agent.fleet, 1000)
    accepted = await agent.append("one", provider="telegram", channel_id="7", from_="7")
    await serve(agent, accepted)

    (asked,) = await notices(agent, "telegram")
    assert asked.startswith("**Budget:** main has spent 1,000 of 1,000 tokens today. Messages wait")


async def test_a_number_answers_in_the_conversation_that_has_reached_the_limit(
    agent: Stack,
) -> None:
    configure(agent, DAY, requests={}, channels={"telegram": {"token": "1:a", "owners": ["7"]}})
    own: dict[str, Any] = {"provider": "telegram", "channel_id": "7", "from_": "7"}
    await serve(agent, await agent.append("one", **own))
    await spend(agent.fleet, 1000)
    second = await agent.append("two", **own)
    third = await agent.append("three", **own)
    await serve(agent, second)
    for each in (second, third):
        pause = (await agent.outcome_so_far(each)).pause or ""
        assert pause.startswith("because today's budget of main is used up until ")

    assert await write(agent, second, "1") is not None
    await serve(agent, second)

    assert said(await agent.outcome(third)).startswith("heard three")


async def test_an_owners_own_chat_shows_the_request_that_a_group_has_opened_without_a_card(
    agent: Stack,
) -> None:
    configure(agent, DAY, requests={}, channels={"telegram": {"token": "1:a", "owners": ["7"]}})
    await spend(agent.fleet, 1000)
    for chat in ("-100", "7", "7"):
        person = chat.removeprefix("-10")
        is_group = chat != "7"
        about: dict[str, Any] = {"channel_id": chat, "from_": person, "is_shared": is_group}
        await serve(agent, await agent.append("one", provider="telegram", **about))

    told, asked, *more = await notices(agent, "telegram")
    assert "there is no owner whom I can ask" in told
    assert asked.startswith("**Budget:** main has spent 1,000 of 1,000 tokens today. Messages wait")
    assert more == []
    (request,) = await waiting(agent)
    assert f"`remoteclaw requests answer {request.id} once`" in told
    assert request.deliver == "channel"


async def test_an_owner_at_the_limit_does_not_interrupt_another_persons_turn(agent: Stack) -> None:
    """Nothing would replace what was interrupted."""
    configure(agent, PERSON, queue={"mode": "interrupt", "debounce_ms": 0})
    await spend(agent.fleet, 1000, scope="person test:alice")
    first, task = await busy(agent, from_="cleo", **GROUP)
    owners = await agent.append("from alice", **GROUP)
    await renewed(agent, first, times=5)  # each renewal reports the newest message
    go(agent)
    await task

    assert (await agent.outcome(first)).status == "done"
    assert await _status(agent, owners) == "accepted"


async def test_a_new_conversation_has_a_new_budget_and_nothing_is_decided_about_it(
    agent: Stack,
) -> None:
    configure(agent, {"of": "tree", "tokens": 1000})
    first = await agent.append("one")
    await serve(agent, first)
    client: Any = agent.fleet.scripts.client

    async def spend_all() -> None:
        name = f"tree {first.session.sid}"
        spent = Usage(input_tokens=1000).encode()
        await client.hset(keys.state(first.session.sid), name, spent)

    await spend_all()
    second = await agent.append("two")
    await serve(agent, second)
    (request,) = await waiting(agent)
    await answered(agent, request, "deny")
    await serve(agent, second)
    assert "/new begins a conversation" in said(await agent.outcome(second))

    third = await agent.append("/new three")
    await serve(agent, third)
    assert said(await agent.outcome(third)).startswith("heard three")
    await spend_all()
    fourth = await agent.append("four")
    await serve(agent, fourth)
    (request,) = await waiting(agent)
    await answered(agent, request, "once")
    await serve(agent, fourth)
    assert said(await agent.outcome(fourth)).startswith("heard four")


async def test_an_entry_that_no_person_writes_wakes_what_waits_for_the_budget_of_another(
    agent: Stack,
) -> None:
    configure(agent, {"of": "person:*", "tokens": 1000, "per": "day"})
    await spend(agent.fleet, 1000, scope="person test:bob")
    group: dict[str, Any] = {"is_shared": True, "channel_id": "group"}
    bobs = await agent.append("from bob", from_="bob", **group)
    await serve(agent, bobs)
    assert await _is_waiting(agent, bobs)

    job = await agent.write(bobs.session, "of a job", "cron", from_="cleo", channel_id="group")
    await serve(agent, bobs)

    outcome = await agent.fleet.outcomes.wait(bobs.session.sid, job, timeout_s=HANG_S)
    assert outcome is not None
    assert said(outcome) == "heard of a job, knew -"
    assert await _status(agent, bobs) == "accepted"


async def test_a_result_wakes_the_session_that_waits_for_a_budget(agent: Stack) -> None:
    tools = {"also_allow": ["group:sessions"]}
    agent.agent |= {"tools": tools, "spawns": ["other"]}
    configure(agent, DAY, agents={"other": agent.agent})
    parent = await begin_turn(agent, TASKS)
    started = await call(agent, parent, "sessions_spawn", prompt="look", agentId="other")
    await parent.finish()
    assert await parent.lease.close()
    await spend(agent.fleet, 1000)
    message = await agent.append("one")
    assert message.session == parent.lease.session
    await serve(agent, message)
    assert await _is_waiting(agent, message)

    await work(agent, started.child_session_key)
    await serve(agent, message)

    assert any("look" in text for text in await notices(agent) if text.startswith("heard"))
    assert await _is_waiting(agent, message)
