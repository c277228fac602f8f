"""Requests of agents for permissions: people answer them, and the answers survive crashes."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from remoteclaw import commands
from remoteclaw.bridge import Hooks
from remoteclaw.commands import CommandCall
from remoteclaw.commands.allow_deny import TAKEN_BACK, allow, answer_by_message
from remoteclaw.commands.answers import ENDED, NOT_ALONE, NOT_YOURS
from remoteclaw.config.load import load_config
from remoteclaw.errors import LeaseLost
from remoteclaw.events import PermissionEvent
from remoteclaw.fleet import keys
from remoteclaw.fleet.blobs import MAX_BYTES_PER_HOUR, SessionFiles
from remoteclaw.fleet.requests.card import NO_FILE
from remoteclaw.fleet.requests.request import Request
from remoteclaw.fleet.requests.turn_requests import TurnRequests
from remoteclaw.fleet.turns.inbound import Accepted, decode_entry
from remoteclaw.messages import Turn
from remoteclaw.session.drain import Drain
from remoteclaw.session.permission import RETRACTED, Permissions
from tests.support.bridges import acp_script
from tests.support.conversations import drain
from tests.support.leases import begun
from tests.support.requests import (
    BODY,
    answered,
    asking,
    newest,
    open_request,
    put_request,
    shown,
    sooner,
    write,
)
from tests.support.stack import Stack, message, said
from tests.support.waiting import eventually

OWNER, GUEST = "alice", "bob"


@pytest.fixture
async def agent(stack: Stack, directory: Path) -> Stack:
    """A stack whose agent asks whether it may run the command in each message."""
    stack.agent = {"runtime": "acp", "command": list(acp_script(directory, BODY))}
    stack.configure(stack.agent)
    return stack


async def answer(stack: Stack, text: str) -> None:
    """Send a message, and wait for its outcome."""
    accepted = await stack.append(text)
    await drain(stack, accepted)
    await stack.outcome(accepted)


async def test_a_turn_waits_for_the_answer_to_its_request(agent: Stack) -> None:
    accepted, task, request = await asking(agent, "touch x")

    assert (request.what, request.tool) == ("touch x", "a tool")
    assert (await answered(agent, request, "once")).startswith("Allowed once by alice")
    await task

    assert said(await agent.outcome(accepted)) == "I try.\n\ntouch x yes"


async def test_a_denial_has_a_reason_and_the_first_answer_counts(agent: Stack) -> None:
    accepted, task, request = await asking(agent, "touch x")

    assert await answered(agent, request, "once", by=GUEST) == NOT_YOURS
    assert "“not now”" in await answered(agent, request, "deny", words="not now")
    late = await answered(agent, request, "once")
    await task

    assert late.startswith("It was answered before: Denied by alice at ")
    assert "touch x no" in said(await agent.outcome(accepted))


@pytest.fixture
async def reporting(stack: Stack, directory: Path) -> Stack:
    """A stack whose agent begins its reply with the denials that its prompt reports."""
    report = (
        "header = [word for word in words if word.startswith('[remoteclaw {')][-1]\n"
        "    text(json.dumps(json.loads(header[len('[remoteclaw '):-1]).get('denied')))"
    )
    body = BODY.replace("text('I try.')", report)
    stack.agent = {"runtime": "acp", "command": list(acp_script(directory, body))}
    stack.configure(stack.agent)
    return stack


async def denials_in_prompt(stack: Stack, text: str, *, is_cut_off: bool = False) -> Any:
    """Send a message, allow the request, and return the denials that the prompt reported."""
    accepted, task, request = await asking(stack, text)
    if is_cut_off:
        task.cancel()
        await asyncio.wait((task,))
        await stack.fleet.scripts.client.hset(keys.state(accepted.session.sid), "lease_until_ms", 1)
        task = drain(stack, accepted)
    await answered(stack, request, "once")
    await task
    parts = said(await stack.outcome(accepted)).split("\n\n")
    return orjson.loads(next(part for part in parts if part.startswith(("null", "["))))


async def denied(stack: Stack, text: str, reason: str, *, is_late: bool = False) -> Accepted:
    """Send a message, and deny the agent's request; with `is_late`, after the turn has ended."""
    accepted, task, request = await asking(stack, text)
    if is_late:
        await sooner(stack, request)
        await task
    await answered(stack, request, "deny", words=reason)
    await task
    return accepted


@pytest.mark.parametrize("is_late", [False, True], ids=["in time", "late"])
async def test_the_reason_of_a_denial_is_in_the_next_prompt_once(
    reporting: Stack, is_late: bool
) -> None:
    reporting.configure(reporting.agent, requests={"hold_s": 5})
    await denied(reporting, "touch x", "not now", is_late=is_late)

    denials = [{"tool": "a tool", "what": "touch x", "by": "alice", "why": "not now"}]
    assert await denials_in_prompt(reporting, "touch y", is_cut_off=True) == denials
    assert await denials_in_prompt(reporting, "touch z") is None


async def test_a_denial_without_a_reason_is_not_in_the_next_prompt(reporting: Stack) -> None:
    await denied(reporting, "touch x", "")

    assert await denials_in_prompt(reporting, "touch y") is None


