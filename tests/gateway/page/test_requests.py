"""Requests of agents on the page: each kind, its answers, and who gave them."""

import re
import signal
from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from remoteclaw.config.load import load_config
from remoteclaw.fleet.requests.turn_requests import TurnRequests
from remoteclaw.fleet.turns.inbound import Accepted
from remoteclaw.gateway.methods import HANDLERS
from tests.support.bridges import claude_script
from tests.support.browser import PHONE, logged_in, write
from tests.support.budgets import DAY, spend
from tests.support.conversations import drain
from tests.support.doors import Refused, gateway_process, opened
from tests.support.pages import login, paged
from tests.support.requests import answered, open_request, put_in, put_request
from tests.support.stack import Stack
from tests.support.turns import begin_turn

PLAN = "1. Read the **importer**\n2. Rewrite it"
QUESTION = "Look: Which colours?\n1. red – like fire\n2. green\n3. blue – like the sea"

#: A claude that shows a plan, or asks to use a tool if the message contains "touch", and reports
#: the answer.
NEW_REQUESTS = f"""
while True:
    message = heard()
    echo(message)
    name, about = 'ExitPlanMode', dict(plan={PLAN!r})
    if 'touch' in message['message']['content'][0]['text']:
        name, about = 'Bash', dict(command='touch x')
    say(type='control_request', request_id='r', request=dict(subtype='can_use_tool',
        tool_name=name, input=about))
    result('I hear: ' + heard('control_response')['response']['response']['behavior'])
"""


async def asking(stack: Stack) -> tuple[TurnRequests, Accepted]:
    """Begin a turn without a worker; return its requests and its entry."""
    accepted = await stack.append("hello")
    lease = await stack.fleet.leases.acquire(accepted.session.sid, worker="requests", host="here")
    assert lease is not None
    assert await lease.turns.begin([accepted.entry_id])
    return TurnRequests(lease, accepted.entry_id), accepted


async def test_each_kind_of_request_has_the_fields_that_the_page_needs(stack: Stack) -> None:
    """A login with the scope write can read the requests, but can't answer them."""
    turn = await asking(stack)
    await put_in(*turn, tool="Bash", what="touch x")
    await put_in(*turn, tool="ExitPlanMode", what=PLAN, is_plan=True)
    async with opened(stack) as door:
        ada = await login(stack, door)
        async with paged(door, ada) as page:
            await page.call("sessions.subscribe", {"sessionKey": str(turn[1].session)})
            requests = (await page.call("requests.list"))["requests"]
            plan, command = sorted(requests, key=lambda ask: str(ask["kind"]))
            events = [await page.event("session.request") for _ in range(2)]
            shown = await page.call("requests.show", {"id": plan["id"]})
            done = await page.call("requests.answer", {"id": plan["id"], "verdict": "edits"})
            closed = await page.call("requests.show", {"id": plan["id"]})
        async with paged(door, await login(stack, door, name="bo", scope="write")) as page:
            assert (await page.call("requests.list"))["requests"] == [command]
            with pytest.raises(Refused, match="FORBIDDEN"):
                await page.call("requests.answer", {"id": command["id"], "verdict": "once"})

    assert (command["kind"], plan["kind"]) == ("tool", "plan")
    assert "html" not in command
    assert "<li>Read the <strong>importer</strong></li>" in plan["html"]
    assert {one.get("html") for one in events} == {None, plan["html"]}
    assert shown["html"] == plan["html"]
    assert done["counts"]
    assert (closed["answer"]["name"], closed["answer"]["by"]) == ("ada", "operator")


async def test_a_plan_whose_markdown_hides_words_is_shown_as_text(
    browser: Browser, stack: Stack
) -> None:
    turn = await asking(stack)
    plan = await put_in(*turn, tool="ExitPlanMode", what=f"{PLAN}\n\n[x]: /rm", is_plan=True)
    async with opened(stack) as door, logged_in(browser, stack, door) as page:
        await page.get_by_role("link", name=re.compile("^Requests")).click()
        await expect(page.locator(".request .what")).to_have_text(plan.what)


