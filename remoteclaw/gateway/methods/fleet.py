"""Handlers of methods about the whole fleet."""

import asyncio
import os
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from remoteclaw import __version__
from remoteclaw.bridge.scrubber import Scrubber, secrets_of
from remoteclaw.channels.web.profile import CHANNEL
from remoteclaw.clock import now_ms
from remoteclaw.config.home import Home
from remoteclaw.config.model import Config
from remoteclaw.errors import CallRefused
from remoteclaw.fleet import Fleet, keys
from remoteclaw.fleet.account_states import AccountState, configured_accounts
from remoteclaw.fleet.drains import drain_problem
from remoteclaw.fleet.pools import pool_problems
from remoteclaw.fleet.processes import HostProcess, shown_names, version_problem
from remoteclaw.fleet.replies.deadletters import DeadLetter
from remoteclaw.fleet.restores import paused_problem
from remoteclaw.fleet.sessions.sessions import SessionView
from remoteclaw.fleet.workers import NO_SWEEPER, WorkerView, no_worker_problem
from remoteclaw.gateway.call import Call, Handler
from remoteclaw.gateway.failing_agents import failing_agents
from remoteclaw.holder.runs import warm_agents
from remoteclaw.host.process import run_to_end
from remoteclaw.messages import DEFAULT_ACCOUNT
from remoteclaw.tools import fleet as contract
from remoteclaw.tools.base import NoParams

#: The status lists at most this many sessions with work.
MAX_SESSIONS = 50
#: At most this many characters of a dead letter's text are shown.
MAX_LETTER_CHARS = 300
#: How long the doctor may take, in seconds: less than a call, which may take 120 s. A CLI that
#: hangs delays it by 20 s.
DOCTOR_S = 110.0
#: The maximum size of the doctor's output, in bytes: more than it ever prints.
MAX_DOCTOR_BYTES = 1_000_000
#: With -P, Python imports no modules from the directory in which the gateway was started.
DOCTOR = (sys.executable, "-P", "-m", "remoteclaw.cli", "doctor", "--json")

#: The running doctor of each state directory. Calls during its run wait for the same result.
_running: dict[Path, asyncio.Task[contract.DoctorResult]] = {}


async def _status(call: Call, _params: NoParams) -> contract.FleetResult:
    fleet = call.fleet
    workers = await fleet.workers.list()
    count, busy = await fleet.sessions.busy(limit=MAX_SESSIONS)
    # The page's account is not configured; gateways deliver for it.
    adapters = await configured_accounts(fleet, call.config, also=((CHANNEL, DEFAULT_ACCOUNT),))
    counts = await fleet.sessions.counts()
    used = await fleet.usage.of_today(call.config.fleet.timezone)
    processes, drained = await fleet.processes.list(), await fleet.drains.hosts()
    memory = await fleet.scripts.memory()
    names = shown_names(processes)
    paused = paused_problem(await fleet.restores.paused_from())
    drains = drain_problem(drained, call.home.host_id)
    failing, at_ms = await fleet.failed_turns.by_agent(), now_ms()
    return contract.FleetResult(
        at_ms=at_ms,
        host=names.get(call.home.host_id, call.config.fleet.name_of_host),
        running=counts.running,
        waiting=counts.waiting,
        waiting_since_ms=counts.waiting_since_ms,
        postponed=counts.postponed,
        free_workers=sum(view.is_ours and view.state == "idle" for view in workers),
        open_requests=len(await fleet.requests.waiting()),
        today=contract.Today.of(used),
        hosts=tuple(_hosts(processes, drained)),
        memory=contract.RedisMemory(used_bytes=memory.used, limit_bytes=memory.limit),
        problems=(
            *await _general_problems(
                call,
                redis=memory.problem,
                drained=drains,
                paused=paused,
                versions=version_problem(processes, call.home.host_id),
            ),
            *(() if paused else _worker_problems(call.config, workers, drains)),
            *_adapter_problems(adapters),
            *(
                contract.Problem(subject=f"turns of {agent.agent}", text=text)
                for agent in failing
                if (text := agent.problem(at_ms))
            ),
        ),
        failing=await failing_agents(
            failing,
            fleet.failed_turns,
            fleet.sessions,
            hosts=names,
            scrubber=Scrubber(secrets_of(call.config)),
        ),
        lanes=_lanes(workers, await fleet.workers.hints()),
        workers=tuple(worker_of(view, busy, names) for view in workers),
        gateway=await fleet.gateways.address(call.home.host_id),
        busy_sessions=count,
        sessions=await busy_sessions(fleet, busy),
        agents=await _warm_agents(fleet, call.home),
        adapters=tuple(_adapter(state) for state in adapters),
        dead_letters=await fleet.dead_letters.count(),
    )


