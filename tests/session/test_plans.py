"""The plans of agents: only people approve them."""

import asyncio
import json
from pathlib import Path

import pytest

from remoteclaw.bridge.conduct import NOBODY_TO_APPROVE
from remoteclaw.config.home import Home
from remoteclaw.fleet import keys
from tests.support.agents import AgentCli
from tests.support.bridges import agent_bridge, claude_script
from tests.support.conversations import drain
from tests.support.requests import (
    answered,
    asking,
    cut_off,
    newest,
    next_request,
    open_request,
    shown,
    sooner,
    write,
)
from tests.support.stack import Stack, message, said
from tests.support.waiting import HANG_S, eventually

#: A claude that runs the command in each message. Like the real one, it loses its mode at its end.
BODY = """
mode = 'default'
def to(new):
    global mode
    mode = new
    say(type='system', subtype='status', permissionMode=mode)
def next_message():
    for line in sys.stdin:
        message = json.loads(line)
        kind = message['type'] == 'control_request' and message['request']['subtype']
        if kind == 'set_permission_mode': to(message['request']['mode'])
        if kind == 'interrupt': return None
        if not kind: return message
        answer_host(message)
    sys.exit()
def may(tool, **asked):
    say(type='control_request', request_id='r', request=dict(subtype='can_use_tool',
        tool_name=tool, input=asked))
    if answer := next_message(): return answer['response']['response']
    say(type='control_cancel_request', request_id='r')
def show(plan):
    if mode != 'plan': return result('You are not in plan mode.')
    open('plan', 'w').write(plan)
    got = may('ExitPlanMode', plan=plan)
    if got is None: result('', terminal_reason='aborted_tools')
    elif got['behavior'] == 'deny':
        if 'show it again' in got['message']: show(plan + '+')
        else: result(f"{mode}: {got['message']}")
    else:
        to('default')
        result('I follow ' + got['updatedInput']['plan'])
while True:
    if (message := next_message()) is None: continue
    say(type='system', subtype='init', permissionMode=mode)
    echo(message)
    words = message['message']['content'][0]['text'].split(chr(10))
    verb, _, rest = words[-1].partition(' ')
    if 'has approved your plan' in words[-1]: show(open('plan').read())
    elif 'to be different' in ' '.join(words): show(open('plan').read() + '+')
    elif verb == 'SHOW': show(rest)
    elif verb == 'ENTER': to('plan'); show(rest)
    elif verb == 'ONCE':
        if not os.path.exists('plan'): to('plan')
        show(rest)
    elif verb == 'MODE': result(mode)
    elif verb == 'WRITE': result(may('Write', file_path=rest, content='x')['behavior'])
    elif verb == 'RUN': result(may('Bash', command=rest)['behavior'])
"""


@pytest.fixture
async def agent(stack: Stack, directory: Path) -> Stack:
    """A stack whose agent makes plans."""
    stack.agent = {"runtime": "claude", "command": list(claude_script(directory, BODY))}
    stack.configure(stack.agent)
    return stack


async def requests_in(stack: Stack, text: str) -> bool:
    """Send a message; return whether the agent makes a request for it, which is denied."""
    accepted = await stack.append(text)
    task = drain(stack, accepted)
    outcome = asyncio.create_task(stack.outcome(accepted))
    request = asyncio.create_task(open_request(stack))
    async with asyncio.timeout(HANG_S):
        await asyncio.wait((outcome, request), return_when=asyncio.FIRST_COMPLETED)
    if is_asked := not outcome.done():
        await answered(stack, await request, "deny")
    request.cancel()
    await task
    assert said(await outcome) == ("deny" if is_asked else "allow")
    return is_asked


async def answer_plan(stack: Stack, text: str, answer: str) -> str:
    """Send a message that makes the agent show a plan; answer it, and return the agent's reply."""
    accepted, task, _ = await asking(stack, text)
    assert await write(stack, accepted, answer) == ""
    await task
    return said(await stack.outcome(accepted))


