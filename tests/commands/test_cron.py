"""The command /cron: which jobs it shows, adds and changes, and what it says about them."""

import re
from dataclasses import replace
from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from remoteclaw.commands import CommandCall, run_command
from remoteclaw.commands.cron import HOW_TO_ADD, NO_SCHEDULER, NONE, TOO_LONG, USAGE
from remoteclaw.config.load import load_config
from remoteclaw.cron.schedule import Schedule
from remoteclaw.cron.words import EXAMPLES
from remoteclaw.messages import SessionKey
from tests.support import jobs
from tests.support.cron import cron_of, scheduler_of
from tests.support.stack import Stack, message

CHAT = SessionKey.of(message("x"), agent="main")
OTHER_CHAT = replace(CHAT, channel_id="chat-2")
BERLIN = "Europe/Berlin"


@pytest.fixture(autouse=True)
def configured(stack: Stack) -> None:
    stack.configure({**stack.agent, "timezone": BERLIN})


def call_of(stack: Stack, text: str, id: str = "m1") -> CommandCall:
    return CommandCall(
        id=id,
        arguments=text,
        session=CHAT,
        sender="alice",
        is_owner=True,
        fleet=stack.fleet,
        config=load_config(stack.home.config_file, {}),
        home=stack.home,
    )


async def said(call: CommandCall) -> str:
    reply = await run_command("cron", call)
    assert reply is not None
    return reply.text


async def cron(stack: Stack, text: str = "", id: str = "m1") -> str:
    return await said(call_of(stack, text, id))


async def test_a_job_is_added_listed_paused_resumed_run_and_removed(stack: Stack) -> None:
    none = await cron(stack)
    added = await cron(stack, "add every weekday at 9: What is *new*?")
    again = await cron(stack, "add every weekday at 9: What is *new*?")
    (job,) = await cron_of(stack.fleet).jobs()
    id = job.id[:4]
    await scheduler_of(stack.fleet).tick()  # from now on, a scheduler runs

    listed = await cron(stack, "list")
    paused = await cron(stack, f"pause `{id}`", "m2")
    shown_as_paused = await cron(stack)
    resumed = await cron(stack, f"resume {id}", "m3")
    begun = await cron(stack, f"run {job.name}", "m4")
    running = await cron(stack)
    twice = await cron(stack, f"run {id}", "m5")
    removed = await cron(stack, f"remove {id}", "m6")

    assert none == NONE
    assert added == again
    times = next_times(added)
    assert added == (
        f"Added `{id}`: every weekday at 09:00 ({BERLIN}), next {', '.join(times)}.\n\n"
        "The agent is told “What is *new*?”, and its answer comes here. "
        f"`/cron remove {id}` takes it back.\n\n{NO_SCHEDULER}"
    )
    assert len(set(times)) == 3
    assert {each[-5:] for each in times} == {"09:00"}
    assert (job.session, job.people, job.message) == (CHAT, ("test:alice",), "What is *new*?")
    row = f"- `{id}` every weekday at 09:00 ({BERLIN}), next {times[0]}: “What is *new*?”"
    assert listed == f"{row}\n\n{USAGE}"
    assert paused == f"Paused `{id}`: “What is *new*?”."
    assert f"({BERLIN}), paused: “What" in shown_as_paused
    assert resumed == f"Resumed `{id}`: every weekday at 09:00 ({BERLIN}), next {', '.join(times)}."
    assert begun == "The agent is told “What is *new*?” now; its answer comes here."
    assert f"({BERLIN}), runs now, next {times[0]}: “" in running
    assert "has not finished: wait for it" in twice
    assert removed == f"Removed `{id}`: every weekday at 09:00 ({BERLIN}), “What is *new*?”."
    assert await cron_of(stack.fleet).jobs() == []
    assert [entry.message.text for entry in await jobs.entries(stack.fleet, CHAT)] == [
        "What is *new*?"
    ]


def next_times(text: str) -> list[str]:
    return text.partition("next ")[2].partition(".\n")[0].split(", ")


async def test_a_year_is_shown_if_it_is_another_one(stack: Stack) -> None:
    today = datetime.now(ZoneInfo(BERLIN)).date()
    later = today.replace(day=15, month=5, year=today.year + 2)

    added = await cron(stack, f"add {later:%Y-%m-%d} 08:05 Renew it.")

    assert next_times(added) == [f"{later:%a} 15 May {later.year} 08:05"]
    assert f": on 15 May {later.year} at 08:05 ({BERLIN}), next" in added


