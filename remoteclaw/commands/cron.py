"""The command /cron: lists, adds, pauses, resumes, runs and removes cron jobs.

An owner sees the jobs of the chat's agent, and in a group only those that write to it: others there
would read what the agent is told elsewhere. A new job writes to the conversation of the command.
"""

import re
from collections.abc import Awaitable, Callable

from remoteclaw.clock import local_time
from remoteclaw.commands.call import CommandCall, CommandReply
from remoteclaw.cron.calls import CronCalls, job_name
from remoteclaw.cron.changes import (
    SHOWN_DIGITS,
    Author,
    changed_job,
    find_job,
    new_job,
    upcoming_of,
    zone_of_agent,
)
from remoteclaw.cron.job import Job
from remoteclaw.cron.store import Cron
from remoteclaw.cron.words import EXAMPLES, in_words, split_schedule
from remoteclaw.host.terminal import one_line
from remoteclaw.tools.base import MAX_TEXT_CHARS
from remoteclaw.tools.cron import JobPatch, JobSpec, ScheduleParams

#: The longest message in a list, in characters.
MAX_SHOWN_CHARS = 80

USAGE = (
    "`/cron` lists the cron jobs, `/cron add WHEN: MESSAGE` adds one, and `/cron pause|resume|run|"
    "remove JOB` changes one."
)
HOW_TO_ADD = "Write when and what: `/cron add every weekday at 9: Report news`. WHEN is {examples}."
NONE = "There are no cron jobs here. `/cron add every weekday at 9: Report news` adds one."
TOO_LONG = "The message of a cron job has at most {limit:,} characters."
NO_SCHEDULER = "No scheduler runs, so nothing is due: start `remoteclaw up` or `remoteclaw sweep`."


async def cron(call: CommandCall) -> CommandReply:
    """List the jobs, or do to one of them what the arguments say."""
    action, rest = [*call.arguments.split(maxsplit=1), "", ""][:2]
    if action.lower() in ("", "list") and not rest:
        return CommandReply(await _list(call))
    if action.lower() == "add":
        return CommandReply(await _add(call, rest))
    if (change := _CHANGES.get(action.lower())) is None and re.search(r":\s", call.arguments):
        return CommandReply(await _add(call, call.arguments))
    if change is None or not rest:
        return CommandReply(USAGE)
    job = find_job(await _jobs(call), rest.strip(" `"), listed_by="/cron")
    return CommandReply(await change(call, job))


def _cron(call: CommandCall) -> Cron:
    return Cron(call.fleet.scripts)


def _calls(call: CommandCall) -> CronCalls:
    return CronCalls(call.fleet.calls, _cron(call))


async def _jobs(call: CommandCall) -> list[Job]:
    return [
        job
        for job in await _cron(call).jobs()
        if job.session.agent == call.session.agent
        and (not call.is_group or job.session == call.session)
    ]


async def _list(call: CommandCall) -> str:
    jobs = await _jobs(call)
    if not jobs:
        return NONE
    now_ms = await call.fleet.scripts.now_ms()
    lines = [_line(job, call, now_ms) for job in jobs]
    return "\n".join([*lines, "", *await _warnings(call), USAGE])


async def _warnings(call: CommandCall) -> list[str]:
    return [] if await _cron(call).has_scheduler() else [NO_SCHEDULER, ""]


async def _add(call: CommandCall, text: str) -> str:
    zone, now_ms = zone_of_agent(call.config, call.session.agent), await call.fleet.scripts.now_ms()
    words, message = split_schedule(text, now_ms, zone) if text else ("", "")
    if not message:
        return HOW_TO_ADD.format(examples=EXAMPLES)
    if len(message) > MAX_TEXT_CHARS:
        return TOO_LONG.format(limit=MAX_TEXT_CHARS)
    job = new_job(
        JobSpec(schedule=ScheduleParams(words=words), message=message),
        id=job_name(None, _call_id(call)),
        session=call.session,
        author=Author((call.person,)),
        zone=zone,
        now_ms=now_ms,
    )
    await _calls(call).job(None, _call_id(call), job.id, before=None, after=job, effect=None)
    return "\n\n".join(
        [
            f"Added {_id(job)}: {_when(call, job)}, {_next(call, job, now_ms)}.",
            f"The agent is told “{_shown(job)}”, and its answer comes here. "
            f"`/cron remove {job.id[:SHOWN_DIGITS]}` takes it back.",
            *filter(None, await _warnings(call)),
        ]
    )


