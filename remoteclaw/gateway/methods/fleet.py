"""Handlers of the methods about the fleet as a whole."""

import asyncio
import os
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from remoteclaw.clock import now_ms
from remoteclaw.config.home import Home
from remoteclaw.errors import CallRefused
from remoteclaw.fleet import Fleet, keys
from remoteclaw.fleet.adapters import AccountState, accounts_here
from remoteclaw.fleet.deadletters import DeadLetter
from remoteclaw.fleet.sessions import SessionView
from remoteclaw.fleet.usage import added_up
from remoteclaw.fleet.workers import NO_SWEEPER, NO_WORKER, WorkerView
from remoteclaw.gateway.call import Call, Handler
from remoteclaw.gateway.page.chats import CHANNEL
from remoteclaw.holder.runs import warm_agents
from remoteclaw.host.process import run_to_end
from remoteclaw.messages import DEFAULT_ACCOUNT
from remoteclaw.tools import fleet as contract
from remoteclaw.tools.base import NoParams

#: The most sessions at work that are told of one by one.
MAX_SESSIONS = 50
#: How much of a dead letter's text is shown, in characters.
MAX_CHARS = 300
#: How long the doctor may take, in seconds: a call has 120. A CLI that hangs costs it 20.
EXAMINE_S = 110.0
#: More than it ever prints, in bytes.
MAX_BYTES = 1_000_000
#: -P, so that no file of the directory in which the gateway was started is taken for a module.
DOCTOR = (sys.executable, "-P", "-m", "remoteclaw.cli", "doctor", "--json")
_FINDINGS = TypeAdapter(tuple[contract.Finding, ...])

#: What runs, by its state directory: who asks meanwhile waits for the same.
_running: dict[Path, asyncio.Task[contract.DoctorResult]] = {}
#: How many agents or sessions are told: those who took most.
MAX_ROWS = 1000


async def _status(call: Call, _params: NoParams) -> contract.FleetResult:
    fleet = call.fleet
    workers = await fleet.workers.list()
    count, busy = await fleet.sessions.busy(limit=MAX_SESSIONS)
    # The page's own chats are in no configuration: gateways deliver for them.
    adapters = await accounts_here(fleet, call.config, also=((CHANNEL, DEFAULT_ACCOUNT),))
    return contract.FleetResult(
        at_ms=now_ms(),
        problems=(*await _problems(call), *_worker_problems(workers), *_lame(adapters)),
        lanes=_lanes(workers, await fleet.workers.hints()),
        workers=tuple(_worker(view, busy) for view in workers),
        busy_sessions=count,
        sessions=await _at_work(fleet, busy),
        agents=await _warm(fleet, call.home),
        adapters=tuple(_adapter(state) for state in adapters),
        dead_letters=await fleet.dead_letters.count(),
    )


async def _problems(call: Call) -> Sequence[contract.Problem]:
    config = watched.problem if (watched := call.watched_config) else None
    memory = (await call.fleet.scripts.memory()).problem
    sweeper = None if await call.fleet.workers.have_sweeper() else NO_SWEEPER
    found = {"configuration": config, "redis": memory, "sweeper": sweeper}
    return [contract.Problem(subject=name, text=text) for name, text in found.items() if text]


def _worker_problems(workers: Sequence[WorkerView]) -> Iterator[contract.Problem]:
    if not any(view.is_ours for view in workers):
        yield contract.Problem(subject="workers", text=NO_WORKER)
    for view in workers:
        if view.problem:
            yield contract.Problem(subject="workers", text=view.problem)


def _lame(adapters: Sequence[AccountState]) -> Iterator[contract.Problem]:
    for state in adapters:
        if state.problem:
            yield contract.Problem(subject=f"channel {state.account}", text=state.problem)


def _lanes(
    workers: Sequence[WorkerView], hints: Mapping[keys.Lane, int]
) -> tuple[contract.LaneLoad, ...]:
    served = [lane for view in workers for lane in _served(view)]
    return tuple(
        contract.LaneLoad(name=lane, workers=served.count(lane), hints=count)
        for lane, count in hints.items()
    )


def _served(view: WorkerView) -> tuple[str, ...]:
    """Return the lanes that a worker serves, whether for all hosts or for its own."""
    queues = {queue.partition("@")[0] for queue in view.queues}
    return tuple(lane for lane in keys.LANES if lane in queues)


def _worker(view: WorkerView, busy: Sequence[SessionView]) -> contract.Worker:
    session = next((one for one in busy if view.session and one.sid.startswith(view.session)), None)
    return contract.Worker.of(
        view,
        lanes=_served(view),
        session_key=str(session.key) if session else None,
        since_ms=session.busy_since_ms if session else None,
    )