async def test_the_reason_of_a_denial_does_not_reach_a_new_conversation(reporting: Stack) -> None:
    await denied(reporting, "touch x", "not now")
    await answer(reporting, "/new")

    assert await denials_in_prompt(reporting, "touch y") is None


async def test_a_command_allowed_for_the_conversation_is_asked_once_per_conversation(
    agent: Stack,
) -> None:
    for _ in range(2):  # the second turn has its own process
        accepted = await agent.append("touch x")
        task = drain(agent, accepted)
        if not await agent.fleet.requests.rules(accepted.session.sid):
            await answered(agent, await open_request(agent), "conversation")
        await task
        assert "touch x yes" in said(await agent.outcome(accepted))

    other = await agent.append("touch y")
    task = drain(agent, other)
    await answered(agent, await open_request(agent), "deny")
    await task

    await answer(agent, "/new")
    accepted = await agent.append("touch x")
    task = drain(agent, accepted)
    await answered(agent, await open_request(agent), "deny")
    await task
    assert "touch x no" in said(await agent.outcome(accepted))


async def in_group(stack: Stack, text: str, sender: str) -> tuple[Accepted, "asyncio.Task[None]"]:
    """Run the agent on a message of a group that shares a conversation."""
    written = message(text, from_=sender, channel_id="team", chat_kind="group")
    accepted = await stack.fleet.inbound.append(written, agent="main", is_shared=True)
    return accepted, drain(stack, accepted)


@pytest.mark.parametrize("grant", ["conversation", "late"])
async def test_a_permission_holds_only_for_the_person_for_whom_it_was_given(
    agent: Stack, grant: str
) -> None:
    """An owner allows something in a turn of her own: a guest of the group is asked for again."""
    agent.configure(agent.agent, requests={"hold_s": 5})
    first, task = await in_group(agent, "touch x", OWNER)
    request = await open_request(agent)
    if grant == "late":
        await sooner(agent, request)
        await task
    await answered(agent, request, "once" if grant == "late" else "conversation")
    await task
    if grant == "late":  # the entry that wakes the session waits, so the guest's turn comes first
        client: Any = agent.fleet.scripts.client
        await client.xtrim(keys.inbound(first.session.sid), maxlen=0, approximate=False)

    guests, task = await in_group(agent, "touch x", GUEST)
    second = await open_request(agent)
    assert second.people == [f"test:{GUEST}"]
    await answered(agent, second, "conversation")
    await task
    assert "touch x yes" in said(await agent.outcome(guests))

    for sender in (OWNER, GUEST):  # what an owner allows for anybody is allowed for owners
        accepted, task = await in_group(agent, "touch x", sender)
        await task
        assert "touch x yes" in said(await agent.outcome(accepted))


async def test_a_permission_of_a_cron_run_in_a_shared_conversation_holds_for_the_next(
    agent: Stack,
) -> None:
    first, task = await in_group(agent, "touch x", OWNER)
    await answered(agent, await open_request(agent), "once")
    await task

    for is_asked in (True, False):
        id_ = await agent.write(first.session, "touch x", "cron", deliver="channel")
        run = replace(first, entry_id=id_)
        task = drain(agent, run)
        if is_asked:
            request = await open_request(agent)
            assert not request.people
            await answered(agent, request, "conversation")
        await task
        assert "touch x yes" in said(await agent.outcome(run))


async def test_a_batch_needs_a_permission_of_each_of_its_people(agent: Stack) -> None:
    agent.configure(
        agent.agent,
        queue={"mode": "collect", "debounce_ms": 0, "cap": 0},
        requests={"who": "sender"},
    )
    _, task = await in_group(agent, "touch x", GUEST)
    request = await open_request(agent)
    await answered(agent, request, "conversation", by=GUEST)
    await task

    for sender in (GUEST, OWNER, "carol"):
        written = message("touch x", from_=sender, channel_id="team", chat_kind="group")
        accepted = await agent.fleet.inbound.append(written, agent="main", is_shared=True)
    task = drain(agent, accepted)
    both = await open_request(agent)
    assert set(both.people) == {f"test:{GUEST}", f"test:{OWNER}", "test:carol"}
    assert await answered(agent, both, "once", by=GUEST) == NOT_ALONE
    assert await answered(agent, both, "once", by="dave") == NOT_YOURS
    await answered(agent, both, "once", by=OWNER)
    await task


async def test_a_late_answer_wakes_the_session_and_grants_the_command_once(agent: Stack) -> None:
    agent.configure(agent.agent, requests={"hold_s": 5})
    accepted, task, request = await asking(agent, "touch x")
    await sooner(agent, request)
    await task
    outcome = await agent.outcome(accepted)
    assert (outcome.status, "I wait for an answer to request" in said(outcome)) == ("done", True)

    assert (await answered(agent, request, "once")).endswith("The agent continues.")
    await drain(agent, accepted)
    woken = await newest(agent, accepted)
    assert "touch x yes" in said(woken)

    again, task, second = await asking(agent, "touch x")
    assert second.id != request.id
    await answered(agent, second, "deny")
    await task
    client: Any = agent.fleet.scripts.client
    assert await client.zrange(keys.session_requests(again.session.sid), 0, -1) == [
        second.id.encode()
    ]