async def test_a_plan_is_shown_and_followed(agent: Stack) -> None:
    assert await answer_plan(agent, "ENTER Look, do", "1") == "I follow Look, do"

    card, _ = [text async for text in shown(agent) if "this plan" in text]
    assert card.startswith("**main** asks to go on with this plan:\n\n```\nLook, do\n```")
    assert "reply to this message" in card
    assert await requests_in(agent, "WRITE notes.txt")


async def test_edits_that_are_allowed_with_a_plan_need_no_further_request(agent: Stack) -> None:
    assert await answer_plan(agent, "ENTER Do", "2") == "I follow Do"

    assert not await requests_in(agent, "WRITE notes.txt")
    for other in ("WRITE .git/hooks/pre-commit", "WRITE /etc/hosts", "RUN touch notes.txt"):
        assert await requests_in(agent, other), other

    accepted = await agent.append("ENTER Do")
    task = drain(agent, accepted)
    await open_request(agent)  # the earlier approval does not cover a later plan, even an equal one
    assert "allowed by alice: Edit `all files of the workspace`" in str(
        await write(agent, accepted, "/status")
    )
    await write(agent, accepted, "/allow none")
    await write(agent, accepted, "1")
    await task
    assert await requests_in(agent, "WRITE notes.txt")


async def test_a_plan_can_be_sent_back_any_number_of_times(agent: Stack) -> None:
    accepted, task, request = await asking(agent, "ENTER Do")
    for number in range(4):
        assert request.what == "Do" + number * "+"
        await write(agent, accepted, f"/deny {request.id} not so")
        request = await next_request(agent, request)
    await agent.fleet.scripts.client.hset(keys.request(request.id), "shown", "card")
    assert await write(agent, accepted, "what else?") is None
    assert await write(agent, accepted, "with tests", reply_to="card") == ""
    last = await next_request(agent, request)

    assert await write(agent, accepted, "3") == ""
    await task
    outcome = said(await agent.outcome(accepted))
    assert outcome.startswith("plan: alice does not approve this plan yet")
    assert (await agent.fleet.requests.named(last.id)).state == "given"


async def test_answers_that_do_not_fit_a_plan_are_refused(agent: Stack) -> None:
    agent.configure({**agent.agent, "permissions": "edits"})
    accepted, task, request = await asking(agent, "ENTER Do")
    assert request.offered == (("once", "Go on"), ("deny", "Keep planning"))
    for wrong in ("/allow always", "/allow edits", "/answer"):
        assert "That is a plan" in str(await write(agent, accepted, wrong)), wrong
    await write(agent, accepted, "/allow")
    await task

    accepted, task, _ = await asking(agent, "RUN touch x")
    assert "That asks for a permission" in str(await write(agent, accepted, "/allow edits"))
    await write(agent, accepted, "/deny")
    await task


async def test_plans_need_approval_even_with_automatic_permissions(agent: Stack) -> None:
    agent.configure({**agent.agent, "permissions": "auto"})

    assert await answer_plan(agent, "ENTER Do", "1") == "I follow Do"


async def test_a_new_process_stays_in_plan_mode(agent: Stack) -> None:
    agent.configure({**agent.agent, "warm_s": 0})
    planning = await agent.fleet.inbound.append(
        message("/plan SHOW Do"), agent="main", lane="agents", is_command=True
    )
    task = drain(agent, planning)
    await open_request(agent)
    await write(agent, planning, "3")
    await task
    assert said(await agent.outcome(planning)).startswith("plan: alice does not approve")

    assert await mode(agent) == "plan"
    assert await answer_plan(agent, "SHOW Do", "1") == "I follow Do"
    assert await mode(agent) == "default"


async def mode(stack: Stack) -> str:
    """Return the agent's mode."""
    accepted = await stack.append("MODE")
    await drain(stack, accepted)
    return said(await stack.outcome(accepted))


async def test_the_plan_command_without_a_task_explains_its_usage(agent: Stack) -> None:
    alone = await agent.fleet.inbound.append(
        message("/plan"), agent="main", lane="agents", is_command=True
    )
    await drain(agent, alone)

    assert said(await agent.outcome(alone)) == "Say what is to be planned: `/plan TASK`."


