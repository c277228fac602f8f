"""Bursts: what people say to each other in a group is gathered while the agent starts."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from remoteclaw.fleet import keys
from remoteclaw.fleet.inbound import Accepted
from remoteclaw.session.notices import RESET
from tests.support.bridges import acp_script, script
from tests.support.conversations import AGENT, answers, drain, dying, passed, prompts, renewed
from tests.support.processes import children, is_alive
from tests.support.stack import Stack, message, said
from tests.support.waiting import HANG_S, eventually

#: Longer than a test waits in which nothing else ends the waiting.
LONG = {"debounce_ms": 0, "gather_ms": 60_000, "gather_most_ms": 60_000}
#: Notes its process, once it has started.
NOTED = "with open('started', 'a') as file: print(os.getpid(), file=file)\n"
PEOPLE = ("ann", "bo", "cy", "di", "ed")


@pytest.fixture
async def group(stack: Stack, directory: Path) -> Stack:
    """A stack whose agent notes when it starts and what it is asked, in groups that are heard."""
    stack.agent = {"runtime": "demo", "command": list(script(directory, NOTED + AGENT))}
    stack.configure(stack.agent, queue=LONG)
    return stack


async def hears(stack: Stack, text: str, **fields: Any) -> Accepted:
    """Have a person say something in the group, by default not to the agent."""
    heard = {"chat_kind": "group", "is_addressed": False, **fields}
    is_shared = heard.pop("is_shared", True)
    return await stack.fleet.inbound.append(
        message(text, **heard), agent="main", is_shared=is_shared
    )


async def drained(stack: Stack, *accepted: Accepted) -> list[str]:
    """Have messages answered that need not wait; return the replies."""
    task = drain(stack, accepted[0])
    replies = [said(await stack.outcome(each, within_s=HANG_S / 2)) for each in accepted]
    await task
    return replies


def started(stack: Stack) -> list[int]:
    """Return the agent processes that have started."""
    file = stack.home.path / "workspaces" / "main" / "started"
    return [int(line) for line in file.read_text().splitlines()] if file.exists() else []


async def statuses(stack: Stack, *accepted: Accepted) -> list[str]:
    return [(await stack.outcome_so_far(each)).status for each in accepted]


async def test_a_burst_is_one_turn_whose_agent_has_started_meanwhile(group: Stack) -> None:
    """Five people write twelve messages: the agent is there before the turn begins."""
    texts = [f"message {number}" for number in range(11)]
    talk = [await hears(group, text, from_=PEOPLE[i % 5]) for i, text in enumerate(texts[:6])]
    task = drain(group, talk[0])
    (agent,) = await eventually(lambda: started(group))
    talk += [await hears(group, text, from_=PEOPLE[i % 5]) for i, text in enumerate(texts[6:])]
    assert await statuses(group, *talk) == ["accepted"] * 11
    asked = await hears(group, "now you", from_="ann", is_addressed=True)
    await task

    assert {(await group.outcome(each)).turn for each in (*talk, asked)} == {talk[0].entry_id}
    assert prompts(group).count("now you") == 1
    assert (await answers(group, asked))[0].startswith(" + ".join(("heard message 0", *texts[1:])))
    assert await group.reached(asked, "spawned") == f"new demo, pid {agent}"
    assert started(group) == [agent]


@pytest.mark.parametrize("ends", ["command", "caller", "cron", "full"])
async def test_what_does_not_wait_ends_the_waiting(group: Stack, ends: str) -> None:
    group.configure(group.agent, queue={**LONG, "cap": 3})
    talk = [await hears(group, text) for text in ("one", "two")]
    task = drain(group, talk[0])
    await eventually(lambda: started(group))
    match ends:
        case "command":
            await hears(group, "/new")
        case "caller":
            await group.write(talk[0].session, "tick", "chat", deliver="caller")
        case "cron":
            await group.write(talk[0].session, "tick", "cron", deliver="channel")
        case _:
            await hears(group, "three")

    told = await group.outcome(talk[1], within_s=HANG_S / 2)
    assert told.turn == talk[0].entry_id
    assert said(told).startswith("heard one + two")
    await task


@pytest.mark.parametrize(
    "fields",
    [
        {"is_shared": False},
        {"is_addressed": True},
        {"is_addressed": None},
        {"chat_kind": "direct"},
        {"chat_kind": None},
    ],
)
async def test_nobody_else_waits(group: Stack, fields: dict[str, Any]) -> None:
    """In a direct chat, or with a conversation of one's own, or when it isn't known."""
    for text in ("one", "two"):
        accepted = await hears(group, text, **fields)

        assert (await drained(group, accepted))[0].startswith(f"heard {text},")


@pytest.mark.parametrize("off", [{"gather_ms": 0}, {"gather_most_ms": 0}, {"mode": "followup"}])
async def test_gathering_is_switched_off_in_the_configuration(
    group: Stack, off: dict[str, Any]
) -> None:
    group.configure(group.agent, queue={**LONG, **off})
    accepted = await hears(group, "one")

    assert (await drained(group, accepted))[0].startswith("heard one,")


async def test_a_burst_goes_on_with_its_conversation_and_its_warm_agent(group: Stack) -> None:
    first = await hears(group, "one", is_addressed=True)
    await drain(group, first)
    await group.until_idle(first)
    talk = await hears(group, "two")
    task = drain(group, talk)
    await eventually(lambda: talk_is_served(group, talk))
    await hears(group, "three", is_addressed=True)
    await task

    assert await answers(group, talk) == ["heard two + three, knew one"]
    assert (await group.reached(talk, "spawned")).startswith("warm demo")
    assert len(started(group)) == 1


async def talk_is_served(stack: Stack, accepted: Accepted) -> bool:
    view = await stack.fleet.sessions.view(accepted.session.sid)
    return view is not None and view.status == "running"


async def test_no_agent_starts_for_a_conversation_that_the_burst_ends(group: Stack) -> None:
    reset = {"reset": {"idle_minutes": 120}}
    group.configure(group.agent, queue={**LONG, "cap": 3}, sessions=reset)
    first = await hears(group, "one", is_addressed=True)
    await drain(group, first)
    await passed(group, first, hours=3)
    (pid,) = started(group)
    os.kill(pid, signal.SIGKILL)
    await eventually(lambda: not is_alive(pid))
    talk = [await hears(group, text) for text in ("two", "three")]
    task = drain(group, talk[0])
    await renewed(group, talk[0], times=4)  # an agent would have started
    await hears(group, "four")
    await task

    assert (await answers(group, talk[0]))[0].startswith(f"{RESET}\n\nheard two + three + four")
    assert len(started(group)) == 2


# -- what goes wrong ------------------------------------------------------------------------------


async def test_an_agent_that_can_not_start_is_said_once(group: Stack) -> None:
    group.configure({"runtime": "demo", "command": ["/nowhere/agent"]}, queue={**LONG, "cap": 2})
    talk = [await hears(group, "one")]
    task = drain(group, talk[0])
    await eventually(lambda: talk_is_served(group, talk[0]))
    talk.append(await hears(group, "two"))
    await task

    assert await statuses(group, *talk) == ["failed", "failed"]
    told = await group.outcome(talk[0])
    assert len(told.reply) == 1
    assert "was not found: install it" in str(told.error)


#: Speaks the Agent Client Protocol up to where a conversation begins.
REFUSING = """
with open('started', 'a') as file: print(os.getpid(), file=file)
answer(asked('initialize'), protocolVersion=1, agentCapabilities={})
message = asked('session/new')
"""


async def test_an_agent_that_fails_at_its_start_is_not_started_again(
    group: Stack, directory: Path
) -> None:
    """The failure of the one that was on its way is the turn's, as without a burst."""
    body = REFUSING + "fail(message, -32603, 'out of order')\ntime.sleep(1000)"
    agent = {"runtime": "acp", "command": list(acp_script(directory, body))}
    group.configure(agent, queue={**LONG, "cap": 2})
    alone = await hears(group, "one", is_addressed=True, channel_id="another")
    await drain(group, alone)
    usual, before = await group.outcome(alone), len(started(group))
    talk = await hears(group, "one")
    task = drain(group, talk)
    await eventually(lambda: len(started(group)) > before)
    await hears(group, "two")
    await task

    told = await group.outcome(talk)
    assert told.error == usual.error
    assert len(told.reply) == len(usual.reply) == 1
    assert len(started(group)) == 2 * before
    await eventually(lambda: not any(map(is_alive, started(group))))