async def test_a_request_is_void_once_its_turn_is_stopped(agent: Stack) -> None:
    accepted, task, request = await asking(agent, "touch x")

    await agent.fleet.sessions.stop(accepted.session.sid)
    assert await answered(agent, request, "once") == ENDED["void"]
    await task

    assert (await agent.outcome(accepted)).status == "stopped"
    assert await agent.fleet.requests.waiting() == []


async def test_the_next_attempt_takes_over_the_request_with_its_answer(agent: Stack) -> None:
    accepted, task, request = await asking(agent, "touch x")
    task.cancel()
    await asyncio.wait((task,))
    await agent.fleet.scripts.client.hset(keys.state(accepted.session.sid), "lease_until_ms", 1)

    await answered(agent, request, "once")
    await drain(agent, accepted)

    assert "touch x yes" in said(await agent.outcome(accepted))
    cards = [text async for text in shown(agent) if "asks to use" in text]
    assert [("Allowed once" in text) for text in cards] == [False, True]


async def test_a_waiting_turn_releases_the_last_worker_for_another_session(agent: Stack) -> None:
    accepted, task, _ = await asking(agent, "touch x")

    await agent.append("touch y", channel_id="chat-2")
    await task

    assert "I wait for an answer" in said(await agent.outcome(accepted))


async def test_an_answer_that_races_with_the_release_of_the_worker_counts(
    agent: Stack,
) -> None:
    accepted = await agent.append("touch x")
    proxy = await agent.proxied()
    failpoint = proxy.arm("lapse", "before")
    fleet, config = agent.open_at(proxy.url), load_config(agent.home.config_file, {})
    task = asyncio.create_task(Drain(fleet, config, agent.home, Hooks()).run(accepted.session.sid))
    request = await open_request(agent)
    await agent.append("touch y", channel_id="chat-2")
    await failpoint.wait()

    assert (await answered(agent, request, "once")).startswith("Allowed once")
    failpoint.release()
    await task

    assert "touch x yes" in said(await agent.outcome(accepted))


async def test_a_chat_shows_the_result_of_a_request_once(agent: Stack) -> None:
    """The card shows it, so a command that answers the request in this chat has no reply."""
    accepted, task, _ = await asking(agent, "touch x")
    call = CommandCall(
        id="1",
        arguments="",
        session=accepted.session,
        sender=OWNER,
        is_owner=True,
        fleet=agent.fleet,
        config=load_config(agent.home.config_file, {}),
        home=agent.home,
    )

    reply = await answer_by_message("1", call)
    await task

    assert reply is not None
    assert reply.text == ""
    assert await answer_by_message("1", call) == reply  # the same message, read again after a crash
    assert await answer_by_message("1", replace(call, id="2")) is None
    cards = [text async for text in shown(agent) if "Allowed once by alice" in text]
    assert len(cards) == 1


# -- crashes and lost replies ---------------------------------------------------------------------

#: An agent that makes a request for each command in its message: one after another, all at once if
#: the message ends with `&`, or without waiting for an answer if it ends with `!`.
SEVERAL = """
prompt = begin()
def ask(number, command):
    say(jsonrpc='2.0', id=number, method='session/request_permission', params=dict(sessionId='s',
        toolCall=dict(toolCallId=str(number), title=command, kind='execute',
            rawInput=dict(command=command)),
        options=[dict(optionId=i, kind=k, name=k) for i, k in (('yes', 'allow_once'),
            ('no', 'reject_once'))]))
while True:
    words = prompt['params']['prompt'][0]['text'].split(chr(10))[-1].split(': ')[-1]
    words = words.replace('LONG', chr(0x202e) + 'x ' * 100_000)
    commands, waits, got = words.rstrip('&!').split('; '), not words.endswith('!'), {}
    at_once = not waits or words.endswith('&')
    if at_once:
        for number, command in enumerate(commands): ask(100 + number, command)
    for number, command in enumerate(commands if waits else []):
        if not at_once: ask(100 + number, command)
        got = asked()
        if 'method' in got: break
        text(commands[got['id'] - 100] + ' ' + got['result']['outcome'].get('optionId', '-') + '. ')
    for _ in commands if 'method' in got and at_once else [1] if 'method' in got else []:
        asked()
    if not waits: open('gone on', 'w'); time.sleep(0.3)
    answer(prompt, stopReason='cancelled' if 'method' in got else 'end_turn')
    prompt = asked('session/prompt')
"""


@pytest.fixture
async def several(stack: Stack, directory: Path) -> Stack:
    """A stack whose agent makes several requests in a turn."""
    stack.agent = {"runtime": "acp", "command": list(acp_script(directory, SEVERAL))}
    stack.configure(stack.agent)
    return stack