async def test_a_job_is_added_without_the_word_add(stack: Stack) -> None:
    assert ": every weekday at 09:00 (" in await cron(stack, "every weekday at 9: What is new?")
    assert "“Is it up?”" in await cron(stack, "every Friday at 10:\nIs it up?", id="m2")
    assert (await cron(stack, "at tea: What is new?")).startswith("“at tea” is no schedule: ")


async def test_an_expression_without_words_is_code(stack: Stack) -> None:
    added = await cron(stack, "Add\n*/10 8-18 * * *\nWhat is\nnew?")

    assert f": `*/10 8-18 * * *` ({BERLIN}), next " in added
    assert "“What is new?”" in added
    assert (await cron_of(stack.fleet).jobs())[0].message == "What is\nnew?"


async def test_what_is_no_job_is_refused_with_how_to_write_one(stack: Stack) -> None:
    job = await jobs.add(stack.fleet, Schedule(every_s=60), session=CHAT, id="a" * 16)
    how = HOW_TO_ADD.format(examples=EXAMPLES)

    assert await cron(stack, "add") == await cron(stack, "add every weekday at 9") == how
    assert (await cron(stack, "add jeden Tag um 9: Was gibt es?")).startswith(
        "“jeden Tag um 9” is no schedule: write for example “every weekday at 9”, "
    )
    assert await cron(stack, "add every weekday: What is new?") == (
        "“every weekday” lacks the time of day: write it as in “every weekday at 9:00”."
    )
    assert " is past: it is " in await cron(stack, "add 2020-01-01 09:00: What is new?")
    for text in ("help", "pause", "forget aaaa", "remove  "):
        assert await cron(stack, text) == USAGE
    assert await cron(stack, f"add every hour: {'x' * 200_000}") == TOO_LONG.format(limit=100_000)
    assert await cron(stack, "remove ffff") == ("There is no cron job 'ffff': `/cron` lists them.")
    assert await cron_of(stack.fleet).jobs() == [job]


async def test_jobs_of_other_chats_are_shown_in_direct_chats_only(stack: Stack) -> None:
    await jobs.add(stack.fleet, Schedule(every_s=60), session=OTHER_CHAT, id="b" * 16, name="x")
    foreign = replace(CHAT, agent="second")
    await jobs.add(stack.fleet, Schedule(every_s=60), session=foreign, id="c" * 16)
    in_group = [replace(call_of(stack, text), is_group=True) for text in ("", "remove bbbb")]

    direct = await cron(stack)
    begun = await cron(stack, "run bbbb", "m2")
    group = [await said(call) for call in in_group]
    unseen = await cron(stack, "remove cccc", "m3")

    assert re.match("- `bbbb` .*every minute .* → test:chat-2: “", direct)
    assert "cccc" not in direct
    assert begun.endswith("now; its answer goes to test:chat-2.")
    assert group[0].startswith(NONE)
    assert group[1].startswith("There is no cron job 'bbbb'")
    assert unseen.startswith("There is no cron job 'cccc'")
    assert len(await cron_of(stack.fleet).jobs()) == 2


async def test_a_name_like_another_jobs_id_hides_no_job(stack: Stack) -> None:
    async def add(id: str, name: str) -> None:
        every_minute = Schedule(every_s=60)
        await jobs.add(stack.fleet, every_minute, session=CHAT, id=id, name=name)

    async def ids() -> list[str]:
        return sorted(job.id for job in await cron_of(stack.fleet).jobs())

    first, decoy, whole, short = "ab12" + "0" * 12, "c" * 16, "d" * 16, "e" * 16
    await add(first, "report")
    await add(decoy, "ab12")
    await add(whole, first)
    await add(short, "c")

    refused = await cron(stack, "remove ab12")
    kept = await ids()
    await cron(stack, f"remove {first}", "m2")
    await cron(stack, "remove c", "m3")

    assert refused == (f"'ab12' fits 2 cron jobs: write the whole id, one of `{first}`, `{decoy}`.")
    assert kept == [first, decoy, whole, short]
    assert await ids() == [decoy, whole]


async def test_only_owners_use_the_command(stack: Stack) -> None:
    guest = replace(call_of(stack, "add every weekday at 9: x"), sender="bob", is_owner=False)

    assert await said(guest) == "/cron is for owners of this installation."
    assert await cron_of(stack.fleet).jobs() == []


async def test_what_others_change_runs_with_the_rights_of_both(stack: Stack) -> None:
    await cron(stack, "add in 45 minutes: x")
    (job,) = await cron_of(stack.fleet).jobs()

    await said(replace(call_of(stack, f"pause {job.id}", "m2"), sender="carol"))

    assert (await jobs.job_of(stack.fleet, job.id)).people == ("test:alice", "test:carol")
