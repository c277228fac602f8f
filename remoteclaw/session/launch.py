"""The launch of an agent: its run directory, its command line and its holder."""

import asyncio
import contextlib
import os
import secrets
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from remoteclaw.config.home import Home, private_directory
from remoteclaw.config.model import FleetConfig
from remoteclaw.errors import AgentUnavailable, ErrorCategory, StateDirectoryError
from remoteclaw.holder.client import HolderClient, HolderLaunch
from remoteclaw.holder.runs import make_room, run_name
from remoteclaw.holder.wire import LaunchFailed
from remoteclaw.host.files import share_text
from remoteclaw.protocols import FILES, AgentSpec
from remoteclaw.runtimes import create_cli_runtime

#: The environment variable by which the agents of `up`'s workers are bound to `up`.
LIFELINE = "REMOTECLAW_LIFELINE"
#: The environment variable by which the warm agents of all other workers end with the last of them.
OF_WORKERS = "REMOTECLAW_WORKERS_LIFELINE"
#: The prefix of the run directories of the agents of `up`, which waits for them when it ends.
UP_PREFIX = "up"


def open_lifeline(home: Home) -> None:
    """Bind the warm agents that this worker leaves to the workers of this state directory.

    The FIFO stays open until this process and its work-horses have ended. `up` has its own.
    """
    if os.environ.get(LIFELINE):
        return
    path = home.sockets / "workers"
    with contextlib.suppress(FileExistsError):
        os.mkfifo(path, 0o600)
    os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    os.environ[OF_WORKERS] = str(path)


@dataclass(frozen=True, slots=True)
class Launched:
    """An agent that runs in a holder."""

    holder: HolderClient
    key: str
    """The secret that a client shows the holder."""
    session_id: str | None
    """The id of its conversation; None if it is not known yet."""


async def launch_agent(
    home: Home,
    budget: FleetConfig,
    spec: AgentSpec,
    *,
    session_id: str | None,
    fork: bool,
    epoch: int,
    deadline: Callable[[], float],
) -> Launched:
    """Start an agent that continues the conversation `session_id`, or with `fork` copies it.

    `deadline` returns the time, on `boottime()`, until which the holder keeps it without a beat.
    Raises `AgentUnavailable`.
    """
    lifeline, prefix, leave_s = os.environ.get(LIFELINE, ""), UP_PREFIX, 0.0
    if not lifeline:
        lifeline, prefix, leave_s = os.environ.get(OF_WORKERS, ""), "", budget.leave_s
    name = run_name(prefix)
    try:
        run_dir = await asyncio.to_thread(_make_run_dir, home.runs, name, budget)
    except (StateDirectoryError, OSError) as error:
        raise _unavailable(str(error)) from None
    try:
        runtime = create_cli_runtime(spec.runtime)
        launch = runtime.launch(spec, session_id=session_id, fork=fork, run_dir=run_dir)
        if launch.prompt_file:
            text = spec.system_prompt.encode("utf-8", "replace")
            link = run_dir / launch.prompt_file.name
            await asyncio.to_thread(share_text, launch.prompt_file, text, link)
        key = secrets.token_hex(16)
        holder_launch = HolderLaunch(
            argv=launch.argv,
            env=launch.env,
            cwd=launch.cwd,
            run_dir=run_dir,
            key=key,
            lifeline=lifeline,
            leave_s=leave_s,
        )
        holder = await HolderClient.start(holder_launch, epoch=epoch, deadline=deadline())
    except Exception as error:
        shutil.rmtree(run_dir, ignore_errors=True)
        if not isinstance(error, (LaunchFailed, OSError, EOFError)):
            raise
        # TimeoutError is an OSError; EOFError means that the holder itself did not start.
        why = str(error) or type(error).__name__
        if not await asyncio.to_thread(Path(spec.workspace).is_dir):
            why = f"its workspace {spec.workspace} does not exist"
        raise _unavailable(f"{spec.command[0]} could not be started: {why}.") from None
    return Launched(holder, key, launch.session_id)


def _make_run_dir(runs: Path, name: str, budget: FleetConfig) -> Path:
    reserve = budget.reserve_mb * 1024 * 1024
    with make_room(runs, max_agents=budget.max_agents, reserve_bytes=reserve):
        run_dir = private_directory(runs / name)
        (run_dir / FILES).mkdir(mode=0o700)
        return run_dir


def _unavailable(why: str) -> AgentUnavailable:
    return AgentUnavailable(why, category=ErrorCategory.NOT_INSTALLED)