async def cards(stack: Stack) -> list[str]:
    """Return the texts of request cards, without the cards that show a result."""
    client: Any = stack.fleet.scripts.client
    replies = [
        orjson.loads(fields[b"reply"])
        for _, fields in await client.xrange(keys.replies("test", "default"))
    ]
    return [reply["text"] for reply in replies if (reply.get("card") or {}).get("choices")]


async def kill_attempt(stack: Stack, accepted: Accepted, task: "asyncio.Task[None]") -> None:
    """End an attempt as if its worker were killed, and let its lease expire."""
    task.cancel()
    await asyncio.wait((task,))
    await stack.fleet.scripts.client.hset(keys.state(accepted.session.sid), "lease_until_ms", 1)


@pytest.mark.parametrize("has_asked_before", [False, True])
async def test_a_request_is_shown_once_if_the_reply_of_redis_is_lost(
    agent: Stack, has_asked_before: bool
) -> None:
    accepted = await agent.append("touch x")
    if has_asked_before:
        before = drain(agent, accepted)
        await open_request(agent)
        await kill_attempt(agent, accepted, before)
    proxy = await agent.proxied()
    failpoint = proxy.arm("request", "after")
    fleet, config = agent.open_at(proxy.url), load_config(agent.home.config_file, {})
    task = asyncio.create_task(Drain(fleet, config, agent.home, Hooks()).run(accepted.session.sid))
    await failpoint.wait()
    failpoint.cut()

    await answered(agent, await open_request(agent), "once")
    await task

    assert "touch x yes" in said(await agent.outcome(accepted))
    assert len(await cards(agent)) == 1


async def test_a_request_that_redis_has_lost_is_asked_again(agent: Stack) -> None:
    accepted, task, lost = await asking(agent, "touch x")
    await agent.fleet.scripts.client.delete(keys.request(lost.id))
    await agent.fleet.scripts.client.zrem(keys.REQUESTS, lost.id)

    request = await open_request(agent)
    await answered(agent, request, "once")
    await task

    assert request.id != lost.id
    assert "touch x yes" in said(await agent.outcome(accepted))


async def test_the_next_attempt_keeps_waiting_for_a_lapsed_request(agent: Stack) -> None:
    accepted, first, request = await asking(agent, "touch x")
    await kill_attempt(agent, accepted, first)
    await sooner(agent, request)

    task = drain(agent, accepted)
    again = await eventually_open(agent)
    await answered(agent, again, "once")
    await task

    assert again.id == request.id
    assert "touch x yes" in said(await agent.outcome(accepted))
    assert len(await cards(agent)) == 1


async def eventually_open(stack: Stack) -> Request:
    """Wait for a request whose turn still waits, and return it."""

    async def find_open() -> Request | None:
        return next((r for r in await stack.fleet.requests.waiting() if r.state == "open"), None)

    request: Request = await eventually(find_open)
    return request


async def test_a_command_that_may_have_run_already_is_asked_again_with_a_warning(
    agent: Stack,
) -> None:
    accepted = await agent.append("touch x")
    proxy = await agent.proxied()
    failpoint = proxy.arm("take", "after")
    fleet, config = agent.open_at(proxy.url), load_config(agent.home.config_file, {})
    first = asyncio.create_task(Drain(fleet, config, agent.home, Hooks()).run(accepted.session.sid))
    await failpoint.wait()  # the first check for an answer
    taken = proxy.arm("take", "after")
    failpoint.release()
    request = await open_request(agent)
    await answered(agent, request, "once")

    async def is_given() -> bool:
        found = await agent.fleet.requests.find(request.id)
        return found is not None and found.state == "given"

    await taken.wait()
    await eventually(is_given)
    await kill_attempt(agent, accepted, first)

    task = drain(agent, accepted)
    again = await open_request(agent)
    await answered(agent, again, "deny")
    await task

    assert again.id != request.id
    assert (request.is_again, again.is_again) == (False, True)
    assert ["may have been done already" in card for card in await cards(agent)] == [False, True]
    assert "touch x no" in said(await agent.outcome(accepted))


async def test_the_same_command_twice_in_an_attempt_needs_two_answers(several: Stack) -> None:
    accepted, task, first = await asking(several, "touch x; touch x")
    await answered(several, first, "once")
    second = await open_request(several)
    await answered(several, second, "deny")
    await task

    assert first.id != second.id
    assert "touch x yes. touch x no." in said(await several.outcome(accepted)).replace("\n\n", " ")
    assert not any("may have been done" in card for card in await cards(several))


async def test_two_simultaneous_requests_for_the_same_command_need_two_answers(
    several: Stack,
) -> None:
    accepted = await several.append("touch x; touch x&")
    task = drain(several, accepted)

    async def both() -> list[Request] | None:
        waiting: list[Request] = await several.fleet.requests.waiting()
        return waiting if len(waiting) == 2 else None

    for request, verdict in zip(await eventually(both), ("once", "deny"), strict=True):
        await answered(several, request, "once" if verdict == "once" else "deny")
    await task

    reply = said(await several.outcome(accepted))
    assert ("touch x yes" in reply, "touch x no" in reply) == (True, True)


# -- limits, and agents that misbehave ------------------------------------------------------------