async def test_requests_of_every_kind_are_answered_and_show_who_answered(
    browser: Browser, stack: Stack
) -> None:
    """The decision, its time and its person stay in place of the request, whoever decided."""
    turn = await asking(stack)
    async with opened(stack) as door, logged_in(browser, stack, door, viewport=PHONE) as page:
        await expect(page).to_have_title("New conversation · RemoteClaw")
        denied = await put_in(*turn, tool="Bash", what="npm publish")
        await expect(page).to_have_title("(1) New conversation · RemoteClaw")
        other = await put_in(*turn, tool="Write", what="/x\n+y")
        await page.get_by_role("button", name="Menu, 2 requests open").click()
        await page.get_by_role("link", name="Requests, 2 open").click()
        rows = page.locator(".request")
        heading = await page.get_by_role("heading", name="Requests").bounding_box()
        assert heading, "it is shown"
        assert heading["x"] >= 16
        width = await page.evaluate("document.documentElement.scrollWidth")
        assert width <= PHONE["width"]

        await expect(rows.nth(0).get_by_role("heading")).to_have_text("main wants to use Bash")
        await expect(rows.nth(0)).to_contain_text("The agent waits until")
        await rows.nth(0).get_by_label("Your words").fill("not on a Friday")
        await rows.nth(0).get_by_role("button", name="Deny").click()
        await expect(rows.nth(0).get_by_role("status")).to_have_text(
            re.compile(r"^ada denied it at .*: “not on a Friday”$")
        )
        await answered(stack, other, "once", by="alice")
        await expect(rows.nth(1).get_by_role("status")).to_have_text(
            re.compile(r"^alice allowed it once at ")
        )
        await expect(rows.nth(1).get_by_role("button")).to_have_count(0)
        await expect(page).to_have_title("Requests · RemoteClaw")

        plan = await put_in(*turn, tool="ExitPlanMode", what=PLAN, is_plan=True)
        await expect(rows.nth(2).locator("li strong")).to_have_text("importer")
        await rows.nth(2).get_by_label("Your words").fill("smaller steps")
        await rows.nth(2).get_by_label("Your words").press("Enter")
        await expect(rows.nth(2).get_by_role("status")).to_contain_text(
            "ada wants it to be different"
        )

        question = await put_in(*turn, tool="Ask", what=QUESTION, choices=("red", "green", "blue"))
        await expect(rows.nth(3)).to_contain_text("Look: Which colours?")
        await rows.nth(3).get_by_label("red – like fire").check()
        await rows.nth(3).get_by_label("blue – like the sea").check()
        await rows.nth(3).get_by_role("button", name="Send").click()
        await expect(rows.nth(3).get_by_role("status")).to_contain_text("ada answered at")

    requests = stack.fleet.requests
    answers = [(await requests.named(one.id)).answer for one in (denied, plan, question)]
    assert [(one.verdict, one.words) for one in answers if one] == [
        ("deny", "not on a Friday"),
        ("words", "smaller steps"),
        ("words", "red, blue"),
    ]


async def test_a_budget_at_its_limit_is_decided_on_the_page(browser: Browser, stack: Stack) -> None:
    stack.configure(budgets=[DAY])
    await spend(stack.fleet, 1000)
    accepted = await stack.append("hello")
    await drain(stack, accepted)
    async with opened(stack) as door, logged_in(browser, stack, door) as page:
        await page.goto(f"{door.url}/#/requests")
        row = page.locator(".request")
        await expect(row.get_by_role("heading")).to_have_text("A budget is used up")
        await expect(row).to_contain_text("main has spent 1,000 of 1,000 tokens today.")
        await expect(row).to_contain_text("Messages wait until")
        labels = ["Half as much again", "No limit today", "Stop"]
        await expect(row.get_by_role("button")).to_have_text(labels)
        await row.get_by_role("button", name="No limit today").click()
        await expect(row.get_by_role("status")).to_have_text(
            re.compile(r"^ada lifted the limit at .*\.$")
        )
    await drain(stack, accepted)
    assert (await stack.outcome(accepted)).status == "done"