def _hosts(processes: Sequence[HostProcess], drained: Mapping[str, int]) -> Iterator[contract.Host]:
    for host_id, name in shown_names(processes).items():
        own = [each for each in processes if each.host_id == host_id]
        kinds = [each.kind for each in own]
        yield contract.Host(
            id=host_id,
            name=name,
            workers=kinds.count("worker"),
            gateways=kinds.count("gateway"),
            sweepers=kinds.count("sweeper"),
            channels=kinds.count("channels"),
            versions=tuple(sorted({each.version for each in own})),
            drained_ms=drained.get(host_id),
        )


async def _general_problems(call: Call, **known: str | None) -> Sequence[contract.Problem]:
    """Return problems that are about no worker and no account; `known` are those by subject."""
    config = watched.problem if (watched := call.watched_config) else None
    is_swept = known.get("paused") or await call.fleet.workers.has_sweeper()
    sweeper = None if is_swept else NO_SWEEPER
    problems = {"configuration": config, "sweeper": sweeper, **known}
    return [contract.Problem(subject=name, text=text) for name, text in problems.items() if text]


def _worker_problems(
    config: Config, workers: Sequence[WorkerView], drained: str | None
) -> Iterator[contract.Problem]:
    if not any(view.is_ours for view in workers):
        yield contract.Problem(subject="workers", text=no_worker_problem(drained))
    for view in workers:
        if view.problem:
            yield contract.Problem(subject="workers", text=view.problem)
    for agent, problem in pool_problems(config, workers).items():
        yield contract.Problem(subject=f"agent {agent}", text=problem)


def _adapter_problems(adapters: Sequence[AccountState]) -> Iterator[contract.Problem]:
    for state in adapters:
        if state.problem:
            yield contract.Problem(subject=f"channel {state.account}", text=state.problem)


def _lanes(
    workers: Sequence[WorkerView], hints: Mapping[str, int]
) -> tuple[contract.LaneLoad, ...]:
    served = [lane for view in workers for lane in _served_lanes(view)]
    return tuple(
        contract.LaneLoad(name=lane, workers=served.count(lane), hints=hints.get(lane, 0))
        for lane in dict.fromkeys([*hints, *served])
    )


def _served_lanes(view: WorkerView) -> tuple[str, ...]:
    """Return the lanes that a worker serves, for all hosts or for its own host only."""
    return tuple(
        dict.fromkeys(queue.partition("@")[0] for queue in view.queues if keys.is_lane(queue))
    )


def worker_of(
    view: WorkerView, busy: Sequence[SessionView], names: Mapping[str, str]
) -> contract.Worker:
    """Return a worker as operators see it, with the one of the `busy` sessions that it serves.

    `names` are those of hosts, by their ids.
    """
    sid = view.session
    session = next((each for each in busy if sid and each.sid.startswith(sid)), None)
    return contract.Worker.of(
        view,
        host=names.get(view.host_id, view.host),
        lanes=_served_lanes(view),
        session_key=str(session.key) if session else None,
        since_ms=session.busy_since_ms if session else None,
    )


def _state_of(view: SessionView) -> Literal["scheduled", "running", "terminal"]:
    if view.shown_status == "terminal":
        return "terminal"
    return "running" if view.status == "running" else "scheduled"


async def busy_sessions(
    fleet: Fleet, busy: Sequence[SessionView]
) -> tuple[contract.SessionAtWork, ...]:
    """Return sessions with work as operators see them."""
    waiting_since = await fleet.sessions.waiting_since(busy)
    return tuple(
        contract.SessionAtWork.of(
            view,
            key=str(view.key),
            agent=view.key.agent,
            state=_state_of(view),
            since_ms=view.busy_since_ms if view.status == "running" else since,
        )
        for view, since in zip(busy, waiting_since, strict=True)
    )