async def test_at_most_eight_requests_of_a_session_are_open(several: Stack) -> None:
    accepted = await several.append("; ".join(f"touch {n}" for n in range(9)) + "&")
    task = drain(several, accepted)

    async def eight_requests() -> list[Request] | None:
        waiting: list[Request] = await several.fleet.requests.of_session(accepted.session.sid)
        return waiting if len(waiting) == 8 else None

    for request in await eventually(eight_requests):
        await answered(several, request, "once")
    await task

    reply = said(await several.outcome(accepted))
    assert (reply.count(" yes."), reply.count(" no.")) == (8, 1)
    assert len(await cards(several)) == 8


async def test_the_oldest_unanswered_request_expires_to_make_room_for_a_new_one(
    agent: Stack,
) -> None:
    requests = []
    for number in range(9):
        accepted = await agent.append(f"touch {number}")
        task = drain(agent, accepted)
        request = await eventually_open(agent)
        requests.append(request)
        if number < 8:
            await sooner(agent, request)
        else:
            await answered(agent, request, "deny")
        await task

    waiting = await agent.fleet.requests.waiting()
    assert [request.id for request in waiting] == [request.id for request in requests[1:8]]
    assert await answered(agent, requests[0], "once") == ENDED["expired"]


async def test_after_three_denials_further_requests_are_denied_automatically(
    several: Stack,
) -> None:
    accepted = await several.append("touch 1; touch 2; touch 3; touch 4")
    task = drain(several, accepted)
    for _ in range(3):
        await answered(several, await open_request(several), "deny")
    await task

    assert said(await several.outcome(accepted)).count(" no.") == 4
    assert len(await cards(several)) == 3


async def test_a_request_that_the_agent_abandons_is_void_at_the_end_of_the_turn(
    several: Stack,
) -> None:
    _, task, request = await asking(several, "touch x!")
    await task

    assert await answered(several, request, "once") == ENDED["void"]
    closed = [text async for text in shown(several) if "The turn is over" in text]
    assert len(closed) == 1
    assert await several.fleet.requests.waiting() == []


async def test_a_request_card_escapes_bidi_characters_and_code_fences_and_is_truncated(
    several: Stack,
) -> None:
    _, task, request = await asking(several, "echo %CLOSING% ``` LONG")
    await answered(several, request, "deny")
    await task

    (card,) = await cards(several)
    (closed,) = [text async for text in shown(several) if "Denied by alice" in text]
    assert card.startswith("**main** asks to use a tool in `")
    assert ("\\u202e" in card, "````" in card, "characters …" in card) == (True, True, True)
    assert len(card) < 3500
    assert closed.startswith(card)


async def test_a_long_action_without_room_for_its_text_can_only_be_denied(agent: Stack) -> None:
    accepted = await agent.append("touch LONG")
    # The chat has stored as many files within the hour as it may.
    client: Any = agent.fleet.scripts.client
    await client.set(keys.stored(accepted.session.sid), MAX_BYTES_PER_HOUR)

    task, request = drain(agent, accepted), await open_request(agent)

    assert (request.offered, request.file) == ((("deny", "Deny"),), None)
    assert NO_FILE in "".join([text async for text in shown(agent)])
    assert (await answered(agent, request, "once")).startswith(NO_FILE)
    assert (await answered(agent, request, "conversation")).startswith(NO_FILE)
    assert (await write(agent, accepted, f"/allow {request.id}") or "").startswith(NO_FILE)
    assert await write(agent, accepted, "1") == ""
    await task
    assert "touch LONG no" in said(await agent.outcome(accepted))


async def test_the_full_text_of_a_request_outlives_a_card_that_no_adapter_read(
    agent: Stack,
) -> None:
    _, task, request = await asking(agent, "touch LONG")
    client: Any = agent.fleet.scripts.client
    stream = keys.replies("test", "default")
    entries = await client.xrange(stream)
    await client.delete(stream)
    for number, (_, fields) in enumerate(entries, 1):  # ids of 1970, which are trimmed
        await client.xadd(stream, fields, id=f"{number}-0")
    await answered(agent, request, "deny")
    await task

    assert len(await cards(agent)) == 0
    assert len(await agent.fleet.requests.full_text(request)) > 200_000


async def test_text_of_an_agent_that_looks_like_a_request_is_no_card(several: Stack) -> None:
    _, task, request = await asking(several, "Allow? 1 Allow once")
    await answered(several, request, "deny")
    await task

    client: Any = several.fleet.scripts.client
    replies = [
        orjson.loads(fields[b"reply"])
        for _, fields in await client.xrange(keys.replies("test", "default"))
    ]
    assert [bool(reply.get("card")) for reply in replies[:3]] == [True, True, False]
    assert "Allow? 1 Allow once no." in replies[2]["text"]
    assert await several.fleet.requests.find("made2222") is None


async def test_a_request_is_void_after_its_conversation_has_ended(agent: Stack) -> None:
    _, task, request = await asking(agent, "touch x")
    await sooner(agent, request)
    await task
    await answer(agent, "/new")

    assert await answered(agent, request, "once") == ENDED["void"]
    assert "ended" in [text async for text in shown(agent)][-2]