@pytest.mark.parametrize("is_given", [False, True], ids=["open", "given"])
async def test_a_crash_loses_neither_a_plan_nor_its_answer(
    agent: Stack, directory: Path, is_given: bool
) -> None:
    if is_given:  # the agent gets the answer, and hangs
        body = BODY.replace("        to('default')\n", "        time.sleep(600)\n")
        claude_script(directory, body)
    accepted, task, request = await asking(agent, "ONCE Do")
    if is_given:
        await answered(agent, request, "edits")

        async def has_answer() -> bool:
            return (await agent.fleet.requests.named(request.id)).state == "given"

        await eventually(has_answer)
        claude_script(directory, BODY)
    await cut_off(agent, accepted, task)

    task = drain(agent, accepted)
    if not is_given:
        await answered(agent, request, "edits")
    async with asyncio.timeout(HANG_S):
        await task

    assert "I follow Do" in said(await agent.outcome(accepted))
    assert len([text async for text in shown(agent) if "this plan" in text]) == 2
    assert not await requests_in(agent, "WRITE notes.txt")


async def test_a_late_answer_to_a_plan_wakes_the_agent(agent: Stack) -> None:
    accepted, task, request = await asking(agent, "ENTER Do")
    await sooner(agent, request)
    await task
    reply = await answered(agent, request, "deny", words="with tests")
    assert reply.endswith("The agent continues.")

    task = drain(agent, accepted)
    changed = await next_request(agent, request)
    assert changed.what == "Do+"
    await sooner(agent, changed)
    await task
    assert (await answered(agent, changed, "edits")).endswith("The agent continues.")
    async with asyncio.timeout(HANG_S):
        await drain(agent, accepted)

    assert said(await newest(agent, accepted)) == "I follow Do+"
    assert not await requests_in(agent, "WRITE notes.txt")


@pytest.mark.parametrize(
    ("permissions", "answer"),
    [("auto", "I follow Do"), ("edits", f"default: {NOBODY_TO_APPROVE}")],
)
async def test_without_people_a_plan_is_approved_only_by_automatic_permissions(
    home: Home, directory: Path, permissions: str, answer: str
) -> None:
    command = claude_script(directory, BODY)
    async with agent_bridge(home, "claude", command=command, permissions=permissions) as (
        bridge,
        *_,
    ):
        result = await bridge.handle(message("ENTER Do"))

    assert [payload.text for payload in result.payloads] == [answer]


async def test_the_real_claude_plans_and_follows(
    stack: Stack, claude: AgentCli, directory: Path
) -> None:
    settings = directory / "settings.json"  # the user's own permissions of claude
    settings.write_text(json.dumps({"permissions": {"defaultMode": "acceptEdits"}}))
    env = {**claude.env, "CLAUDE_CONFIG_DIR": str(directory)}
    stack.configure(claude.config(env=env))
    await stack.start_worker()
    planning = await stack.fleet.inbound.append(
        message("/plan SHELL:touch made"), agent="main", lane="agents", is_command=True
    )
    # Plan mode needs a person: claude may not let a model of the provider decide instead.
    await answered(stack, await open_request(stack), "deny")
    assert "alice denied this" in said(await stack.outcome(planning))

    plan = json.dumps({"plan": "1. Look\n2. Do"})
    accepted = await stack.append(f"TOOL:ExitPlanMode:{plan}")
    request = await open_request(stack)
    assert request.what == "1. Look\n2. Do"
    await answered(stack, request, "words", words="with tests")
    assert "They say: with tests" in said(await stack.outcome(accepted))

    accepted = await stack.append(f"TOOL:ExitPlanMode:{plan}")
    await answered(stack, await open_request(stack), "edits")
    assert "User has approved your plan" in said(await stack.outcome(accepted))

    file = json.dumps({"file_path": f"{request.where}/notes.txt", "content": "x"})
    assert "created successfully" in await stack.ask(f"TOOL:Write:{file}")
    accepted = await stack.append("SHELL:touch made")
    await answered(stack, await open_request(stack), "deny")
    assert "alice denied this" in said(await stack.outcome(accepted))