async def _at_work(fleet: Fleet, busy: Sequence[SessionView]) -> tuple[contract.SessionAtWork, ...]:
    waiting_since = await fleet.sessions.waiting_since(busy)
    return tuple(
        contract.SessionAtWork.of(
            view,
            key=str(view.key),
            agent=view.key.agent,
            state="running" if view.status == "running" else "scheduled",
            since_ms=view.busy_since_ms if view.status == "running" else since,
        )
        for view, since in zip(busy, waiting_since, strict=True)
    )


async def _warm(fleet: Fleet, home: Home) -> tuple[contract.WarmAgent, ...]:
    warm = await asyncio.to_thread(warm_agents, home.runs)
    sessions = await fleet.sessions.of_agents() if warm else {}
    return tuple(
        contract.WarmAgent(
            session_key=str(session) if (session := sessions.get(agent.path)) else None,
            since_ms=agent.since_ms,
            memory_bytes=agent.memory_bytes,
        )
        for agent in warm
    )


def _adapter(state: AccountState) -> contract.Adapter:
    return contract.Adapter.of(
        state,
        by=contract.AdapterProcess.of(state.by) if state.by else None,
        standbys=tuple(map(contract.AdapterProcess.of, state.standbys)),
    )


# -- dead letters ----------------------------------------------------------------------------------


async def _letters(call: Call, params: contract.LettersParams) -> contract.LettersResult:
    letters = call.fleet.dead_letters
    found = await letters.list(limit=params.limit)
    return contract.LettersResult(
        letters=tuple(_letter(letter) for letter in found), count=await letters.count()
    )


def _letter(letter: DeadLetter) -> contract.Letter:
    return contract.Letter.of(
        letter,
        session_key=str(letter.session) if letter.session else None,
        account=letter.account or None,
        text=letter.text if letter.text is None else letter.text[:MAX_CHARS],
        files=len(letter.attachments),
    )


async def _retry(call: Call, params: contract.LetterParams) -> contract.Retried:
    letter, accepted = await call.fleet.dead_letters.try_again(params.id)
    return contract.Retried(
        session_key=str(letter.session) if letter.session else None,
        run_id=f"{accepted.session.sid}-{accepted.entry_id}" if accepted else None,
        account=letter.account or None,
    )


async def _drop(call: Call, params: contract.LetterParams) -> contract.Dropped:
    await call.fleet.dead_letters.drop(params.id)
    return contract.Dropped(id=params.id)


# -- the doctor: the command itself, since it starts agent CLIs and waits for them -----------------


async def _doctor(call: Call, _params: NoParams) -> contract.DoctorResult:
    home = call.home
    task = _running.get(home.path)
    if task is None:
        task = _running[home.path] = asyncio.create_task(_examine(home))
        task.add_done_callback(lambda _: _running.pop(home.path))
    return await asyncio.shield(task)


async def _examine(home: Home) -> contract.DoctorResult:
    env = {**os.environ, "REMOTECLAW_HOME": str(home.path)}
    try:
        _, printed = await run_to_end(DOCTOR, env=env, timeout_s=EXAMINE_S, most_bytes=MAX_BYTES)
        findings = _FINDINGS.validate_json(printed)
    except TimeoutError:
        raise _refused(f"took longer than {EXAMINE_S:.0f} s") from None
    except (OSError, ValidationError) as error:
        raise _refused(f"failed ({type(error).__name__})") from None
    return contract.DoctorResult(host=socket.gethostname(), at_ms=now_ms(), findings=findings)


def _refused(what: str) -> CallRefused:
    where = socket.gethostname()
    return CallRefused("UNAVAILABLE", f"The doctor {what}: run `remoteclaw doctor` on {where}.")


# -- usage -----------------------------------------------------------------------------------------


async def _usage(call: Call, params: contract.UsageParams) -> contract.UsageResult:
    sums = added_up(await call.fleet.usage.days(days=params.days), by=params.by)
    told = list(sums.items())[:MAX_ROWS]
    sids = [name.encode() for name, _ in told if params.by == "session"]
    views = {view.sid: view for view in await call.fleet.sessions.views(sids)}
    return contract.UsageResult(
        rows=tuple(
            contract.UsageRow.of(
                used,
                name=str(view.key) if (view := views.get(name)) else name,
                title=view.name if view else None,
            )
            for name, used in told
        )
    )


HANDLERS: Mapping[str, Handler] = {
    "fleet.status": _status,
    "deadletters.list": _letters,
    "deadletters.retry": _retry,
    "deadletters.drop": _drop,
    "doctor": _doctor,
    "usage": _usage,
}