async def test_a_stop_voids_each_of_many_requests(stack: Stack) -> None:
    accepted = await stack.append("hello")
    first = await put_request(stack, accepted, tool="Bash", what="touch x")
    await sooner(stack, first)
    client: Any = stack.fleet.scripts.client
    others = {f"later{number}": 2**50 for number in range(70)}
    await client.zadd(keys.session_requests(accepted.session.sid), others)

    await stack.fleet.sessions.stop(accepted.session.sid)

    assert await stack.fleet.requests.waiting() == []
    assert await answered(stack, first, "once") == ENDED["void"]


async def test_a_request_that_is_retracted_while_it_is_stored_does_not_stay_open(
    stack: Stack,
) -> None:
    proxy = await stack.proxied()
    fleet, config = stack.open_at(proxy.url), load_config(stack.home.config_file, {})
    lease, accepted = await begun(fleet, "touch x")
    entry = decode_entry(*(await lease.entries())[0])
    turn = Turn(session=accepted.session, entries=(entry,))
    files = SessionFiles(fleet.blobs, lease)
    permissions = Permissions(
        lease,
        turn,
        config,
        files,
        abort=asyncio.Event(),
        joined=tuple,
        explains_denial=lambda: False,
    )
    failpoint = proxy.arm("request", "after")
    event = PermissionEvent("r", "Bash", {"command": "touch x"}, description="touch x")
    deciding = asyncio.create_task(permissions.decide(event))
    await failpoint.wait()

    retracting = asyncio.create_task(permissions.retract("r"))
    await asyncio.sleep(0)
    failpoint.release()
    await retracting
    deciding.cancel()

    assert await stack.fleet.requests.waiting() == []
    assert RETRACTED in [text async for text in shown(stack)][-1]


async def test_the_text_of_the_agent_is_shown_before_the_request_card(agent: Stack) -> None:
    accepted = await agent.append("touch x")
    task = drain(agent, accepted)
    await answered(agent, await open_request(agent), "once")
    await task

    texts = [text async for text in shown(agent)]
    assert (texts[0], "asks to use" in texts[1]) == ("I try.", True)


# -- late answers, deadlines and workers ----------------------------------------------------------


async def test_a_late_grant_is_valid_for_an_hour(agent: Stack) -> None:
    accepted, task, request = await asking(agent, "touch x")
    await sooner(agent, request)
    await task
    await answered(agent, request, "once")
    granted = await agent.fleet.requests.find(request.id)
    assert granted is not None
    assert 0 < granted.until_ms - granted.asked_ms <= 3600 * 1000 + 60_000

    await agent.fleet.scripts.client.hset(keys.request(request.id), "until_ms", 1)
    task = drain(agent, accepted)
    second = await eventually_open(agent)
    assert second.id != request.id
    await answered(agent, second, "deny")
    await task


async def test_a_grant_applies_only_to_the_same_digest_or_rule(stack: Stack) -> None:
    accepted = await stack.append("hello")
    sid, client = accepted.session.sid, stack.fleet.scripts.client
    request = await put_request(stack, accepted, tool="Bash", what="touch x")

    async def next_attempt() -> TurnRequests:
        await client.hset(keys.state(sid), "lease_until_ms", 1)
        lease = await stack.fleet.leases.acquire(sid, worker="next", host="here")
        assert lease is not None
        assert await lease.turns.begin([accepted.entry_id])
        return TurnRequests(lease, accepted.entry_id)

    async def ask(
        requests: TurnRequests, id_: str, *, digest: str, rule: str = "-"
    ) -> tuple[str, str]:
        other = replace(request, id=id_)
        about: Any = {"is_again": False, "hold_ms": 1, "keep_ms": 1, "shown": None}
        return await requests.ask(other, holders=[["*"]], digest=digest, rule=rule, **about)

    await answered(stack, request, "once")
    requests = await next_attempt()
    assert await ask(requests, "another2", digest="another") == ("open", "another2")
    assert await ask(requests, "another3", digest=request.id) == ("open", request.id)

    for id_ in ("another4", "another5"):
        await ask(requests, id_, digest=id_, rule=id_)
        named = await stack.fleet.requests.named(id_)
        await sooner(stack, named)
        await answered(stack, named, "once" if id_ == "another4" else "conversation")
    assert await ask(requests, "another6", digest="another") == ("open", "another6")
    assert (await ask(requests, "another7", digest="another4"))[0] == "allowed"
    assert (await ask(requests, "another8", digest="another", rule="another5"))[0] == "allowed"


async def test_a_late_answer_does_not_grant_a_different_command(several: Stack) -> None:
    accepted, task, request = await asking(several, "touch x")
    await sooner(several, request)
    await task
    await answered(several, request, "once")

    task = drain(several, accepted)  # the agent continues, and asks for a different command
    other = await eventually_open(several)
    await answered(several, other, "deny")
    await task

    assert other.what.startswith("You may do exactly that once")
    granted = await several.fleet.requests.find(request.id)
    assert granted is not None
    assert granted.state == "granted"


