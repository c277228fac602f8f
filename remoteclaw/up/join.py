"""Checks whether this host can join a fleet, before it takes a message."""

from collections.abc import AsyncIterator, Sequence

from remoteclaw.clock import format_duration, now_ms
from remoteclaw.config.home import Home
from remoteclaw.config.model import Config
from remoteclaw.fleet import Fleet
from remoteclaw.fleet.processes import HostProcess, shown_names
from remoteclaw.host.terminal import one_line
from remoteclaw.host.version import VERSION
from remoteclaw.up.agents import agent_problem, describe_agent, sign_in_problem_of
from remoteclaw.up.doctor import Finding, shared_host_problem

#: The largest difference of the clocks that people don't notice, in seconds: the times in messages
#: and on the page are this host's, those of leases and cron jobs are Redis'.
MAX_CLOCK_S = 2.0
#: The number of the newest conversations whose agents this host has to know.
MAX_SESSIONS = 500


async def examine_join(
    fleet: Fleet, home: Home, config: Config, label: str
) -> AsyncIterator[Finding]:
    """Yield what this host has and lacks to work in a fleet, whose Redis is fit.

    `label` is that of its workers; the agents of other labels are not needed here.
    """
    processes = await fleet.processes.list()
    yield _hosts(processes, home)
    yield _versions([each for each in processes if each.host_id != home.host_id])
    yield await _clock(fleet)
    if not home.config_file.exists():
        yield Finding(
            "configuration",
            False,
            f"{home.config_file} does not exist: copy that of another host, or else its agents "
            "work here with other settings and in other directories (an empty file means that "
            "there are none).",
        )
    if problem := shared_host_problem(home, await fleet.workers.list()):
        yield Finding("host id", False, problem)
    known = {view.key.agent for view in await fleet.sessions.list(limit=MAX_SESSIONS)}
    for name in sorted(known - config.agents.keys()):
        yield Finding(
            f"agent {one_line(name)}",
            False,
            f"the fleet has conversations with it, and {home.config_file} has no such agent: copy "
            "the configuration of another host.",
        )
    for name, agent in config.agents.items():
        if (agent.runs_on or "") != label:
            which = f"with the label {agent.runs_on}" if agent.runs_on else "without a label"
            text = f"runs on workers {which}, not here"
            yield Finding(f"agent {name}", True, text, absent=True)
            continue
        problem = agent_problem(home, name, agent) or sign_in_problem_of(agent)
        yield Finding(f"agent {name}", not problem, problem or describe_agent(home, name, agent))


def _hosts(processes: Sequence[HostProcess], home: Home) -> Finding:
    names = shown_names(processes)
    others = sorted(one_line(name) for host, name in names.items() if host != home.host_id)
    return Finding("hosts", True, ", ".join(others) or "no other one runs", absent=not others)


def _versions(others: Sequence[HostProcess]) -> Finding:
    versions = sorted({each.version for each in others} - {VERSION})
    if not versions:
        return Finding("version", True, VERSION)
    return Finding(
        "version",
        False,
        f"{VERSION} here, and {', '.join(map(one_line, versions))} in the fleet: install the same "
        "one on all hosts.",
    )


async def _clock(fleet: Fleet) -> Finding:
    sent_ms = now_ms()
    server_ms = await fleet.scripts.now_ms()
    off_s = (server_ms - (sent_ms + now_ms()) / 2) / 1000  # question and answer take as long
    if abs(off_s) <= MAX_CLOCK_S:
        return Finding("clock", True, "as that of Redis")
    direction = "behind" if off_s > 0 else "ahead of"
    duration = format_duration(int(abs(off_s) * 1000))
    return Finding(
        "clock", False, f"this host is {duration} {direction} Redis: synchronize it, as with NTP."
    )