async def _enable(call: CommandCall, job: Job, *, enabled: bool) -> str:
    now_ms = await call.fleet.scripts.now_ms()
    after = changed_job(
        job,
        JobPatch(enabled=enabled),
        author=Author((call.person,)),
        zone=_zone(call, job),
        now_ms=now_ms,
    )
    await _calls(call).job(None, _call_id(call), job.id, before=job, after=after, effect=None)
    if not enabled:
        return f"Paused {_id(job)}: “{_shown(job)}”."
    return f"Resumed {_id(job)}: {_when(call, job)}, {_next(call, after, now_ms)}."


async def _pause(call: CommandCall, job: Job) -> str:
    return await _enable(call, job, enabled=False)


async def _resume(call: CommandCall, job: Job) -> str:
    return await _enable(call, job, enabled=True)


async def _run(call: CommandCall, job: Job) -> str:
    call_id = _call_id(call)
    now_ms = await call.fleet.scripts.now_ms()
    await _calls(call).run(None, call_id, job, job_name(None, call_id), now_ms=now_ms, effect=None)
    where = "comes here" if job.session == call.session else f"goes to {_place(job)}"
    return f"The agent is told “{_shown(job)}” now; its answer {where}."


async def _remove(call: CommandCall, job: Job) -> str:
    await _calls(call).job(None, _call_id(call), job.id, before=job, after=None, effect=None)
    return f"Removed {_id(job)}: {_when(call, job)}, “{_shown(job)}”."


_CHANGES: dict[str, Callable[[CommandCall, Job], Awaitable[str]]] = {
    "pause": _pause,
    "resume": _resume,
    "run": _run,
    "remove": _remove,
}


def _call_id(call: CommandCall) -> str:
    return f"{call.session.sid} cron {call.id}"


# -- text -----------------------------------------------------------------------------------------


def _line(job: Job, call: CommandCall, now_ms: int) -> str:
    """Return a job as an item of the list."""
    due = "paused" if not job.enabled else "is due no more"
    if job.next_ms is not None:
        due = f"next {_time(job.next_ms, _zone(call, job), now_ms)}"
    if job.running is not None:
        due = f"runs now, {due}"
    elif job.failures:
        due += f", failed {job.failures} times in a row"
    elsewhere = "" if job.session == call.session else f" → {_place(job)}"
    name = "" if job.message.startswith(job.name.rstrip("…")) else f"**{one_line(job.name)}**: "
    return f"- {_id(job)} {name}{_when(call, job)}, {due}{elsewhere}: “{_shown(job)}”"


def _when(call: CommandCall, job: Job) -> str:
    words = in_words(job.schedule)
    words = f"`{words}`" if words == job.schedule.cron else words
    return f"{words} ({_zone(call, job)})"


def _zone(call: CommandCall, job: Job) -> str:
    return job.schedule.tz or zone_of_agent(call.config, job.session.agent)


def _next(call: CommandCall, job: Job, now_ms: int) -> str:
    """Return the next due times of a job that was just written."""
    times = [_time(at_ms, _zone(call, job), now_ms) for at_ms in upcoming_of(job, now_ms)]
    return f"next {', '.join(times)}"


def _time(at_ms: int, zone: str, now_ms: int) -> str:
    at = local_time(at_ms, zone)
    year = "" if at.year == local_time(now_ms, zone).year else f" {at.year}"
    return f"{at:%a} {at.day} {at:%b}{year} {at:%H:%M}"


def _id(job: Job) -> str:
    return f"`{job.id[:SHOWN_DIGITS]}`"


def _place(job: Job) -> str:
    return f"{job.session.provider}:{job.session.channel_id}"


def _shown(job: Job) -> str:
    return one_line(job.message, max_chars=MAX_SHOWN_CHARS)
