"""Bursts: group messages to other people are gathered into one turn while the agent starts."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from remoteclaw.fleet import keys
from remoteclaw.fleet.turns.inbound import Accepted
from remoteclaw.session.notices import RESET
from tests.support.bridges import acp_script, script
from tests.support.conversations import AGENT, answers, drain, dying, passed, prompts, renewed
from tests.support.processes import children, is_alive
from tests.support.stack import Stack, message, said
from tests.support.waiting import HANG_S, eventually

#: The gathering lasts longer than any test waits, so that a test must end it in another way.
LONG = {"debounce_ms": 0, "gather_ms": 60_000, "gather_most_ms": 60_000}
#: Makes an agent write its pid to the file `started`.
NOTED = "with open('started', 'a') as file: print(os.getpid(), file=file)\n"
PEOPLE = ("ann", "bo", "cy", "di", "ed")


@pytest.fixture
async def group(stack: Stack, directory: Path) -> Stack:
    """A stack that gathers group messages, with an agent that writes its pid and its prompts."""
    stack.agent = {"runtime": "demo", "command": list(script(directory, NOTED + AGENT))}
    stack.configure(stack.agent, queue=LONG)
    return stack


async def say(stack: Stack, text: str, **fields: Any) -> Accepted:
    """Append a message of a person in the group, by default one that is not for the agent."""
    fields = {"chat_kind": "group", "is_addressed": False, **fields}
    is_shared = fields.pop("is_shared", True)
    return await stack.fleet.inbound.append(
        message(text, **fields), agent="main", is_shared=is_shared
    )


async def drained(stack: Stack, *accepted: Accepted) -> list[str]:
    """Run the session, and return the replies, which must arrive without any gathering."""
    task = drain(stack, accepted[0])
    replies = [said(await stack.outcome(each, within_s=HANG_S / 2)) for each in accepted]
    await task
    return replies


def started(stack: Stack) -> list[int]:
    """Return the pids of the agents that have started."""
    file = stack.home.path / "workspaces" / "main" / "started"
    return [int(line) for line in file.read_text().splitlines()] if file.exists() else []


async def statuses(stack: Stack, *accepted: Accepted) -> list[str]:
    return [(await stack.outcome_so_far(each)).status for each in accepted]


async def test_a_burst_is_one_turn_and_its_agent_starts_while_messages_are_gathered(
    group: Stack,
) -> None:
    """Five people write twelve messages, and the agent runs before the turn begins."""
    texts = [f"message {number}" for number in range(11)]
    talk = [await say(group, text, from_=PEOPLE[i % 5]) for i, text in enumerate(texts[:6])]
    task = drain(group, talk[0])
    (agent,) = await eventually(lambda: started(group))
    talk += [await say(group, text, from_=PEOPLE[i % 5]) for i, text in enumerate(texts[6:])]
    assert await statuses(group, *talk) == ["accepted"] * 11
    asked = await say(group, "now you", from_="ann", is_addressed=True)
    await task

    assert {(await group.outcome(each)).turn for each in (*talk, asked)} == {talk[0].entry_id}
    assert prompts(group).count("now you") == 1
    assert (await answers(group, asked))[0].startswith(" + ".join(("heard message 0", *texts[1:])))
    assert await group.reached(asked, "spawned") == f"new demo, pid {agent}"
    assert started(group) == [agent]


@pytest.mark.parametrize("ends", ["command", "caller", "cron", "full"])
async def test_gathering_ends_at_a_command_a_caller_a_cron_entry_or_the_cap(
    group: Stack, ends: str
) -> None:
    group.configure(group.agent, queue={**LONG, "cap": 3})
    talk = [await say(group, text) for text in ("one", "two")]
    task = drain(group, talk[0])
    await eventually(lambda: started(group))
    match ends:
        case "command":
            await say(group, "/new")
        case "caller":
            await group.write(talk[0].session, "tick", "chat", deliver="caller")
        case "cron":
            await group.write(talk[0].session, "tick", "cron", deliver="channel")
        case _:
            await say(group, "three")

    outcome = await group.outcome(talk[1], within_s=HANG_S / 2)
    assert outcome.turn == talk[0].entry_id
    assert said(outcome).startswith("heard one + two")
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
async def test_only_unaddressed_group_messages_of_a_shared_session_are_gathered(
    group: Stack, fields: dict[str, Any]
) -> None:
    """Messages that are addressed, direct, of one person's session, or unclear run at once."""
    for text in ("one", "two"):
        accepted = await say(group, text, **fields)

        assert (await drained(group, accepted))[0].startswith(f"heard {text},")


@pytest.mark.parametrize("off", [{"gather_ms": 0}, {"gather_most_ms": 0}, {"mode": "followup"}])
async def test_gathering_can_be_switched_off_in_the_configuration(
    group: Stack, off: dict[str, Any]
) -> None:
    group.configure(group.agent, queue={**LONG, **off})
    accepted = await say(group, "one")

    assert (await drained(group, accepted))[0].startswith("heard one,")


async def test_a_burst_continues_its_conversation_with_the_warm_agent(group: Stack) -> None:
    first = await say(group, "one", is_addressed=True)
    await drain(group, first)
    await group.until_idle(first)
    talk = await say(group, "two")
    task = drain(group, talk)
    await eventually(lambda: talk_is_served(group, talk))
    await say(group, "three", is_addressed=True)
    await task

    assert await answers(group, talk) == ["heard two + three, knew one"]
    assert (await group.reached(talk, "spawned")).startswith("warm demo")
    assert len(started(group)) == 1