@pytest.mark.parametrize("text", ["1", "/allow"])
async def test_a_number_meant_for_an_answered_request_does_not_answer_the_next_one(
    several: Stack, text: str
) -> None:
    several.configure(several.agent, channels={"test": {"owners": [OWNER, GUEST]}})
    accepted, task, first = await asking(several, "touch 1; touch 2; touch 3")
    await answered(several, first, "once", by=OWNER)
    second = await open_request(several)
    assert second.id != first.id

    async def write(by: str) -> str:
        outcome = await commands.handle_message(
            text,
            lambda arguments: CommandCall(
                id=by,
                arguments=arguments,
                session=accepted.session,
                sender=by,
                is_owner=True,
                fleet=several.fleet,
                config=load_config(several.home.config_file, {}),
                home=several.home,
            ),
            has_files=False,
        )
        assert outcome.reply
        return outcome.reply.text

    assert await write(GUEST) == f"Say which: `{second.id}`."
    assert await write(OWNER) == ""  # the owner has answered the first one, and means the second
    third = await open_request(several)
    await answered(several, third, "deny")
    await task

    assert "touch 2 yes. touch 3 no." in said(await several.outcome(accepted)).replace("\n\n", " ")


@pytest.mark.parametrize("how", ["words", "tool"])
async def test_a_number_does_not_answer_a_request_once_newer_text_follows_its_card(
    stack: Stack, how: str
) -> None:
    accepted = await stack.append("hello")
    sid, client = accepted.session.sid, stack.fleet.scripts.client
    request = await put_request(stack, accepted, tool="Bash", what="rm -r shop")
    config = load_config(stack.home.config_file, {})

    async def write(id_: str) -> str | None:
        call = CommandCall(
            id=id_,
            arguments="",
            session=accepted.session,
            sender=OWNER,
            is_owner=True,
            fleet=stack.fleet,
            config=config,
            home=stack.home,
        )
        reply = await answer_by_message("1", call)
        return reply.text if reply else None

    await client.hset(keys.state(sid), "lease_until_ms", 1)
    lease = await stack.fleet.leases.acquire(sid, worker="next", host="here")
    assert lease is not None
    assert await lease.turns.begin([accepted.entry_id])
    newer_text = {"text": "main asks to use Bash: ls. 1 Allow once"}
    if how == "tool":
        caller = await stack.fleet.calls.caller(sid)
        assert caller is not None
        messages = [("test", "default", newer_text)]
        await stack.fleet.calls.send_messages(caller, "c", messages, effect=None)
    else:
        await lease.turns.publish(0, newer_text)
    assert await write("1") == f"Say which: `{request.id}`."

    await sooner(stack, request)
    await lease.turns.finish("done", reply=[])
    newer = await stack.append("which one?")
    assert await lease.turns.begin([newer.entry_id])
    assert await write("2") is None
    assert (await stack.fleet.requests.waiting())[0].id == request.id


async def test_an_expired_request_cannot_be_answered(agent: Stack) -> None:
    accepted, task, request = await asking(agent, "touch x")
    await sooner(agent, request)
    await task

    await agent.fleet.scripts.client.hset(keys.request(request.id), "until_ms", 1)
    assert await answered(agent, request, "once") == ENDED["expired"]
    assert (await newest(agent, accepted)).entry_id == accepted.entry_id


async def test_one_waiting_turn_at_a_time_releases_its_worker(agent: Stack) -> None:
    first = [await agent.append(f"touch {n}", channel_id=f"chat-{n}") for n in range(3)]
    client: Any = agent.fleet.scripts.client
    await client.delete("rq:queue:agents")  # workers have taken these hints
    tasks = [drain(agent, each) for each in first]

    async def all_wait() -> bool:
        return len(await agent.fleet.requests.waiting()) == 3

    await eventually(all_wait)
    await agent.append("touch y", channel_id="chat-9")
    await asyncio.wait(tasks, return_when="FIRST_COMPLETED")
    await client.delete("rq:queue:agents")  # the free worker has taken this hint, too

    states = sorted(request.state for request in await agent.fleet.requests.waiting())
    assert states == ["lapsed", "open", "open"]
    for request in await agent.fleet.requests.waiting():
        if request.state == "open":
            await answered(agent, request, "deny")
    await asyncio.gather(*tasks)


async def test_a_worker_without_its_lease_can_neither_make_nor_read_requests(stack: Stack) -> None:
    accepted = await stack.append("hi")
    request = await put_request(stack, accepted, tool="Bash", what="touch x")
    sid = accepted.session.sid
    old = await stack.fleet.leases.acquire(sid, worker="none", host="here")
    assert old is None
    await stack.fleet.scripts.client.hset(keys.state(sid), "lease_until_ms", 1)
    lease = await stack.fleet.leases.acquire(sid, worker="next", host="here")
    assert lease is not None
    for epoch, turn in ((str(int(lease.epoch) - 1), accepted.entry_id), (lease.epoch, "1-0")):
        lost = TurnRequests(replace(lease, epoch=epoch), turn)
        other = replace(request, id="another2")
        about: Any = {"is_again": False, "hold_ms": 1, "keep_ms": 1, "shown": None}
        for step in (
            lost.ask(other, holders=(), digest="", rule="", **about),
            lost.take(request.id, is_heard=False),
            lost.unreported_denials(),
        ):
            with pytest.raises(LeaseLost):
                await step
    stale = TurnRequests(replace(lease, epoch=str(int(lease.epoch) - 1)), accepted.entry_id)
    with pytest.raises(LeaseLost):
        await stale.lapse(is_needed=False)
    with pytest.raises(LeaseLost):
        await stale.retract(request.id, "")
    other_turn = TurnRequests(lease, "1-0")
    assert not await other_turn.lapse(is_needed=False)
    await other_turn.retract(request.id, "")
    assert (await stack.fleet.requests.waiting())[0].state == "open"