async def test_an_agent_that_hangs_at_its_start_is_stopped(group: Stack, directory: Path) -> None:
    agent = {"runtime": "acp", "command": list(acp_script(directory, f"{REFUSING}asked('never')"))}
    group.configure(agent, queue=LONG)
    talk = await hears(group, "one")
    task = drain(group, talk)
    (pid,) = await eventually(lambda: started(group))
    stop = await hears(group, "/stop", is_addressed=True)
    await task

    assert await statuses(group, talk, stop) == ["stopped", "done"]
    await eventually(lambda: not is_alive(pid))
    assert started(group) == [pid]


async def test_a_turn_that_waits_for_the_agent_on_its_way_is_stopped(
    group: Stack, directory: Path
) -> None:
    agent = {"runtime": "acp", "command": list(acp_script(directory, f"{REFUSING}asked('never')"))}
    group.configure(agent, queue={**LONG, "cap": 2})
    talk = [await hears(group, "one")]
    task = drain(group, talk[0])
    (pid,) = await eventually(lambda: started(group))
    talk.append(await hears(group, "two"))
    await group.reached(talk[1], "begun")
    stop = await hears(group, "/stop", is_addressed=True)
    await task

    assert await statuses(group, *talk, stop) == ["stopped", "stopped", "done"]
    await eventually(lambda: not is_alive(pid))
    assert started(group) == [pid]


async def test_nothing_is_recorded_of_a_burst_whose_worker_is_killed(group: Stack) -> None:
    worker = await group.start_worker()
    talk = await hears(group, "one")
    (pid,) = await eventually(lambda: started(group))
    (horse,) = children(worker.pid)
    os.kill(horse, signal.SIGKILL)
    worker.kill()
    await eventually(lambda: not is_alive(pid))
    assert await statuses(group, talk) == ["accepted"]
    name = keys.state(talk.session.sid)
    await group.fleet.scripts.client.hset(name, "lease_until_ms", 1)
    asked = await hears(group, "two", is_addressed=True)
    await drain(group, talk)

    assert await answers(group, talk, asked) == ["heard one + two, knew -"] * 2
    assert [step.name for step in (await group.outcome(talk)).steps].count("begun") == 1


async def test_a_turn_that_had_begun_gathers_nothing_when_it_is_begun_again(group: Stack) -> None:
    talk = await hears(group, "one")
    async with dying(group, talk):
        pass

    assert "heard one" in (await drained(group, talk))[0]