async def test_a_change_of_the_configuration_is_approved_from_its_diff(
    browser: Browser, stack: Stack
) -> None:
    stack.home.config_file.write_text(
        f"[redis]\nurl = '{stack.redis.url}'\n[gateway]\nport = 0\n"
        "[queue]\nmode = 'collect'\n[channels.test]\nowners = ['alice']\n"
        "[tools]\napprove = ['gateway_config_*']\n"
    )
    asker = await begin_turn(stack, HANDLERS)
    await asker.call("gateway_config_patch", patches={"queue": {"mode": "steer"}})
    async with (
        opened(stack) as door,
        logged_in(browser, stack, door, scope="read") as reader,
        logged_in(browser, stack, door) as page,
    ):
        for each in (reader, page):
            await each.goto(f"{door.url}/#/requests")
            await expect(each.locator(".request h2")).to_have_text(
                "main wants to change the configuration"
            )
        row = page.locator(".request")
        await expect(row.locator(".added")).to_have_text('+queue.mode = "steer"\n')
        await expect(row).to_contain_text("It expires at")
        await expect(row.get_by_role("button")).to_have_text(["Approve", "Reject"])
        await expect(reader.locator(".request")).to_contain_text(
            "needs a login with the scope admin"
        )
        await expect(reader.locator(".request").get_by_role("button")).to_have_count(0)
        await row.get_by_role("button", name="Approve").click()
        for each in (reader, page):
            await expect(each.locator(".request").get_by_role("status")).to_have_text(
                re.compile(r"^Allowed once by ada at \d\d:\d\d\. queue\.mode is changed\.$")
            )
    assert load_config(stack.home.config_file, {}).queue.mode == "steer"


async def test_a_killed_gateway_loses_no_answer_and_no_message(
    browser: Browser, stack: Stack
) -> None:
    """The card stays until the gateway has accepted the answer, and the chat continues."""
    request = await put_request(stack, await stack.append("hello"), tool="Bash", what="touch x")
    await stack.start_worker()
    async with (
        gateway_process(stack) as (door, process),
        logged_in(browser, stack, door) as page,
    ):
        answers = page.locator(".message.agent")
        await write(page, "hello")
        await expect(answers).to_have_count(1)
        await page.get_by_role("link", name="Requests").click()
        card = page.locator(".request")
        allow = card.get_by_role("button", name="Allow once")
        await expect(allow).to_be_enabled()
        process.send_signal(signal.SIGSTOP)
        await allow.click()
        await expect(allow).to_be_disabled()
        await expect(card.locator(".done")).to_have_text("")
        process.kill()
        await expect(card.get_by_role("alert")).to_contain_text(
            "Perhaps not taken: The connection was lost."
        )
        away = page.locator(".status")
        await expect(away).to_contain_text("RemoteClaw is away")
        async with gateway_process(stack, **{"REMOTECLAW__GATEWAY__PORT": str(door.port)}):
            await expect(away).to_be_hidden()
            await allow.click()
            await expect(card.get_by_role("status")).to_contain_text("ada allowed it once at")
            await page.get_by_role("link", name="RemoteClaw").click()
            await write(page, "again")
            await expect(answers).to_have_count(2)
            await expect(page.locator(".message.own")).to_have_count(2)
    assert (await stack.fleet.requests.named(request.id)).state == "answered"


async def test_a_plan_in_the_chat_is_markdown_and_allow_once_is_asked_again(
    browser: Browser, stack: Stack, directory: Path
) -> None:
    """The chat shows the same card as the list of requests. The message and the data of its request
    arrive separately and in either order, also after a reload.
    """
    stack.configure({"runtime": "claude", "command": list(claude_script(directory, NEW_REQUESTS))})
    await stack.start_worker()
    async with opened(stack) as door, logged_in(browser, stack, door) as page:
        await write(page, "go")
        card = page.locator(".message.agent").first
        live = page.locator(".live")
        await expect(card.locator("li strong")).to_have_text("importer")
        await expect(live).to_have_count(0)
        await page.reload()
        await expect(card.locator("li strong")).to_have_text("importer")
        await expect(page.get_by_role("button", name="Stop", exact=True)).to_be_visible()
        await expect(live).to_have_count(0)
        await card.get_by_role("button", name="Go on", exact=True).click()
        await expect(page.locator(".message.agent").last).to_contain_text("I hear: allow")
        await expect(card).to_contain_text("Approved by ada")

        for count in (3, 5):
            await write(page, "touch x")
            card = page.locator(".message.agent", has=page.locator(".choices"))
            await expect(card).to_contain_text("asks to use Bash")
            request = await open_request(stack)
            await card.get_by_role("button", name="Allow once").click()
            answers = page.locator(".message.agent")
            await expect(answers).to_have_count(count + 1)
            await expect(answers.last).to_contain_text("I hear: allow")
            await expect(page.locator(".message .choices")).to_have_count(0)
            assert await stack.fleet.requests.rules(request.session.sid) == []
        await expect(page.get_by_text("Allowed once by ada")).to_have_count(2)