async def talk_is_served(stack: Stack, accepted: Accepted) -> bool:
    view = await stack.fleet.sessions.view(accepted.session.sid)
    return view is not None and view.status == "running"


async def test_no_agent_starts_early_for_a_conversation_that_the_burst_ends(group: Stack) -> None:
    reset = {"reset": {"idle_minutes": 120}}
    group.configure(group.agent, queue={**LONG, "cap": 3}, sessions=reset)
    first = await say(group, "one", is_addressed=True)
    await drain(group, first)
    await passed(group, first, hours=3)
    (pid,) = started(group)
    os.kill(pid, signal.SIGKILL)
    await eventually(lambda: not is_alive(pid))
    talk = [await say(group, text) for text in ("two", "three")]
    task = drain(group, talk[0])
    await renewed(group, talk[0], times=4)  # by now, an agent would have started
    await say(group, "four")
    await task

    assert (await answers(group, talk[0]))[0].startswith(f"{RESET}\n\nheard two + three + four")
    assert len(started(group)) == 2


# -- failures -------------------------------------------------------------------------------------


async def test_an_agent_that_cannot_start_is_reported_once(group: Stack) -> None:
    group.configure({"runtime": "demo", "command": ["/nowhere/agent"]}, queue={**LONG, "cap": 2})
    talk = [await say(group, "one")]
    task = drain(group, talk[0])
    await eventually(lambda: talk_is_served(group, talk[0]))
    talk.append(await say(group, "two"))
    await task

    assert await statuses(group, *talk) == ["failed", "failed"]
    outcome = await group.outcome(talk[0])
    assert len(outcome.reply) == 1
    assert "was not found: install it" in str(outcome.error)


#: An agent that speaks the Agent Client Protocol up to the request for a new conversation.
REFUSING = """
with open('started', 'a') as file: print(os.getpid(), file=file)
answer(asked('initialize'), protocolVersion=1, agentCapabilities={})
message = asked('session/new')
"""


async def test_an_agent_that_fails_at_its_start_is_not_started_again(
    group: Stack, directory: Path
) -> None:
    """The turn reports the failure of the early start, with the same error as without a burst."""
    body = REFUSING + "fail(message, -32603, 'out of order')\ntime.sleep(1000)"
    agent = {"runtime": "acp", "command": list(acp_script(directory, body))}
    group.configure(agent, queue={**LONG, "cap": 2})
    alone = await say(group, "one", is_addressed=True, channel_id="another")
    await drain(group, alone)
    usual, before = await group.outcome(alone), len(started(group))
    talk = await say(group, "one")
    task = drain(group, talk)
    await eventually(lambda: len(started(group)) > before)
    await say(group, "two")
    await task

    outcome = await group.outcome(talk)
    assert outcome.error == usual.error
    assert len(outcome.reply) == len(usual.reply) == 1
    assert len(started(group)) == 2 * before
    await eventually(lambda: not any(map(is_alive, started(group))))


async def test_an_agent_that_hangs_at_its_start_is_stopped(group: Stack, directory: Path) -> None:
    agent = {"runtime": "acp", "command": list(acp_script(directory, f"{REFUSING}asked('never')"))}
    group.configure(agent, queue=LONG)
    talk = await say(group, "one")
    task = drain(group, talk)
    (pid,) = await eventually(lambda: started(group))
    stop = await say(group, "/stop", is_addressed=True)
    await task

    assert await statuses(group, talk, stop) == ["stopped", "done"]
    await eventually(lambda: not is_alive(pid))
    assert started(group) == [pid]


async def test_a_turn_that_waits_for_its_starting_agent_can_be_stopped(
    group: Stack, directory: Path
) -> None:
    agent = {"runtime": "acp", "command": list(acp_script(directory, f"{REFUSING}asked('never')"))}
    group.configure(agent, queue={**LONG, "cap": 2})
    talk = [await say(group, "one")]
    task = drain(group, talk[0])
    (pid,) = await eventually(lambda: started(group))
    talk.append(await say(group, "two"))
    await group.reached(talk[1], "begun")
    stop = await say(group, "/stop", is_addressed=True)
    await task

    assert await statuses(group, *talk, stop) == ["stopped", "stopped", "done"]
    await eventually(lambda: not is_alive(pid))
    assert started(group) == [pid]


async def test_a_worker_that_is_killed_while_gathering_has_begun_no_turn(group: Stack) -> None:
    worker = await group.start_worker()
    talk = await say(group, "one")
    (pid,) = await eventually(lambda: started(group))
    (horse,) = children(worker.pid)
    os.kill(horse, signal.SIGKILL)
    worker.kill()
    await eventually(lambda: not is_alive(pid))
    assert await statuses(group, talk) == ["accepted"]
    name = keys.state(talk.session.sid)
    await group.fleet.scripts.client.hset(name, "lease_until_ms", 1)
    asked = await say(group, "two", is_addressed=True)
    await drain(group, talk)

    assert await answers(group, talk, asked) == ["heard one + two, knew -"] * 2
    assert [step.name for step in (await group.outcome(talk)).steps].count("begun") == 1


async def test_a_turn_that_is_repeated_gathers_no_messages(group: Stack) -> None:
    talk = await say(group, "one")
    async with dying(group, talk):
        pass

    assert "heard one" in (await drained(group, talk))[0]