@pytest.mark.parametrize("is_owner", [True, False])
async def test_only_owners_can_revoke_permissions(stack: Stack, is_owner: bool) -> None:
    accepted = await stack.append("hello")
    sid = accepted.session.sid
    rule = orjson.dumps({"tool": "Bash", "what": "touch x", "name": "alice", "at_ms": 1})
    await stack.fleet.scripts.client.hset(keys.rules(sid), "rule", rule)
    call = CommandCall(
        id="1",
        arguments="none",
        session=accepted.session,
        sender=OWNER if is_owner else GUEST,
        is_owner=is_owner,
        fleet=stack.fleet,
        config=load_config(stack.home.config_file, {}),
        home=stack.home,
    )
    reply = (await allow(call)).text

    assert (reply == TAKEN_BACK) is is_owner
    assert (await stack.fleet.requests.rules(sid) == []) is is_owner


async def test_a_click_after_a_stop_does_not_count(agent: Stack) -> None:
    accepted, task, request = await asking(agent, "touch x")
    await sooner(agent, request)
    await task

    await agent.fleet.sessions.stop(accepted.session.sid)

    assert await answered(agent, request, "once") == ENDED["void"]
    assert "It was stopped." in [text async for text in shown(agent)][-1]


async def test_only_the_first_of_simultaneous_clicks_counts(agent: Stack) -> None:
    accepted, task, request = await asking(agent, "touch x")
    replies = await asyncio.gather(
        answered(agent, request, "once"),
        answered(agent, request, "deny"),
        answered(agent, request, "conversation"),
    )
    await task

    late = [reply for reply in replies if reply.startswith("It was answered before: ")]
    (first,) = set(replies) - set(late)
    assert set(late) == {f"It was answered before: {first}"}
    option = "no" if first.startswith("Denied") else "yes"
    assert f"touch x {option}" in said(await agent.outcome(accepted))


@pytest.mark.parametrize("step", ["lapse", "finish"])
async def test_a_click_at_the_deadline_counts_once(agent: Stack, step: str) -> None:
    accepted = await agent.append("touch x")
    proxy = await agent.proxied()
    failpoint = proxy.arm(step, "before")
    config = load_config(agent.home.config_file, {})
    hold = config.requests.model_copy(update={"hold_s": 1})
    drain_ = Drain(
        agent.open_at(proxy.url),
        config.model_copy(update={"requests": hold}),
        agent.home,
        Hooks(),
    )
    task = asyncio.create_task(drain_.run(accepted.session.sid))
    await failpoint.wait()
    (request,) = await agent.fleet.requests.waiting()

    reply = await answered(agent, request, "once")
    failpoint.release()
    await task

    assert reply.endswith("The agent continues.") is (step == "finish")
    first, last = said(await agent.outcome(accepted)), said(await newest(agent, accepted))
    assert ("I wait for an answer" in first) is (step == "finish")
    assert "touch x yes" in last
    assert len(await cards(agent)) == 1


async def test_a_click_while_redis_restarts_counts(agent: Stack) -> None:
    accepted, task, request = await asking(agent, "touch x")
    await asyncio.to_thread(agent.redis.kill)
    await asyncio.to_thread(agent.redis.start)

    assert (await answered(agent, request, "once")).startswith("Allowed once")
    await task

    assert "touch x yes" in said(await agent.outcome(accepted))
    assert len(await cards(agent)) == 1


async def test_a_ninth_session_is_served_while_eight_wait_for_a_person(
    agent: Stack, directory: Path
) -> None:
    for _ in range(2):
        await agent.start_worker()
    waiting = [await agent.append(f"touch {n}", channel_id=f"chat-{n}") for n in range(8)]

    async def all_have_asked() -> bool:
        return len(await agent.fleet.requests.waiting()) == 8

    await eventually(all_have_asked)
    ninth = await agent.append("/new", channel_id="chat-9")
    assert (await agent.outcome(ninth)).status == "done"

    states = sorted(request.state for request in await agent.fleet.requests.waiting())
    assert (len(states), states.count("open") <= 2) == (8, True)
    for request in await agent.fleet.requests.waiting():
        await answered(agent, request, "once")
    for accepted in waiting:

        async def is_done(each: Accepted = accepted) -> bool:
            return "yes" in said(await newest(agent, each))

        await eventually(is_done)