async def _warm_agents(fleet: Fleet, home: Home) -> tuple[contract.WarmAgentInfo, ...]:
    warm = await asyncio.to_thread(warm_agents, home.runs)
    sessions = await fleet.sessions.by_agent_path() if warm else {}
    return tuple(
        contract.WarmAgentInfo(
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


async def _list_letters(call: Call, params: contract.LettersParams) -> contract.LettersResult:
    dead_letters = call.fleet.dead_letters
    letters = await dead_letters.list(limit=params.limit)
    return contract.LettersResult(
        letters=tuple(_letter(letter) for letter in letters), count=await dead_letters.count()
    )


def _letter(letter: DeadLetter) -> contract.Letter:
    return contract.Letter.of(
        letter,
        session_key=str(letter.session) if letter.session else None,
        account=letter.account or None,
        text=letter.text if letter.text is None else letter.text[:MAX_LETTER_CHARS],
        files=len(letter.attachments),
    )


async def _show_letter(call: Call, params: contract.LetterParams) -> contract.LetterDetails:
    letter = await call.fleet.dead_letters.read(params.id)
    return contract.LetterDetails.of(
        letter,
        session_key=str(letter.session) if letter.session else None,
        account=letter.account or None,
        reference=_reference(letter),
        files=len(letter.attachments),
        attachments=tuple(map(contract.LetterFile.of, letter.attachments)),
    )


def _reference(letter: DeadLetter) -> str | None:
    """Return the reference of the message that `letter` holds, or that its reply answers."""
    if letter.reply:
        return f"{letter.reply.sid[:8]}-{letter.reply.turn}"
    return f"{letter.session.sid[:8]}-{letter.entry_id}" if letter.session else None


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


# -- the doctor ------------------------------------------------------------------------------------


async def _doctor(call: Call, _params: NoParams) -> contract.DoctorResult:
    home = call.home
    task = _running.get(home.path)
    if task is None:
        task = _running[home.path] = asyncio.create_task(_run_doctor(home))
        task.add_done_callback(lambda _: _running.pop(home.path))
    return await asyncio.shield(task)


async def _run_doctor(home: Home) -> contract.DoctorResult:
    """Run the command `remoteclaw doctor`, which starts agent CLIs and waits for them."""
    env = {**os.environ, "REMOTECLAW_HOME": str(home.path)}
    try:
        _, printed = await run_to_end(
            DOCTOR, env=env, timeout_s=DOCTOR_S, max_bytes=MAX_DOCTOR_BYTES
        )
        return contract.DoctorResult.model_validate_json(printed, by_alias=True)
    except TimeoutError:
        raise _doctor_refusal(f"took longer than {DOCTOR_S:.0f} s") from None
    except (OSError, ValidationError) as error:
        raise _doctor_refusal(f"failed ({type(error).__name__})") from None


def _doctor_refusal(problem: str) -> CallRefused:
    host = socket.gethostname()
    return CallRefused("UNAVAILABLE", f"The doctor {problem}: run `remoteclaw doctor` on {host}.")


# -- health and agents -----------------------------------------------------------------------------


async def _health(_call: Call, _params: NoParams) -> contract.Health:
    return contract.Health(status="ok", version=__version__)


async def _agents(call: Call, _params: NoParams) -> contract.AgentsResult:
    own = call.session.agent if call.session else None
    return contract.AgentsResult(
        agents=tuple(
            contract.AgentSummary(
                id=name,
                runtime=settings.runtime or "the first that is installed",
                model=settings.model,
                is_self=name == own,
            )
            for name, settings in call.config.agents.items()
        )
    )


HANDLERS: Mapping[str, Handler] = {
    "agents.list": _agents,
    "health": _health,
    "fleet.status": _status,
    "deadletters.list": _list_letters,
    "deadletters.show": _show_letter,
    "deadletters.retry": _retry,
    "deadletters.drop": _drop,
    "doctor": _doctor,
}
